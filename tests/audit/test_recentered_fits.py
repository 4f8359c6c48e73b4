"""Recentered fits in batches: the numbers of the shipped code for the same noise, its law for fresh noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from curvedp import randomness
from curvedp.audit.accounted import AccountedFits, CountedDraws, accounted, recentered_fits
from curvedp.audit.fits import Bins
from curvedp.audit.fits.numba import Threads
from curvedp.audit.fits.recentered import Drawn, RecenteredFits, Trace
from curvedp.audit.fits.recentered_numba import ThreadsRecentered
from curvedp.audit.fits.small import diagonalize, log_determinant
from curvedp.audit.pairs import Pair, walk_pairs
from curvedp.audit.records import Records
from curvedp.audit.replayed import transcript
from curvedp.budget import Budget
from curvedp.constraints import L2Ball
from curvedp.domain import Domain
from curvedp.losses import Huber, Logistic, Loss, Poisson, Squared, SquaredHinge
from curvedp.mechanisms import geometry, noise, recentered, walk
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.mechanisms.rule import Pace, Rule
from curvedp.problem import Problem
from curvedp.regularizers import L2
from curvedp.witness import NoisyCurvature, Normal, watched

ENGINE = ThreadsRecentered(2)
SQUARED = Squared()


@dataclass(frozen=True)
class Case:
    """A plan and a pair; the context is 4 records, `n` of each sort, in units of the bounds."""

    d: int
    n: float
    adjacency: str
    loss: Loss = SQUARED
    epsilon: float = 1.0

    @property
    def plan(self) -> RecenteredPlan:
        return _plan(self)

    @property
    def pair(self) -> Pair:
        domain = self.plan.problem.domain
        rng = np.random.default_rng(self.d)
        x = rng.standard_normal((4, self.d))
        x *= domain.x_norm * np.array([0.9, 0.5, 0.25, 0.1])[:, None] / np.linalg.norm(x, axis=1)[:, None]
        y = self.plan.problem.loss.clip_target(np.array([1.0, -0.4, 0.7, -2.0]), domain)
        shared = Records(x, y, np.array([3.0, 2.0, 2.0, 1.0]) * self.n, domain)
        out, into = 0.99 * domain.x_norm * np.eye(self.d)[0], -0.6 * domain.x_norm * np.eye(self.d)[-1]
        ends = self.plan.problem.loss.clip_target(np.array([-9.0, 9.0]), domain)
        left = shared if self.adjacency == "add_remove" else shared.plus(into, ends[1])
        return Pair("case", left, shared.plus(out, ends[0]), np.eye(self.d)[:1])

    @property
    def fits(self) -> RecenteredFits:
        found = recentered_fits(self.plan, self.pair)
        assert found is not None
        return found


@cache
def _plan(case: Case) -> RecenteredPlan:
    domain = Domain(x_norm=1.5, y_bound=2.0, adjacency=case.adjacency)  # type: ignore[arg-type]
    plan = Recentered().plan(Problem(case.loss, domain=domain), case.d, Budget(case.epsilon, 1e-3))
    assert type(plan) is RecenteredPlan
    return plan


CASES = [
    Case(1, 4.0, "add_remove", Logistic()),
    Case(2, 8.0, "replace"),
    Case(2, 60.0, "add_remove"),
    Case(2, 400.0, "add_remove", Logistic(), epsilon=3.0),
    Case(1, 2000.0, "replace", epsilon=4.0),
    Case(2, 300.0, "replace", Huber(0.5), epsilon=4.0),
    Case(5, 60.0, "replace", Logistic(), epsilon=2.0),
    Case(5, 900.0, "add_remove", SquaredHinge(), epsilon=4.0),
    Case(10, 500.0, "add_remove", epsilon=6.0),
]


@contextmanager
def observed(patch: pytest.MonkeyPatch, seen: list[dict[str, float]]) -> Iterator[None]:
    """While it lasts, every run of the shipped code appends the numbers of `Trace`."""
    geometry_of, finished = recentered.geometry_of, walk.Rounds.finished

    def metric(S, norm, floor, n, pilot):
        found = geometry_of(S, norm, floor, n, pilot)
        seen.append({"count": n, "bound": pilot.bound, "resolved": found.resolved})
        return found

    def walked(rounds, theta):
        clip, estimate = finished(rounds, theta)
        seen[-1] |= {"spread": rounds.spread, "typical": rounds.typical, "clip": clip.size}
        seen[-1] |= {"kept": clip.kept, "theta": np.ravel(estimate.theta)}
        return clip, estimate

    with patch.context() as patched:
        patched.setattr(recentered, "geometry_of", metric)
        patched.setattr(walk.Rounds, "finished", walked)
        # The batches lift the pilot with the slack that its noise has; the library without: 0.08 % apart.
        patched.setattr(recentered, "gram_scale", lambda bound, mu, who, _: noise.gram_scale(bound, mu, who))
        yield


@contextmanager
def coupled(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it lasts, the shipped code adds plain Gaussian noise, drawn in the order of the kernels."""

    def add(grid, value, random):
        noisy = value + grid.sigma * random.standard_normal(value.shape)
        return watched(random, Normal(value, grid.sigma), noisy)

    def add_symmetric(grid, value, random):
        z = np.zeros_like(value)
        for i in range(len(z)):
            for j in range(i + 1):
                z[i, j] = z[j, i] = random.standard_normal() * (1.0 if i == j else math.sqrt(0.5))
        return watched(random, Normal(value, grid.sigma), value + grid.sigma * z)

    def noisy_curvature(gram, sigma2, m, random):
        d = len(gram)
        L = np.zeros((d, d))
        for j in range(d):
            L[j, j] = math.sqrt(random.chisquare(m - j))
            L[j + 1 :, j] = random.standard_normal(d - j - 1)
        S = gram + sigma2 * (L @ L.T - m * np.eye(d))
        return watched(random, NoisyCurvature(gram, sigma2, m), S)

    def eigh(S):
        S, V = np.array(S), np.empty_like(S)
        diagonalize(S, V)
        return np.diag(S).copy(), V

    with patch.context() as patched:
        patched.setattr(noise.Grid, "add", add)
        patched.setattr(noise.Grid, "add_symmetric", add_symmetric)
        # What pays for the rounding of sums is in the pilot's noise only.
        patched.setattr(walk.Rounds, "slack", lambda *_: 0.0)
        patched.setattr(recentered, "noisy_curvature", noisy_curvature)
        patched.setattr(geometry.np.linalg, "eigh", eigh)
        yield


