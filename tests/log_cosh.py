"""A toy loss with a width, and a toy estimator of it: what a new model takes, in one file."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.analyses.estimators.linear import PrivateRegressor, estimator


@dataclass(frozen=True)
class LogCosh:
    """φ(s; y) = w log cosh((s − y)/w); |φ'| ≤ 1, φ'' ≤ 1/w."""

    width: float = 1.0
    name = "log_cosh"
    n_outputs = 1
    rank = 1
    is_quadratic = False

    def value(self, s, y):
        r = np.abs(s[:, 0] - y) / self.width
        return self.width * (r + np.log1p(np.exp(-2 * r)) - math.log(2))

    def gradient(self, s, y):
        return np.tanh((s - y[:, None]) / self.width)

    def hessian(self, s, y):
        return ((1 - np.tanh((s[:, 0] - y) / self.width) ** 2) / self.width)[:, None, None]

    def inverse_link(self, s):
        return s

    def clip_target(self, y, domain):
        return np.clip(np.nan_to_num(y), -domain.y_bound, domain.y_bound)

    def curvature(self, domain, radius):
        return 1.0 / self.width

    def smoothness(self, domain, radius):
        return domain.x_norm**2 / self.width

    def center_bound(self, domain, center_norm):
        return domain.x_norm * math.tanh((domain.x_norm * center_norm + domain.y_bound) / self.width)

    def center_diameter(self, domain, center_norm):
        return 2 * self.center_bound(domain, center_norm)

    def gradient_bound(self, domain, radius):
        return domain.x_norm


@estimator
class PrivateLogCosh(PrivateRegressor):
    """Log-cosh regression: min Σ w log cosh((xᵀθ − y)/w), released under (ε, δ)-differential privacy.

    Parameters
    ----------
    width : float, default=1.0
        Residuals beyond it count linearly; in units of half the target range.
    """

    width: float = 1.0

    def _loss(self, target):
        return LogCosh(self.width)
