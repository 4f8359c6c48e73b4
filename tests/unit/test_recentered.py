"""Recentered QOP: the budget adds up, nothing private steers it, and with little noise it is exact."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from curvedp.data.mapping import Coding
from curvedp.data.rows import ArrayRows, make_rows
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import GaussianNoise
from curvedp.mechanisms.geometry import Geometry, curvature_above, records_beyond
from curvedp.mechanisms.recentered import EXTENTS, Recentered
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.mechanisms.walk import Clip, Rounds
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problems import Problem
from curvedp.problems.constraints import Box, L2Ball
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Multinomial, Squared, SquaredHinge, Weighted
from curvedp.problems.regularizers import L1, L2, GroupL2
from curvedp.release.door import execute
from curvedp.solvers.glm import Objective, Perturbation, solve

ADJACENCIES = ("add_remove", "replace")


def linear_table(n, d, seed=0, noise=0.1):
    """Correlated columns, the last one constant; targets within [−1, 1]."""
    random = np.random.default_rng(seed)
    mix = np.eye(d - 1) + 0.4 * random.normal(size=(d - 1, d - 1)) / math.sqrt(d)
    X = np.clip(0.4 * random.normal(size=(n, d - 1)) @ mix, -1, 1)
    X = np.column_stack([X, np.ones(n)])
    theta = random.normal(size=d) * 0.3
    y = np.clip(X @ theta + noise * random.normal(size=n), -1, 1)
    return X, y, math.sqrt(d)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("epsilon", "delta", "d"), [(0.1, 1e-6, 5), (1.0, 1e-6, 30), (4.0, 1e-8, 3)])
def test_the_budget_adds_up(adjacency, epsilon, delta, d):
    """μ² of all releases, recomputed from what each gets, keeps (ε, δ): the whole curve is one formula."""
    domain = Domain(x_norm=3.0, y_bound=1.0, adjacency=adjacency)
    coding = Coding((0.0,) * d, (), d - 1)
    plan = Recentered(coding=coding).plan(Problem(Squared(), domain=domain), d, Budget(epsilon, delta))
    rule, s = plan.rule, plan.shifts
    for kappa, n in product((1.0, 1e6), (1.0, 300.0, 1e6)):  # few records change the split
        noise = GaussianNoise(np.random.default_rng(0), domain.neighbours)
        pace, walk = rule.pace(kappa), plan.walk_shifts(noise, n)
        columns = [s.columns] if plan.looks_at_columns(noise, n) else []
        parts = [s.count, *columns, s.extent, s.pilot, s.lengths, s.curvature, s.spread, s.scale, s.clip]
        parts += [walk.constant, walk.centre, walk.evidence]
        parts += [walk.first_round(pace)] * pace.first_rounds + [walk.later_round(pace)] * pace.later
        exact = sum(Fraction(part) ** 2 for part in parts)
        assert exact <= Fraction(plan.mu) ** 2
        assert exact >= Fraction(plan.mu) ** 2 * (1 - Fraction(1, 10**12))  # and nothing is left over
    assert hockey_stick(epsilon, plan.mu) < plan.guarantee.delta_at(epsilon) <= delta
    # Grids and rare draws of n̂ cost a billionth of δ and what discreteness adds; no more is held back.
    assert hockey_stick(epsilon, plan.mu) > delta * (1 - 1e-8) - 1e-12
    assert isinstance(plan.guarantee.profile, GaussianProfile)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_is_a_person_with_one_row(adjacency, weighted):
    """The same plan, and with the same draws the same answers, for n rows and for n persons of one row."""
    X, y, B = linear_table(2000, 4)
    if weighted:
        y = np.column_stack([y, np.random.default_rng(3).uniform(0.0, 1.0, len(y))])
    fits = []
    for unit in (None, "person"):
        domain = Domain(x_norm=B, adjacency=adjacency, unit=unit, weighted=weighted)
        loss = Weighted(Squared()) if weighted else Squared()
        plan = Recentered().plan(Problem(loss, domain=domain), 4, Budget(1.0, 1e-6))
        people = {} if unit is None else {"unit": np.random.default_rng(4).permutation(len(X))}
        rows = make_rows(X, y, domain, **people)
        fits.append((plan.shifts, plan.profile, plan.release(rows, np.random.default_rng(5)).theta))
    assert fits[0][:2] == fits[1][:2]
    np.testing.assert_allclose(fits[0][2], fits[1][2], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_loose_bounds_are_found_before_the_pilot(adjacency):
    """Records a sixteenth as long as declared: the pilot's noise follows the lengths, not the bound."""
    X, y, B = linear_table(4000, 4)
    lengths = {}
    for loose in (1.0, 10.0):
        problem = Problem(Squared(), domain=Domain(x_norm=loose * B, adjacency=adjacency))
        plan = Recentered().plan(problem, 4, Budget(1.0, 1e-6))
        noise = GaussianNoise(np.random.default_rng(0), problem.domain.neighbours)
        rows, bound = ArrayRows(X, y, problem.domain), problem.domain.x_norm
        lengths[loose] = plan._bound("extent", rows, noise, float(len(X)), bound * EXTENTS, bound)[0]
    inside = np.linalg.norm(X, axis=1)
    assert np.mean(inside <= lengths[10.0]) >= 0.8 and lengths[10.0] <= 2.0 * np.quantile(inside, 0.8)
    assert lengths[1.0] == pytest.approx(lengths[10.0], rel=0.5)


