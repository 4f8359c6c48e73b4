"""The audit as a whole: tight where the theory is, resumable, punctual; and no claim of ours is beaten."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from curvedp import catalogue
from curvedp.audit import Attack, AuditReport, audit, audit_plan, write_html, write_png
from curvedp.audit.grid import ADJACENCIES, FEATURES, FEWER, audit_grid, cells, entrants
from curvedp.audit.pairs import worst_pairs
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Squared
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.qop import QOP
from curvedp.mechanisms.statistics import Statistics
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameters
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.rows.base import Layout

PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))
MU = calibrate_mu(1.0, 0.02)


def test_directional_accounting_is_tight_by_exact_densities():
    """Squared loss, a record removed, m − d + 1 ≥ 100: at least 0.9 of the claimed ε is really spent."""
    mechanism = QOP(accounting="directional", m=150.0)
    report = audit(mechanism, budget=Budget(1.0, 1e-4), features=1, problem=PROBLEM, fits=1000)
    assert 0.9 < report.epsilon_lower <= 1.0
    assert report.attacks[0].score == "exact densities" and not report.beaten


def test_directional_accounting_is_tight_by_sampling():
    """On the pair that the proof calls worst."""
    plan = make_plan(QOP(accounting="directional", m=104.0), PROBLEM, 5, Budget(1.0, 0.02))
    worst = worst_pairs(PROBLEM, 5, plan.pulls())[:1]
    report = audit_plan(plan, PROBLEM, pairs=worst, fits=1_500_000, confidence=0.95, device="cpu")
    assert 0.8 <= report.epsilon_lower <= 1.0
    assert not report.beaten


def test_statistics_are_tight():
    """Nothing is hidden between the release and the claim."""
    report = audit(
        Statistics(noise="gaussian"),
        budget=Budget(1.0, 0.02),
        features=3,
        problem=PROBLEM,
        fits=1_000_000,
        device="cpu",
    )
    assert 0.8 <= report.epsilon_lower <= 1.0
    assert not report.beaten


@pytest.mark.full
@pytest.mark.parametrize("features", [1, 2, 10])
def test_tightness_at_a_small_delta(features):
    mechanism, budget = QOP(accounting="directional", m=99.0 + features), Budget(1.0, 1e-3)
    report = audit(
        mechanism, budget=budget, features=features, problem=PROBLEM, fits=20_000_000, device="cpu"
    )
    assert 0.8 <= max(a.epsilon for a in report.attacks if a.fits) <= 1.0


def test_an_interrupted_audit_resumes_to_the_same_numbers(tmp_path):
    plan = make_plan(QOP(m=40.0), PROBLEM, 3, Budget(1.0, 1e-2))
    options = {"fits": 40_000, "seed": 5, "device": "cpu"}
    whole = audit_plan(plan, PROBLEM, **options)
    path = tmp_path / "counts.json"
    steps = []

    class Stop(Exception):
        pass

    def interrupt(done: int, total: int) -> None:
        steps.append(done)
        if done > 0.7 * total:
            raise Stop

    with pytest.raises(Stop):
        audit_plan(plan, PROBLEM, resume_path=path, progress=interrupt, **options)
    assert steps == sorted(steps)
    stopped = audit_plan(plan, PROBLEM, resume_path=path, time_limit=0.0, **options)
    assert not stopped.complete
    resumed = audit_plan(plan, PROBLEM, resume_path=path, **options)
    assert resumed.complete and resumed.attacks == whole.attacks
    again = audit_plan(plan, PROBLEM, resume_path=path, **options)
    assert again.attacks == whole.attacks
    with pytest.raises(InvalidInput, match="another path"):
        audit_plan(plan, PROBLEM, resume_path=path, **(options | {"seed": 6}))


def test_the_seed_decides_everything():
    first, again, other = (
        audit(
            QOP(m=20.0),
            budget=Budget(1.0, 1e-2),
            features=2,
            problem=PROBLEM,
            fits=5000,
            seed=s,
            device="cpu",
        )
        for s in (1, 1, 2)
    )
    assert first.attacks == again.attacks
    assert first.attacks != other.attacks


def test_senseless_arguments_are_refused():
    for wrong in ({"fits": 0}, {"confidence": 1.0}, {"features": 0}):
        with pytest.raises(InvalidInput):
            audit(QOP(m=20.0), budget=Budget(1.0, 1e-2), problem=PROBLEM, **({"features": 1} | wrong))
    with pytest.raises(InvalidInput, match="one domain"):
        audit_plan(make_plan(QOP(m=20.0), PROBLEM, 1, Budget(1.0, 1e-2)), Problem(Squared()))


@dataclass(frozen=True)
class NoisySum:
    """A toy: Σ y·x + N(0, (share/μ)²), ‖y·x‖ ≤ 1. It has what the `Plan` protocol asks for, and no more."""

    share: float

    @property
    def layout(self):
        return Layout(PROBLEM.domain, 2)

    @property
    def guarantee(self):
        return Guarantee(
            budget=Budget(1.0, 0.02),
            neighbours=PROBLEM.domain.neighbours,
            mechanism="noisy_sum",
            accounting="gaussian",
            theorem="toy",
            parameters=Parameters(),
            profile=GaussianProfile(MU),
        )

    def release(self, rows, random):
        return rows.moments().xy + self.share / MU * random.standard_normal((2, 1))


def test_any_plan_can_be_attacked():
    """A plan that is no fit, with half of its noise and with all of it."""
    half, whole = (audit_plan(NoisySum(share), PROBLEM, fits=12_000, device="cpu") for share in (0.5, 1.0))
    assert half.mechanism == "noisy_sum" and half.features == 2
    assert half.beaten
    assert not whole.beaten and whole.epsilon_lower > 0.5


def report(epsilon: float) -> AuditReport:
    attacks = (
        Attack("<pair>", "D against D'", "projection 1", 1000, 0.4, 0.1, epsilon, 0.1),
        Attack("other", "D' against D", "exact densities", 0, math.nan, math.nan, -math.inf, 0.0),
    )
    return AuditReport(
        "qop", "directional", "(P-6)", "replace", "squared", 2, 1.0, 1e-3, 0.99, 5000, 1.5, True, 7, attacks
    )


def test_a_report_says_whether_the_claim_stands(tmp_path):
    beaten, standing = report(1.2), report(0.7)
    assert beaten.beaten and beaten.epsilon_lower == 1.2
    assert standing.beaten  # δ = 0.1 at the claimed ε refutes it too
    sound = AuditReport(**{**vars(standing), "attacks": ()})
    assert not sound.beaten and sound.epsilon_lower == sound.delta_lower == 0.0
    document = json.loads(json.dumps(beaten.to_dict(), allow_nan=False))
    assert document["beaten"] is True and document["attacks"][1]["epsilon"] is None
    assert document["attacks"][0]["pair"] == "<pair>"
    write_html([beaten, sound], tmp_path / "many.html")
    write_html(sound, tmp_path / "one.html")
    page = (tmp_path / "many.html").read_text(encoding="utf-8")
    assert "&lt;pair&gt;" in page and "<pair>" not in page and "1 of 2 claims refuted" in page
    assert "Inconclusive: proved 0.00" in (tmp_path / "one.html").read_text(encoding="utf-8")
    write_png([beaten, sound], tmp_path / "many.png")
    write_png(sound, tmp_path / "one.png")
    assert (tmp_path / "many.png").read_bytes()[:4] == b"\x89PNG"


def test_the_grid_holds_every_mechanism_and_accounting_of_the_catalogue():
    budget = Budget(1.0, 1e-3)
    attacked = {(e.mechanism.name, getattr(e.mechanism, "accounting", None)) for e in entrants(budget)}
    for name, entry in catalogue.MECHANISMS.items():
        assert name in {mechanism for mechanism, _ in attacked}
        assert {(name, accounting) for accounting in entry.accountings} <= attacked
    named = [cell.name for cell in cells(budget)]
    expected = sum(len(FEWER.get(e.mechanism.name, FEATURES)) for e in entrants(budget)) * len(ADJACENCIES)
    assert len(set(named)) == len(named) == expected
    assert len({cell.file_name for cell in cells(budget)}) == expected
    assert len([*cells(budget, (3,))]) == len(entrants(budget)) * len(ADJACENCIES)


def test_a_mechanism_that_is_only_listed_is_attacked_with_every_loss(monkeypatch):
    entry = catalogue.MechanismEntry("toy", "curvedp.mechanisms.gradient:NoisyGradient", "a toy")
    monkeypatch.setattr(catalogue, "MECHANISMS", {"toy": entry})
    assert [e.loss.name for e in entrants(Budget(1.0, 1e-3))] == list(catalogue.LOSSES)


@pytest.mark.parametrize(("features", "adjacency"), [(1, "add_remove"), (2, "replace")])
def test_no_attack_beats_a_claim(features, adjacency):
    chosen = (c for c in cells(Budget(1.0, 1e-2), (features,)) if c.problem.domain.adjacency == adjacency)
    seen = Counter()
    for cell, found in audit_grid(chosen, fits=4000, time_limit=0.2, confidence=1 - 1e-6, device="cpu"):
        assert not found.beaten, (cell.name, found)
        seen[cell.mechanism.name] += 1
    assert len(seen) >= 10 and seen["qop"] == (5 if features == 1 else 6)  # spectral accounting needs d ≥ 2


@pytest.mark.full
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("features", FEATURES)
def test_no_attack_beats_a_claim_with_more_fits(features, adjacency):
    chosen = (c for c in cells(Budget(1.0, 1e-2), (features,)) if c.problem.domain.adjacency == adjacency)
    for cell, found in audit_grid(chosen, fits=2_000_000, time_limit=30.0, confidence=1 - 1e-6, device="cpu"):
        assert not found.beaten, (cell.name, found)
        assert np.isfinite(found.epsilon_lower)
