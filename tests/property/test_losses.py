"""Every loss: derivatives, convexity, targets, and constants that no sampled record exceeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.catalogue import LOSSES

from curvedp.errors import InvalidInput, NotCovered
from curvedp.problems.domain import Domain
from curvedp.problems.losses import (
    Huber,
    Logistic,
    Multinomial,
    OneVsRest,
    Poisson,
    Squared,
    SquaredHinge,
)

ONE_MARGIN = [loss for loss in LOSSES if loss.n_outputs == 1]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
every_margin_loss = pytest.mark.parametrize("loss", ONE_MARGIN, ids=repr)


def sample(loss, n=400, seed=0, spread=3.0):
    random = np.random.default_rng(seed)
    s = random.normal(size=(n, loss.n_outputs)) * spread
    if loss.n_outputs > 1:
        raw = random.integers(0, loss.n_outputs, size=n).astype(float)
    else:
        raw = random.normal(size=n)
    return s, loss.clip_target(raw, Domain())


@every_loss
def test_gradient_is_the_derivative_of_the_value(loss):
    s, y = sample(loss)
    h = 1e-6
    for k in range(loss.n_outputs):
        e = h * np.eye(loss.n_outputs)[k]
        numeric = (loss.value(s + e, y) - loss.value(s - e, y)) / (2 * h)
        np.testing.assert_allclose(loss.gradient(s, y)[:, k], numeric, rtol=2e-7, atol=2e-8)


@every_loss
def test_hessian_is_the_derivative_of_the_gradient(loss):
    s, y = sample(loss)
    h = 1e-6
    kink = {"huber": np.abs(np.abs(s[:, 0] - y) - 0.7)}
    if "hinge" in loss.name:
        kink[loss.name] = np.abs(1 - np.abs(s)).min(axis=1)
    smooth = kink.get(loss.name, np.ones(len(y))) > 1e-4
    for k in range(loss.n_outputs):
        e = h * np.eye(loss.n_outputs)[k]
        numeric = (loss.gradient(s + e, y) - loss.gradient(s - e, y)) / (2 * h)
        np.testing.assert_allclose(loss.hessian(s, y)[smooth, :, k], numeric[smooth], rtol=1e-6, atol=1e-8)


@every_loss
def test_shapes(loss):
    s, y = sample(loss, n=5)
    K = loss.n_outputs
    assert loss.value(s, y).shape == (5,)
    assert loss.gradient(s, y).shape == (5, K)
    assert loss.hessian(s, y).shape == (5, K, K)
    assert loss.value(s[:0], y[:0]).shape == (0,)
    assert loss.gradient(s[:0], y[:0]).shape == (0, K)


@every_loss
def test_convex_with_a_hessian_between_zero_and_beta_of_the_stated_rank(loss):
    domain = Domain(x_norm=1.5)
    s, y = sample(loss, spread=1.0)
    radius = float(np.linalg.norm(s, axis=1).max()) / domain.x_norm
    beta = loss.curvature(domain, radius)
    eigenvalues = np.linalg.eigvalsh(loss.hessian(s, y))
    assert eigenvalues.min() >= -1e-15
    assert eigenvalues.max() <= beta * (1 + 1e-14)
    assert np.all((eigenvalues > 1e-12).sum(axis=1) <= loss.rank)
    other, _ = sample(loss, seed=9, spread=1.0)
    middle = loss.value((s + other) / 2, y)
    assert np.all(middle <= (loss.value(s, y) + loss.value(other, y)) / 2 + 1e-14)
    assert loss.smoothness(domain, radius) == pytest.approx(beta * 1.5**2)


def test_curvature_is_attained():
    domain = Domain()
    at = np.array([[0.0, 0.0]])
    assert np.linalg.eigvalsh(Multinomial(2).hessian(at, np.zeros(1))).max() == pytest.approx(0.5)
    assert Logistic().hessian(np.zeros((1, 1)), np.ones(1)).item() == 0.25
    s = np.array([[0.3]])
    assert Poisson().hessian(s, np.zeros(1)).item() == pytest.approx(Poisson().curvature(domain, 0.3))
    assert Poisson(0.1).hessian(s, np.zeros(1)).item() == pytest.approx(math.exp(0.1))


def record_gradients(loss, theta, domain, n=4000, seed=0):
    """Gradients x φ'ᵀ of records anywhere in the domain, the extreme ones included."""
    random = np.random.default_rng(seed)
    d = theta.shape[0]
    X = random.normal(size=(n, d))
    if np.any(theta):
        X[: n // 2] = theta[:, 0] * np.sign(X[: n // 2, :1])  # ± the direction that stretches the margin
    X *= (domain.x_norm / np.linalg.norm(X, axis=1) * random.choice([0.3, 1.0], n))[:, None]
    if loss.n_outputs > 1:
        y = random.integers(0, loss.n_outputs, n).astype(float)
    else:
        y = loss.clip_target(random.choice([-1.0, 0.0, 1.0], n) * domain.y_bound, domain)
    return (X[:, :, None] * loss.gradient(X @ theta, y)[:, None, :]).reshape(n, -1)


@every_loss
@pytest.mark.parametrize("norm", [0.0, 0.4, 2.0])
@pytest.mark.parametrize(
    "domain", [Domain(), Domain(0.7, 3.0), Domain(2.0, 0.2)], ids=["1,1", "0.7,3", "2,0.2"]
)
def test_no_record_exceeds_the_gradient_bounds(loss, norm, domain):
    theta = np.zeros((3, loss.n_outputs))
    if norm:
        theta = np.random.default_rng(3).normal(size=theta.shape)
        theta *= norm / np.linalg.norm(theta)
    g = record_gradients(loss, theta, domain)
    largest = np.linalg.norm(g, axis=1).max()
    diameter = max(np.linalg.norm(g - row, axis=1).max() for row in g[:400])
    assert largest <= loss.center_bound(domain, norm) * (1 + 1e-14)
    assert diameter <= loss.center_diameter(domain, norm) * (1 + 1e-14)
    assert largest <= loss.gradient_bound(domain, norm) * (1 + 1e-14)
    assert loss.center_diameter(domain, norm) <= 2 * loss.center_bound(domain, norm) * (1 + 1e-15)
    if loss.name in ("squared", "logistic", "huber", "squared_hinge"):
        assert largest >= 0.999 * loss.center_bound(domain, norm)
    if norm == 0.0 and loss.name != "poisson":  # attained, opposite features
        assert diameter >= 0.99 * loss.center_diameter(domain, norm)


def test_the_poisson_diameter_is_twice_its_bound():
    """B(e^{B‖θ_c‖} + Y) would be too small: opposite features double the largest gradient."""
    loss, margin = Poisson(), np.zeros((1, 1))
    for Y, y in ((0.5, 0.0), (10.0, 10.0)):
        opposite = 2 * abs(loss.gradient(margin, np.array([y])).item())  # x and −x, both with target y
        assert 1.0 + Y < opposite <= loss.center_diameter(Domain(1.0, Y), 0.0)


def test_the_table_of_constants():
    """Section 6 at B = 1.5, Y = 2, ‖θ_c‖ = 0.4."""
    domain, norm = Domain(1.5, 2.0), 0.4
    sigma = 1 / (1 + math.exp(-0.6))
    expected = {
        Squared(): (1.0, 1.5 * 2.6),
        Logistic(): (0.25, 1.5 * sigma),
        Huber(0.7): (1.0, 1.5 * 0.7),
        Huber(9.0): (1.0, 1.5 * 2.6),
        SquaredHinge(): (1.0, 1.5 * 1.6),
        Poisson(): (math.exp(0.6), 1.5 * 2.0),
        Multinomial(3): (0.5, 1.5 * (math.sqrt(2 / 3) + 0.3)),
    }
    for loss, (beta, gamma) in expected.items():
        assert loss.curvature(domain, norm) == pytest.approx(beta), loss
        assert loss.center_bound(domain, norm) == pytest.approx(gamma), loss
        assert loss.center_diameter(domain, norm) == pytest.approx(2 * gamma), loss
    assert Logistic().center_diameter(domain, 0.0) == pytest.approx(1.5)
    assert Multinomial(4).center_bound(domain, 0.0) == pytest.approx(1.5 * math.sqrt(3 / 4))
    assert Multinomial(4).center_bound(domain, 50.0) == pytest.approx(1.5 * math.sqrt(2))
    assert Multinomial(4).gradient_bound(domain, math.inf) == pytest.approx(1.5 * math.sqrt(2))
    assert Logistic().gradient_bound(domain, math.inf) == pytest.approx(1.5)
    assert Huber(0.7).gradient_bound(domain, math.inf) == pytest.approx(1.05)
    assert (
        Squared().gradient_bound(domain, math.inf)
        == math.inf
        == SquaredHinge().gradient_bound(domain, math.inf)
    )


@every_loss
def test_targets_are_moved_into_the_domain(loss):
    domain = Domain(1.0, 2.0)
    y = loss.clip_target(np.array([np.nan, -np.inf, np.inf, -0.3, 0.0, 1.0, 1e300]), domain)
    assert np.all(np.isfinite(y))
    if loss.n_outputs > 1:
        assert y[0] == 0 and set(y) <= set(range(loss.n_classes))
    elif loss.name in ("logistic", "squared_hinge"):
        assert y.tolist() == [-1, -1, 1, -1, -1, 1, 1]
    elif loss.name == "poisson":
        assert y.tolist() == [0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 2.0]
    else:
        assert y.tolist() == [0.0, -2.0, 2.0, -0.3, 0.0, 1.0, 2.0]
    np.testing.assert_array_equal(loss.clip_target(y, domain), y)


def test_where_there_is_no_bound_there_is_no_number():
    with pytest.raises(NotCovered, match="max_margin"):
        Poisson().curvature(Domain(), math.inf)
    with pytest.raises(NotCovered):
        Poisson().center_bound(Domain(2.0), 1000.0)
    assert Poisson(max_margin=2.0).curvature(Domain(), math.inf) == pytest.approx(math.exp(2.0))
    assert Poisson(max_margin=2.0).gradient_bound(Domain(), math.inf) == math.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda: Huber(0.0),
        lambda: Huber(math.nan),
        lambda: Multinomial(1),
        lambda: Poisson(math.nan),
        lambda: Poisson(1e4),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(InvalidInput):
        make()


@every_margin_loss
def test_far_away_slopes_stay_numbers(loss):
    """A record's clipped gradient must be a number wherever the margin is."""
    s = np.array([[-1e30], [1e30]])
    assert np.all(np.isfinite(loss.gradient(s, loss.clip_target(np.ones(2), Domain()))))


@every_loss
def test_losses_are_values(loss):
    assert loss == type(loss)(**{k: getattr(loss, k) for k in loss.__dataclass_fields__})
    assert hash(loss) == hash(loss)
    assert loss.is_quadratic is (loss.name == "squared")


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (Squared(), [[0.5]]),
        (Logistic(), [[1 / (1 + math.exp(-0.5))]]),
        (Poisson(), [[math.exp(0.5)]]),
    ],
    ids=repr,
)
def test_the_inverse_link_is_the_expected_target(loss, expected):
    assert np.allclose(loss.inverse_link(np.array([[0.5]])), expected)


def test_multinomial_margins_become_probabilities_and_hinges_do_not():
    s = np.array([[1.0, 2.0, 0.5, -1.0]])
    p = Multinomial(4).inverse_link(s)
    assert p.sum() == pytest.approx(1.0) and p.argmax() == 1
    for loss in (SquaredHinge(), OneVsRest(SquaredHinge(), 4)):
        with pytest.raises(NotCovered, match="no probabilities"):
            loss.inverse_link(s[:, : loss.n_outputs])