def test_where_noise_hides_the_lengths_the_bound_is_taken():
    X, y, B = linear_table(20, 4)
    problem = Problem(Squared(), domain=Domain(x_norm=B, adjacency="replace"))
    plan = Recentered().plan(problem, 4, Budget(0.01, 1e-6))
    found = []
    for seed in range(40):
        noise = GaussianNoise(np.random.default_rng(seed), problem.domain.neighbours)
        rows = ArrayRows(X, y, problem.domain)
        found.append(plan._bound("extent", rows, noise, 20.0, B * EXTENTS, B)[0] / B)
    assert np.median(found) == max(found) == pytest.approx(1.0)  # no row is longer


def test_persons_may_be_longer_than_a_row():
    """What a row cannot be noise is not asked for; a person with 16 equal rows is four times as long."""
    X, y, B = linear_table(16_000, 4)
    found = []
    for size in (1, 16):
        problem = Problem(Squared(), domain=Domain(x_norm=B, adjacency="add_remove", unit="person"))
        plan = Recentered().plan(problem, 4, Budget(1.0, 1e-6))
        rows = make_rows(
            np.repeat(X[::size], size, axis=0), y, problem.domain, unit=np.arange(16_000) // size
        )
        noise = GaussianNoise(np.random.default_rng(0), problem.domain.neighbours)
        found.append(plan._bound("extent", rows, noise, 16_000.0 / size, B * EXTENTS, B)[0])
    assert found[1] > 2.5 * found[0]


def test_under_replace_the_count_is_public_and_its_share_goes_to_the_rounds():
    rule = Rule()
    hidden = Shifts.split(1.0, rule, Neighbours("add_remove"))
    public = Shifts.split(1.0, rule, Neighbours("replace"))
    assert public.count == 0.0 < hidden.count
    assert public.rest > hidden.rest
    assert public.total == pytest.approx(hidden.total, rel=1e-12)


def test_the_plan_is_public_and_the_release_states_it():
    X, y, B = linear_table(400, 4)
    problem = Problem(Squared(), domain=Domain(x_norm=B, adjacency="add_remove"))
    plan = Recentered().plan(problem, 4, Budget(1.0, 1e-6))
    stated = []
    for rows in (ArrayRows(X, y, problem.domain), ArrayRows(X[:-1], y[:-1], problem.domain)):
        released = execute(plan, rows, random_state=1)
        assert released.value.theta.shape == (4, 1)
        stated.append(dict(released.privacy.parameters))
    assert stated[0] == stated[1]
    assert released.privacy.theorem == "(P-9)"
    assert not any(str(len(X)) == str(value) for value in stated[0].values())


