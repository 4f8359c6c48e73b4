"""Losses at extreme margins against 50-digit arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from curvedp.problems.losses import Huber, Logistic, Multinomial, Poisson, Squared, SquaredHinge

MARGINS = [-800.0, -745.0, -40.0, -1.5, -1e-8, 0.0, 1e-12, 0.5, 36.7, 300.0, 599.0, 800.0]


def exact_value(name, s, y):
    s, y = mpmath.mpf(s), mpmath.mpf(y)
    return {
        "logistic": lambda: mpmath.log1p(mpmath.exp(-y * s)),
        "squared": lambda: (s - y) ** 2 / 2,
        "squared_hinge": lambda: max(mpmath.mpf(0), 1 - y * s) ** 2 / 2,
        "poisson": lambda: mpmath.exp(s) - y * s,
        "huber": lambda: (s - y) ** 2 / 2 if abs(s - y) <= 0.5 else abs(s - y) / 2 - mpmath.mpf("0.125"),
    }[name]()


@pytest.mark.parametrize("loss", [Squared(), Logistic(), SquaredHinge(), Huber(0.5), Poisson()], ids=repr)
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_value_and_slope_at_extreme_margins(loss, y):
    if loss.name == "poisson":
        y = abs(y)
    with mpmath.workdps(60):
        for margin in MARGINS:
            if loss.name == "poisson" and margin > 600:
                continue
            s, t = np.array([[margin]]), np.array([y])
            value = exact_value(loss.name, margin, y)
            slope = mpmath.diff(lambda at: exact_value(loss.name, at, y), mpmath.mpf(margin))
            got = float(loss.value(s, t)[0])
            assert abs(got - value) <= 1e-14 * abs(value) + 1e-300, (margin, got)
            scale = 1e-14 * (abs(slope) + (abs(y) if loss.name == "poisson" else 0)) + mpmath.mpf(10) ** -300
            assert abs(float(loss.gradient(s, t).item()) - slope) <= scale, margin


def test_logistic_curvature_does_not_underflow_early():
    s = np.array([[-700.0], [700.0]])
    with mpmath.workdps(60):
        for row, got in zip(s[:, 0], Logistic().hessian(s, np.ones(2)).ravel(), strict=True):
            e = mpmath.exp(-abs(mpmath.mpf(row)))
            exact = e / (1 + e) ** 2
            assert abs(got - exact) <= 1e-13 * exact


@pytest.mark.parametrize("scale", [1e-9, 1.0, 50.0, 1000.0])
def test_multinomial_against_exact_softmax(scale):
    random = np.random.default_rng(0)
    s = random.normal(size=(20, 5)) * scale
    y = random.integers(0, 5, 20).astype(float)
    loss = Multinomial(5)
    value, gradient, hessian = loss.value(s, y), loss.gradient(s, y), loss.hessian(s, y)
    with mpmath.workdps(60):
        for i in range(20):
            powers = [mpmath.exp(mpmath.mpf(v) - mpmath.mpf(s[i].max())) for v in s[i]]
            p = [v / mpmath.fsum(powers) for v in powers]
            own = int(y[i])
            exact = mpmath.mpf(s[i].max()) + mpmath.log(mpmath.fsum(powers)) - mpmath.mpf(s[i, own])
            assert abs(value[i] - exact) <= 1e-14 * max(abs(exact), mpmath.mpf(1e-2))
            for k in range(5):
                assert abs(gradient[i, k] - (p[k] - (k == own))) <= 1e-14
                for l in range(5):
                    assert abs(hessian[i, k, l] - (p[k] * (k == l) - p[k] * p[l])) <= 1e-14
