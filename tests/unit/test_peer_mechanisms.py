"""The peers: accounted noise, refusals that say why, answers that are right when the noise is small."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import sparse

from curvedp.constraints import Box, L2Ball
from curvedp.domain import Domain
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.losses import Logistic, Multinomial, Squared
from curvedp.mechanisms.adassp import AdaSSP
from curvedp.mechanisms.exponential import Exponential
from curvedp.mechanisms.functional import Functional
from curvedp.mechanisms.gradient import DPSGD, NoisyGradient, calibrate_subsampled, count_multiplier
from curvedp.mechanisms.input import InputPerturbation
from curvedp.mechanisms.output import OutputPerturbation
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problem import Problem
from curvedp.regularizers import L1
from curvedp.rows import DenseRows, SparseRows
from curvedp.rows.sampled import sampled_gradient_sum

EPSILON, DELTA = 0.8, 1e-6
B = 2.0


def regression(n=4000, d=3, seed=0):
    random = np.random.default_rng(seed)
    X = np.column_stack([random.uniform(-0.8, 0.8, (n, d - 1)), np.ones(n)])
    y = np.clip(X @ (0.4 * random.normal(size=d)) + 0.1 * random.normal(size=n), -1, 1)
    return X, y


def problem(loss=None, adjacency="add_remove", **parts):
    return Problem(loss or Squared(), domain=Domain(x_norm=B, adjacency=adjacency), **parts)


def fit(mechanism, task, X, y, seed=0):
    return (
        mechanism.plan(task, X.shape[1])
        .release(DenseRows(X, y, task.domain), np.random.default_rng(seed))
        .theta
    )


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_noisy_gradient_spends_what_it_has(adjacency):
    plan = NoisyGradient(EPSILON, DELTA, rounds=37, clip=0.7).plan(problem(adjacency=adjacency), 3)
    sensitivity = 0.7 * (1 if adjacency == "add_remove" else 2)
    mu = math.sqrt(37 * (sensitivity / plan.sigma) ** 2 + plan.mu_count**2)
    assert hockey_stick(EPSILON, mu) <= DELTA
    assert hockey_stick(EPSILON, 1.001 * mu) > DELTA
    assert (plan.mu_count == 0) == (adjacency == "replace")
    assert plan.guarantee.delta_at(EPSILON) <= DELTA


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_noisy_gradient_converges_when_noise_is_small(average):
    X, y = regression()
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    mechanism = NoisyGradient(1e4, 0.1, rounds=600, clip=5.0, step=0.7, average=average)
    np.testing.assert_allclose(fit(mechanism, problem(), X, y)[:, 0], exact, atol=0.01)
    sparse_fit = fit(mechanism, problem(regularizer=L1(4000.0), constraint=Box(0.1)), X, y)
    assert np.all(np.abs(sparse_fit) <= 0.1) and np.any(sparse_fit == 0)


def test_dpsgd_is_no_weaker_than_renyi_accounting_says():
    """The calibrated noise passes an independent accountant, which is looser, at a slightly larger ε."""
    rate, rounds = 0.05, 200
    multiplier, profile = calibrate_subsampled(1.0, 1e-5, rate, rounds)
    assert profile.delta_at(1.0) <= 1e-5 < profile.delta_at(0.97)
    accountant = rdp_privacy_accountant.RdpAccountant()
    gaussian = dp_event.GaussianDpEvent(multiplier)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, gaussian), rounds)
    accountant.compose(dp_event.GaussianDpEvent(count_multiplier(multiplier, rounds)))
    assert 1.0 < accountant.get_epsilon(1e-5) < 1.35


def test_dpsgd_samples_every_record_alike():
    X, y = regression(500)
    random = np.random.default_rng(0)
    task = problem()
    rows = DenseRows(X, y, task.domain)
    theta = np.array([[0.3], [-0.2], [0.1]])
    full = rows.gradient_sum(Squared(), theta, 0.2)
    draws = np.stack([sampled_gradient_sum(rows, Squared(), theta, 0.2, 0.3, random) for _ in range(3000)])
    error = draws.std(axis=0) / math.sqrt(3000)
    assert np.all(np.abs(draws.mean(axis=0) - 0.3 * full) < 5 * error)
    slopes = X @ theta - y[:, None]
    sizes = np.linalg.norm(X, axis=1) * np.abs(slopes[:, 0])
    clipped = X * (slopes * np.minimum(1, 0.2 / sizes)[:, None])
    expected = 0.3 * 0.7 * (clipped**2).sum(axis=0)
    np.testing.assert_allclose(draws[:, :, 0].var(axis=0), expected, rtol=0.15)
    with pytest.raises(NotCovered, match="dense"):
        sampled_gradient_sum(
            SparseRows(sparse.csr_array(X), y, task.domain), Squared(), theta, 0.2, 0.3, random
        )


def test_dpsgd_learns():
    X, y = regression(8000)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    theta = fit(DPSGD(8.0, 1e-3, rounds=150, rate=0.1, clip=1.0, step=0.7), problem(), X, y)
    assert np.linalg.norm(theta[:, 0] - exact) < 0.1
    with pytest.raises(NotCovered, match="add_remove"):
        DPSGD(1.0, 1e-6).plan(problem(adjacency="replace"), 3)


def test_output_perturbation_in_a_ball():
    X, y = regression()
    task = problem(constraint=L2Ball(1.0))
    plan = OutputPerturbation(EPSILON, DELTA).plan(task, 3)
    assert plan.zeta == B * (B + 1)
    assert plan.sigma >= plan.zeta / plan.Lambda / plan.profile.mu
    assert plan.guarantee.delta_at(EPSILON) <= DELTA
    theta = fit(OutputPerturbation(1e4, 0.1, weight=1.0), task, X, y)
    np.testing.assert_allclose(theta[:, 0], np.linalg.lstsq(X, y, rcond=None)[0], atol=0.2)
    with pytest.raises(NotCovered, match="bounded"):
        OutputPerturbation(EPSILON, DELTA).plan(problem(), 3)
    with pytest.raises(InvalidInput, match="radius"):
        OutputPerturbation(EPSILON, DELTA, radius=0.0).plan(problem(Logistic()), 3)
    theta = fit(OutputPerturbation(EPSILON, DELTA), problem(Multinomial(3)), X[:200], np.arange(200) % 3.0)
    assert theta.shape == (3, 3)


def test_adassp_has_the_published_constants():
    plan = AdaSSP(0.9, 1e-6).plan(problem(), 5)
    log = math.log(6e6)
    assert plan.s == pytest.approx(math.sqrt(log) / 0.3)
    assert hockey_stick(0.9, math.sqrt(3) / plan.s) <= 1e-6
    wanted = math.sqrt(5 * log * math.log(2 * 25 / 0.05)) * B**2 / 0.3
    assert plan.ridge(-100.0) == pytest.approx(wanted)
    assert plan.ridge(1e9) == 0.0
    between = B**2 * log / 0.3 + 0.25 * wanted
    assert plan.ridge(between) == pytest.approx(0.75 * wanted)
    X, y = regression(100_000)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(fit(AdaSSP(10.0, 1e-3), problem(), X, y)[:, 0], exact, atol=0.01)
    with pytest.raises(CalibrationFailed):
        AdaSSP(5000.0, 1e-6).plan(problem(), 5)


def test_functional_mechanism_is_pure_and_learns_from_many_records():
    plan = Functional(EPSILON).plan(problem(), 3)
    length = math.sqrt(3) * B
    assert plan.scale >= (0.5 * length**2 + length) / EPSILON
    assert plan.guarantee.delta == 0.0 == plan.guarantee.delta_at(EPSILON)
    X, y = regression()
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(fit(Functional(3000.0), problem(), X, y)[:, 0], exact, atol=0.02)
    random = np.random.default_rng(0)
    rows = DenseRows(X[:10], y[:10], problem().domain)
    draws = np.stack([plan.release_moments(rows, random).xx for _ in range(4000)])
    deviation = math.sqrt(2) * plan.scale
    scaled = draws.std(axis=0) / deviation
    np.testing.assert_allclose(np.diag(scaled), 2.0, rtol=0.08)
    np.testing.assert_allclose(scaled[~np.eye(3, dtype=bool)], 1.0, rtol=0.08)


def test_input_perturbation_is_for_replace():
    plan = InputPerturbation(EPSILON, DELTA).plan(problem(adjacency="replace"), 3)
    assert hockey_stick(EPSILON, 2 * math.sqrt(2) * B / plan.sigma) <= DELTA
    with pytest.raises(NotCovered, match="replace"):
        InputPerturbation(EPSILON, DELTA).plan(problem(), 3)
    X, y = regression(20000)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    theta = fit(InputPerturbation(2000.0, 0.1), problem(adjacency="replace"), X, y)
    np.testing.assert_allclose(theta[:, 0], exact, atol=0.05)


@pytest.mark.parametrize("make", [AdaSSP, Functional, Exponential, InputPerturbation])
def test_quadratic_mechanisms_refuse_other_losses(make):
    arguments = (1.0, 1e-6) if make in (AdaSSP, InputPerturbation) else (1.0,)
    with pytest.raises(NotCovered, match="squared"):
        make(*arguments).plan(problem(Logistic()), 3)


def test_wrong_parameters_are_refused():
    with pytest.raises(InvalidInput, match="rounds"):
        NoisyGradient(1.0, 1e-6, rounds=0).plan(problem(), 3)
    with pytest.raises(InvalidInput, match="clip"):
        NoisyGradient(1.0, 1e-6, clip=-1.0).plan(problem(), 3)
    with pytest.raises(InvalidInput, match="average"):
        NoisyGradient(1.0, 1e-6, average=2.0).plan(problem(), 3)
    with pytest.raises(InvalidInput, match="rate"):
        DPSGD(1.0, 1e-6, rate=1.5).plan(problem(), 3)
    with pytest.raises(InvalidInput, match="epsilon"):
        Functional(-1.0).plan(problem(), 3)
    with pytest.raises(InvalidInput, match="radius"):
        Exponential(1.0, radius=math.inf).plan(problem(), 3)
    with pytest.raises(NotCovered, match="ball"):
        Exponential(1.0).plan(problem(constraint=L2Ball(1.0)), 3)
    with pytest.raises(NotCovered, match="add_remove"):
        AdaSSP(1.0, 1e-6).plan(problem(adjacency="replace"), 3)