def shipped(case: Case, side: int, runs: int, patch: pytest.MonkeyPatch, seed: int) -> Trace:
    """Runs of the shipped code with L of what it released: each is replayed on the neighbour."""
    generator, seen, ratios = randomness.generator(seed), [], []
    own, other = (case.pair.left, case.pair.right)[:: 1 - 2 * side]
    with observed(patch, seen):
        for _ in range(runs):
            run = transcript(case.plan, own, other, generator)
            assert run.same
            seen.pop()  # on the neighbour
            ratios.append(run.ratio if side else -run.ratio)
    columns = {name: np.array([run[name] for run in seen]) for name in seen[0]}
    return Trace(ratio=np.array(ratios), **columns)


def on_the_same_noise(case: Case, side: int, runs: int, patch: pytest.MonkeyPatch) -> Trace:
    """Runs of the shipped code with the noise of `ENGINE.trace(…, seed=5)`."""
    seed = int(randomness.generator(5).integers(2**63))
    with coupled(patch):
        return shipped(case, side, runs, patch, seed)


def differences(got: Trace, expected: Trace) -> list[str]:
    """What differs by more than rounding errors and what they grow to in a walk."""
    pairs = ((name, getattr(got, name), getattr(expected, name)) for name in Trace.names())
    return [name for name, a, b in pairs if np.abs(a - b).max() > 1e-5 * np.abs(b).max()]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_same_noise_gives_the_same_numbers(case, side, monkeypatch):
    """Everything that is released and chosen, and L as replaying the shipped code on the neighbour has it."""
    expected = on_the_same_noise(case, side, 12, monkeypatch)
    assert differences(ENGINE.trace(case.fits, side, 12, 5), expected) == []