class Door:
    """Rows that keep a record of what was asked of them."""

    def __init__(self, rows, log):
        self.rows, self.log = rows, log

    @property
    def d(self):
        return self.rows.d

    def count(self):
        self.log.append(("count", None))
        return self.rows.count()

    def moments(self):
        self.log.append(("moments", None))
        return self.rows.moments()

    def norm_histogram(self, edges):
        self.log.append(("lengths", edges))
        return self.rows.norm_histogram(edges)

    def gradient_norm_histogram(self, loss, theta, edges):
        self.log.append(("histogram", edges))
        return self.rows.gradient_norm_histogram(loss, theta, edges)

    def gradient_sum(self, loss, theta, clip=None):
        assert clip is not None
        self.log.append(("gradient", clip))
        return self.rows.gradient_sum(loss, theta, clip)

    def in_metric(self, metric, bound=None):
        return Door(self.rows.in_metric(metric, bound), self.log)


@pytest.mark.parametrize(
    ("n", "precise", "rounds"), [(30, 4000.0, 64), (3000, 4000.0, 64), (30000, 4000.0, 24), (3000, 1.0, 64)]
)
def test_data_are_asked_exactly_what_was_accounted(n, precise, rounds):
    """One count, two Gram matrices, five histograms, clipped gradients; with plenty of data no pilot."""
    X, y, B = linear_table(n, 4)
    problem = Problem(Squared(), domain=Domain(x_norm=B, adjacency="add_remove"))
    log = []
    plan = Recentered(Rule(precise=precise)).plan(problem, 4, Budget(0.5, 1e-6))
    plan.release(Door(ArrayRows(X, y, problem.domain), log), np.random.default_rng(0))
    first = rounds // 4
    geometry = ["lengths", "moments"] + ([] if precise == 1.0 else ["lengths", "moments"])
    walk = ["lengths", "histogram"] + ["gradient"] * first + ["histogram"] + ["gradient"] * (rounds - first)
    assert [kind for kind, _ in log] == ["count", *geometry, *walk]
    clips = [clip for kind, clip in log if kind == "gradient"]
    assert len(set(clips[:first])) == 1
    assert len(set(clips[first:])) == 1


def nonprivate(problem, X, y):
    zero = np.zeros((X.shape[1], problem.loss.n_outputs))
    ridge = Perturbation(zero, zero, 1e-3 * np.eye(zero.size))
    return solve(Objective(problem, ArrayRows(X, y, problem.domain), ridge), 1e-4).theta


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "loss", [Squared(), Huber(0.2), Logistic(), SquaredHinge(), Multinomial(3)], ids=lambda loss: loss.name
)
def test_with_little_noise_it_finds_the_optimum(loss, adjacency):
    X, s, B = linear_table(6000, 4, noise=0.3)
    y = s
    if loss.n_outputs == 3:
        y = np.digitize(s, [-0.3, 0.3]).astype(float)
    elif loss.name in ("logistic", "squared_hinge"):
        y = np.where(s + 0.3 * np.random.default_rng(5).normal(size=len(s)) > 0, 1.0, -1.0)
    problem = Problem(loss, domain=Domain(x_norm=B, adjacency=adjacency))
    exact = nonprivate(problem, X, y)
    rule = Rule(rounds=400, first_rounds=100, clipped=0.02)
    plan = Recentered(rule).plan(problem, 4, Budget(300.0, 0.1))
    theta = plan.release(ArrayRows(X, y, problem.domain), np.random.default_rng(2)).theta
    gap = X @ (theta - exact)
    gap = gap - gap.mean(axis=1, keepdims=True) if loss.n_outputs > 1 else gap
    spread = X @ exact
    spread = spread - spread.mean(axis=1, keepdims=True) if loss.n_outputs > 1 else spread
    assert np.sqrt(np.mean(gap**2) / np.mean(spread**2)) < 0.03


