"""Many fits at once give the numbers of the one-at-a-time solver, and draw what they say they draw."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special, stats

from curvedp.audit.fits import (
    Bins,
    Draws,
    MarginFits,
    Penalty,
    Perturbations,
    QuadraticFits,
    backend,
    histogram,
    sample,
    solve_draws,
)
from curvedp.audit.fits.numba import Threads
from curvedp.audit.fits.torch import Torch
from curvedp.constraints import Box, Reals
from curvedp.errors import InvalidInput
from curvedp.regularizers import L1, NoRegularizer
from curvedp.solvers.quadratic import solve_quadratic

BACKENDS = [Threads(1), Threads(2), Torch("cpu")]
PENALTIES = [
    Penalty(),
    Penalty(l1=0.8),
    Penalty(lower=-0.4, upper=0.6),
    Penalty(l1=0.5, lower=-0.5, upper=0.5),
]


def bartlett(rng: np.random.Generator, n: int, d: int, m: float) -> Draws:
    factor = np.tril(rng.standard_normal((n, d, d)), -1)
    for j in range(d):
        factor[:, j, j] = np.sqrt(rng.chisquare(m - j, n))
    return Draws(factor, rng.standard_normal((n, d)))


def regression(rng: np.random.Generator, d: int, noise: Perturbations, penalty: Penalty) -> QuadraticFits:
    X = rng.standard_normal((3 * d, d))
    y = X @ rng.standard_normal(d)
    center = 0.1 * rng.standard_normal(d)
    return QuadraticFits(X.T @ X, X.T @ (y - X @ center), noise, penalty, center)


@pytest.mark.parametrize("engine", BACKENDS, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("d", [1, 3, 17])
def test_quadratic_fits_equal_the_one_at_a_time_solver(engine, penalty, d):
    rng = np.random.default_rng(d)
    for noise in (Perturbations(0.7, 2 * d + 1.5, 1.2), Perturbations(sigma0=1.2, ridge=2.5)):
        fits = regression(rng, d, noise, penalty)
        draws = bartlett(rng, 9, d, 2 * d + 1.5)
        got = engine.solve_draws(fits, draws)
        for f in range(9):
            W = draws.factor[f] @ draws.factor[f].T
            H = fits.gram + noise.ridge * np.eye(d) + noise.sigma2 * W
            expected = solve_quadratic(
                H,
                noise.sigma0 * draws.normal[f] - fits.linear,
                fits.center[:, None],
                L1(penalty.l1) if penalty.l1 else NoRegularizer(),
                Box(low=penalty.lower, high=penalty.upper) if math.isfinite(penalty.lower) else Reals(),
                eta=1e-9,
            )
            np.testing.assert_allclose(got[f], expected.theta[:, 0], rtol=0, atol=1e-10)


def logistic_objective(theta, fits, W, z):
    u = theta - fits.center
    value = fits.counts @ special.log1p(np.exp(-fits.y * (fits.x @ theta)))
    Q = fits.noise.ridge * np.eye(fits.d) + fits.noise.sigma2 * W
    return value + fits.noise.sigma0 * z @ u + 0.5 * u @ Q @ u


@pytest.mark.parametrize("engine", BACKENDS, ids=repr)
def test_logistic_fits_are_stationary(engine):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6, 3))
    y = np.sign(rng.standard_normal(6))
    counts = np.array([1.0, 2, 1, 30, 1, 1])
    fits = MarginFits(x, y, Perturbations(0.3, 6.5, 2.0, 0.1), counts, center=np.array([0.3, 0.0, -0.2]))
    draws = bartlett(rng, 50, 3, 6.5)
    got = engine.solve_draws(fits, draws)
    for f in range(50):
        Q = 0.1 * np.eye(3) + 0.3 * draws.factor[f] @ draws.factor[f].T
        slope = -counts * y * special.expit(-y * (x @ got[f]))
        gradient = x.T @ slope + 2.0 * draws.normal[f] + Q @ (got[f] - fits.center)
        # ‖θ − θ*‖ ≤ ‖gradient‖/λ_min(Q)
        assert np.linalg.norm(gradient) / np.linalg.eigvalsh(Q)[0] < 1e-10


@pytest.mark.parametrize("engine", BACKENDS, ids=repr)
def test_fits_with_clipped_slopes_are_stationary_on_every_piece(engine):
    """Huber (both slopes bounded), squared hinge (one side) and squared (neither) in one objective."""
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((6, 3)), 2 * rng.standard_normal(6)
    low = np.array([-0.3, -0.3, -np.inf, 0.0, -np.inf, -0.01])
    high = np.array([0.3, 0.3, 0.0, np.inf, np.inf, 0.01])
    counts = np.array([1.0, 5, 2, 2, 1, 100])
    fits = MarginFits(x, y, Perturbations(0.3, 6.5, 3.0), counts, center=np.ones(3), slopes=(low, high))
    draws = bartlett(rng, 200, 3, 6.5)
    got = engine.solve_draws(fits, draws)
    margin = got @ x.T - y
    slope = np.clip(margin, low, high)
    for f in range(200):
        Q = 0.3 * draws.factor[f] @ draws.factor[f].T
        gradient = x.T @ (counts * slope[f]) + 3.0 * draws.normal[f] + Q @ (got[f] - 1.0)
        assert np.linalg.norm(gradient) / np.linalg.eigvalsh(Q)[0] < 1e-9
    inside = (margin > low) & (margin < high)
    assert inside[:, 1:4].any(0).all() and (~inside[:, 1:4]).any(0).all()


@pytest.mark.parametrize("engine", [Threads(1), Threads(2)], ids=repr)
def test_composite_logistic_fits_match_a_general_optimizer(engine):
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((5, 2)), np.array([1.0, -1, 1, 1, -1])
    penalty = Penalty(l1=0.6, lower=-0.3, upper=0.3)
    fits = MarginFits(x, y, Perturbations(0.5, 4.0, 1.0), np.ones(5), penalty, np.zeros(2))
    draws = bartlett(rng, 20, 2, 4.0)
    got = engine.solve_draws(fits, draws)
    kinds = set()
    for f in range(20):
        W = draws.factor[f] @ draws.factor[f].T

        def objective(split, W=W, z=draws.normal[f]):  # θ = split[:2] − split[2:], both ≥ 0
            return logistic_objective(split[:2] - split[2:], fits, W, z) + 0.6 * split.sum()

        best = optimize.minimize(
            objective,
            np.full(4, 0.01),
            bounds=[(0, 0.3)] * 4,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10},
        )
        np.testing.assert_allclose(got[f], best.x[:2] - best.x[2:], atol=2e-6)
        value = logistic_objective(got[f], fits, W, draws.normal[f]) + 0.6 * np.abs(got[f]).sum()
        assert value <= best.fun + 1e-12
        kinds |= {"zero" if t == 0 else "bound" if abs(t) == 0.3 else "free" for t in got[f]}
    assert kinds == {"zero", "bound", "free"}


@pytest.mark.parametrize("engine", BACKENDS, ids=repr)
@pytest.mark.parametrize("m", [3.4, 12.0])
def test_fresh_draws_have_the_law_of_the_mechanism(engine, m):
    """1/(x̂ᵀW⁻¹x̂) ~ χ²_{m−d+1} (section 4.2), read off fits with known linear term and no data."""
    d = 3
    direction = np.array([0.6, 0.0, 0.8])
    fits = QuadraticFits(np.zeros((d, d)), direction, Perturbations(2.0, m))
    theta = engine.sample(fits, 20_000, seed=11)
    chi = 1 / (2.0 * (theta @ direction))
    assert stats.kstest(chi, stats.chi2(m - d + 1).cdf).pvalue > 1e-4
    linear = QuadraticFits(np.zeros((d, d)), direction, Perturbations(sigma0=0.5, ridge=2.0))
    score = (2.0 * engine.sample(linear, 20_000, seed=12) - direction) / 0.5
    assert stats.kstest(score.ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize("engine", BACKENDS, ids=repr)
def test_histogram_counts_every_fit(engine):
    fits = QuadraticFits(np.eye(2), np.ones(2), Perturbations(sigma0=1.0, ridge=1.0))
    bins = Bins(-0.2, 1.0, 60)
    counts = engine.histogram(fits, np.array([1.0, 0.0]), bins, 50_001, 3, output_noise=0.1)
    assert counts.sum() == 50_001
    scale = math.hypot(0.5, 0.1)
    cuts = stats.norm(0.5, scale).cdf(np.linspace(-0.2, 1.0, 61)[1:-1])
    expected = 50_001 * np.diff(np.concatenate([[0], cuts, [1]]))
    assert stats.chisquare(counts, expected).pvalue > 1e-4


def test_numbers_do_not_depend_on_the_number_of_threads():
    fits = QuadraticFits(np.eye(40), np.ones(40), Perturbations(0.5, 80.0, 1.0), Penalty(l1=0.1))
    np.testing.assert_array_equal(Threads(1).sample(fits, 1500, 4), Threads(3).sample(fits, 1500, 4))


def test_fits_without_curvature_are_nan_and_fall_into_the_last_cell():
    fits = QuadraticFits(np.zeros((2, 2)), np.ones(2), Perturbations(sigma0=1.0))
    for engine in BACKENDS:
        assert np.isnan(engine.sample(fits, 10, 0)).all()
        assert engine.histogram(fits, np.ones(2), Bins(0, 1, 4), 10, 0, 0.0)[-1] == 10


def test_the_generator_decides_the_draws():
    fits = QuadraticFits(np.eye(2), np.ones(2), Perturbations(1.0, 4.0, 1.0))
    first = sample(fits, 100, np.random.default_rng(1), device="cpu")
    again = sample(fits, 100, np.random.default_rng(1), device="cpu")
    other = sample(fits, 100, np.random.default_rng(2), device="cpu")
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    counts = histogram(fits, np.ones(2), Bins(-5, 5, 8), 100, np.random.default_rng(1), device="cpu")
    np.testing.assert_array_equal(counts, np.bincount(Bins(-5, 5, 8).index(first.sum(1)), minlength=8))
    draws = bartlett(np.random.default_rng(0), 3, 2, 4.0)
    np.testing.assert_array_equal(solve_draws(fits, draws, device="cpu"), Threads(2).solve_draws(fits, draws))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidInput, match="device"):
        backend("cuda")
    assert backend("auto") == Threads(2)
    with pytest.raises(InvalidInput, match="CPU"):
        Torch("cpu").sample(
            MarginFits(np.eye(2), np.ones(2), Perturbations(ridge=1.0), np.ones(2), Penalty(l1=1.0)), 2, 0
        )


@pytest.mark.full
def test_the_gpu_benchmark_needs_no_other_dependency_of_the_library():
    """A machine with a GPU may have numpy, scipy, torch and CuPy only."""
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"numba", "randomgen", "dp_accounting", "sklearn", "narwhals", "typer"}:
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
import gpu
results = gpu.Results()
gpu.run_audit(gpu.Torch("cpu"), 120_000, results)
assert results.audit["epsilon_lower"] < 1.0 and not results.audit["beaten"], results.audit
"""
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=300)
