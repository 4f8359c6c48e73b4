"""A population: records from which samples are drawn with replacement, and its own fit, the truth."""

from __future__ import annotations

from collections.abc import Collection
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
from curvedp.problems.losses import Huber, Logistic, Loss, Multinomial, Offset, Poisson, Quantile, Squared

EXPOSED = float(np.log(4.0))  # offsets of generated counts lie within ± this
LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "logistic": Logistic(),
    "huber": Huber(0.25),
    "poisson": Poisson(0.0),
    "exposed": Offset(Poisson(0.0), EXPOSED),
    "classes": Multinomial(3),
}
QUANTILE = "quantile "  # before the quantile, in the name of a check loss
_NEAR = 1e-6  # residual that counts as 0 in its fit, and change of coefficients that ends it
_SHARP, _BAND = 0.004, 0.03  # half widths over which its slopes and its curvature are averaged
_PULL = 1e-9  # ridge of a fit that might run away (separable classes), in units of the mean eigenvalue
_COLLINEAR = 1e-9  # relative eigenvalue below which directions count as absent


@dataclass(frozen=True, eq=False)
class Population:
    """Coded records (numbers on [−1, 1], levels minus 1/K, intercept last).

    Targets in [−1, 1], ±1, classes 0, 1, 2, or counts over their bound, with an offset where "exposed".
    """

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
    def differences(self) -> FloatArray:
        """What is stated of θ, (d, d); of K classes all but the first less the first: ((K − 1)d, Kd)."""
        K = loss_of(self.loss).n_outputs
        return np.kron(np.ones((1, 1)) if K == 1 else np.eye(K)[1:] - np.eye(K)[0], np.eye(self.d))

    def stated(self, gone: Collection[int] = ()) -> FloatArray:
        """The coefficients by what is fitted: those of levels against their mean over the records.

        But those of levels that are `gone`, which a fit has left out.
        """
        C = self.coding.contrasts(self.X.mean(axis=0), gone)
        return np.asarray(self.differences @ np.kron(self.free, C @ self.N))

    @cached_property
    def theta(self) -> FloatArray:
        """The coefficients of the population's own fit, of least norm where columns are collinear."""
        return np.asarray(self.stated() @ self.fitted)

    @cached_property
    def fitted(self) -> FloatArray:
        """The numbers of the fit in contrasts, output after output."""
        start, loss = np.zeros(self.free.shape[1] * self.r), loss_of(self.loss)
        if isinstance(loss, Quantile):
            return self._reweighted(loss.quantile)
        if self.loss == "huber":  # far from its centre this loss has no curvature
            start = self._newton(loss_of("squared"), start)
        return self._newton(loss, start)

    @property
    def free(self) -> FloatArray:
        """Margins of all outputs by those that are fitted, (K, K − 1): that of the first is 0; 1 of one."""
        K = loss_of(self.loss).n_outputs
        return np.ones((1, 1)) if K == 1 else np.eye(K)[:, 1:]

    def _sums(self, w: FloatArray, sloped: Loss, curved: Loss) -> tuple[FloatArray, FloatArray]:
        """(scores of every record, Σ of curvatures) of the numbers that are fitted, output after output."""
        X, free = self.inside, self.free
        s = X @ w.reshape(-1, self.r).T @ free.T
        slopes = sloped.gradient(s, self.y) @ free
        second = np.einsum("ka,nkl,lb->nab", free, curved.hessian(s, self.y), free)
        scores = (slopes[:, :, None] * X[:, None, :]).reshape(len(X), -1)
        H = [[(X * second[:, a, b, None]).T @ X for b in range(free.shape[1])] for a in range(free.shape[1])]
        return scores, np.block(H)

    def _reweighted(self, quantile: float) -> FloatArray:
        """Of the check loss, not smoothed: least squares with weights |φ'|/|residual|, again and again."""
        X, y = self.inside, self.y
        w = _inverse(X.T @ X) @ (X.T @ y)
        for _ in range(1000):
            r = y - X @ w
            weighted = X * (np.where(r < 0, 1.0 - quantile, quantile) / np.maximum(np.abs(r), _NEAR))[:, None]
            last, w = w, _inverse(weighted.T @ X) @ (weighted.T @ y)
            if np.max(np.abs(w - last)) < _NEAR:
                return w
        raise InvalidInput(f"the fit of the population {self.name!r} did not converge")

    def _newton(self, loss: Loss, w: FloatArray) -> FloatArray:
        pull = _PULL * float(np.sum(self.inside**2)) / self.r if isinstance(loss, Logistic) else 0.0
        for _ in range(100):
            scores, H = self._sums(w, loss, loss)
            step = _inverse(H + pull * np.eye(len(w))) @ (scores.sum(axis=0) + pull * w)
            reach = np.abs(self.inside @ step.reshape(-1, self.r).T).max()
            w = w - step * min(1.0, 2.0 / max(reach, 1e-9))
            if np.max(np.abs(step)) < 1e-9:
                return w
        raise InvalidInput(f"the fit of the population {self.name!r} did not converge")

    @cached_property
    def deviation(self) -> FloatArray:
        """√n times the standard errors (d,) of a fit without privacy: the sandwich H⁻¹MH⁻¹, by person."""
        loss = loss_of(self.loss)
        scores, H = self._sums(self.fitted, loss.over(_SHARP), loss.over(_BAND))
        if self.starts is not None:
            scores = np.add.reduceat(scores, self.starts[:-1], axis=0)
        inverse = _inverse(H / len(scores))
        sandwich, stated = inverse @ (scores.T @ scores / len(scores)) @ inverse, self.stated()
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", stated, sandwich, stated)))


def loss_of(name: str) -> Loss:
    return (
        Quantile(0.1, quantile=float(name.removeprefix(QUANTILE)))
        if name.startswith(QUANTILE)
        else LOSSES[name]
    )


def _inverse(H: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.pinv(H, rcond=_COLLINEAR, hermitian=True))
