"""A released quadratic model of the objective and its minimisers: no data, no certificate needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.forms import Packed, Positive
from curvedp.problem import Problem
from curvedp.solvers.terms import Coupled, Separable, Terms, terms_of, within

_TOLERANCE = 1e-10  # of the optimality residual, relative to the linear term


@dataclass(frozen=True, eq=False)
class LocalObjective:
    """Σ_i ℓ(θ; z_i) ≈ ⟨g, θ−c⟩ + ½ Σ_k (θ−c)_kᵀ bH (θ−c)_k near c, as a recentered release leaves it (P-9).

    H, released once, is about XᵀX; b = β times the share of records that no clip stops. Every number here was
    released, so that whatever is minimised or compared with it costs nothing more.
    """

    H: Annotated[FloatArray, Packed("dd", symmetric=True)]  # in the coordinates of θ
    curvature: Positive  # b
    centre: Annotated[FloatArray, Packed("dK")]  # c, the mean of the later centres
    gradient: Annotated[FloatArray, Packed("dK")]  # g, the mean of the gradients released there
    noise: Positive  # τ: every column of g has noise of covariance τ²H
    count: Positive  # n̂
    kappa: Positive  # κ = n̂μ/(d·ρ)

    def minimize(self, problem: Problem) -> FloatArray:
        """The minimiser with the regularizer and the constraint of `problem`."""
        return QuadraticModel(problem, self.curvature * self.H).minimize(self.gradient, self.centre)

    def move(self, theta: FloatArray) -> float:
        """‖θ − c‖_H/√n̂: how far the margins of a typical record lie from those at c."""
        step = theta - self.centre
        return math.sqrt(max(float(np.vdot(step, self.H @ step)), 0.0) / self.count)

    def distance(self, theta: FloatArray, other: FloatArray) -> float:
        """‖θ − θ'‖_H/√n̂."""
        return replace(self, centre=other).move(theta)

    def spread(self, rank: int) -> float:
        """τ√(dρ)/(b√n̂): the deviation of a typical record's margin by the noise of g alone."""
        return self.noise * math.sqrt(len(self.H) * rank / self.count) / self.curvature

    def among(self, kept: Sequence[int]) -> LocalObjective:
        """The same objective for θ that is 0 outside of the coordinates `kept`."""
        S = list(kept)
        rest = [j for j in range(len(self.H)) if j not in set(S)]
        pull = self.curvature * self.H[np.ix_(S, rest)] @ self.centre[rest]
        return replace(self, H=self.H[np.ix_(S, S)], centre=self.centre[S], gradient=self.gradient[S] - pull)

    def check(self) -> None:
        """Refuse what a file says where no release leaves it."""
        if not (len(self.H) and np.linalg.eigvalsh(self.H)[0] > 0):
            raise InvalidInput("its model of the objective is not convex")


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """argmin_{θ∈C} ⟨g, θ−c⟩ + ½ Σ_k (θ−c)_kᵀ H (θ−c)_k + r(θ): the same curvature H for every column k."""

    problem: Problem
    H: FloatArray

    @cached_property
    def _terms(self) -> Terms:
        shape = (len(self.H), self.problem.loss.n_outputs)
        return terms_of(self.problem.regularizer, self.problem.constraint, shape)

    @cached_property
    def ridge(self) -> FloatArray:
        """The weights of the quadratic part of r, shape (d, K)."""
        return self._terms.l2.reshape(len(self.H), -1)

    @property
    def is_free(self) -> bool:
        """Whether there is neither penalty nor constraint."""
        return self.is_smooth and not self.ridge.any()

    @property
    def is_smooth(self) -> bool:
        """Whether r is a quadratic and C everything."""
        return isinstance(self._terms, Separable) and self._terms.plain

    def minimize(self, g: FloatArray, center: FloatArray) -> FloatArray:
        """The minimiser, shape (d, K)."""
        terms = self._terms
        if isinstance(terms, Coupled):
            K = center.shape[1]
            H = np.asarray(np.kron(self.H, np.eye(K)), dtype=np.float64)
            enough = within(terms, H, g.ravel(), center.ravel(), _TOLERANCE * float(np.linalg.norm(g)))
            flat = terms.minimize(H, g.ravel(), center.ravel(), center.ravel(), enough)
            return flat.reshape(center.shape)
        if terms.plain:
            columns = [
                center[:, k] - cho_solve(factor, g[:, k] + self.ridge[:, k] * center[:, k])
                for k, factor in enumerate(self._factors)
            ]
        else:
            columns = [
                part.minimize(self.H, np.ascontiguousarray(g[:, k]), center[:, k], center[:, k])
                for k, part in enumerate(self._columns)
            ]
        return np.stack(columns, axis=1)

    @cached_property
    def _factors(self) -> list[tuple[FloatArray, bool]]:
        """Cholesky factors of H + diag(ridge) per column, made once when the columns agree."""
        first = cho_factor(self.H + np.diag(self.ridge[:, 0]))
        if np.all(self.ridge == self.ridge[:, :1]):
            return [first] * self.ridge.shape[1]
        return [first] + [cho_factor(self.H + np.diag(weights)) for weights in self.ridge.T[1:]]

    @cached_property
    def _columns(self) -> list[Separable]:
        """The separable terms, column by column."""
        terms, K = self._terms, self.ridge.shape[1]
        assert isinstance(terms, Separable)
        parts = [part.reshape(-1, K) for part in (terms.l1, terms.l2, terms.low, terms.high)]
        return [Separable(*(np.ascontiguousarray(part[:, k]) for part in parts)) for k in range(K)]