@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [
        (L1(40.0), None),
        (L2(50.0), None),
        (GroupL2(30.0, ((0, 1), (2, 3))), None),
        (L1(5.0), Box(0.15)),
        (None, L2Ball(0.3)),
    ],
    ids=["l1", "l2", "group", "l1 in a box", "ball"],
)
def test_any_regularizer_and_constraint(regularizer, constraint):
    X, y, B = linear_table(4000, 5, noise=0.2)
    problem = Problem(Squared(), domain=Domain(x_norm=B, adjacency="add_remove"))
    if regularizer is not None:
        problem = replace(problem, regularizer=regularizer)
    if constraint is not None:
        problem = replace(problem, constraint=constraint)
    exact = nonprivate(problem, X, y)
    rule = Rule(clipped=0.02)
    theta = (
        Recentered(rule)
        .plan(problem, 5, Budget(300.0, 0.1))
        .release(ArrayRows(X, y, problem.domain), np.random.default_rng(2))
        .theta
    )
    np.testing.assert_allclose(problem.constraint.project(theta), theta, atol=1e-12)
    assert np.linalg.norm(theta - exact) < 0.03 * max(np.linalg.norm(exact), 0.3)
    if isinstance(regularizer, L1) and constraint is None:
        np.testing.assert_array_equal(theta == 0, exact == 0)


def test_a_few_long_records_seldom_spoil_a_fit(monkeypatch):
    """The noise of a histogram may say that too many records lie beyond a clip: in doubt the smaller one,
    and none that is far from what is taken where it says nothing.
    """
    random = np.random.default_rng(0)
    X = 0.08 * random.normal(size=(1200, 7))
    X[random.random(1200) < 0.05] *= 8.0
    X = np.column_stack([np.clip(X, -1, 1), np.ones(1200)])
    y = np.clip(X @ random.normal(size=8) * 0.5 + 0.12 * random.normal(size=1200), -1, 1)
    problem = Problem(Squared(), domain=Domain(x_norm=math.sqrt(8.0), adjacency="replace"))
    rows = ArrayRows(X[:960], y[:960], problem.domain)

    def low(doubt):
        plan = Recentered(Rule(doubt=doubt)).plan(problem, 8, Budget(1.0, 1e-6))
        errors = [
            np.mean((X[960:] @ plan.release(rows, np.random.default_rng(seed)).theta[:, 0] - y[960:]) ** 2)
            for seed in range(30)
        ]
        return 1.0 - np.quantile(errors, 0.9) / np.var(y[960:])

    assert low(Rule().doubt) > 0.3
    monkeypatch.setattr(Rounds, "room", 1e9)  # planted: no doubt, wherever the clip is
    assert low(0.0) < 0.0


@pytest.mark.parametrize("loss", [Squared(), Multinomial(3)])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_clips_that_nothing_released_chooses(loss, adjacency, monkeypatch):
    """Of 150 records the histogram that would choose a clip is noise; of classes the first is longer."""
    X, y, B = linear_table(150, 4)
    y = y if loss == Squared() else np.arange(150.0) % 3
    problem, walks = Problem(loss, domain=Domain(x_norm=B, adjacency=adjacency)), []

    def heard(self, theta, clip, *rest):
        walks.append(clip.size / self.typical)
        return walk(self, theta, clip, *rest)

    walk = Rounds.walk
    monkeypatch.setattr(Rounds, "walk", heard)
    plan = Recentered(coding=Coding(constant=3)).plan(problem, 4, Budget(1.0, 1e-6))
    plan.release(ArrayRows(X, y, problem.domain), np.random.default_rng(0))
    farther = math.sqrt(2.0) if adjacency == "replace" else 1.0
    expected = [0.25, 0.5 / farther] if loss == Squared() else [0.7 / farther] * 2
    np.testing.assert_allclose(walks, expected)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_clip_is_as_far_from_the_one_taken_unseen_as_noise_allows(adjacency, monkeypatch):
    """Of 500 records a histogram says little: at most twice, or half, what is taken where it says nothing."""
    X, y, B = linear_table(500, 4)
    problem, clips = Problem(Squared(), domain=Domain(x_norm=B, adjacency=adjacency)), []

    def heard(self, theta):
        clips.append(chosen(self, theta).size / self.typical)
        return Clip(clips[-1] * self.typical, 0.8)

    chosen = Rounds.choose_clip
    monkeypatch.setattr(Rounds, "choose_clip", heard)
    plan = Recentered().plan(problem, 4, Budget(1.0, 1e-6))

    def extremes():
        clips.clear()
        for seed in range(20):
            plan.release(ArrayRows(X, y, problem.domain), np.random.default_rng(seed))
        return min(clips), max(clips)

    unseen = 0.5 / math.sqrt(2.0) if adjacency == "replace" else 0.5
    low, high = extremes()
    assert unseen / 2.0 <= low <= high <= 2.0 * unseen
    monkeypatch.setattr(Rounds, "room", 1e9)  # planted: believed as it is
    assert extremes()[1] > 3.0 * unseen


