"""The curve of a selection (T-1) against the exact law of the best of small discrete trials."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy.stats import poisson

from curvedp.privacy.profiles import (
    LAW_ERROR,
    TRIALS_AT_MOST,
    Curve,
    GaussianProfile,
    PoissonSelection,
    PureProfile,
    thresholds,
    trials,
    with_gaussian,
    worst,
)

LEVELS = np.linspace(0.0, 6.0, 121)


@dataclass(frozen=True)
class Exact(Curve):
    """The true curve of a pair of discrete laws, both orders."""

    p: tuple[float, ...]
    q: tuple[float, ...]

    def deltas(self, epsilon: np.ndarray) -> np.ndarray:
        p, q = np.array(self.p), np.array(self.q)
        e = np.exp(epsilon)[:, None]
        return np.maximum(np.maximum(p - e * q, 0).sum(axis=1), np.maximum(q - e * p, 0).sum(axis=1))


def best_of(p: np.ndarray, scores: np.ndarray, mean: float) -> np.ndarray:
    """The law of the outcome with the highest score among Poisson(mean) draws, ties broken at random.

    Summed over k up to far in the tail: P(all ≤ s) − P(all < s), shared in proportion within a score. The
    last entry is the answer of no draw.
    """
    k = np.arange(0, 200)
    weight = poisson.pmf(k, mean)
    out = np.zeros(len(p) + 1)
    for score in np.unique(scores):
        at, below = p[scores == score].sum(), p[scores < score].sum()
        chance = float(np.sum(weight[1:] * ((at + below) ** k[1:] - below ** k[1:])))
        if at > 0:
            out[:-1][scores == score] = p[scores == score] / at * chance
    out[-1] = weight[0]
    return out


def drawn_best(p: np.ndarray, scores: np.ndarray, mean: float, random: np.random.Generator) -> int:
    """The same by drawing, as `TrialsPlan.release` does: the first of the highest scores."""
    best, highest = len(p), -np.inf
    for _ in range(trials(random, mean)):
        y = int(random.choice(len(p), p=p))
        if scores[y] > highest:
            best, highest = y, scores[y]
    return best


def pairs() -> list[tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
    random = np.random.default_rng(5)
    found = []
    for _ in range(300):
        n = int(random.integers(2, 8))
        p = random.dirichlet(np.full(n, random.choice([0.3, 1.0, 5.0])))
        q = (
            random.dirichlet(np.full(n, 1.0))
            if random.random() < 0.5
            else p * np.exp(random.uniform(-1, 1, n))
        )
        q = q / q.sum()
        scores = random.integers(0, n if random.random() < 0.7 else 3, n).astype(float)
        found.append((p, q, scores, float(random.choice([0.3, 1.0, 3.0, 12.0]))))
    near = np.array([0.5, 0.3, 0.2])
    found.append((near, np.array([0.2, 0.3, 0.5]), np.arange(3.0), 40.0))
    return found


def divergence(p: np.ndarray, q: np.ndarray, levels: np.ndarray = LEVELS) -> np.ndarray:
    return Exact(tuple(p), tuple(q)).deltas(levels)


def test_the_curve_bounds_the_exact_law_of_the_best() -> None:
    tight = 0.0
    for p, q, scores, mean in pairs():
        true = divergence(best_of(p, scores, mean), best_of(q, scores, mean))
        bound = PoissonSelection(Exact(tuple(p), tuple(q)), mean, 6.0).deltas(LEVELS)
        assert np.all(true <= bound + 1e-12)
        seen = bound > 1e-3
        tight = max(tight, float(np.max(np.where(seen & (bound < 1), true / np.maximum(bound, 1e-300), 0))))
    assert tight > 0.5  # the bound is not far from what happens


@pytest.mark.parametrize(
    "wrong",
    [
        lambda trial, mean: trial.deltas(LEVELS),
        lambda trial, mean: mean * trial.deltas(LEVELS),
        lambda trial, mean: trial.deltas(np.maximum(LEVELS - mean * trial.delta_at(0.0), 0.0)),
    ],
    ids=["as if one trial were made", "without the shift of the level", "without the factor"],
)
def test_a_planted_bound_without_one_of_its_parts_fails(wrong) -> None:
    caught = 0
    for p, q, scores, mean in pairs():
        if mean >= 1.0:
            true = divergence(best_of(p, scores, mean), best_of(q, scores, mean))
            caught += bool(np.any(true > wrong(Exact(tuple(p), tuple(q)), mean) + 1e-9))
    assert caught > 0


def test_the_release_draws_that_law() -> None:
    p, scores, mean = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.0, 1.0, 1.0, 2.0]), 1.7
    random = np.random.default_rng(2)
    counts = np.bincount([drawn_best(p, scores, mean, random) for _ in range(20_000)], minlength=5) / 20_000
    assert np.allclose(counts, best_of(p, scores, mean), atol=0.015)


def total_variation(table: np.ndarray, mean: float) -> float:
    """Of Poisson(mean) and of the first k with U < table[k], U a multiple of 2⁻⁵³, in 40 digits."""
    with mpmath.workdps(40):
        below = [mpmath.ceil(mpmath.mpf(float(t)) * 2**53) / 2**53 for t in table]
        term, off, seen = mpmath.e ** -mpmath.mpf(mean), mpmath.mpf(0), mpmath.mpf(0)
        for k, threshold in enumerate(below):
            off += abs(threshold - (below[k - 1] if k else 0) - term)
            seen += term
            term = term * mpmath.mpf(mean) / (k + 1)
        return float((off + abs(1 - below[-1]) + (1 - seen)) / 2)


@pytest.mark.parametrize("mean", [1e-300, 0.05, 1.0, 10.0, 400.0, 0.1 * TRIALS_AT_MOST, TRIALS_AT_MOST])
def test_the_number_of_trials_is_poisson_up_to_the_most_that_are_allowed(mean: float) -> None:
    table = thresholds(mean)
    assert total_variation(table, mean) < LAW_ERROR
    assert len(table) * 2.0**-54 + 1e-30 < LAW_ERROR  # the bound of the proof


def test_a_planted_table_that_is_off_in_the_twelfth_digit_is_noticed() -> None:
    assert total_variation(thresholds(1e4 * (1 + 1e-12)), 1e4) > LAW_ERROR / 10
    assert total_variation(thresholds(400.0)[:500], 400.0) > LAW_ERROR  # and one that ends too early
    assert total_variation(thresholds(400.0) * (1 - 1e-11), 400.0) > LAW_ERROR


@pytest.mark.parametrize("mean", [0.05, 1.0, 10.0, 400.0])
def test_trials_are_drawn_from_the_table(mean: float) -> None:
    random = np.random.default_rng(0)
    drawn = [trials(random, mean) for _ in range(4000)]
    assert abs(np.mean(drawn) - mean) < 5 * np.sqrt(mean / 4000)
    numbers = iter([0.0, thresholds(mean)[0], 1 - 2.0**-53])
    fixed = SimpleNamespace(random=lambda: next(numbers))
    first, second, last = (trials(fixed, mean) for _ in range(3))  # type: ignore[arg-type]
    assert first == np.sum(thresholds(mean) == 0.0) and second == max(first, 1)
    assert mean < last <= len(thresholds(mean))


def test_levels_below_zero_are_bounded_by_both_orders() -> None:
    trial = PureProfile(0.5)
    curve = PoissonSelection(trial, 10.0, 8.0)
    assert curve.delta_at(0.0) == 1.0
    assert curve.delta_at(10 * trial.delta_at(0.0) + 0.5 + 1e-9) < 1e-8


def test_a_gaussian_beside_a_gaussian_adds_in_squares() -> None:
    together = with_gaussian(GaussianProfile(0.3), 0.4, 1e-18)
    assert together.delta_at(1.0) == pytest.approx(GaussianProfile(0.5).delta_at(1.0), rel=1e-9)
    other = with_gaussian(PureProfile(0.1), 0.2, 0.0)
    least = GaussianProfile(0.2).delta_at(0.5)
    assert least < other.delta_at(0.5) <= GaussianProfile(0.2).delta_at(0.4) * 1.01


def test_of_several_curves_the_largest_counts() -> None:
    low, high = GaussianProfile(0.1), GaussianProfile(0.2)
    assert worst([low, high, low]).delta_at(0.3) == high.delta_at(0.3)
    assert worst([low, low]) is low
