"""Torch and the fused kernel draw recentered fits from the law of the compiled CPU code."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.audit.host_cuda import host_trace

from curvedp import Budget, Domain, Problem
from curvedp.audit.accounted import numbers_of
from curvedp.audit.fits import Bins
from curvedp.audit.fits.recentered import RecenteredFits, Trace
from curvedp.audit.fits.recentered_numba import ThreadsRecentered
from curvedp.audit.fits.recentered_torch import TorchRecentered
from curvedp.losses import Logistic, Loss, Squared
from curvedp.mechanisms import Recentered

N = 20_000
LEVEL = 1e-5  # of one test of some 200
CASES = [
    (Squared(), "add_remove", 2, 40),
    (Squared(), "replace", 1, 20_000),
    (Logistic(), "add_remove", 3, 700),
    (Logistic(), "replace", 2, 2000),
]


def fits_of(loss: Loss, adjacency: str, d: int, rows: int) -> RecenteredFits:
    """Three directions with noise, and one record that differs."""
    problem = Problem(loss, domain=Domain(adjacency=adjacency))
    plan = Recentered().plan(problem, d, Budget(1.0, 1e-3))
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (4, d))
    x[0] = np.eye(d)[0]
    counts = np.array([[0.0, rows, rows // 3, rows // 2], [1.0, rows, rows // 3, rows // 2]])
    if adjacency == "replace":
        counts[0, 1] += 1
    slopes = None if isinstance(loss, Logistic) else (np.full(4, -np.inf), np.full(4, np.inf))
    return RecenteredFits(numbers_of(plan), x, np.array([-1.0, 1.0, 1.0, -1.0]), counts, slopes)


def smallest_p(left: Trace, right: Trace) -> float:
    """Of two-sample tests of everything on the way; values that agree to 12 digits count as equal."""
    pairs = [(getattr(left, name), getattr(right, name)) for name in Trace.names()[1:]]
    pairs += list(zip(left.theta.T, right.theta.T, strict=True))
    digits = [[np.array([float(f"{v:.11e}") for v in side]) for side in pair] for pair in pairs]
    return min(stats.ks_2samp(*pair).pvalue for pair in digits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize(("loss", "adjacency", "d", "rows"), CASES)
def test_torch_draws_from_the_same_law(loss: Loss, adjacency: str, d: int, rows: int) -> None:
    fits = fits_of(loss, adjacency, d, rows)
    for side in (0, 1):
        left = TorchRecentered("cpu").trace(fits, side, N, 5)
        assert smallest_p(left, ThreadsRecentered().trace(fits, side, N, 6)) > LEVEL


@pytest.mark.skipif(shutil.which("g++") is None, reason="the kernel of a GPU is tested with a C++ compiler")
@pytest.mark.parametrize(("loss", "adjacency", "d", "rows"), CASES)
def test_the_fused_kernel_draws_from_the_same_law(
    loss: Loss, adjacency: str, d: int, rows: int, folder: Path
) -> None:
    fits = fits_of(loss, adjacency, d, rows)
    for side in (0, 1):
        left = host_trace(fits, side, N, 7, folder)
        assert smallest_p(left, ThreadsRecentered().trace(fits, side, N, 8)) > LEVEL


@pytest.mark.parametrize("change", [{"momentum": 0.5}, {"doubt": 0.0}, {"mu_later": 1.1}, {"floor": 0.4}])
def test_a_difference_is_noticed(change: dict[str, float]) -> None:
    """A tenth less noise, or another constant of the rule, is seen in what fits release."""
    fits = fits_of(Squared(), "add_remove", 2, 200 if "momentum" in change else 2000)
    numbers = fits.numbers
    given = {k: v * numbers.mu_later if k == "mu_later" else v for k, v in change.items()}
    other = RecenteredFits(numbers._replace(**given), fits.x, fits.y, fits.counts, fits.slopes)
    sound, changed = (TorchRecentered("cpu").trace(f, 1, 2 * N, seed) for f, seed in ((fits, 1), (other, 2)))
    assert smallest_p(sound, changed) < LEVEL


def test_counts_are_those_of_the_draws() -> None:
    fits = fits_of(Squared(), "add_remove", 2, 400)
    ratio_bins, theta_bins, direction = Bins(-3.0, 3.0, 64), Bins(-1.0, 1.0, 32), np.array([0.6, -0.8])
    drawn = TorchRecentered("cpu").draw(fits, 1, 3000, 4)
    counted = TorchRecentered("cpu").count(fits, 1, direction, ratio_bins, theta_bins, 3000, 4)
    for bins, values, counts in zip(
        (ratio_bins, theta_bins), (drawn.ratio, drawn.theta @ direction), counted, strict=True
    ):
        np.testing.assert_array_equal(np.bincount(bins.index(values), minlength=bins.count), counts)
