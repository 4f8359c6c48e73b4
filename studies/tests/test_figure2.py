import math
from dataclasses import astuple

import numpy as np
import pytest

from curvedp.data.rows import make_rows
from curvedp.randomness import generator
from curvedp_studies import learning
from curvedp_studies.experiment import (
    CONFIGURATIONS,
    MECHANISMS,
    READING_WORDS,
    READINGS,
    Configuration,
    records,
)
from curvedp_studies.figure2 import (
    CONSTANT,
    ETA,
    NON_PRIVATE,
    Grid,
    Trial,
    by_stotos,
    curves,
    deviation,
    exactly,
    figure2,
    slope,
    solver_effect,
    study,
)
from curvedp_studies.resume import read_rows
from curvedp_studies.tables import PAPER, statistics

SMALL = Grid(
    kappas=tuple(float(kappa) for kappa in np.geomspace(1e-2, 1e3, 6)),
    runs=5,
    other_readings=("maximum",),
    sparse=1,
    learning=learning.Grid(
        readings=("maximum",), sizes=(2000,), kappas=(0.1, 1.0), growing=(1000, 4000), runs=2
    ),
)
TINY = Grid(
    configurations=CONFIGURATIONS[:1], kappas=(0.1, 10.0), runs=2, other_readings=(), learning=SMALL.learning
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("figure2")
    figure2(out, grid=SMALL, workers=1)
    return out


@pytest.fixture(scope="module")
def found(folder):
    return curves(study(folder, grid=SMALL, workers=1))


PANELS = [("norm", c) for c in CONFIGURATIONS] + [("maximum", CONFIGURATIONS[0])]


@pytest.mark.parametrize("solver", ["stotos", "exact"])
@pytest.mark.parametrize(("reading", "c"), PANELS)
def test_qop_is_the_constant_answer(found, solver, reading, c):
    constant = found["none", reading, c, CONSTANT].risks
    risks = found[solver, reading, c, "QOP"].risks
    assert risks.shape == (5, 6)
    assert np.abs(risks / constant - 1).max() < 0.01
    assert np.ptp(risks.mean(axis=0)) < 0.01 * risks.mean()
    assert deviation(found, solver, reading, c) < 0.001
    # ... although there is something to learn.
    assert found["none", reading, c, NON_PRIVATE].mean[-1] < 0.5 * constant[0, 0]


@pytest.mark.parametrize("solver", ["stotos", "exact"])
@pytest.mark.parametrize(("reading", "c"), PANELS)
def test_lop_grows_with_the_square_of_the_box(found, solver, reading, c):
    assert slope(found[solver, reading, c, "LOP"], 10.0) == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("name", ["LOP-Clip-1e4", "LOP-Clip-1e5"])
def test_lop_clip_moves_when_it_is_solved(found, name):
    """By 3 to 5 times at ε = 0.5; at ε = 0.01 Δ = 2L/ε is so large that StoTOS converges."""
    effects = [solver_effect(found, "norm", c, name)[-1] for c in CONFIGURATIONS]
    assert 2.5 < effects[0] < 4.0 and 4.0 < effects[2] < 5.5
    assert effects[1] == pytest.approx(1.0, abs=0.02) and effects[3] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("c", CONFIGURATIONS)
def test_the_papers_tables_single_out_one_reading(found, c):
    """Std of QOP over runs: the paper's number for ‖x‖ = ξ, far from it for max |x_ij| = ξ."""
    claimed = PAPER[c]["QOP"].avg_std
    assert statistics(found["stotos", "norm", c, "QOP"], 0.0).avg_std == pytest.approx(claimed, rel=0.3)
    clip = statistics(found["stotos", "norm", c, "LOP-Clip-1e5"], 0.0)
    assert clip.max_std == pytest.approx(PAPER[c]["LOP-Clip-1e5"].max_std, rel=0.6)
    if c == CONFIGURATIONS[0]:
        other = statistics(found["stotos", "maximum", c, "QOP"], 0.0)
        assert other.avg_std > 1.5 * claimed


def test_every_exact_solve_is_certified(folder):
    rows = study(folder, grid=SMALL, workers=1)
    exact = [row for row in rows if row.solver == "exact"]
    assert len(exact) == 5 * 5 * 6 * 4
    assert all(row.distance <= ETA * row.kappa for row in exact)
    assert all(math.isnan(row.distance) for row in rows if row.solver == "stotos")
    assert "Certified: 600 of 600 exact solves" in (folder / "summary.md").read_text(encoding="utf-8")


def perturbed_objective(trial, theta):
    """J_priv by its definition, the loss Huberised where gradients are clipped."""
    s = trial.X @ theta.ravel() - trial.y
    bound = np.full(len(s), math.inf)
    if trial.noise.clip is not None:
        bound = trial.noise.clip / np.linalg.norm(trial.X, axis=1)
    inside = np.abs(s) <= bound
    loss = np.where(
        inside, 0.5 * s**2, np.where(inside, 0.0, bound) * (np.abs(s) - 0.5 * np.where(inside, 0, bound))
    )
    p, u = trial.noise.perturbation, theta.ravel()
    return loss.sum() + np.abs(u).sum() + p.linear.ravel() @ u + 0.5 * u @ p.quadratic @ u


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)
@pytest.mark.parametrize("kappa", [0.05, 30.0, 1000.0])
def test_exact_solves_are_never_worse_than_stotos(mechanism, kappa):
    c = CONFIGURATIONS[0]
    X, y = records(c.n, c.d, "norm")
    noise = mechanism.draw(c, kappa, generator(1))
    rows = make_rows(X, y, c.domain)
    trial = Trial(X, y, rows, c.problem(kappa), kappa, noise, generator(2))
    (exact, _), (rough, _) = exactly(trial), by_stotos(trial)
    assert np.abs(exact).max() <= kappa and np.abs(rough).max() <= kappa
    values = [perturbed_objective(trial, theta) for theta in (exact, rough)]
    assert values[0] <= values[1] + 1e-9 * abs(values[1])
    for step in 1e-3 * kappa * np.eye(c.d)[:5, :, None]:
        moved = np.clip(exact + step, -kappa, kappa)
        assert perturbed_objective(trial, moved) >= values[0] - 1e-9 * abs(values[0])


