"""`coef_noise_`: the deviation that privacy noise alone gives each coefficient, in the user's units."""

from __future__ import annotations

import numpy as np

from curvedp.columns import ColumnMap
from curvedp.problem import Problem
from curvedp.released.inference import Inference
from curvedp.released.noise import (
    ANOTHER_MODEL,
    BENT,
    OF_PERSONS,
    PENALISED,
    TWO_CLASSES,
    WITH_INFERENCE,
    CoefficientNoise,
    ThetaNoise,
    is_free,
)
from curvedp.released.quadratic_model import QuadraticModel
from curvedp.released.units import UserUnits
from curvedp.schema.targets import SeveralTargets, Target


def coefficient_noise(
    columns: ColumnMap,
    target: Target,
    noise: ThetaNoise,
    inference: Inference | None,
    trust: float,
    outputs: int,
) -> CoefficientNoise:
    """For a row of coefficients per output, each with the same noise."""
    coefficients = UserUnits.of(columns, target).coefficients
    if inference is not None:
        known = inference.of(coefficients)
        return CoefficientNoise.stated(np.where(known.resolved, trust * known.noise, np.nan)[None, :])
    found = noise.deviations(coefficients)
    if found is None:
        return CoefficientNoise(None, noise.reason)
    scales = target.scales[:, None] if isinstance(target, SeveralTargets) else np.ones((outputs, 1))
    return CoefficientNoise.stated(found * scales)


def why_plain(problem: Problem, d: int, inference: bool | None) -> str:
    """Why a recentered fit of this problem with d columns has no intervals; "" where it has.

    `inference` is the parameter of the estimator, None where it has none.
    """
    if problem.domain.neighbours.unit is not None:
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
