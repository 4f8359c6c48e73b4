"""Solved mechanisms: every table is certified to the planned accuracy, whatever its records are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chi2, norm
from tests.repeated import Repeated, hostile

from curvedp import Budget, Domain, Problem, private_fit
from curvedp.arrays import ROWS_AT_MOST
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.data.rows.base import Layout
from curvedp.errors import CalibrationFailed, InvalidInput, NotCertified, NotCovered
from curvedp.mechanisms import QOP, base
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.objective import smallest_eigenvalue
from curvedp.privacy.curvature import Wishart
from curvedp.problems.constraints import Affine, Box, L1Ball, L2Ball, NonNegative, Reals, Simplex
from curvedp.problems.losses import Huber, Logistic, Multinomial, OneVsRest, Poisson, Squared, SquaredHinge
from curvedp.problems.regularizers import L1, L2, ElasticNet, GroupL2, L2Norm, NoRegularizer, Nuclear
from curvedp.randomness import generator
from curvedp.solvers.glm import NoiseBounds, Objective, Solution, solve
from curvedp_studies.forecasts import utility_bound
from curvedp_studies.mechanisms.baselines import OutputPerturbation
from curvedp_studies.mechanisms.lop import AMP, LOP, LOPClip

BUDGET = Budget(1.0, 1e-6)
ADJACENCIES = ("replace", "add_remove")
MECHANISMS = (QOP(), LOP(), LOPClip(clip=0.5), AMP(), OutputPerturbation())
LOSSES = (Logistic(), Huber(0.3), SquaredHinge(), Squared())
SEPARABLE = (
    (NoRegularizer(), Reals()),
    (L1(3.0), Box(1.0)),
    (ElasticNet(2.0), NonNegative()),
    (NoRegularizer(), Box(0.5)),
)
COUPLED = (
    (NoRegularizer(), L2Ball(1.0)),
    (L1(2.0), L2Ball(1.0)),
    (L2(1.0), L1Ball(1.0)),
    (NoRegularizer(), Simplex(1.0)),
    (L1(1.0), Affine(np.ones((1, 3)), np.array([0.5]))),
    (L2Norm(3.0), Reals()),
    (L2Norm(3.0), Box(0.5)),
    (GroupL2(2.0, ((0,), (1, 2))), Reals()),
)


def planned(mechanism, loss=None, r=None, C=None, *, d=3, adjacency="replace", budget=BUDGET, B=1.0, Y=1.0):
    problem = Problem(loss or Logistic(), r or NoRegularizer(), C or Reals(), Domain(B, Y, adjacency))
    return make_plan(mechanism, problem, d, budget)


def hostile_to(plan, seed, n):
    return hostile(seed, plan.d, n, plan.problem.domain, plan.problem.loss.n_outputs)


lengths = st.floats(0.0, 10.0).map(lambda power: 10.0**power)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(
    mechanism=st.sampled_from(MECHANISMS),
    loss=st.sampled_from(LOSSES),
    terms=st.sampled_from(SEPARABLE),
    adjacency=st.sampled_from(ADJACENCIES),
    d=st.sampled_from([1, 3, 10]),
    n=lengths,
    seed=seeds,
)
def test_every_table_is_released_whatever_its_records_are(mechanism, loss, terms, adjacency, d, n, seed):
    try:
        plan = planned(mechanism, loss, *terms, d=d, adjacency=adjacency)
    except NotCovered:  # a public refusal: no gradient bound
        return
    theta = plan.release(hostile_to(plan, seed, n), generator(seed)).theta
    assert np.all(np.isfinite(theta))


@settings(max_examples=60, deadline=None)
@given(
    mechanism=st.sampled_from([QOP(), LOP(), OutputPerturbation()]),
    loss=st.sampled_from([Logistic(), Huber(0.3), Squared()]),
    terms=st.sampled_from(COUPLED),
    adjacency=st.sampled_from(ADJACENCIES),
    n=lengths,
    seed=seeds,
)
def test_so_it_is_with_regularizers_and_sets_that_couple_coordinates(
    mechanism, loss, terms, adjacency, n, seed
):
    try:
        plan = planned(mechanism, loss, *terms, adjacency=adjacency)
    except NotCovered:
        return
    plan.release(hostile_to(plan, seed, n), generator(seed))


@settings(max_examples=30, deadline=None)
@given(
    mechanism=st.sampled_from([QOP(), OutputPerturbation()]),
    loss=st.sampled_from([Multinomial(3), OneVsRest(SquaredHinge(), 3)]),
    terms=st.sampled_from([*SEPARABLE[:2], (Nuclear(2.0), Reals()), (L2(1.0), L2Ball(2.0))]),
    n=lengths,
    seed=seeds,
)
def test_so_it_is_with_several_outputs(mechanism, loss, terms, n, seed):
    try:
        plan = planned(mechanism, loss, *terms)
    except NotCovered:
        return
    plan.release(hostile_to(plan, seed, n), generator(seed))


@settings(max_examples=40, deadline=None)
@given(
    mechanism=st.sampled_from(MECHANISMS),
    epsilon=st.sampled_from([0.03, 0.3, 4.0, 16.0]),
    delta=st.sampled_from([1e-3, 1e-9]),
    B=st.sampled_from([1e-5, 0.1, 1e3]),
    n=lengths,
    seed=seeds,
)
def test_so_it_is_for_every_budget_and_scale(mechanism, epsilon, delta, B, n, seed):
    """The radius goes with the scale: margins stay as they are."""
    budget = Budget(epsilon, delta)
    try:
        plan = planned(replace(mechanism, radius=1.0 / B), budget=budget, B=B, adjacency="add_remove")
    except NotCovered:  # a clip of 5e-4 of the longest gradient
        assert mechanism.name == "lop_clip"
        return
    plan.release(hostile_to(plan, seed, n), generator(seed))


@settings(max_examples=60, deadline=None)
@given(
    mechanism=st.sampled_from([QOP(), LOPClip(clip=0.5)]),
    loss=st.sampled_from(LOSSES),
    n=lengths,
    seed=seeds,
)
@example(mechanism=QOP(), loss=Squared(), n=1e10, seed=5)
def test_what_is_certified_afterwards_was_planned_before(mechanism, loss, n, seed):
    """Rounding errors counted from the records, ‖θ‖ and κ are within their public bounds, each of them."""
    plan = planned(mechanism, loss)
    rows, random = hostile_to(plan, seed, n), generator(seed)
    drawn = plan.perturbation(random)
    assert plan.noise_bounds.hold(drawn)
    length = max(rows.count(), 1)
    output = plan.output(length, rows.magnitude)
    solution = solve(Objective(plan.problem, rows, drawn, plan.clip), output.tolerance(plan.d))
    assert solution.distance <= output.eta
    size = float(np.linalg.norm(solution.theta))
    assert size <= plan.certifiable.reach(length) + output.eta
    if plan.certifiable._through_moments:
        found = rows.moments().error * (size + 1.0)
    else:
        found = rows.gradient_error(loss, solution.theta)
    assert found <= plan.certifiable.data_error(length, rows.magnitude, size + 1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("n", [1096, *(pytest.param(n, marks=pytest.mark.full) for n in (64, 1097, 5000))])
def test_one_record_does_not_decide_between_a_release_and_an_exception(adjacency, n):
    """Stored entries that undo the centring: rounding in units of the declared range, not of x_norm."""
    p, task = 64, Problem(Logistic(), domain=Domain(1e-5, 1.0, adjacency))
    columns = ColumnMap.from_bounds(np.zeros(p), np.full(p, 2.0), x_norm=1e-5, intercept=0.0)
    for mechanism in (OutputPerturbation(), LOP(), QOP(m=400)):
        for cancelling in (n, n + 1):
            others = 5 if adjacency == "add_remove" else n + 5 - cancelling
            X = np.vstack([np.ones((cancelling, p)), np.full((others, p), 2.0)])
            for table in (X, csr_array(X)):
                released = private_fit(
                    task, table, np.ones(len(X)), budget=BUDGET, mechanism=mechanism, columns=columns
                )
                assert released.value.theta.shape == (p, 1)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_real_rows_are_released_like_repeated_ones(mechanism):
    random = np.random.default_rng(0)
    X = random.choice([-1.0, 1.0], (30_000, 1))
    y = np.where(random.random(30_000) < 0.7, 1.0, -1.0) * X[:, 0]
    plan = planned(mechanism, d=1)
    for k in (30_000, 29_999):
        plan.release(make_rows(X[:k], y[:k], plan.problem.domain), random)


class OnlyCounted:
    """Rows of which nothing but their number may be asked."""

    def __init__(self, n, domain):
        self.n, self.layout, self.magnitude = n, Layout(domain, 3), domain.x_norm

    def count(self):
        return self.n


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_a_rare_draw_of_the_noise_releases_the_public_centre(mechanism, monkeypatch):
    plan = planned(mechanism)
    monkeypatch.setattr(NoiseBounds, "hold", lambda self, drawn: False)
    theta = plan.release(OnlyCounted(500, plan.problem.domain), generator(1)).theta
    assert np.linalg.norm(theta) <= 20 * plan.output(500, 1.0).sigma


def test_rare_draws_are_as_rare_as_they_were_paid_for():
    for d, m in ((1, 30.0), (4, 17.5), (6, 60.0)):
        for log_p in (-3.0, -30.0, -300.0):
            t = smallest_eigenvalue(Wishart(d, m), log_p)
            assert t > 0
            # λ_min ≤ 1/(W⁻¹)_jj ~ χ² with m − d + 1 degrees of freedom: no bound can be much above that one.
            assert chi2.logcdf(t, m - d + 1) <= (log_p if d == 1 else 0.0)
        draws = Wishart(d, m).sample(np.random.default_rng(0), 4000)
        smallest = np.linalg.eigvalsh(draws)[:, 0]
        assert np.mean(smallest < smallest_eigenvalue(Wishart(d, m), math.log(0.02))) <= 0.03
    rare = base.RareDraws.of(Budget(0.5, 1e-5), Domain(adjacency="add_remove").neighbours)
    assert norm.logsf(rare.deviations) <= rare.log_each
    for k in (1, 7, 500):
        assert chi2.logsf(rare.gaussian_norm(k) ** 2, k) <= rare.log_each
        assert chi2.logsf(rare.chi_square(k), k) <= rare.log_each
    # four bounds, and both orders of the pair: (1 + e^ε)·4·e^log_each is within what was paid
    assert (1 + math.exp(0.5)) * 4 * math.exp(rare.log_each) <= rare.delta <= 1.1e-11


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_drawn_noise_is_within_its_bounds(mechanism):
    plan, random = planned(mechanism, d=5), generator(2)
    for _ in range(200):
        assert plan.noise_bounds.hold(plan.perturbation(random))


def test_bounds_of_the_noise_are_checked():
    plan, random = planned(QOP(), d=3), generator(3)
    drawn = plan.perturbation(random)
    smallest = float(np.linalg.eigvalsh(drawn.quadratic)[0])
    wide = NoiseBounds(smallest / 2, 1e9, 1e9)
    assert wide.hold(drawn)
    assert not replace(wide, curvature=1.01 * smallest).hold(drawn)
    assert not replace(wide, trace=0.99 * float(np.trace(drawn.quadratic))).hold(drawn)
    assert not replace(wide, linear=0.99 * float(np.linalg.norm(drawn.linear))).hold(drawn)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_the_accuracy_depends_on_the_number_of_rows_alone_and_the_ratio_on_nothing(mechanism):
    plan = planned(mechanism)
    etas = [plan.output(n, 1.0).eta for n in (1, 1e3, 1e6, 1e8, ROWS_AT_MOST)]
    assert etas[0] == etas[1] == plan.least_eta
    assert etas == sorted(etas) and etas[-1] > 100 * etas[0]
    for n in (1, 1e8):
        output = plan.output(n, 1.0)
        assert output.sigma == pytest.approx(plan.base_sigma + plan.ratio * output.eta)
        assert output.tolerance(plan.d) + 0.5 * output.step * math.sqrt(plan.d) <= output.eta


@pytest.mark.parametrize("mechanism", [QOP(), LOP(), OutputPerturbation()], ids=lambda m: m.name)
def test_output_noise_and_count_are_in_the_accounted_shift(mechanism):
    public, counted = (planned(mechanism, adjacency=adjacency) for adjacency in ADJACENCIES)
    assert public.mu_count == 0.0 < counted.mu_count
    for plan in (public, counted):
        shift = math.hypot(2.0 / plan.ratio, plan.mu_count)
        profile = plan.profile if mechanism.name == "output" else plan.parameters.profile
        if mechanism.name == "qop":
            shift = math.hypot(shift, plan.parameters.center_sensitivity / plan.parameters.sigma0)
        assert profile.mu >= shift * (1 - 1e-9)
        assert profile.excess >= plan.rare.delta or mechanism.name == "output"
        assert plan.guarantee.delta_at(1.0) <= 1e-6


def test_a_private_number_of_rows_is_replaced_by_a_noisy_bound_of_it():
    plan = planned(LOP(), adjacency="add_remove")
    random = generator(4)
    bounds = np.array([plan.rows_at_most(1000, random) for _ in range(400)])
    deviation = 1.0 / plan.mu_count
    assert np.all(bounds >= 1001)
    assert np.std(bounds) == pytest.approx(deviation, rel=0.15)
    assert np.mean(bounds) == pytest.approx(1001 + plan.rare.deviations * deviation, rel=0.05)
    assert planned(LOP()).rows_at_most(1000, random) == 1000.0


def test_a_table_longer_than_its_noisy_bound_is_a_rare_draw(monkeypatch):
    plan = planned(LOP(), adjacency="add_remove")
    monkeypatch.setattr(base.SolvedPlan, "rows_at_most", lambda self, n, random: 999.0)
    theta = plan.release(OnlyCounted(1000, plan.problem.domain), generator(1)).theta
    assert np.linalg.norm(theta) <= 20 * plan.output(999, 1.0).sigma


def test_the_longest_minimisers_are_within_reach():
    """Tiny records with large targets: ‖θ_priv‖ grows like √n, and the bound is not far off."""
    plan = planned(QOP(), Squared(), d=1)
    n, curvature = 1e8, plan.noise_bounds.curvature
    x = math.sqrt(curvature / n)
    rows = Repeated(np.array([[x]]), np.array([1.0]), np.array([n]), Layout(plan.problem.domain, 1), 0.0)
    drawn = replace(plan.perturbation(generator(0)), quadratic=np.array([[curvature]]))
    theta = solve(Objective(plan.problem, rows, drawn), plan.output(n, 1.0).eta).theta
    assert 0.3 * plan.certifiable.reach(n) <= abs(theta[0, 0]) <= plan.certifiable.reach(n)


def test_a_loss_of_which_no_value_is_known_is_bounded_by_its_slope():
    plan = planned(QOP(), Poisson(max_margin=1.0))
    assert math.isfinite(plan.certifiable.reach(1e3))
    plan.release(hostile_to(plan, 3, 1e4), generator(3))


@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [(Nuclear(1.0), L2Ball(1.0)), (L2Norm(1.0), L1Ball(1.0)), (GroupL2(1.0, ((0, 1),)), Simplex(1.0))],
)
def test_what_could_not_be_certified_for_every_table_is_refused_in_the_plan(regularizer, constraint):
    for mechanism in (QOP(), LOP(), OutputPerturbation()):
        with pytest.raises(NotCovered, match="both couple coordinates"):
            planned(mechanism, Logistic(), regularizer, constraint)


def test_curvature_that_rounding_hides_is_refused_in_the_plan():
    with pytest.raises(NotCovered, match="smaller epsilon"):
        planned(OutputPerturbation(weight=1e-7))


@pytest.mark.parametrize("mechanism", [QOP(eta=0.0), LOP(eta=0.0), LOPClip(eta=0.0), AMP(tolerance=0.0)])
def test_an_exact_solve_has_to_be_asked_for_by_its_name(mechanism):
    with pytest.raises(InvalidInput, match="pass exact=True"):
        planned(mechanism)


def test_an_accuracy_that_cannot_be_certified_becomes_one_that_can():
    plan = planned(LOP(eta=1e-30))
    assert plan.output(100, 1.0).eta > 1e-15
    plan.release(hostile_to(plan, 1, 100), generator(1))


def test_a_budget_too_small_for_a_grid_is_refused_in_the_plan():
    with pytest.raises((InvalidInput, CalibrationFailed)):
        planned(LOP(), budget=Budget(1e-9, 1e-9))


def test_a_solver_that_misses_the_accuracy_releases_nothing(monkeypatch):
    monkeypatch.setattr(
        base, "solve", lambda objective, eta: Solution(objective.perturbation.center, 1.01 * eta)
    )
    plan = planned(QOP())
    with pytest.raises(NotCertified, match="please report"):
        plan.release(hostile_to(plan, 0, 100), generator(0))


def test_attacks_and_forecasts_ask_the_plan():
    qop, lop, output = (planned(mechanism) for mechanism in (QOP(), LOP(), OutputPerturbation()))
    p = qop.parameters
    assert len(qop.pulls()) == 3 and qop.pulls()[2] == p.sigma2 * p.m
    assert lop.pulls() == [factor * lop.parameters.Delta for factor in (1.0, 3.0, 20.0)]
    assert output.pulls() == [30.0]
    assert p.utility_bound < utility_bound(qop, 100) < utility_bound(qop, 10**8)
    assert utility_bound(lop, 100) is not None and utility_bound(output, 100) is None
    assert utility_bound(planned(LOPClip(clip=0.5)), 100) is None
