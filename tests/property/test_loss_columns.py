"""Losses that read a weight, an offset or several targets: against their definition, record by record."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.catalogue import LOSSES_OF_COLUMNS

from curvedp.errors import InvalidInput, NotCovered
from curvedp.problems.domain import Domain
from curvedp.problems.losses import (
    Huber,
    Logistic,
    Multinomial,
    Offset,
    Poisson,
    Squared,
    SquaredSeveral,
    Weighted,
)
from curvedp.problems.losses.several import clipped_targets, offset_bound, spread_targets, target_columns

every_loss = pytest.mark.parametrize("loss", LOSSES_OF_COLUMNS, ids=repr)
HOSTILE = np.array([np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1e308])


def raw_targets(loss, n, seed=0, spread=1.5):
    """Columns of numbers within and beyond their bounds."""
    random = np.random.default_rng(seed)
    y = random.uniform(-spread, spread, (n, target_columns(loss)))
    inner = loss.inner if isinstance(loss, Weighted) else loss
    if isinstance(inner, Multinomial):
        y[:, 0] = random.integers(0, inner.n_classes, n)
    return y


def sample(loss, n=400, seed=0, spread=2.0):
    s = np.random.default_rng(seed).normal(size=(n, loss.n_outputs)) * spread
    return s, clipped_targets(loss, raw_targets(loss, n, seed), Domain())


@every_loss
def test_derivatives_by_finite_differences(loss):
    s, y = sample(loss)
    h, K = 1e-6, loss.n_outputs
    kink = (
        np.ones(len(y))
        if loss.name != "huber"
        else np.abs(np.abs(loss.gradient(s, y)[:, 0]) - 0.7 * y[:, -1])
    )
    for k in range(K):
        e = h * np.eye(K)[k]
        value = (loss.value(s + e, y) - loss.value(s - e, y)) / (2 * h)
        slope = (loss.gradient(s + e, y) - loss.gradient(s - e, y)) / (2 * h)
        np.testing.assert_allclose(loss.gradient(s, y)[:, k], value, rtol=2e-7, atol=2e-8)
        smooth = kink > 1e-4
        np.testing.assert_allclose(loss.hessian(s, y)[smooth, :, k], slope[smooth], rtol=1e-6, atol=1e-8)


def test_a_weight_multiplies_and_an_offset_shifts():
    s, v, o = np.array([[0.3], [-1.0]]), np.array([0.25, 0.0]), np.array([0.2, -0.1])
    y = np.array([1.0, -1.0])
    plain, both = Logistic(), Weighted(Offset(Logistic(), 0.5))
    columns = np.column_stack([y, o, v])
    np.testing.assert_allclose(both.value(s, columns), v * plain.value(s + o[:, None], y))
    np.testing.assert_allclose(both.gradient(s, columns), v[:, None] * plain.gradient(s + o[:, None], y))
    assert target_columns(both) == 3 and target_columns(plain) == 1
    assert offset_bound(both) == 0.5 and offset_bound(Weighted(plain)) == 0.0


@every_loss
@pytest.mark.parametrize("norm", [0.0, 0.4, 2.0])
@pytest.mark.parametrize(
    "domain", [Domain(), Domain(0.7, 3.0), Domain(2.0, 0.2)], ids=["1,1", "0.7,3", "2,0.2"]
)
def test_no_record_exceeds_the_public_constants(loss, norm, domain):
    random = np.random.default_rng(1)
    theta = np.zeros((3, loss.n_outputs))
    if norm:
        theta = random.normal(size=theta.shape)
        theta *= norm / np.linalg.norm(theta)
    n = 4000
    X = random.normal(size=(n, 3))
    if norm:
        X[: n // 2] = theta[:, 0] * np.sign(X[: n // 2, :1])
    X *= (domain.x_norm / np.linalg.norm(X, axis=1))[:, None]
    y = clipped_targets(loss, raw_targets(loss, n, spread=5.0), domain)
    s = X @ theta
    g = (X[:, :, None] * loss.gradient(s, y)[:, None, :]).reshape(n, -1)
    largest = np.linalg.norm(g, axis=1).max()
    diameter = max(np.linalg.norm(g - row, axis=1).max() for row in g[:400])
    assert largest <= loss.center_bound(domain, norm) * (1 + 1e-14)
    assert largest <= loss.gradient_bound(domain, norm) * (1 + 1e-14)
    assert diameter <= loss.center_diameter(domain, norm) * (1 + 1e-14)
    assert largest >= 0.6 * loss.center_bound(domain, norm)  # the bounds are no fantasies
    eigenvalues = np.linalg.eigvalsh(loss.hessian(s, y))
    assert eigenvalues.min() >= -1e-15
    assert eigenvalues.max() <= loss.curvature(domain, norm) * (1 + 1e-14)
    assert np.all((eigenvalues > 1e-12).sum(axis=1) <= loss.rank)
    assert loss.smoothness(domain, norm) == pytest.approx(loss.curvature(domain, norm) * domain.x_norm**2)


@every_loss
def test_hostile_columns_are_moved_into_the_domain(loss):
    T = target_columns(loss)
    raw = np.stack(np.meshgrid(*[HOSTILE] * T), axis=-1).reshape(-1, T)
    domain = Domain(1.0, 2.0)
    y = clipped_targets(loss, raw, domain)
    assert np.all(np.isfinite(y))
    np.testing.assert_array_equal(loss.clip_target(y, domain), y)
    s = np.full((len(y), loss.n_outputs), 1e30)
    assert np.all(np.isfinite(loss.gradient(s, y)))
    if isinstance(loss, Weighted):
        assert y[:, -1].min() == 0.0 and y[:, -1].max() == 1.0
        assert set(y[np.isnan(raw[:, -1]), -1]) == {0.0}


def test_typical_targets_have_full_weight_and_no_offset():
    y = spread_targets(Weighted(Offset(Squared(), 2.0)), Domain(1.0, 3.0))
    assert y.shape == (101, 3) and set(y[:, 1]) == {0.0} and set(y[:, 2]) == {1.0}
    np.testing.assert_allclose(y[:, 0], np.linspace(-3, 3, 101))
    assert spread_targets(Squared(), Domain()).shape == (101,)


def test_the_poisson_mean_never_overflows():
    loss, s = Poisson(max_margin=2.0), np.array([[-1000.0], [1.0], [2.0], [1e5]])
    mean = loss.inverse_link(s)
    np.testing.assert_allclose(mean[:3, 0], np.exp(s[:3, 0]))
    np.testing.assert_allclose(mean - 0.0, loss.gradient(s, np.zeros(4)))
    assert np.all(np.isfinite(Poisson().inverse_link(np.array([[1e9]]))))
    assert math.isclose(mean[3, 0], math.exp(2.0) * (1 + 1e5 - 2.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Offset(Squared(), 0.0),
        lambda: Offset(Squared(), math.nan),
        lambda: Offset(Multinomial(3), 1.0),
        lambda: Offset(Weighted(Huber()), 1.0),
        lambda: SquaredSeveral(1),
        lambda: clipped_targets(Weighted(Squared()), np.zeros((3, 1)), Domain()),
        lambda: clipped_targets(Squared(), np.zeros((3, 2)), Domain()),
    ],
)
def test_what_does_not_fit_together_is_refused(make):
    with pytest.raises((InvalidInput, NotCovered)):
        make()
