"""A fit with intervals: its budget adds up, it refuses what it cannot tell, it says what it means."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from curvedp import randomness
from curvedp.data.mapping import Coding
from curvedp.data.rows import ArrayRows
from curvedp.data.rows.base import CELLS
from curvedp.errors import InvalidInput
from curvedp.mechanisms import walk
from curvedp.mechanisms.base import GaussianNoise, Grid, excess, make_plan
from curvedp.mechanisms.ending import EDGES
from curvedp.mechanisms.geometry import LOOK_EDGES
from curvedp.mechanisms.recentered import EXTENTS, Recentered
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.postprocess.inference import Functionals
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problems import Problem
from curvedp.problems.constraints import L2Ball, NonNegative
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, OneVsRest, Poisson, Squared, SquaredHinge, SquaredSeveral
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
    looks = [1, CELLS * 3, len(EXTENTS) + 1, 16, rule.edges + 1, 16, *[LOOK_EDGES + 1] * 2, rule.edges + 3]
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
    plan = plan_for(problem_for(adjacency, loss))
    for n in (0, 1, 3, 30):
        X, y = linear_table(n, 4)
        y = np.where(y > 0, 1.0, -1.0) if loss.name == "logistic" else y
        found = plan.release(ArrayRows(X, y, plan.problem.domain), randomness.generator(n)).inference
        assert np.isfinite(found.theta).all()
        told = found.of(np.eye(4))
        assert np.array_equal(np.isnan(told.half_width(0.95)), ~told.resolved)
        assert n == 30 or not told.resolved.any()


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
    """The widest of many fits; with as little doubt as other losses have it is far too wide."""
    random = np.random.default_rng(6)
    X = random.uniform(-1, 1, (2000, 3))
    y = np.clip(X @ [0.3, -0.4, 0.1] + 0.2 * random.normal(size=2000), -1, 1)

    def widest() -> float:
        clips = [fitted(X, y, 4.0, "replace", seed=seed).tail.edges[1] for seed in range(80)]
        return float(np.max(clips) / np.median(clips))

    assert widest() < 1.3
    monkeypatch.setattr(walk, "SCEPTICAL", (1.0, 1.0))
    assert widest() > 1.35
