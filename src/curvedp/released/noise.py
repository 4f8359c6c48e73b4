"""How far privacy noise alone moves coefficients, where what was released tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.constraints import ConstrainCoordinates, Reals
from curvedp.errors import InvalidInput
from curvedp.forms import Listed
from curvedp.problem import Problem
from curvedp.released.quadratic_model import QuadraticModel

# Why a fit has no intervals, or why its noise is not known; each says what to do.
UNTOLD = "what this mechanism releases does not tell how far its noise moves a coefficient"
ANOTHER_MECHANISM = "the mechanism recentered alone makes intervals: fit with `mechanism=auto`"
WITH_INFERENCE = "it was fitted with `inference=False`: fit with `inference=True`"
ANOTHER_MODEL = "linear, Huber and logistic regression without penalty have them: choose one of these"
PENALISED = "a penalty pulls coefficients towards 0, and no interval here knows how far: fit with `alpha=0`"
TWO_CLASSES = "intervals are for two classes: fit two at a time"
OF_PERSONS = (
    "a person may have several rows, and intervals here are of rows: fit without unit only where everybody "
    "has one row"
)
FAINT = (
    "too few records for this budget, so that none was paid for (κ is below 12, or 17 under replace): "
    "fit more records, fewer columns, or with a larger epsilon"
)
BENT = (
    "a constraint or a penalty with corners bends what the noise does to a coefficient, and no formula here "
    "knows how: fit without it"
)
CHOSEN = (
    "a search chose this model, so that intervals would not hold: fit the setting anew, under a budget of "
    "its own"
)
REFITTED = "a refit has no intervals of its own: those of the fit that it was made from stand"
WEAK = "NaN stands where a coefficient depends on a direction whose released curvature is mostly noise"
REASONS = (
    *(UNTOLD, WITH_INFERENCE, ANOTHER_MODEL, PENALISED, TWO_CLASSES),
    *(OF_PERSONS, FAINT, BENT, CHOSEN, REFITTED, WEAK, ""),
)

_MOST_WEAK = 0.3  # of a variance: what directions may contribute whose curvature is mostly noise


@dataclass(frozen=True, eq=False)
class ThetaNoise:
    """The covariance of every column of θ by privacy noise alone; where it is None, `reason` says why.

    `weak` is the part of it along directions whose released curvature is mostly noise: to first order in the
    noise, which is what these formulas are, nothing is known there.
    """

    covariance: FloatArray | None = None  # (d, d)
    weak: FloatArray | None = None
    reason: str = UNTOLD

    def after(self, M: FloatArray) -> ThetaNoise:
        """Of Mθ."""
        if self.covariance is None:
            return self
        weak = None if self.weak is None else M @ self.weak @ M.T
        return ThetaNoise(M @ self.covariance @ M.T, weak)

    def deviations(self, functionals: FloatArray) -> FloatArray | None:
        """Of aᵀθ for the rows a, NaN where weak directions have more than 30 % of the variance."""
        if self.covariance is None:
            return None
        total = _quadratic(functionals, self.covariance)
        hidden = np.zeros_like(total) if self.weak is None else _quadratic(functionals, self.weak)
        return np.where(hidden <= _MOST_WEAK * total, np.sqrt(np.maximum(total, 0.0)), np.nan)


def output_noise(problem: Problem, d: int, sigma: float) -> ThetaNoise:
    """Of Π_C(θ + N(0, σ²I)): σ²I where C is everything."""
    return ThetaNoise(sigma**2 * np.eye(d)) if is_free(problem) else ThetaNoise(reason=BENT)


def is_free(problem: Problem) -> bool:
    """Whether C is everything."""
    C = problem.constraint
    return isinstance(C.inner if isinstance(C, ConstrainCoordinates) else C, Reals)


@dataclass(frozen=True)
class MomentsNoise:
    """Deviations of independent noise: on the diagonal of XᵀX, off it, on Xᵀy, and on a ridge times I."""

    diagonal: float
    off: float
    xy: float
    ridge: float = 0.0

    def of_score(self, theta: FloatArray) -> FloatArray:
        """Covariance of (noise of Xᵀy) − (noise of XᵀX and of the ridge)θ: Cov(Eθ) of symmetric noise E."""
        spread = self.xy**2 + self.off**2 * float(theta @ theta)
        crossed = (self.off**2 + self.ridge**2) * np.outer(theta, theta)
        return (
            spread * np.eye(len(theta)) + crossed + (self.diagonal**2 - 2.0 * self.off**2) * np.diag(theta**2)
        )

    def of_theta(
        self, problem: Problem, H: FloatArray, theta: FloatArray, lift: float, *, chosen: bool
    ) -> ThetaNoise:
        """To first order, of θ = (H + D)⁻¹v, D the weights of a quadratic penalty: H⁻¹ Cov(score) H⁻¹.

        H = XᵀX + lift·I as released. Weak are directions where XᵀX is below the norm 2·off·√d of its noise.
        Where the lift was `chosen` by the noisy numbers, weak directions make it vary, and all of θ with it.
        """
        model = QuadraticModel(problem, H)
        if not model.is_smooth:
            return ThetaNoise(reason=BENT)
        values, U = np.linalg.eigh(H + np.diag(model.ridge[:, 0]))
        score = U.T @ self.of_score(theta) @ U / np.outer(values, values)
        weak = np.sum(U * (H @ U), axis=0) - lift < 2.0 * self.off * np.sqrt(len(theta))
        if chosen and weak.any():
            weak = np.ones_like(weak)
        return ThetaNoise(np.asarray(U @ score @ U.T), np.asarray((U * weak) @ score @ (U * weak).T))


@dataclass(frozen=True, eq=False)
class CoefficientNoise:
    """Deviations in the user's units, a row per output, NaN where not resolved; or None.

    `reason` says why either.
    """

    deviations: Annotated[FloatArray, Listed(2, gaps=True)] | None = None
    reason: Annotated[str, REASONS] = UNTOLD

    def __post_init__(self) -> None:
        d = self.deviations
        told = self.reason in ("", WEAK)
        if told != (d is not None) or not (d is None or np.all((d >= 0) & (d < 1e300) | np.isnan(d))):
            raise InvalidInput("its noise of the coefficients does not hold what it should")

    @classmethod
    def stated(cls, deviations: FloatArray) -> CoefficientNoise:
        return cls(deviations, WEAK if np.isnan(deviations).any() else "")


def _quadratic(functionals: FloatArray, matrix: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("mi,ij,mj->m", functionals, matrix, functionals))
