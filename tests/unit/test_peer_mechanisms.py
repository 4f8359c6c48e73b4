"""The peers: accounted noise, refusals that say why, answers that are right when the noise is small."""

from __future__ import annotations

import math
from fractions import Fraction

import dask.array as da
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import sparse

from curvedp.data.rows import ArrayRows, make_rows
from curvedp.data.rows.base import SUM_SLACK
from curvedp.errors import CalibrationFailed, InvalidInput, LedgerRefused, NotCovered
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problems import Problem
from curvedp.problems.constraints import Box, L2Ball
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Multinomial, Squared
from curvedp.problems.regularizers import L1
from curvedp.randomness import generator
from curvedp.release.door import execute
from curvedp.release.ledger import Ledger
from curvedp_studies.mechanisms import functional
from curvedp_studies.mechanisms.adassp import AdaSSP
from curvedp_studies.mechanisms.baselines import NoisyGradient, OutputPerturbation
from curvedp_studies.mechanisms.dpsgd import (
    DPSGD,
    calibrate_subsampled,
    count_multiplier,
    sampled_gradient_sum,
)
from curvedp_studies.mechanisms.exponential import Exponential
from curvedp_studies.mechanisms.functional import Functional
from curvedp_studies.mechanisms.input import InputPerturbation
from curvedp_studies.mechanisms.pure_lop import PureLOP

EPSILON, DELTA = 0.8, 1e-6
BUDGET = Budget(EPSILON, DELTA)
B = 2.0


def regression(n=4000, d=3, seed=0):
    random = np.random.default_rng(seed)
    X = np.column_stack([random.uniform(-0.8, 0.8, (n, d - 1)), np.ones(n)])
    y = np.clip(X @ (0.4 * random.normal(size=d)) + 0.1 * random.normal(size=n), -1, 1)
    return X, y


def problem(loss=None, adjacency="add_remove", **parts):
    return Problem(loss or Squared(), domain=Domain(x_norm=B, adjacency=adjacency), **parts)


def fit(mechanism, task, X, y, budget=BUDGET, seed=0):
    rows = ArrayRows(X, y, task.domain)
    return mechanism.plan(task, X.shape[1], budget).release(rows, np.random.default_rng(seed)).theta


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_noisy_gradient_spends_what_it_has(adjacency):
    plan = NoisyGradient(rounds=37, clip=0.7).plan(problem(adjacency=adjacency), 3, BUDGET)
    sensitivity = 0.7 * ((1 if adjacency == "add_remove" else 2) + SUM_SLACK)
    mu = math.sqrt(37 * (sensitivity / plan.sigma) ** 2 + plan.mu_count**2)
    assert hockey_stick(EPSILON, mu) <= DELTA
    assert hockey_stick(EPSILON, 1.001 * mu) > DELTA
    assert (plan.mu_count == 0) == (adjacency == "replace")
    assert plan.guarantee.delta_at(EPSILON) <= DELTA


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_noisy_gradient_converges_when_noise_is_small(average):
    X, y = regression()
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    mechanism, much = NoisyGradient(rounds=600, clip=5.0, step=0.7, average=average), Budget(1e4, 0.1)
    np.testing.assert_allclose(fit(mechanism, problem(), X, y, much)[:, 0], exact, atol=0.01)
    sparse_fit = fit(mechanism, problem(regularizer=L1(4000.0), constraint=Box(0.1)), X, y, much)
    assert np.all(np.abs(sparse_fit) <= 0.1) and np.any(sparse_fit == 0)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_a_descent_that_runs_away_stops_and_releases_a_number(adjacency):
    """Noise covers rounding at large θ and drives θ further: without an end it overflowed after a charge."""
    random = np.random.default_rng(0)
    X, y = random.uniform(-1, 1, (20, 3)), random.uniform(-1, 1, 20)
    plan = NoisyGradient(rounds=400, clip=0.1, step=1e4).plan(problem(adjacency=adjacency), 3, BUDGET)
    theta = plan.release(make_rows(X, y, plan.problem.domain), random).theta
    assert np.all(np.isfinite(theta)) and np.max(np.abs(theta)) > 1e3


def test_dpsgd_is_no_weaker_than_renyi_accounting_says():
    """The calibrated noise passes an independent accountant, which is looser, at a slightly larger ε."""
    rate, rounds = 0.05, 200
    profile = calibrate_subsampled(1.0, 1e-5, rate, rounds, 3)
    assert profile.delta_at(1.0) <= 1e-5 < profile.delta_at(0.995)
    assert 0 < profile.excess < 1e-15
    accountant = rdp_privacy_accountant.RdpAccountant()
    gaussian = dp_event.GaussianDpEvent(profile.multiplier)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, gaussian), rounds)
    accountant.compose(dp_event.GaussianDpEvent(count_multiplier(profile.multiplier, rounds)))
    assert 1.0 < accountant.get_epsilon(1e-5) < 1.35
    composed = profile.to_pld()
    assert profile.delta_at(1.0) <= composed.get_delta_for_epsilon(1.0) < 1.2e-5


