"""Three verdicts, their words, their colours and their exit codes; and both views of a fit."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from curvedp.audit import Attack, AuditReport, audit_plan, views, write_html, write_png
from curvedp.audit.accounted import CountedDraws
from curvedp.audit.fits.recentered import Drawn
from curvedp.audit.power import POWER
from curvedp.budget import Budget
from curvedp.cli.checks import VERDICTS, worst_exit_code
from curvedp.domain import Domain
from curvedp.losses import Squared
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameters
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.rows.base import Layout

PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))
EPSILON, DELTA = 1.0, 1e-2
MU = calibrate_mu(EPSILON, DELTA)

REPORT = AuditReport(
    "qop",
    "directional",
    "(P-6)",
    "replace",
    "squared",
    2,
    1.0,
    1e-3,
    0.99,
    5000,
    1.5,
    True,
    7,
    (),
    0.9,
    40_000,
)
ATTACK = Attack("pair", "D against D'", "score", 1000, 0.4, 0.1, 0.7, 1e-4)


def proving(epsilon: float, **others: object) -> AuditReport:
    return replace(REPORT, attacks=(replace(ATTACK, epsilon=epsilon),), **others)


@pytest.mark.parametrize(
    ("epsilon", "verdict", "code", "colour"),
    [
        (1.0001, "refuted", 1, "red"),
        (math.inf, "refuted", 1, "red"),
        (1.0, "held", 0, "green"),
        (POWER, "held", 0, "green"),
        (POWER - 1e-9, "inconclusive", 3, "yellow"),
        (-math.inf, "inconclusive", 3, "yellow"),
    ],
)
def test_a_verdict_follows_from_what_was_proved(epsilon, verdict, code, colour):
    report = proving(epsilon)
    assert (report.verdict, report.exit_code, VERDICTS[report.verdict]) == (verdict, code, (code, colour))
    assert report.proved == max(0.0, epsilon) and report.share == max(0.0, epsilon) / 1.0
    assert report.sentence.lower().startswith(verdict)
    assert bool(report.reason) == (verdict == "inconclusive")


def test_a_delta_beyond_the_claim_refutes_too():
    assert replace(REPORT, attacks=(replace(ATTACK, delta=2e-3),)).verdict == "refuted"
    assert "δ ≥ 0.002" in replace(REPORT, attacks=(replace(ATTACK, delta=2e-3),)).sentence


def test_an_inconclusive_audit_says_what_is_missing():
    assert "About 40,000 fits are needed" in proving(0.2).reason and "5,000 were made" in proving(0.2).reason
    assert "reaches, about 0.30 of the claim" in proving(0.2, reach=0.3, needed=None).reason
    assert "not finished" in replace(REPORT, reach=None, needed=None).reason
    assert "proved 0.87 of the claimed ε = 1" in proving(0.87).sentence


def test_the_exit_code_of_many_is_that_of_the_worst():
    held, open_, refuted = proving(0.9), proving(0.1), proving(1.2)
    assert [
        worst_exit_code(found) for found in ([held, held], [held, open_], [open_, refuted, held], [])
    ] == [0, 3, 1, 0]


def test_what_each_attacker_saw_is_told_apart(tmp_path):
    seen = replace(ATTACK, epsilon=0.8, sees="everything released")
    report = replace(REPORT, attacks=(seen, replace(ATTACK, epsilon=0.3)))
    assert (report.proved, report.proved_of("everything released"), report.proved_of("what leaves")) == (
        0.8,
        0.8,
        0.3,
    )
    assert proving(0.3).proved_of("everything released") is None
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (told["verdict"], told["share"], told["needed"], told["reach"]) == ("held", 0.8, 40_000, 0.9)
    assert (told["proved_everything_released"], told["proved_what_leaves"]) == (0.8, 0.3)
    assert [a["sees"] for a in told["attacks"]] == ["everything released", "what leaves"]
    assert json.loads(json.dumps(proving(math.inf).to_dict(), allow_nan=False))["proved"] is None
    for name, found, words in [
        ("held", [report], ('class="box good"', "proved 0.80 of the claimed", "from everything released")),
        ("open", [proving(0.1)], ('class="box warn"', "Inconclusive", "40,000 fits")),
        ("refuted", [proving(1.5)], ('class="box bad"', "Refuted: an attack proves ε ≥ 1.5")),
        (
            "many",
            [report, proving(0.1), proving(1.5)],
            ("1 of 3 claims refuted, 1 held by an attack with power, 1 in",),
        ),
    ]:
        write_html(found, tmp_path / f"{name}.html")
        page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert all(word in page for word in words), (name, words)
        write_png(found, tmp_path / f"{name}.png")


@dataclass(frozen=True)
class Toy:
    """One number with Gaussian noise; what is released on the way is another one, which the first hides."""

    @property
    def layout(self) -> Layout:
        return Layout(PROBLEM.domain, 2)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            budget=Budget(EPSILON, DELTA),
            neighbours=PROBLEM.domain.neighbours,
            mechanism="toy",
            accounting="gaussian",
            theorem="toy",
            parameters=Parameters(),
            profile=GaussianProfile(MU),
        )

    def release(self, rows, random):
        raise AssertionError("a law that is known is not released one at a time")


@dataclass(frozen=True, eq=False)
class Known(CountedDraws):
    """Everything released: N(±μ/2, 1). What leaves: the same with as much noise again. L may be wrong."""

    mu: float
    wrong: bool = False
    calls: list[str] = field(default_factory=list)

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        rng = np.random.default_rng(seed)
        seen = (side - 0.5) * self.mu + rng.standard_normal(n)
        ratio = np.sin(40 * seen) if self.wrong else self.mu * seen
        return Drawn(np.column_stack([seen + rng.standard_normal(n), rng.standard_normal(n)]), ratio)

    def count(self, *arguments):
        self.calls.append("count")
        return super().count(*arguments)


def attacked(monkeypatch, law: Known, **options) -> AuditReport:
    monkeypatch.setattr(views, "accounted", lambda plan, pair, engine: law)
    return audit_plan(Toy(), PROBLEM, device="cpu", **({"fits": 200_000} | options))


def test_everything_released_shows_more_than_what_leaves(monkeypatch):
    law = Known(MU)
    report = attacked(monkeypatch, law)
    assert report.verdict == "held" and 0.75 < report.proved < EPSILON
    leaves = report.proved_of("what leaves")
    assert report.proved_of("everything released") == report.proved > leaves + 0.1 > 0.2
    assert len(report.attacks) == 4 and len(law.calls) >= 40  # two views, two directions; nothing is stored
    assert report.reach == pytest.approx(EPSILON, rel=0.05)
    assert report.complete and 200_000 <= report.fits < 210_000


def test_too_little_noise_is_refuted_from_what_is_released_on_the_way_and_sound_noise_is_not(monkeypatch):
    planted = attacked(monkeypatch, Known(1.35 * MU))
    assert planted.verdict == "refuted" and planted.proved_of("what leaves") < EPSILON
    for seed in range(8):
        assert attacked(monkeypatch, Known(MU), fits=20_000, seed=seed).verdict != "refuted"


def test_a_wrong_ratio_loses_power_and_refutes_nothing(monkeypatch):
    for seed in range(8):
        report = attacked(monkeypatch, Known(MU, wrong=True), fits=20_000, seed=seed)
        assert report.verdict != "refuted" and report.proved_of("everything released") < 0.5


def test_the_number_of_fits_may_be_left_to_the_audit(monkeypatch):
    """As many as show nearly all: more for a weak law, and not more than ten million."""
    strong = attacked(monkeypatch, Known(MU), fits=None)
    assert strong.verdict == "held" and 0.85 < strong.share < 1.0
    assert strong.needed is not None and strong.needed < strong.fits < 2_000_000
    few = attacked(monkeypatch, Known(MU), fits=strong.needed // 8)
    assert few.verdict == "inconclusive" and few.reason.startswith("About ")
    weak = attacked(monkeypatch, Known(0.3 * MU), fits=60_000)
    assert weak.verdict == "inconclusive" and weak.needed is None
    assert "No number of fits" in weak.reason and weak.reach < POWER
