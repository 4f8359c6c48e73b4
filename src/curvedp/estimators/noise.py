"""`coef_noise_`: the deviation that privacy noise alone gives each coefficient, in the user's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curvedp.released.noise import CoefficientNoise
from curvedp.released.units import UserUnits
from curvedp.schema.targets import SeveralTargets

if TYPE_CHECKING:
    from curvedp.estimators.base import Fitted


def coefficient_noise(fitted: Fitted, shape: tuple[int, ...]) -> CoefficientNoise:
    """For coefficients of this shape: a row per output, each with the same noise."""
    units = UserUnits.of(fitted.columns, fitted.target)
    if fitted.inference is not None:
        resolved = fitted.inference.of(units.coefficients)
        return CoefficientNoise.stated(np.where(resolved.resolved, resolved.noise, np.nan).reshape(shape))
    found = fitted.noise.deviations(units.coefficients)
    if found is None:
        return CoefficientNoise(None, fitted.noise.reason)
    scales = fitted.target.scales[:, None] if isinstance(fitted.target, SeveralTargets) else 1.0
    return CoefficientNoise.stated(np.broadcast_to(found, shape) * scales)