def test_dpsgd_samples_every_record_alike():
    X, y = regression(500)
    random = np.random.default_rng(0)
    task = problem()
    theta = np.array([[0.3], [-0.2], [0.1]])
    slopes = X @ theta - y[:, None]
    sizes = np.linalg.norm(X, axis=1) * np.abs(slopes[:, 0])
    clipped = X * (slopes * np.minimum(1, 0.2 / sizes)[:, None])
    for rows in (ArrayRows(X, y, task.domain), ArrayRows(sparse.csr_array(X), y, task.domain)):
        draws = np.stack(
            [sampled_gradient_sum(rows, Squared(), theta, 0.2, 0.3, random) for _ in range(3000)]
        )
        error = draws.std(axis=0) / math.sqrt(3000)
        assert np.all(np.abs(draws.mean(axis=0) - 0.3 * clipped.sum(axis=0)[:, None]) < 5 * error)
        expected = 0.3 * 0.7 * (clipped**2).sum(axis=0)
        np.testing.assert_allclose(draws[:, :, 0].var(axis=0), expected, rtol=0.15)


def test_dpsgd_samples_rows_of_every_kind():
    """No kind of rows is refused once the budget is charged; partitions toss their own coins."""
    X, y = regression(600)
    task = problem()
    theta = np.zeros((3, 1))
    rows = make_rows(da.from_array(X, chunks=(100, 3)), da.from_array(y, chunks=100), task.domain)
    sums = [sampled_gradient_sum(rows, Squared(), theta, 0.2, 0.3, generator(1)) for _ in range(30)]
    assert len({total.tobytes() for total in sums}) == 30
    full = rows.gradient_sum(Squared(), theta, 0.2)
    assert np.linalg.norm(np.mean(sums, axis=0) - 0.3 * full) < 0.1 * np.linalg.norm(full)
    empty = ArrayRows(np.zeros((0, 3)), np.zeros(0), task.domain)
    assert np.all(sampled_gradient_sum(empty, Squared(), theta, 0.2, 0.3, generator(1)) == 0)


def test_dpsgd_learns():
    X, y = regression(8000)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    mechanism = DPSGD(rounds=150, rate=0.1, clip=1.0, step=0.7)
    theta = fit(mechanism, problem(), X, y, Budget(8.0, 1e-3))
    assert np.linalg.norm(theta[:, 0] - exact) < 0.1
    with pytest.raises(NotCovered, match="add_remove"):
        DPSGD().plan(problem(adjacency="replace"), 3, BUDGET)


def test_output_perturbation_in_a_ball():
    X, y = regression()
    task = problem(constraint=L2Ball(1.0))
    plan = OutputPerturbation().plan(task, 3, BUDGET)
    assert plan.zeta == B * (B + 1)
    assert plan.guarantee.parameters["sigma"] >= plan.zeta / plan.Lambda / plan.profile.mu
    assert plan.guarantee.delta_at(EPSILON) <= DELTA
    theta = fit(OutputPerturbation(weight=1.0), task, X, y, Budget(1e4, 0.1))
    np.testing.assert_allclose(theta[:, 0], np.linalg.lstsq(X, y, rcond=None)[0], atol=0.2)
    with pytest.raises(NotCovered, match="bounded"):
        OutputPerturbation().plan(problem(), 3, BUDGET)
    with pytest.raises(InvalidInput, match="radius"):
        OutputPerturbation(radius=0.0).plan(problem(Logistic()), 3, BUDGET)
    theta = fit(OutputPerturbation(), problem(Multinomial(3)), X[:200], np.arange(200) % 3.0)
    assert theta.shape == (3, 3)


def test_adassp_has_the_published_constants():
    plan = AdaSSP().plan(problem(), 5, Budget(0.9, 1e-6))
    log = math.log(6e6)
    assert plan.s == pytest.approx(math.sqrt(log) / 0.3)
    assert hockey_stick(0.9, math.sqrt(3) * (1 + SUM_SLACK) / plan.s) <= 1e-6
    wanted = math.sqrt(5 * log * math.log(2 * 25 / 0.05)) * B**2 / 0.3
    assert plan.ridge(-100.0) == pytest.approx(wanted)
    assert plan.ridge(1e9) == 0.0
    between = B**2 * log / 0.3 + 0.25 * wanted
    assert plan.ridge(between) == pytest.approx(0.75 * wanted)
    X, y = regression(100_000)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(fit(AdaSSP(), problem(), X, y, Budget(10.0, 1e-3))[:, 0], exact, atol=0.01)
    with pytest.raises(CalibrationFailed):
        AdaSSP().plan(problem(), 5, Budget(5000.0, 1e-6))


