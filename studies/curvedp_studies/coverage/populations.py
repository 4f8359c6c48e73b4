"""A population: records from which samples are drawn with replacement, and its own fit, the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from curvedp.arrays import FloatArray
from curvedp.data.mapping import Coding
from curvedp.data.rows.persons import by_person
from curvedp.errors import InvalidInput
from curvedp.problems.losses import Huber, Logistic, Loss, Squared

LOSSES: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic(), "huber": Huber(0.25)}
_PULL = 1e-9  # ridge of a fit that might run away (separable classes), in units of the mean eigenvalue
_COLLINEAR = 1e-9  # relative eigenvalue below which directions count as absent


@dataclass(frozen=True, eq=False)
class Population:
    """Coded records (numbers on [−1, 1], levels minus 1/K, intercept last); targets in [−1, 1] or ±1."""

    name: str
    loss: str
    X: FloatArray  # (records, d), rounded to single precision
    y: FloatArray
    x_norm: float  # the public bound of ‖x‖
    coding: Coding = field(default_factory=Coding)  # which columns are levels
    starts: NDArray[np.int64] | None = (
        None  # the first row of every person, and the end; None: rows are drawn
    )

    @classmethod
    def of(
        cls,
        name: str,
        loss: str,
        X: FloatArray,
        y: FloatArray,
        x_norm: float,
        coding: Coding | None = None,
        persons: NDArray[Any] | None = None,
    ) -> Population:
        """`persons` says whose row each row is, where persons are drawn with all of theirs."""
        rounded, starts = X.astype(np.float32).astype(np.float64), None
        if persons is not None:
            order, starts = by_person(np.unique(persons, return_inverse=True)[1].astype(np.int64))
            rounded, y = rounded[order], y[order]
        return cls(name, loss, rounded, y, x_norm, coding or Coding(), starts)

    @cached_property
    def N(self) -> FloatArray:
        """Orthonormal contrasts, (d, r), within which every record lies: no part along a category's sum."""
        sums = [np.eye(self.d)[list(block)].sum(axis=0) for block in self.coding.blocks]
        return np.asarray(null_space(np.array(sums))) if sums else np.eye(self.d)

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    @property
    def r(self) -> int:
        return int(self.N.shape[1])

    @cached_property
    def inside(self) -> FloatArray:
        """The records in contrasts, (records, r)."""
        return np.asarray(self.X @ self.N)

    @cached_property
    def functionals(self) -> FloatArray:
        """What is stated of θ, (d, d): coefficients, those of levels against their mean over the records."""
        return self.coding.contrasts(self.X.T @ self.X)

    @cached_property
    def theta(self) -> FloatArray:
        """The coefficients (d,) of the population's own fit, of least norm where columns are collinear."""
        start = np.zeros(self.r)
        if self.loss == "huber":  # far from its centre this loss has no curvature
            start = self._newton("squared", start)
        return np.asarray(self.functionals @ self.N @ self._newton(self.loss, start))

    def _newton(self, loss: str, w: FloatArray) -> FloatArray:
        X, y = self.inside, self.y
        pull = _PULL * float(np.sum(X**2)) / self.r if loss == "logistic" else 0.0
        for _ in range(100):
            s = X @ w
            H = (X * second(loss, s, y)[:, None]).T @ X + pull * np.eye(self.r)
            step = _inverse(H) @ (X.T @ slope(loss, s, y) + pull * w)
            w = w - step
            if np.max(np.abs(step)) < 1e-9:
                return w
        raise InvalidInput(f"the fit of the population {self.name!r} did not converge")

    @cached_property
    def deviation(self) -> FloatArray:
        """√n times the standard errors (d,) of a fit without privacy: the sandwich H⁻¹MH⁻¹, by person."""
        X, s = self.inside, self.X @ self.theta
        scores = X * slope(self.loss, s, self.y)[:, None]
        if self.starts is not None:
            scores = np.add.reduceat(scores, self.starts[:-1], axis=0)
        inverse = _inverse((X * second(self.loss, s, self.y)[:, None]).T @ X / len(scores))
        sandwich = inverse @ (scores.T @ scores / len(scores)) @ inverse
        stated = self.functionals @ self.N
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", stated, sandwich, stated)))


def loss_of(name: str) -> Loss:
    return LOSSES[name]


def slope(loss: str, s: FloatArray, y: FloatArray) -> FloatArray:
    """φ'(s; y) of every record."""
    return loss_of(loss).gradient(s[:, None], y)[:, 0]


def second(loss: str, s: FloatArray, y: FloatArray) -> FloatArray:
    """φ''(s; y)."""
    return loss_of(loss).hessian(s[:, None], y)[:, 0, 0]


def _inverse(H: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.pinv(H, rcond=_COLLINEAR, hermitian=True))
