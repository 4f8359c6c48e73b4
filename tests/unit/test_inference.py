"""A fit with intervals: its budget adds up, it refuses what it cannot tell, it says what it means."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from curvedp import randomness
from curvedp.data.mapping import Coding
from curvedp.data.rows import ArrayRows
from curvedp.data.rows.base import CELLS
from curvedp.errors import InvalidInput
from curvedp.mechanisms import ending, walk
from curvedp.mechanisms.base import GaussianNoise, Grid, excess, make_plan
from curvedp.mechanisms.ending import EDGES
from curvedp.mechanisms.geometry import LOOK_EDGES, means_of
from curvedp.mechanisms.recentered import EXTENTS, Recentered, RecenteredPlan
from curvedp.mechanisms.rule import COUNTS, Rule, Shifts
from curvedp.postprocess.inference import Functionals
from curvedp.postprocess.noise import DECIDED
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problems import Problem
from curvedp.problems.constraints import L2Ball, NonNegative
from curvedp.problems.domain import Domain
from curvedp.problems.losses import (
    Huber,
    Logistic,
    Multinomial,
    OneVsRest,
    Poisson,
    Squared,
    SquaredHinge,
    SquaredSeveral,
)
from curvedp.problems.regularizers import L1, L2
from curvedp.release.door import execute

ADJACENCIES = ("add_remove", "replace")
QUICK = Rule(rounds=16, first_rounds=4, least_kappa=0.0, most_hidden=1e9, sure=1e9)  # nothing is spared
LONG = replace(QUICK, rounds=64, first_rounds=16)
ENDING = ("bread", "tail", "meat", "beyond")


def problem_for(adjacency="add_remove", loss=None, d=4, **options):
    return Problem(loss or Squared(), domain=Domain(math.sqrt(d), 1.0, adjacency), **options)


def plan_for(problem, d=4, epsilon=1.0, rule=QUICK, blocks=(), delta=1e-6):
    listed = {column for block in blocks for column in block}
    coding = Coding(tuple(float(j in listed) for j in range(d)), blocks, d - 1)
    return Recentered(rule, coding, inference=True).plan(problem, d, Budget(epsilon, delta))


def linear_table(n, d, seed=0):
    """Independent columns in [−1, 1], the last one constant."""
    random = np.random.default_rng(seed)
    X = np.column_stack([random.uniform(-1, 1, (n, d - 1)), np.ones(n)])
    return X, np.clip(X @ np.linspace(-0.3, 0.3, d) + 0.1 * random.normal(size=n), -1, 1)


def fitted(X, y, epsilon=3.0, adjacency="add_remove", blocks=(), seed=0, rule=QUICK):
    plan = plan_for(problem_for(adjacency, d=X.shape[1]), X.shape[1], epsilon, rule, blocks)
    return plan.release(ArrayRows(X, y, plan.problem.domain), randomness.generator(seed)).inference


# --- the budget -----------------------------------------------------------------------------------


def walk_of(plan, n):
    noise = GaussianNoise(randomness.generator(0), plan.problem.domain.neighbours)
    return plan.walk_shifts(noise, n)


def every_shift(plan, kappa=0.0):
    """Of a fit with this κ, which chooses how many rounds there are."""
    s, pace, walk = plan.shifts, plan.rule.pace(kappa), walk_of(plan, 1000.0 * (1.0 + kappa))
    rounds = [walk.first_round(pace)] * pace.first_rounds + [walk.later_round(pace)] * pace.later
    looks = [s.count, s.columns, s.extent, s.pilot, s.lengths, s.curvature, s.spread, s.scale, s.clip]
    constant = [walk.constant, walk.centre, walk.evidence]
    return [*looks, *constant, *rounds, *(getattr(s, name) for name in ENDING)]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kappa", [0.0, 1e6])
@pytest.mark.parametrize(("epsilon", "delta", "d"), [(0.1, 1e-6, 4), (1.0, 1e-6, 4), (4.0, 1e-8, 20)])
def test_the_squares_of_all_shifts_stay_below_that_of_mu_exactly(adjacency, epsilon, delta, d, kappa):
    """However many rounds are chosen: they cost the same together."""
    plan = plan_for(problem_for(adjacency, d=d), d, epsilon, LONG, delta=delta)
    exact = sum(Fraction(mu) ** 2 for mu in every_shift(plan, kappa))
    allowed = Fraction(plan.mu) ** 2
    assert exact <= allowed
    assert exact >= allowed * (1 - Fraction(1, 10**12))  # and nothing is left over
    assert min(getattr(plan.shifts, name) for name in ENDING) > 0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_all_releases_together_keep_the_promise(adjacency):
    budget = Budget(1.0, 1e-6)
    plan = plan_for(problem_for(adjacency), rule=LONG)
    total = math.sqrt(math.fsum(mu**2 for mu in every_shift(plan)))
    assert hockey_stick(budget.epsilon, total) <= budget.delta
    assert plan.guarantee.delta_at(budget.epsilon) <= budget.delta
    # What discreteness adds is counted for every release that is made, and so is a rare n̂.
    rule = plan.rule
    assert rule.rounds >= rule.quick_rounds
    looks = [1, CELLS * 3, len(EXTENTS) + 1, 16, rule.edges + 1, 16, *[LOOK_EDGES + 1] * 2, rule.edges + 4]
    dims = [*looks, 1, 1, 2, *[4] * rule.rounds, 16, EDGES + 1, 16, 4]
    assert plan.guarantee.profile.excess >= excess(dims, [max(every_shift(plan))] * len(dims))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_planted_share_too_much_is_seen_by_the_exact_sum(adjacency):
    """The test above bites: one more part in 10⁹ would exceed μ."""
    plan = plan_for(problem_for(adjacency), rule=LONG)
    more = replace(plan, shifts=replace(plan.shifts, bread=plan.shifts.bread * (1 + 1e-9)))
    assert sum(Fraction(mu) ** 2 for mu in every_shift(more)) > Fraction(plan.mu) ** 2


def test_without_intervals_their_shares_go_to_the_rounds():
    for adjacency in ADJACENCIES:
        plain, told = (
            Shifts.split(1.0, Rule(), Neighbours(adjacency), inference=inference)
            for inference in (False, True)
        )
        assert all(getattr(plain, name) == 0 for name in ENDING)
        assert plain.rest > told.rest and plain.clip == told.clip
        assert plain.total == pytest.approx(told.total, rel=1e-12)
    for bad in ({"bread_share": 0.9}, {"meat_share": 0.0}, {"beyond_share": -0.1}):
        with pytest.raises(InvalidInput, match="shares"):
            Rule(**bad)


def test_every_release_is_counted_and_made_once(monkeypatch):
    """The μ of each release, in order, are those of the plan."""
    made, counts = [], []
    for name in ("add", "add_symmetric"):
        before = getattr(Grid, name)

        def spy(grid, value, random, name="", before=before):
            made.append(grid.share)
            noisy = before(grid, value, random, name)
            counts.extend(noisy if name == "count" else ())
            return noisy

        monkeypatch.setattr(Grid, name, spy)
    X, y = linear_table(300, 4)
    plan = plan_for(problem_for())
    plan.release(ArrayRows(X, y, plan.problem.domain), randomness.generator(0))
    s, pace, walk = plan.shifts, QUICK.pace(0.0), walk_of(plan, counts[0])
    first = [s.count, s.columns, s.extent, s.pilot, s.lengths, s.curvature, walk.constant]
    looks, rounds = [s.spread, s.scale, walk.centre], [walk.first_round(pace)] * 4
    rounds += [s.clip, *[walk.later_round(pace)] * 12]
    assert made == [*first, *looks, *rounds, s.bread, s.tail, s.meat, s.beyond, walk.evidence]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_guarantee_names_every_part(adjacency):
    plan = plan_for(problem_for(adjacency))
    stated = plan.guarantee.parameters
    walk = ("count", "columns", "extent", "pilot", "lengths", "curvature", "spread", "scale", "clip")
    for name in (*walk, *ENDING):
        assert stated[f"mu_{name}"] == getattr(plan.shifts, name)
    assert plan.guarantee.private
    plain = Recentered(QUICK).plan(plan.problem, 4, Budget(1.0, 1e-6))
    assert not {f"mu_{name}" for name in ENDING} & plain.guarantee.parameters.keys()


# --- refusals, all before anything is charged -----------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regularizer": L2(0.1)}, "alpha=0"),
        ({"regularizer": L1(0.1)}, "alpha=0"),
        ({"constraint": L2Ball(2.0)}, "constraint"),
        ({"constraint": NonNegative()}, "constraint"),
        ({"loss": SquaredSeveral(2)}, "one number or for classes"),
        ({"loss": OneVsRest(Logistic(), 3)}, "one number or for classes"),
    ],
)
def test_penalties_constraints_and_several_outputs_are_refused_in_the_plan(options, words):
    loss = options.pop("loss", Squared())
    with pytest.raises(InvalidInput, match=words):
        plan_for(problem_for(loss=loss, **options))


def test_a_penalty_of_weight_zero_is_none():
    assert plan_for(problem_for(regularizer=L2(0.0))).inference


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    "coding",
    [
        Coding((1.0, 1.0)),
        Coding((1.0, -1.0, 0.0, 0.0)),
        Coding((1.0, math.inf, 0.0, 0.0)),
        Coding(blocks=((0, 1), (1, 2))),
        Coding(blocks=((3, 4),)),
    ],
)
def test_a_coding_of_other_columns_is_refused(coding, inference):
    with pytest.raises(InvalidInput, match=r"coding|distinct"):
        Recentered(QUICK, coding, inference).plan(problem_for(), 4, Budget(1.0, 1e-6))


@pytest.mark.parametrize("loss", [Poisson(), Poisson(500.0)], ids=["unbounded", "huge"])
def test_a_loss_without_a_moderate_curvature_is_refused(loss):
    """Noise for a bound of e^500 would overflow after the charge."""
    mechanism = Recentered(QUICK, inference=True)
    with pytest.raises(InvalidInput, match="max_margin"):
        make_plan(mechanism, problem_for(loss=loss), 4, Budget(1.0, 1e-6))
    assert make_plan(mechanism, problem_for(loss=Poisson(2.0)), 4, Budget(1.0, 1e-6))


def test_a_loss_without_a_mean_response_is_refused():
    with pytest.raises(InvalidInput, match="probabilities"):
        plan_for(problem_for(loss=SquaredHinge()))


# --- few records, weak directions ------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", [Squared(), Huber(0.2), Logistic()], ids=lambda loss: loss.name)
def test_a_table_of_few_rows_or_none_gives_no_error(adjacency, loss):
    """With the constants as they are intervals are not even tried; without, next to nothing is stated."""
    plan, stated = plan_for(problem_for(adjacency, loss)), []
    assert not plan_for(problem_for(adjacency, loss), rule=Rule()).infers(30.0)
    for n, seed in product((0, 1, 3, 30), range(12)):
        X, y = linear_table(n, 4)
        y = np.where(y > 0, 1.0, -1.0) if loss.name == "logistic" else y
        found = plan.release(ArrayRows(X, y, plan.problem.domain), randomness.generator(seed)).inference
        assert np.isfinite(found.theta).all()
        told = found.of(np.eye(4))
        assert np.array_equal(np.isnan(told.half_width(0.95)), ~told.resolved)
        stated.append(told.resolved)
    assert np.mean(stated[:-12]) <= 0.15


def test_a_column_that_is_there_twice_refuses_both_and_nothing_else():
    X, y = linear_table(4000, 4)
    X = np.column_stack([X[:, 0], X])  # columns 0 and 1 are the same
    told = np.mean([fitted(X, y, seed=seed).of(np.eye(5)).resolved for seed in range(8)], axis=0)
    assert told[:2].max() <= 0.25 and told[2:].min() >= 0.75
    # Their sum is told: only how it splits is not known.
    both = [fitted(X, y, seed=seed).of(np.array([[1.0, 1, 0, 0, 0]])) for seed in range(8)]
    assert np.mean([f.resolved for f in both]) >= 0.75
    assert abs(np.mean([f.estimate for f in both]) + 0.3) < 0.02


def test_an_empty_level_leaves_differences_of_the_others():
    """Three levels, the last of which no record has: it is refused, and blurs nothing else."""
    random = np.random.default_rng(1)
    n, level = 6000, np.random.default_rng(2).integers(0, 2, 6000)
    X = np.column_stack([random.uniform(-1, 1, n), np.eye(3)[level] - 1 / 3, np.ones(n)])
    y = np.clip(0.3 * X[:, 0] + 0.2 * (level == 0) + 0.1 * random.normal(size=n), -1, 1)
    wanted = {  # the intercept of the user's units is that of a record without a level
        "slope": ([1.0, 0.0, 0.0, 0.0, 0.0], 0.3),
        "level": ([0.0, 1.0, 0.0, 0.0, 0.0], 0.1),
        "difference": ([0.0, 1.0, -1.0, 0.0, 0.0], 0.2),
        "intercept": ([0.0, -1 / 3, -1 / 3, -1 / 3, 1.0], 0.1),
    }
    told, seen = dict.fromkeys(wanted, 0), 0
    for seed in range(8):
        found = fitted(X, y, blocks=((1, 2, 3),), seed=seed)
        for name, (functional, truth) in wanted.items():
            stated = found.of(np.array([functional]))
            told[name] += int(stated.resolved[0])
            assert abs(stated.estimate[0] - truth) < 0.05
        for functional in ([0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0, 0.0]):
            seen += int(found.of(np.array([functional])).resolved[0])
    assert seen <= 1 and min(told.values()) >= 7


@pytest.mark.parametrize("n", [0, 4, 20])
def test_of_a_category_whose_levels_may_all_be_empty_one_stays(n):
    """Where all were left out, the constant went with them, and a fit failed that was charged already."""
    level = np.arange(n) % 2
    X = np.column_stack([np.eye(2)[level] - 1 / 2, np.ones(n)])
    for seed in range(12):
        found = fitted(X, 0.2 * level, 1.0, blocks=((0, 1),), seed=seed)
        assert found.basis.shape[1] >= 1 and np.isfinite(found.theta).all()
        assert np.isfinite(found.of(np.eye(3)).estimate).all()


def test_a_rare_level_spoils_no_coefficient():
    """One record in a hundred: as shipped before the metric knew of levels, errors grew a hundredfold."""
    random = np.random.default_rng(1)
    n = 10_000
    level = random.choice(3, n, p=[0.6, 0.39, 0.01])
    X = np.column_stack([random.uniform(-1, 1, n), np.eye(3)[level] - 1 / 3, np.ones(n)])
    y = np.clip(0.3 * X[:, 0] + 0.2 * (level == 0) + 0.3 * (level == 2) + 0.1 * random.normal(size=n), -1, 1)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    fits = [fitted(X, y, 1.0, blocks=((1, 2, 3),), seed=seed, rule=Rule()) for seed in range(10)]
    errors = [fit.theta[:, 0] - best for fit in fits]
    size = np.sqrt(np.mean(np.square(errors), axis=0))
    assert size[0] < 0.01 and size[1:].max() < 0.05


def classified(random, n, shares, odds):
    """(X, y) of one number and a category, whose levels have these shares and chances of the first class."""
    level = random.choice(len(shares), n, p=shares)
    X = np.column_stack([random.uniform(-1, 1, n), np.eye(len(shares))[level] - 1 / len(shares), np.ones(n)])
    margin = np.log(odds / (1.0 - odds))[level] + 0.5 * X[:, 0]
    return X, np.where(random.random(n) < 1.0 / (1.0 + np.exp(-margin)), 1.0, -1.0), level


def told_levels(X, y, seeds=8):
    """How often the number and each level are stated."""
    d = X.shape[1]
    plan = plan_for(problem_for("add_remove", Logistic(), d), d, 3.0, Rule(), (tuple(range(1, d - 1)),))
    rows = ArrayRows(X, y, plan.problem.domain)
    fits = [plan.release(rows, randomness.generator(seed)).inference for seed in range(seeds)]
    return np.mean([fit.of(np.eye(d)[:-1]).resolved for fit in fits], axis=0)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["none", "all"])
def test_a_level_with_one_outcome_is_refused_and_no_other(sign, monkeypatch):
    """Its coefficient is infinite: no interval holds it. That of a level with few such records is finite."""
    shares, odds = [0.5, 0.3, 0.12, 0.08], np.array([0.5, 0.3, 0.4, 0.1])
    X, y, level = classified(np.random.default_rng(7), 12_000, shares, odds)
    y = sign * y
    assert told_levels(X, y).min() >= 0.75  # 96 records with the rarer outcome
    y[level == 3] = -sign
    told = told_levels(X, y)
    assert told[-1] == 0.0 and told[:-1].min() >= 0.75
    monkeypatch.setattr(ending, "ONE_SIDED", -1.0)  # planted: nothing is asked
    assert told_levels(X, y)[-1] >= 0.25


@pytest.mark.parametrize("loss", [Poisson(0.0), Multinomial(3)], ids=lambda loss: loss.name)
def test_a_level_without_counts_or_without_a_class_is_refused_and_no_other(loss, monkeypatch):
    """They are at −∞, too. Of several classes the level is left out whole."""
    random, n = np.random.default_rng(10), 12_000
    level = random.choice(4, n, p=[0.5, 0.3, 0.14, 0.06])
    X = np.column_stack([random.uniform(-1, 1, n), np.eye(4)[level] - 0.25, np.ones(n)])
    margins = np.outer(X[:, 0], [0.5, 0.0, -0.5])
    margins[:, 0] += np.array([0.0, 0.5, 0.3, -0.3])[level]
    classes = np.argmax(margins + random.gumbel(size=(n, 3)), axis=1)
    counts = np.minimum(random.poisson(np.exp(margins[:, 0])), 8) / 8.0
    y = counts if loss.name == "poisson" else classes.astype(float)
    rule = COUNTS if y is counts else Rule()
    plan = plan_for(problem_for("add_remove", loss, 6), 6, 6.0, rule, ((1, 2, 3, 4),))
    stated = np.eye(6)[:5] if y is counts else np.kron([[-1.0, 0.0, 1.0]], np.eye(6)[:5])

    def told() -> np.ndarray:
        rows = ArrayRows(X, y, plan.problem.domain)
        fits = [plan.release(rows, randomness.generator(seed)).inference for seed in range(6)]
        return np.mean([fit.of(stated).resolved for fit in fits], axis=0)

    assert told().min() >= 0.8
    y = np.where(level < 3, y, 0.0 if y is counts else np.minimum(y, 1.0))
    found = told()
    assert found[-1] <= 0.2 and found[:-1].min() >= 0.8  # one in twenty is not noticed
    monkeypatch.setattr(ending, "ONE_SIDED", -1.0)  # planted: nothing is asked
    assert told()[-1] >= 0.3


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=lambda loss: loss.name)
def test_classes_that_columns_decide_have_no_intervals(loss, monkeypatch):
    """No odds are finite then. Odds that rise steeply are, and are stated."""
    random, n = np.random.default_rng(11), 20_000
    X = np.column_stack([random.uniform(-1, 1, (n, 2)), np.ones(n)])
    plan = plan_for(problem_for("add_remove", loss, 3), 3, 3.0, Rule())

    def ends(noise: float) -> list:
        s = X[:, 0] + 0.3 * X[:, 1] + noise * random.logistic(size=n)
        y = np.sign(s) if loss.n_outputs == 1 else np.digitize(s, [-0.4, 0.4]).astype(float)
        rows = ArrayRows(X, y, plan.problem.domain)
        return [plan.release(rows, randomness.generator(seed)) for seed in range(8)]

    assert all(end.inference is not None for end in ends(0.15))  # log-odds of up to 9
    assert all(end.inference is None and end.noise.reason == DECIDED for end in ends(0.0))
    monkeypatch.setattr(ending, "SCATTER", 0.0)  # planted: nothing is asked
    assert all(end.inference.of(np.eye(3 * loss.n_outputs)).resolved.any() for end in ends(0.0))


def test_two_values_are_levels_too():
    """Of a column that is −1 or 1: where one of them has one outcome, its coefficient is not stated."""
    random, n = np.random.default_rng(8), 12_000
    X = np.column_stack([random.uniform(-1, 1, n), np.where(random.random(n) < 0.1, 1.0, -1.0), np.ones(n)])
    y = np.where(random.random(n) < 0.4, 1.0, -1.0)
    coding = Coding((0.0, ending.TWO_VALUES, 0.0), (), 2)
    problem = problem_for("add_remove", Logistic(), 3)
    plan = Recentered(Rule(), coding, inference=True).plan(problem, 3, Budget(3.0, 1e-6))

    def told() -> np.ndarray:
        rows = ArrayRows(X, y, plan.problem.domain)
        fits = [plan.release(rows, randomness.generator(seed)).inference for seed in range(6)]
        return np.mean([fit.of(np.eye(3)).resolved for fit in fits], axis=0)

    assert told().min() == 1.0
    y[X[:, 1] > 0] = -1.0
    assert told()[0] == 1.0 and told()[1] == 0.0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_pilot_sees_rare_levels_of_a_class(adjacency):
    """Where S shortened the records of a level of 1 %, the walk went astray along it."""
    shares, odds = [0.45, 0.3, 0.15, 0.07, 0.02, 0.01], np.array([0.4, 0.2, 0.3, 0.25, 0.5, 0.15])
    X, y, _ = classified(np.random.default_rng(9), 20_000, shares, odds)
    d = X.shape[1]
    error = {}
    for level in (0.0, Rule().pilot_level):
        rule, found = replace(Rule(), pilot_level=level), []
        plan = plan_for(problem_for(adjacency, Logistic(), d), d, 1.0, rule, (tuple(range(1, d - 1)),))
        rows, C = ArrayRows(X, y, plan.problem.domain), plan.coding.contrasts(X.mean(axis=0))
        found = [C @ plan.release(rows, randomness.generator(s)).inference.theta for s in range(24)]
        error[level] = float(np.max(np.std(found, axis=0)))
    assert error[Rule().pilot_level] < 0.8 * error[0.0]


def test_shares_of_levels_are_those_of_the_records(monkeypatch):
    """Also where those of rare levels are the longest, which S shortens: means of coefficients are 0."""
    random, n, shares = np.random.default_rng(13), 20_000, np.array([0.88, 0.06, 0.06])
    level = random.choice(3, n, p=shares)
    X = np.column_stack([np.eye(3)[level] - 1 / 3, np.ones(n)])
    y = np.clip(np.array([-0.2, 0.3, 0.5])[level] + 0.2 * random.normal(size=n), -1, 1)
    true = np.bincount(level) / n

    def apart() -> tuple[float, float]:
        """Largest bias of a share, and of the mean coefficient, in deviations of a mean of 30 fits."""
        found = [fitted(X, y, 3.0, blocks=((0, 1, 2),), rule=Rule(), seed=seed) for seed in range(30)]
        seen = np.array([fit.shares[:3] for fit in found]) - true
        noise = found[0].levels[:3, 0] / math.sqrt(30)
        means = [float(fit.theta[:3, 0] @ true) for fit in found]
        stated = [fit.of(np.append(true, 0.0)[None]).se[0] for fit in found]
        return float(np.max(np.abs(seen.mean(axis=0)) / noise)), float(
            np.mean(np.abs(means)) / np.mean(stated)
        )

    bias, size = apart()
    assert bias < 3.5 and size < 1.5
    true_geometry = RecenteredPlan.geometry

    def by_curvature(plan, *given):
        found = true_geometry(plan, *given)
        means = means_of(found.S, found.scale, found.inverse, plan.coding.constant)
        return replace(found, means=means[0], deviations=means[1])

    monkeypatch.setattr(RecenteredPlan, "geometry", by_curvature)  # planted
    assert apart()[0] > 6.0


# --- what is stated -------------------------------------------------------------------------------


def functionals(**given):
    values = {"estimate": [1.0], "se": [0.5], "noise": [0.2], "df": [12.0], "resolved": [True]}
    values = {**values, "enough": [1.0], **given}
    return Functionals(**{name: np.array(value) for name, value in values.items()})


def test_an_interval_is_that_of_student():
    f = functionals()
    np.testing.assert_allclose(f.half_width(0.95), 0.5 * stats.t.ppf(0.975, 12))
    np.testing.assert_allclose(f.pvalues(), 2 * stats.t.sf(2.0, 12), rtol=1e-6)


def test_a_p_value_is_where_the_interval_ends_at_zero():
    for estimate in (0.05, 0.7, 1.5, 4.0):
        f = functionals(estimate=[estimate])
        np.testing.assert_allclose(f.half_width(1.0 - f.pvalues()[0]), abs(estimate), rtol=1e-4)


def test_what_is_not_resolved_is_not_a_number():
    f = functionals(resolved=[False])
    assert np.isnan(f.half_width(0.95)[0]) and np.isnan(f.pvalues()[0])


def test_everything_is_linear_in_the_functional():
    found = fitted(*linear_table(3000, 4))
    a = np.array([[0.3, -1.0, 2.0, 0.5]])
    once, twice = found.of(a), found.of(-2.0 * a)
    for name, factor in (("estimate", -2.0), ("se", 2.0), ("noise", 2.0), ("df", 1.0)):
        np.testing.assert_allclose(getattr(twice, name), factor * getattr(once, name), rtol=1e-10)
    np.testing.assert_allclose(once.estimate, (a @ found.theta)[:, 0])
    assert (once.noise < once.se).all()
    np.testing.assert_allclose(found.covariance_of(a), [[once.se[0] ** 2]])


def test_the_door_releases_it():
    X, y = linear_table(400, 4)
    plan = plan_for(problem_for())
    released = execute(plan, ArrayRows(X, y, plan.problem.domain), random_state=0).value
    if released.trust == 1.0:
        np.testing.assert_array_equal(released.theta, released.inference.theta)
    assert released.inference.count_scale == 1.0 / plan.shifts.count
    assert released.local.count == released.inference.count
    known = plan_for(problem_for("replace"))
    value = known.release(ArrayRows(X, y, known.problem.domain), randomness.generator(0))
    assert value.inference.count == 400.0 and value.inference.count_scale == 0.0


def test_records_beyond_all_looks_are_doubted():
    """Two columns that are nearly one, but for few records of great leverage that follow another law."""
    random, n = np.random.default_rng(3), 8000
    x = random.uniform(-0.05, 0.05, n)
    z = x + 0.001 * random.normal(size=n)
    far = random.choice(n, 16, replace=False)
    z[far] = random.uniform(-1, 1, 16)
    y = np.clip(x + 0.5 * z * np.abs(z) + 0.01 * random.normal(size=n), -1, 1)
    X = np.column_stack([x, z, np.ones(n)])
    truth = np.linalg.lstsq(X, y, rcond=None)[0][1]
    inside = {"doubted": 0, "not doubted": 0}
    for seed in range(10):
        found = fitted(X, y, 3.0, seed=seed)
        assert found.tail.outlying > 0.5
        for name, one in (
            ("doubted", found),
            ("not doubted", replace(found, tail=replace(found.tail, outlying=0.0))),
        ):
            told = one.of(np.array([[0.0, 1.0, 0.0]]))
            inside[name] += int(
                not told.resolved[0] or abs(told.estimate[0] - truth) <= told.half_width(0.95)[0]
            )
    assert inside["doubted"] >= 7 and inside["not doubted"] <= 5


def test_where_bounds_are_close_nothing_lies_beyond_the_looks():
    random = np.random.default_rng(4)
    X = np.column_stack([random.uniform(-1, 1, (4000, 2)), np.ones(4000)])
    y = np.clip(0.3 * X[:, 0] + 0.1 * random.normal(size=4000), -1, 1)
    assert fitted(X, y, 1.0).tail.outlying == 0.0


def test_noise_chooses_no_far_too_wide_clip_of_a_linear_fit(monkeypatch):
    """How many of a hundred fits take a wider clip than others: more, with as little doubt as for classes."""
    random = np.random.default_rng(6)
    X = random.uniform(-1, 1, (1000, 3))
    y = np.clip(X @ [0.3, -0.4, 0.1] + 0.2 * random.normal(size=1000), -1, 1)

    def wide() -> int:
        clips = [fitted(X, y, 4.0, "replace", seed=seed).tail.edges[1] for seed in range(100)]
        return int(np.sum(np.array(clips) > 1.6 * np.quantile(clips, 0.25)))

    assert wide() <= 5
    monkeypatch.setattr(walk, "SCEPTICAL", (1.0, 1.0))
    assert wide() >= 9


def test_a_tail_that_is_surely_there_is_followed_far():
    """A few records in a hundred lie at the end of a range that others fill a hundredth of."""
    random = np.random.default_rng(11)
    X = np.column_stack([random.uniform(-1, 1, 20_000), np.ones(20_000)])
    y = 0.01 * (X[:, 0] + random.normal(size=20_000))
    reach = {"none": fitted(X, y, 3.0).reach}
    y = np.where(random.random(20_000) < 0.02, random.uniform(0, 1, 20_000), y)
    reach["some"] = fitted(X, y, 3.0).reach
    assert reach["none"] <= Rule().widest_clip < walk.FARTHER[-2] * Rule().widest_clip < reach["some"]


def test_the_mean_says_nothing_of_what_a_clip_took_from_slopes():
    """D̂ does not change with the centre along the mean record's gradient; it does along others."""
    random = np.random.default_rng(12)
    X = np.column_stack([random.uniform(-1, 1, (6000, 2)), np.ones(6000)])
    y = np.clip(0.2 * X[:, 0] + 0.05 * random.standard_t(2, 6000), -1, 1)
    found = fitted(X, y, 3.0)
    assert found.common.any()

    def taken(direction) -> np.ndarray:
        moved = replace(found, centre=found.centre + 30.0 * direction / np.linalg.norm(direction))
        return moved._clipped[0] - found._clipped[0]

    size = float(np.linalg.norm(found._clipped[0]))
    along = np.linalg.norm(taken(found.common)) / size
    across = np.linalg.norm(taken(np.cross(found.common, [1.0, 2.0, 3.0]))) / size
    assert along < 1e-9 and across > 0.05