def test_functional_mechanism_is_pure_and_learns_from_many_records():
    plan = Functional().plan(problem(), 3, BUDGET)
    length = math.sqrt(3) * B
    needed = (0.5 * length**2 + length) / EPSILON
    assert needed <= plan.scale <= 1.02 * needed
    assert plan.guarantee.delta == 0.0 == plan.guarantee.delta_at(EPSILON)
    X, y = regression()
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(fit(Functional(), problem(), X, y, Budget(3000.0))[:, 0], exact, atol=0.02)
    random = np.random.default_rng(0)
    rows = ArrayRows(X[:10], y[:10], problem().domain)
    draws = np.stack([plan.release_moments(rows, random).xx for _ in range(4000)])
    deviation = math.sqrt(2) * plan.scale
    scaled = draws.std(axis=0) / deviation
    np.testing.assert_allclose(np.diag(scaled), 2.0, rtol=0.08)
    np.testing.assert_allclose(scaled[~np.eye(3, dtype=bool)], 1.0, rtol=0.08)
    with pytest.raises(CalibrationFailed, match="raise it"):
        Functional().plan(problem(), 1000, Budget(1e-6))


def worst_neighbours(adjacency, random):
    """Two tables in one dimension: records at the ends of the domain or inside, one of them other."""
    n = int(random.integers(1, 8))
    ends = np.array([-B, -B / 3, 0.1 * B, B])
    x, y = random.choice(ends, n), random.choice([-1.0, -0.3, 0.7, 1.0], n)
    if adjacency == "add_remove":
        return (x, y), (x[1:], y[1:])
    x2, y2 = x.copy(), y.copy()
    x2[0], y2[0] = random.choice([0.0, -x[0], 1.0]), -y[0]
    return (x, y), (x2, y2)