def test_constants_of_the_experiment():
    c = Configuration(300, 70, 0.5, 0.01)
    assert pytest.approx(1750.0) == c.L
    assert c.center_sensitivity == pytest.approx(10 * math.sqrt(70))
    assert c.zeta(3.0) == pytest.approx((6 * math.sqrt(70) * 5 * math.sqrt(70) + 1) * 5 * math.sqrt(70))
    lop, clipped = MECHANISMS[0], MECHANISMS[1]
    assert lop.draw(c, 3.0, generator(0)).clip is None
    assert clipped.draw(c, 3.0, generator(0)).clip == 1e4
    assert clipped.draw(c, 0.01, generator(0)).clip is None  # ζ(0.01) < 1e4: the clip never acts
    assert lop.draw(c, 3.0, generator(0)).largest == pytest.approx(2 * 1750 / 0.5)


@pytest.mark.parametrize("reading", READINGS)
def test_records_lie_in_the_declared_domain(reading):
    X, y = records(200, 12, reading)
    assert X.shape == (200, 12) and np.abs(X).max() <= 5.0 * (1 + 1e-12) and np.abs(y).max() <= 1.0
    reach = {
        "norm": np.linalg.norm(X, axis=1),
        "maximum": np.abs(X).max(),
        "columns": np.abs(X).max(axis=0),
        "clip": np.array([5.0]),
    }
    assert reach[reading] == pytest.approx(5.0)
    assert set(READING_WORDS) == set(READINGS)


def test_more_records_begin_with_the_same_ones():
    for reading in ("norm", "clip"):
        (X, y), (more_X, more_y) = records(50, 12, reading), records(80, 12, reading)
        np.testing.assert_array_equal(more_X[:50], X)
        np.testing.assert_allclose(more_y[:50], y, rtol=1e-12)


def test_files(folder):
    for name in ("figure2", "figure2_learning"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len((folder / f"{name}.svg").read_text(encoding="utf-8")) > 10_000
    rows = read_rows(folder / "figure2_learning.csv", learning.Row)
    assert len(rows) == (2 + 1 + 1) * (2 + 2 * len(learning.MECHANISMS))
    assert all(row.distance <= learning.ETA * row.kappa for row in rows)
    assert "halved at n" in (folder / "summary.md").read_text(encoding="utf-8")


def without_time(rows):
    return [astuple(row)[:-2] for row in rows]


def test_interrupted_run_continues_with_the_same_numbers(folder, tmp_path):
    whole = study(tmp_path / "whole", grid=TINY, workers=1)
    lines = (tmp_path / "whole" / "figure2.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "figure2.csv").write_text("".join(lines[:14]) + lines[14][:-4], encoding="utf-8")
    seen = []
    again = study(torn, grid=TINY, workers=1, progress=lambda done, total: seen.append((done, total)))
    # The baselines have four rows and a run has eight: of thirteen whole rows, one is of an unfinished run.
    assert seen == [(2, 5), (3, 5), (4, 5), (5, 5)]
    assert without_time(again) == without_time(whole)
    # A part of a study has the numbers of the whole.
    known = {row.point: row.risk for row in study(folder, grid=SMALL, workers=1)}
    assert all(known[row.point] == row.risk for row in whole if row.point in known)
    assert any(row.point in known for row in whole)


def test_processes_do_not_change_the_numbers(tmp_path):
    alone = study(tmp_path / "alone", grid=TINY, workers=1)
    together = study(tmp_path / "together", grid=TINY, workers=2)
    assert without_time(alone) == without_time(together)


@pytest.mark.full
def test_the_whole_exact_column_is_certified_within_a_minute_on_two_cores(tmp_path):
    rows = study(tmp_path, grid=Grid(other_readings=()))
    exact = [row for row in rows if row.solver == "exact"]
    assert len(exact) == 16_000 and all(row.distance <= ETA * row.kappa for row in exact)
    assert sum(row.seconds for row in exact) < 120
    assert sum(row.seconds for row in rows if row.solver == "stotos") < 360
