"""The audit as a whole: tight where the theory is, resumable, punctual; and no claim of ours is beaten."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from curvedp.audit import Attack, AuditReport, audit, audit_plan, write_html, write_png
from curvedp.audit.grid import ADJACENCIES, FEATURES, audit_grid, cells, mechanisms
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Squared
from curvedp.mechanisms.qop import QOP
from curvedp.mechanisms.statistics import Statistics
from curvedp.problem import Problem

PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))


def test_directional_accounting_is_tight_by_exact_densities():
    """Squared loss, a record removed, m − d + 1 ≥ 100: at least 0.9 of the claimed ε is really spent."""
    report = audit(QOP(1.0, 1e-4, accounting="directional", m=150.0), features=1, problem=PROBLEM, fits=1000)
    assert 0.9 < report.epsilon_lower <= 1.0
    assert report.attacks[0].score == "exact densities" and not report.beaten


def test_directional_accounting_is_tight_by_sampling():
    mechanism = QOP(1.0, 0.02, accounting="directional", m=104.0)
    report = audit(mechanism, features=5, problem=PROBLEM, fits=1_500_000, confidence=0.95, device="cpu")
    assert 0.8 <= report.epsilon_lower <= 1.0
    assert not report.beaten


def test_statistics_are_tight():
    """Nothing is hidden between the release and the claim."""
    report = audit(
        Statistics(1.0, 0.02, noise="gaussian"), features=3, problem=PROBLEM, fits=1_000_000, device="cpu"
    )
    assert 0.8 <= report.epsilon_lower <= 1.0
    assert not report.beaten


@pytest.mark.full
@pytest.mark.parametrize("features", [1, 2, 10])
def test_tightness_at_a_small_delta(features):
    mechanism = QOP(1.0, 1e-3, accounting="directional", m=99.0 + features)
    report = audit(mechanism, features=features, problem=PROBLEM, fits=20_000_000, device="cpu")
    assert 0.8 <= max(a.epsilon for a in report.attacks if a.fits) <= 1.0


def test_an_interrupted_audit_resumes_to_the_same_numbers(tmp_path):
    plan = QOP(1.0, 1e-2, m=40.0).plan(PROBLEM, 3)
    options = {"features": 3, "fits": 40_000, "seed": 5, "device": "cpu"}
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
    assert json.loads(path.read_text())["chunk"] == 20
    again = audit_plan(plan, PROBLEM, resume_path=path, **options)
    assert again.attacks == whole.attacks
    with pytest.raises(InvalidInput, match="another path"):
        audit_plan(plan, PROBLEM, resume_path=path, **(options | {"seed": 6}))


def test_the_seed_decides_everything():
    first, again, other = (
        audit(QOP(1.0, 1e-2, m=20.0), features=2, problem=PROBLEM, fits=5000, seed=s, device="cpu")
        for s in (1, 1, 2)
    )
    assert first.attacks == again.attacks
    assert first.attacks != other.attacks


def test_senseless_arguments_are_refused():
    for wrong in ({"fits": 0}, {"confidence": 1.0}, {"features": 0}):
        with pytest.raises(InvalidInput):
            audit_plan(QOP(1.0, 1e-2, m=20.0).plan(PROBLEM, 1), PROBLEM, **({"features": 1} | wrong))


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
    assert "No attack beat the claim" in (tmp_path / "one.html").read_text(encoding="utf-8")
    write_png([beaten, sound], tmp_path / "many.png")
    write_png(sound, tmp_path / "one.png")
    assert (tmp_path / "many.png").read_bytes()[:4] == b"\x89PNG"


def test_the_grid_holds_every_mechanism_of_the_library():
    import curvedp.mechanisms as library

    offered = {
        name
        for name in library.__all__
        if hasattr(getattr(library, name), "plan") and hasattr(getattr(library, name), "__dataclass_fields__")
    }
    assert offered <= {type(mechanism).__name__ for mechanism, _ in mechanisms(1.0, 1e-3)}
    named = [cell.name for cell in cells()]
    assert len(set(named)) == len(named) == len(mechanisms(1.0, 1e-3)) * len(FEATURES) * len(ADJACENCIES)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("features", FEATURES)
def test_no_attack_beats_a_claim(features, adjacency):
    chosen = (c for c in cells(1.0, 1e-2, (features,)) if c.problem.domain.adjacency == adjacency)
    seen = Counter()
    for cell, found in audit_grid(chosen, fits=6000, time_limit=0.4, confidence=1 - 1e-6, device="cpu"):
        assert not found.beaten, (cell.name, found)
        seen[type(cell.mechanism).__name__] += 1
    assert len(seen) >= 10 and seen["QOP"] == (5 if features == 1 else 6)  # spectral accounting needs d ≥ 2


@pytest.mark.full
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("features", FEATURES)
def test_no_attack_beats_a_claim_with_more_fits(features, adjacency):
    chosen = (c for c in cells(1.0, 1e-2, (features,)) if c.problem.domain.adjacency == adjacency)
    for cell, found in audit_grid(chosen, fits=2_000_000, time_limit=30.0, confidence=1 - 1e-6, device="cpu"):
        assert not found.beaten, (cell.name, found)
        assert np.isfinite(found.epsilon_lower)