def log_odds(query, other, scale, outputs):
    """Σ_j (|o_j − b_j| − |o_j − a_j|)/scale: log P_a(o)/P_b(o) of discrete Laplace noise, exactly."""
    return [
        sum(Fraction(abs(o - b) - abs(o - a), scale) for o, a, b in zip(output, query, other, strict=True))
        for output in outputs
    ]


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_no_output_of_the_functional_mechanism_has_odds_beyond_epsilon(adjacency, epsilon):
    """In exact integers, for adversarial neighbours: outputs between and beside the queries and far out."""
    task = problem(adjacency=adjacency)
    plan = Functional().plan(task, 1, Budget(epsilon))
    random, worst = np.random.default_rng(1), Fraction(0)
    for _ in range(60):
        pair = [ArrayRows(x[:, None], y, task.domain) for x, y in worst_neighbours(adjacency, random)]
        steps = [plan.coefficients(rows.moments()) / plan.step for rows in pair]
        a, b = ([int(k) for k in side] for side in steps)
        assert a == list(steps[0]) and b == list(steps[1])  # on the grid
        near = [*a, *b, (a[0] + b[0]) // 2, (a[1] + b[1]) // 2]
        axis = [k + far for k in near for far in (-(10**30), -50 * plan.steps, -1, 0, 1, 10**30)]
        outputs = [(axis[i], axis[j]) for i, j in random.integers(0, len(axis), (300, 2))]
        outputs += [(k, k) for k in axis]
        worst = max(worst, *(abs(odds) for odds in log_odds(a, b, plan.steps, outputs)))
    assert worst <= Fraction(epsilon)
    assert worst >= Fraction(epsilon) * Fraction(1, 2)  # the neighbours try


def test_the_functional_mechanism_draws_whole_steps_of_exact_noise(monkeypatch):
    """The release is query + h·k with k from `discrete_laplace` at the planned scale, and nothing else."""
    task = problem()
    plan = Functional().plan(task, 2, BUDGET)
    X, y = regression(50, 2)
    rows = ArrayRows(X, y, task.domain)
    asked = []

    def noise(random, scale, size):
        asked.append((scale, size))
        return np.arange(1.0, size + 1)

    monkeypatch.setattr(functional, "discrete_laplace", noise)
    released = plan.release_moments(rows, np.random.default_rng(0))
    h, query = plan.step, plan.coefficients(rows.moments())
    assert asked == [(plan.steps, 5)]
    np.testing.assert_array_equal(
        released.xx[np.triu_indices(2)] / [2, 1, 2], query[:3] + h * np.arange(1, 4)
    )
    np.testing.assert_array_equal(released.xy[:, 0], query[3:] + h * np.arange(4, 6))


def tail_delta(noise, step, epsilon):
    """Σ (P − e^ε P')₊ over one tail of two queries two apart, from the atoms of the noise there."""
    sides = [np.rint((v + noise) / step).astype(np.int64) for v in (1.0, -1.0)]
    edge = min(side.max() for side in sides)
    (a, pa), (b, pb) = (np.unique(side[side <= edge], return_counts=True) for side in sides)
    other = dict(zip(b.tolist(), pb.tolist(), strict=True))
    return sum(
        max(p - math.exp(epsilon) * other.get(k, 0), 0) for k, p in zip(a.tolist(), pa.tolist(), strict=True)
    )


def test_laplace_noise_from_doubles_would_be_caught():
    """numpy's draws are scale·log(j·2⁻⁵²): in the tail isolated grid points, impossible for the neighbour."""
    plan = Functional().plan(problem(), 1, Budget(1.0))
    j = np.arange(1, 2**16 + 1)
    doubles = plan.scale * np.log(j * 2.0**-52)
    assert tail_delta(doubles, plan.step, 1.0) > 0


def test_input_perturbation_is_for_replace():
    plan = InputPerturbation().plan(problem(adjacency="replace"), 3, BUDGET)
    assert hockey_stick(EPSILON, 2 * math.sqrt(2) * B / plan.sigma) <= DELTA
    with pytest.raises(NotCovered, match="replace"):
        InputPerturbation().plan(problem(), 3, BUDGET)
    X, y = regression(20000)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    theta = fit(InputPerturbation(), problem(adjacency="replace"), X, y, Budget(2000.0, 0.1))
    np.testing.assert_allclose(theta[:, 0], exact, atol=0.05)


def test_pure_lop_adds_up_to_epsilon():
    task = problem(Logistic(), adjacency="replace")
    plan = PureLOP().plan(task, 3, BUDGET)
    L, zeta = task.smoothness(3), task.gradient_bound(3)
    spent = math.log1p(L / plan.Delta) + 2 * zeta / plan.scale + plan.epsilon_output
    assert spent == pytest.approx(EPSILON, rel=1e-9)
    assert plan.guarantee.delta == 0.0
    X, y = regression(300)
    assert fit(PureLOP(), task, X, np.sign(y)).shape == (3, 1)
    with pytest.raises(NotCovered, match="one output"):
        PureLOP().plan(problem(Multinomial(3)), 3, BUDGET)
    with pytest.raises(NotCovered, match="bounded"):
        PureLOP().plan(problem(), 3, BUDGET)


@pytest.mark.parametrize(
    ("mechanism", "task"),
    [
        (Exponential(), problem()),
        (InputPerturbation(), problem(adjacency="replace")),
        (PureLOP(), problem(Logistic())),
    ],
)
def test_raw_doubles_are_for_studies_and_no_ledger_takes_them(mechanism, task, tmp_path):
    X, y = regression(40)
    plan = mechanism.plan(task, 3, BUDGET)
    assert not plan.guarantee.private
    rows = ArrayRows(X, np.sign(y), task.domain)
    assert not execute(plan, rows).privacy.private
    adjacency = task.domain.neighbours.adjacency
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=10, delta=0.5, adjacency=adjacency)
    with pytest.raises(LedgerRefused):
        execute(plan, rows, ledger=ledger)
    assert ledger.state().charges == 0


@pytest.mark.parametrize("mechanism", [AdaSSP(), Functional(), Exponential(), InputPerturbation()])
def test_quadratic_mechanisms_refuse_other_losses(mechanism):
    with pytest.raises(NotCovered, match="squared"):
        mechanism.plan(problem(Logistic()), 3, BUDGET)


def test_wrong_parameters_are_refused():
    with pytest.raises(InvalidInput, match="rounds"):
        NoisyGradient(rounds=0).plan(problem(), 3, BUDGET)
    with pytest.raises(InvalidInput, match="clip"):
        NoisyGradient(clip=-1.0).plan(problem(), 3, BUDGET)
    with pytest.raises(InvalidInput, match="average"):
        NoisyGradient(average=2.0).plan(problem(), 3, BUDGET)
    with pytest.raises(InvalidInput, match="rate"):
        DPSGD(rate=1.5).plan(problem(), 3, BUDGET)
    with pytest.raises(InvalidInput, match="radius"):
        Exponential(radius=math.inf).plan(problem(), 3, BUDGET)
    with pytest.raises(NotCovered, match="ball"):
        Exponential().plan(problem(constraint=L2Ball(1.0)), 3, BUDGET)
    with pytest.raises(NotCovered, match="add_remove"):
        AdaSSP().plan(problem(adjacency="replace"), 3, BUDGET)
