"""The inference mechanism: its budget adds up, it refuses what it cannot tell, it says what it means."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from curvedp import randomness
from curvedp.budget import Budget
from curvedp.constraints import L2Ball, NonNegative
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Huber, Logistic, Multinomial, OneVsRest, Poisson, Squared, SquaredHinge
from curvedp.mechanisms import inference
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.inference import Looks, RecenteredInference, Shares
from curvedp.mechanisms.noise import excess
from curvedp.mechanisms.recentered import EXTENTS
from curvedp.mechanisms.rule import Rule
from curvedp.neighbours import Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problem import Problem
from curvedp.regularizers import L1, L2
from curvedp.release import execute
from curvedp.released.inference import Functionals, Inference
from curvedp.released.scales import EDGES as LOOK_EDGES
from curvedp.rows import DenseRows

ADJACENCIES = ("add_remove", "replace")
QUICK = replace(inference.RULE, rounds=16, first_rounds=4)


def problem_for(adjacency="add_remove", loss=None, d=4, **options):
    return Problem(loss or Squared(), domain=Domain(math.sqrt(d), 1.0, adjacency), **options)


def linear_table(n, d, seed=0):
    """Independent columns in [−1, 1], the last one constant."""
    random = np.random.default_rng(seed)
    X = np.column_stack([random.uniform(-1, 1, (n, d - 1)), np.ones(n)])
    return X, np.clip(X @ np.linspace(-0.3, 0.3, d) + 0.1 * random.normal(size=n), -1, 1)


def fitted(X, y, epsilon=3.0, adjacency="add_remove", blocks=(), seed=0):
    problem = problem_for(adjacency, d=X.shape[1])
    plan = RecenteredInference(blocks, QUICK).plan(problem, X.shape[1], Budget(epsilon, 1e-6))
    return plan.release(DenseRows(X, y, problem.domain), randomness.generator(seed)).inference


# --- the budget -----------------------------------------------------------------------------------


def every_shift(plan, kappa=0.0):
    """Of a fit with this κ, which chooses how many rounds there are."""
    s, k, pace = plan.walk.shifts, plan.looks, plan.walk.rule.pace(kappa)
    rounds = [s.first_round(pace)] * pace.first + [s.later_round(pace)] * pace.later
    looks = [s.count, s.extent, s.pilot, s.lengths, s.curvature, s.spread, s.scale, s.clip]
    return [*looks, *rounds, *vars(k).values()]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kappa", [0.0, 1e6])
@pytest.mark.parametrize(("epsilon", "delta", "d"), [(0.1, 1e-6, 4), (1.0, 1e-6, 4), (4.0, 1e-8, 20)])
def test_the_squares_of_all_shifts_stay_below_that_of_mu_exactly(adjacency, epsilon, delta, d, kappa):
    """However many rounds are chosen: they cost the same together."""
    plan = RecenteredInference().plan(problem_for(adjacency, d=d), d, Budget(epsilon, delta))
    exact = sum(Fraction(mu) ** 2 for mu in every_shift(plan, kappa))
    allowed = Fraction(plan.walk.mu) ** 2
    assert exact <= allowed
    assert exact >= allowed * (1 - Fraction(1, 10**12))  # and nothing is left over
    assert plan.looks.total == pytest.approx(math.sqrt(sum(v**2 for v in vars(plan.looks).values())))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_all_releases_together_keep_the_promise(adjacency):
    budget = Budget(1.0, 1e-6)
    plan = RecenteredInference().plan(problem_for(adjacency), 4, budget)
    total = math.sqrt(math.fsum(mu**2 for mu in every_shift(plan)))
    assert hockey_stick(budget.epsilon, total) <= budget.delta
    assert plan.guarantee.delta_at(budget.epsilon) <= budget.delta
    # What discreteness adds is counted for every release that is made, and so is a rare n̂.
    rule = plan.walk.rule
    assert rule.rounds >= rule.quick_rounds
    dims = [
        1,
        len(EXTENTS) + 1,
        16,
        *[rule.edges + 1] * 2,
        16,
        *[LOOK_EDGES + 1] * 2,
        *[4] * rule.rounds,
        16,
        4,
        14,
        16,
        4,
    ]
    assert plan.guarantee.profile.excess >= excess(dims, [max(every_shift(plan))] * len(dims))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_planted_share_too_much_is_seen_by_the_exact_sum(adjacency):
    """The test above bites: one more part in 10¹⁰ would exceed μ."""
    plan = RecenteredInference().plan(problem_for(adjacency), 4, Budget(1.0, 1e-6))
    more = replace(plan, looks=replace(plan.looks, bread=plan.looks.bread * (1 + 1e-9)))
    assert sum(Fraction(mu) ** 2 for mu in every_shift(more)) > Fraction(plan.walk.mu) ** 2


def test_shares_must_leave_something_for_the_walk():
    assert Shares().walk == pytest.approx(0.125)
    for bad in ({"final": 0.6}, {"bread": 0.0}, {"meat": -0.1}):
        with pytest.raises(InvalidInput, match="shares"):
            Shares(**bad)


def test_the_looks_get_what_the_walk_spends_outside_of_its_rounds_leaves():
    hidden, public = (Looks.split(1.0, Rule(), Shares(), Neighbours(kind)) for kind in ADJACENCIES)
    assert all(getattr(public, name) > getattr(hidden, name) for name in vars(hidden))


def test_every_release_is_counted_and_made_once(monkeypatch):
    """The μ handed to each release, in order, are those of the plan."""
    made = []
    for name in ("counts", "gradient", "gram"):
        before = getattr(inference.GaussianNoise, name)

        def spy(noise, *arguments, before=before, name=name):
            made.append(arguments[1] if name == "counts" else arguments[2])
            return before(noise, *arguments)

        monkeypatch.setattr(inference.GaussianNoise, name, spy)
    X, y = linear_table(300, 4)
    problem = problem_for()
    plan = RecenteredInference(rule=QUICK).plan(problem, 4, Budget(1.0, 1e-6))
    plan.release(DenseRows(X, y, problem.domain), randomness.generator(0))
    s, k, pace = plan.walk.shifts, plan.looks, QUICK.pace(0.0)
    walk = [s.spread, s.scale, *[s.first_round(pace)] * 4, s.clip, *[s.later_round(pace)] * 12]
    first = [s.count, s.extent, s.pilot, s.lengths, s.curvature, k.second]
    assert made == [*first, *walk, k.bread, k.step, k.tail, k.meat, k.final]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_guarantee_names_every_part(adjacency):
    plan = RecenteredInference().plan(problem_for(adjacency), 4, Budget(1.0, 1e-6))
    stated = plan.guarantee.parameters
    for name in ("second", "bread", "step", "tail", "meat", "final"):
        assert stated[f"mu_{name}"] == getattr(plan.looks, name)
    for name in ("count", "extent", "pilot", "lengths", "curvature", "spread", "scale", "clip"):
        assert stated[f"mu_{name}"] == getattr(plan.walk.shifts, name)
    assert plan.guarantee.theorem == "(P-10)" and plan.guarantee.private


# --- refusals, all before anything is charged -----------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regularizer": L2(0.1)}, "alpha=0"),
        ({"regularizer": L1(0.1)}, "alpha=0"),
        ({"constraint": L2Ball(2.0)}, "constraint"),
        ({"constraint": NonNegative()}, "constraint"),
        ({"loss": Multinomial(3)}, "one output"),
        ({"loss": OneVsRest(Logistic(), 3)}, "one output"),
    ],
)
def test_penalties_constraints_and_several_outputs_are_refused_in_the_plan(options, words):
    loss = options.pop("loss", Squared())
    with pytest.raises(InvalidInput, match=words):
        RecenteredInference().plan(problem_for(loss=loss, **options), 4, Budget(1.0, 1e-6))


def test_a_penalty_of_weight_zero_is_none():
    plan = RecenteredInference().plan(problem_for(regularizer=L2(0.0)), 4, Budget(1.0, 1e-6))
    assert plan.walk.d == 4


def test_blocks_that_leave_nothing_or_overlap_are_refused():
    with pytest.raises(InvalidInput, match="more than one value"):
        RecenteredInference(blocks=((0,),)).plan(problem_for(d=1), 1, Budget(1.0, 1e-6))
    with pytest.raises(InvalidInput, match="distinct"):
        RecenteredInference(blocks=((0, 1), (1, 2))).plan(problem_for(), 4, Budget(1.0, 1e-6))


@pytest.mark.parametrize("loss", [Poisson(), Poisson(500.0)], ids=["unbounded", "huge"])
def test_a_loss_without_a_moderate_curvature_is_refused(loss):
    """Noise for a bound of e^500 would overflow after the charge."""
    with pytest.raises(InvalidInput, match="max_margin"):
        make_plan(RecenteredInference(), problem_for(loss=loss), 4, Budget(1.0, 1e-6))
    assert make_plan(RecenteredInference(), problem_for(loss=Poisson(2.0)), 4, Budget(1.0, 1e-6))


def small_fit(adjacency, loss, n):
    problem = problem_for(adjacency, loss)
    plan = RecenteredInference(rule=QUICK).plan(problem, 4, Budget(1.0, 1e-6))
    X, y = linear_table(n, 4)
    found = plan.release(DenseRows(X, y, problem.domain), randomness.generator(0)).inference
    assert np.isfinite(found.theta).all()
    return found


def test_a_loss_without_a_mean_response_is_refused():
    with pytest.raises(InvalidInput, match="probabilities"):
        make_plan(RecenteredInference(), problem_for(loss=SquaredHinge()), 4, Budget(1.0, 1e-6))


def test_power_is_counted_in_records_beside_the_noise_of_the_last_gradient():
    """n̂c/s, s = c/μ or 2c/μ: at least 270, and 20 for each of r coefficients; and κ at least 30."""
    found = fitted(*linear_table(3000, 4))
    R = found.releases
    c = float(R.tail.edges[R.edge])

    def enough(**changes):
        return Inference(replace(R, **changes)).has_power

    assert enough(count=271 * R.noise / c) and not enough(count=269 * R.noise / c)
    assert enough(kappa=30.0) and not enough(kappa=29.9)
    assert not enough(count=399 * R.noise / c, centre=np.zeros(20))
    told = Inference(replace(R, count=269 * R.noise / c)).of(np.eye(4))
    assert not told.resolved.any() and found.of(np.eye(4)).resolved.all()


@pytest.mark.parametrize("loss", [Squared(), Huber(0.2)], ids=lambda loss: loss.name)
def test_where_kappa_is_below_thirty_nothing_is_told(loss):
    found = small_fit("add_remove", loss, 400)
    assert found.releases.kappa < 30 and found.releases.resolved.any()
    told = found.of(np.eye(4))
    assert not told.resolved.any()
    assert np.isnan(told.half_width(0.95)).all() and np.isnan(told.pvalues()).all()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_table_of_few_rows_or_none_gives_no_interval_and_no_error(adjacency):
    for n in (0, 1, 3, 30):
        assert not small_fit(adjacency, Squared(), n).of(np.eye(4)).resolved.any()


# --- weak directions ------------------------------------------------------------------------------


def test_a_column_that_is_there_twice_refuses_both_and_nothing_else():
    X, y = linear_table(4000, 4)
    X = np.column_stack([X[:, 0], X])  # columns 0 and 1 are the same
    told = np.mean([fitted(X, y, seed=seed).of(np.eye(5)).resolved for seed in range(8)], axis=0)
    np.testing.assert_array_equal(told[:2], 0.0)
    assert told[2:].min() >= 0.75
    # Their sum is told: only how it splits is not known.
    both = [fitted(X, y, seed=seed).of(np.array([[1.0, 1, 0, 0, 0]])) for seed in range(8)]
    assert np.mean([f.resolved for f in both]) >= 0.75
    assert abs(np.mean([f.estimate for f in both]) + 0.3) < 0.02


def test_an_empty_level_refuses_itself_alone():
    """Three levels, the last of which no record has: coefficients sum to zero, so that it weighs on all."""
    random = np.random.default_rng(1)
    n, level = 6000, np.random.default_rng(2).integers(0, 2, 6000)
    X = np.column_stack([random.uniform(-1, 1, n), np.eye(3)[level] - 1 / 3, np.ones(n)])
    y = np.clip(0.3 * X[:, 0] + 0.2 * (level == 0) + 0.1 * random.normal(size=n), -1, 1)
    difference = np.array([[0.0, 1.0, -1.0, 0.0, 0.0]])  # of the levels that are there
    slope, constant = np.eye(5)[[0]], np.eye(5)[[4]]
    told = {"empty": 0, "difference": 0, "slope": 0}
    for seed in range(8):
        found = fitted(X, y, blocks=((1, 2, 3),), seed=seed)
        np.testing.assert_allclose(found.theta[1:4].sum(), 0.0, atol=1e-12)
        told["empty"] += int(found.of(np.eye(5)[[3]]).resolved[0])
        told["difference"] += int(found.of(difference).resolved[0])
        told["slope"] += int(found.of(slope).resolved[0])
        assert not found.of(constant).resolved[0]  # it is that of the empty level's mean, too
        assert abs(found.of(difference).estimate[0] - 0.2) < 0.05
    assert told["empty"] == 0 and min(told["difference"], told["slope"]) >= 5


def test_unresolved_directions_stay_at_zero():
    X, y = linear_table(4000, 4)
    found = fitted(np.column_stack([X[:, 0], X]), y)
    assert not found.releases.resolved.all()
    np.testing.assert_array_equal(found.w[~found.releases.resolved], 0.0)


# --- what is stated -------------------------------------------------------------------------------


def functionals(**given):
    values = {
        "estimate": [1.0], "se": [0.5], "noise": [0.2], "df": [12.0], "bias": [0.0], "worst": [0.7],
        "resolved": [True], **given,
    }  # fmt: skip
    return Functionals(**{name: np.array(value) for name, value in values.items()})


def test_an_interval_without_bias_is_that_of_student():
    f = functionals()
    np.testing.assert_allclose(f.half_width(0.95), 0.5 * stats.t.ppf(0.975, 12))
    np.testing.assert_allclose(f.pvalues(), 2 * stats.t.sf(2.0, 12), rtol=1e-6)


def test_a_bias_widens_the_interval_so_that_it_covers_at_the_worst_sign():
    """P(|N(b, 1)| ≤ q) = level at q: what the half-width is in standard errors, many degrees of freedom."""
    for bias in (0.3, 1.0, 2.5):
        f = functionals(bias=[bias], df=[1e9])
        q = f.half_width(0.9)[0] / 0.5
        np.testing.assert_allclose(stats.norm.cdf(q - bias) - stats.norm.cdf(-q - bias), 0.9, rtol=1e-6)
    assert functionals().half_width(0.95, "worst")[0] > functionals().half_width(0.95, "spread")[0]


def test_a_p_value_is_where_the_interval_ends_at_zero():
    for estimate in (0.05, 0.7, 1.5, 4.0):
        f = functionals(estimate=[estimate], bias=[0.4])
        p = f.pvalues()[0]
        np.testing.assert_allclose(f.half_width(1.0 - p), abs(estimate), rtol=1e-4)


def test_what_is_not_resolved_is_not_a_number():
    f = functionals(resolved=[False])
    assert np.isnan(f.half_width(0.95)[0]) and np.isnan(f.pvalues()[0])


def test_everything_is_linear_in_the_functional():
    found = fitted(*linear_table(3000, 4))
    a = np.array([[0.3, -1.0, 2.0, 0.5]])
    once, twice = found.of(a), found.of(-2.0 * a)
    for name, factor in (("estimate", -2.0), ("se", 2.0), ("noise", 2.0), ("df", 1.0), ("bias", 1.0)):
        np.testing.assert_allclose(getattr(twice, name), factor * getattr(once, name), rtol=1e-10)
    np.testing.assert_allclose(once.estimate, (a @ found.theta)[:, 0])
    assert (once.noise < once.se).all()


def test_the_door_releases_it():
    X, y = linear_table(400, 4)
    problem = problem_for()
    plan = RecenteredInference(rule=QUICK).plan(problem, 4, Budget(1.0, 1e-6))
    released = execute(plan, DenseRows(X, y, problem.domain), random_state=0)
    np.testing.assert_array_equal(released.value.theta, released.value.inference.theta)
    assert released.value.inference.releases.count_scale == 1.0 / plan.walk.shifts.count
    known = RecenteredInference(rule=QUICK).plan(problem_for("replace"), 4, Budget(1.0, 1e-6))
    value = known.release(DenseRows(X, y, known.problem.domain), randomness.generator(0))
    assert value.inference.releases.count == 400.0 and value.inference.releases.count_scale == 0.0