def test_what_explains_little_is_believed_by_its_own_scatter(monkeypatch):
    """Log-odds of deviation 0.2: measured in units of the targets, their noise would be taken for them."""
    random = np.random.default_rng(3)
    X = np.hstack([random.uniform(-1, 1, (4500, 8)), np.ones((4500, 1))])
    log_odds = X @ np.append(random.normal(size=8), 0.0)
    log_odds *= 0.2 / np.std(log_odds)
    y = np.where(random.random(4500) < 1 / (1 + np.exp(-log_odds)), 1.0, -1.0)
    problem = Problem(Logistic(), domain=Domain(x_norm=3.0, adjacency="add_remove"))
    plan = Recentered(coding=Coding(constant=8), inference=True).plan(problem, 9, Budget(1.0, 1e-6))
    rows = ArrayRows(X[:500], y[:500], problem.domain)

    def gained():
        fits = [plan.release(rows, np.random.default_rng(seed)).theta[:, 0] for seed in range(40)]
        return np.mean([1 - np.mean(np.logaddexp(0, -y[500:] * (X[500:] @ fit))) / np.log(2) for fit in fits])

    ours = gained()
    monkeypatch.setattr(Geometry, "squares", lambda self, theta: (math.inf, 0.0))
    assert ours > -0.013 > -0.015 > gained()


def test_hopeless_noise_stays_finite():
    X, y, B = linear_table(50, 6)
    for adjacency in ADJACENCIES:
        problem = Problem(Logistic(), domain=Domain(x_norm=B, adjacency=adjacency))
        plan = Recentered().plan(problem, 6, Budget(0.01, 1e-9))
        for seed in range(3):
            theta = plan.release(ArrayRows(X, np.sign(y), problem.domain), np.random.default_rng(seed)).theta
            assert np.all(np.isfinite(theta))


def test_one_column_and_no_rows():
    problem = Problem(Squared(), domain=Domain(adjacency="add_remove"))
    plan = Recentered().plan(problem, 1, Budget(1.0, 1e-6))
    assert np.isfinite(
        plan.release(ArrayRows(np.zeros((0, 1)), np.zeros(0), problem.domain), np.random.default_rng(0)).theta
    )


def test_curvature_above_is_positive_and_capped():
    S = np.diag([-5.0, 0.5, 100.0])
    values, vectors = curvature_above(S, 2.0, 10.0)
    np.testing.assert_allclose(np.sort(values), [2.0, 2.5, 12.0])
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(curvature_above(S, 50.0, 10.0)[0], [10.0, 10.5, 20.0])


def test_beyond_counts_from_the_far_end():
    np.testing.assert_array_equal(records_beyond(np.array([5.0, 3.0, 2.0, -4.0])), [1.0, 0.0, 0.0])


def test_rules_that_spend_too_much_are_refused():
    with pytest.raises(InvalidInput, match="shares"):
        Rule(curvature_share=0.95)
    with pytest.raises(InvalidInput, match="shares"):
        Rule(pilot_share=0.0)
    with pytest.raises(InvalidInput, match="first_rounds"):
        Rule(rounds=10, first_rounds=10)