PLANTED = {
    "momentum": {"momentum": 0.7},
    "noise of later rounds": {"mu_later": 1.03},
    "noise of first rounds": {"mu_first": 1.03},
    "noise of the curvature": {"sigma2": 0.97},
    "no doubt": {"doubt": 0.0},
    "cells of the looks": {"widest_clip": 2.0 ** (2 / 3)},
    "noise of the pilot": {"mu_pilot": 1.03},
    "lengths kept": {"kept_lengths": 0.9},
    "first clip": {"first_clip": 1.03},
    "weights of the average": {"weight": 0.9},
    "slope": {"slope": 1.03},
    "count": {"mu_count": 1.03},
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_shows(planted, monkeypatch):
    """Factors on numbers of the rule."""
    case = CASES[2]
    numbers = case.fits.numbers
    wrong = {name: factor * getattr(numbers, name) for name, factor in PLANTED[planted].items()}
    fits = replace(case.fits, numbers=numbers._replace(**wrong))
    expected = on_the_same_noise(case, 1, 20, monkeypatch)
    assert differences(ENGINE.trace(fits, 1, 20, 5), expected)


def branches(plan: RecenteredPlan, trace: Trace) -> set[str]:
    """Which ways the rule went."""
    kappa, rule = plan.kappa(1.0) * trace.count, plan.rule
    first = np.isclose(trace.clip, rule.first_clip * trace.typical) & (trace.kept == rule.first_kept)
    found = {"clip of the first rounds": first, "clip of the histogram": ~first}
    found |= {"many rounds": kappa < rule.plenty, "few rounds": kappa >= rule.plenty}
    found |= {"pilot": kappa < rule.precise, "no pilot": kappa >= rule.precise}
    return {name for name, runs in found.items() if runs.any()}


EVERY_BRANCH = {"clip of the first rounds", "clip of the histogram", "many rounds", "few rounds", "pilot"}
EVERY_BRANCH |= {"no pilot"}


def test_the_cases_reach_every_branch():
    assert set().union(*(branches(c.plan, ENGINE.trace(c.fits, 0, 50, 1)) for c in CASES)) == EVERY_BRANCH


def smallest_p(got: Trace, expected: Trace) -> dict[str, float]:
    """Kolmogorov and Smirnov for every number, to 12 digits: atoms of B̃ differ in the last bit."""
    columns = {f"theta {j}": (got.theta[:, j], expected.theta[:, j]) for j in range(got.theta.shape[1])}
    columns |= {name: (getattr(got, name), getattr(expected, name)) for name in Trace.names()[1:]}
    return {name: float(stats.ks_2samp(digits(a), digits(b)).pvalue) for name, (a, b) in columns.items()}


def digits(values: np.ndarray) -> np.ndarray:
    return np.array([float(f"{value:.11e}") for value in values])


ALPHA = 1e-4 / 12  # twelve numbers at most


def check_law(case: Case, side: int, runs: int, patch: pytest.MonkeyPatch) -> Trace:
    expected = shipped(case, side, runs, patch, 17)
    found = smallest_p(ENGINE.trace(case.fits, side, 20 * runs, 3), expected)
    assert min(found.values()) > ALPHA, found
    return expected


def test_fresh_noise_has_the_law_of_the_shipped_code(monkeypatch):
    """Its discrete noise and its own Wishart draws; half the noise in the rounds shows in so few runs."""
    case = CASES[2]
    expected = check_law(case, 1, 100, monkeypatch)
    assert noticed(case, 1, expected, mu_first=2.0, mu_later=2.0)


@pytest.mark.full
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_fresh_noise_has_the_law_of_the_shipped_code_everywhere(case, side, monkeypatch):
    expected = check_law(case, side, 500, monkeypatch)
    assert noticed(case, side, expected, mu_first=2.0, mu_later=2.0)
    assert noticed(case, side, expected, floor=1.5)


def noticed(case: Case, side: int, expected: Trace, **factors: float) -> bool:
    """Whether runs with other numbers are told from the shipped ones."""
    numbers = case.fits.numbers
    other = numbers._replace(**{name: f * getattr(numbers, name) for name, f in factors.items()})
    found = ENGINE.trace(replace(case.fits, numbers=other), side, 20 * len(expected.ratio), 3)
    return min(smallest_p(found, expected).values()) < ALPHA


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_ratio_is_a_likelihood_ratio(case):
    """E₁ f(L) = E₀ e^L f(L) for every f, here 1, the sign, and a smooth one; both infinities are right."""
    n = 40_000 if case.d < 5 else 10_000
    left, right = (ENGINE.draw(case.fits, side, n, 7 + side).ratio for side in (0, 1))
    assert np.isfinite(right).any() and not np.isnan(left).any()
    with np.errstate(over="ignore"):
        weights = np.exp(left)
    for f in (np.ones_like, np.sign, np.tanh):
        there, here = f(right), weights * f(left)
        error = math.hypot(there.std(), here.std()) / math.sqrt(n)
        assert abs(there.mean() - here.mean()) < 4.5 * error + 1e-12


def test_a_curvature_that_one_table_cannot_release_tells_them_apart():
    """Few degrees of freedom: S without the record is often not above S with it."""
    case = CASES[2]
    fits = replace(case.fits, numbers=case.fits.numbers._replace(m=3.5, sigma2=0.05))
    left, right = (ENGINE.draw(fits, side, 4000, 1).ratio for side in (0, 1))
    assert (left == -np.inf).any() and not (left == np.inf).any()
    assert not np.isinf(right).any()  # W + Δ is positive definite when W is
    weights = np.exp(left)  # D' releases nothing that D cannot
    assert abs(weights.mean() - 1.0) < 4.5 * weights.std() / math.sqrt(4000)
    assert np.exp(-right).mean() < 1.0 - (left == -np.inf).mean() / 2


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_small_matrices_match_numpy(d):
    rng = np.random.default_rng(d)
    for scale in (1e-6, 1.0, 1e8):
        G = rng.standard_normal((d, d)) * scale
        for S in (G + G.T, G @ G.T, np.diag(np.diag(G)), np.zeros((d, d))):
            values, V = S.copy(), np.empty((d, d))
            diagonalize(values, V)
            size = max(np.abs(S).max(), 1e-300)
            np.testing.assert_allclose(V @ np.diag(np.diag(values)) @ V.T, S, atol=1e-13 * d * size)
            np.testing.assert_allclose(V.T @ V, np.eye(d), atol=1e-13 * d)
        W = G @ G.T
        assert log_determinant(W.copy()) == pytest.approx(np.linalg.slogdet(W)[1], rel=1e-6, abs=1e-6)
        assert log_determinant(W - 2.0 * np.trace(W) * np.eye(d)) == -np.inf


def test_the_numbers_do_not_depend_on_threads_and_are_counted_as_drawn():
    fits, n = CASES[2].fits, 5000
    drawn = ThreadsRecentered(1).draw(fits, 1, n, 4)
    np.testing.assert_array_equal(drawn.ratio, ThreadsRecentered(3).draw(fits, 1, n, 4).ratio)
    assert not np.array_equal(drawn.ratio, ENGINE.draw(fits, 1, n, 5).ratio)
    direction, bins = np.array([0.6, -0.8]), (Bins(-1.0, 1.0, 40), Bins(-5.0, 5.0, 30))
    by_draws = type("Draws", (CountedDraws,), {"draw": lambda self, *_: drawn})()
    for counts in (ENGINE.count(fits, 1, direction, *bins, n, 4), by_draws.count(1, direction, *bins, n, 4)):
        for cells, values, found in zip(bins, (drawn.ratio, drawn.theta @ direction), counts, strict=True):
            np.testing.assert_array_equal(found, np.bincount(cells.index(values), minlength=cells.count))
    assert isinstance(drawn, Drawn)


class WiderClip(RecenteredPlan):
    """A subclass that changes something."""

    def reach(self, geometry):
        return 2.0


def test_only_what_the_kernels_know_is_attacked_with_them():
    case = CASES[2]
    plan, pair = case.plan, case.pair
    assert isinstance(accounted(plan, pair, Threads(1)), AccountedFits)
    changed = WiderClip(**{field.name: getattr(plan, field.name) for field in fields(plan)})
    assert not isinstance(accounted(changed, pair, Threads(1)), AccountedFits)
    more = replace(
        pair, left=Records(0.1 * np.eye(9)[:, :2], np.arange(9) / 9, np.ones(9), plan.problem.domain)
    )
    assert recentered_fits(plan, more) is None
    for problem in (
        replace(plan.problem, regularizer=L2(1.0)),
        replace(plan.problem, constraint=L2Ball(1.0)),
        replace(plan.problem, loss=Poisson(), constraint=L2Ball(1.0)),
    ):
        assert recentered_fits(replace(plan, problem=problem), pair) is None
    for rule in (Rule(edges=11), type("Quick", (Rule,), {"pace": lambda self, kappa: Pace(8, 2, 0.9)})()):
        assert recentered_fits(replace(plan, rule=rule), pair) is None


def test_both_tables_are_the_same_distinct_records():
    fits = CASES[1].fits
    assert fits.counts.sum(1).tolist() == [65.0, 65.0] and len(fits.y) == 6
    assert np.abs(fits.counts[1] - fits.counts[0]).sum() == 2.0
    assert CASES[2].fits.counts.sum(1).tolist() == [480.0, 481.0]


def reached(ratio: np.ndarray, delta: float) -> float:
    """ε with E(1 − e^{ε−L})₊ = δ."""
    low, high = 0.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        above = float(np.maximum(-np.expm1(middle - ratio), 0.0).mean()) > delta
        low, high = (middle, high) if above else (low, middle)
    return low


@pytest.mark.parametrize(("adjacency", "power"), [("add_remove", 0.93), ("replace", 0.87)])
def test_pairs_of_walks_have_power_and_reach_every_branch(adjacency, power):
    """What L reaches of the claim, from 20 000 fits a side: ±0.02."""
    plan = _plan(Case(2, 0.0, adjacency))
    n, best, seen = 20_000, [], set()
    for pair in walk_pairs(plan.problem, 2, plan.mu):
        fits = recentered_fits(plan, pair)
        assert fits is not None
        moved = np.abs(fits.counts[1] - fits.counts[0])
        assert moved.sum() == plan.problem.domain.neighbours.moves and set(moved) <= {0.0, 1.0}
        assert np.linalg.norm(fits.x, axis=1).max() <= plan.problem.domain.x_norm
        traces = [ENGINE.trace(fits, side, 300, 1) for side in (0, 1)]
        seen |= set().union(*(branches(plan, trace) for trace in traces))
        if "no data" in pair.name or "400" in pair.name:
            ratios = [(2 * side - 1) * ENGINE.draw(fits, side, n, 2 + side).ratio for side in (0, 1)]
            best.append(np.mean([reached(ratio, 1e-3) for ratio in ratios]))
    assert seen == EVERY_BRANCH
    assert power < max(best) < 1.04
