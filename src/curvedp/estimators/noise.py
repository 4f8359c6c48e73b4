"""`coef_noise_`: the deviation that privacy noise alone gives each coefficient, in the user's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curvedp.combinations import analysis
from curvedp.problem import Problem
from curvedp.released.noise import (
    ANOTHER_MODEL,
    BENT,
    OF_PERSONS,
    PENALISED,
    TWO_CLASSES,
    WITH_INFERENCE,
    CoefficientNoise,
    is_free,
)
from curvedp.released.quadratic_model import QuadraticModel
from curvedp.released.units import UserUnits
from curvedp.schema.targets import SeveralTargets

if TYPE_CHECKING:
    from curvedp.estimators.base import Fitted


def coefficient_noise(fitted: Fitted, shape: tuple[int, ...]) -> CoefficientNoise:
    """For coefficients of this shape: a row per output, each with the same noise."""
    units = UserUnits.of(fitted.columns, fitted.target)
    if fitted.inference is not None:
        resolved = fitted.inference.of(units.coefficients)
        stated = np.where(resolved.resolved, fitted.trust * resolved.noise, np.nan)
        return CoefficientNoise.stated(stated.reshape(shape))
    found = fitted.noise.deviations(units.coefficients)
    if found is None:
        return CoefficientNoise(None, fitted.noise.reason)
    scales = fitted.target.scales[:, None] if isinstance(fitted.target, SeveralTargets) else 1.0
    return CoefficientNoise.stated(np.broadcast_to(found, shape) * scales)


def why_plain(problem: Problem, d: int, inference: bool | None) -> str:
    """Why a recentered fit of this problem with d columns has no intervals; "" where it has.

    `inference` is the parameter of the estimator, None where it has none.
    """
    if problem.domain.neighbours.unit is not None and not analysis("inference").unit.is_there:
        return OF_PERSONS
    if inference is None:
        return ANOTHER_MODEL
    if not is_free(problem):
        return BENT
    if problem.loss.n_outputs > 1:
        return TWO_CLASSES
    if not QuadraticModel(problem, np.empty((d, 0))).is_free:
        return PENALISED
    return "" if inference else WITH_INFERENCE
