"""One proximal Newton step on released quantities: no data, no certificate needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from curvedp.arrays import FloatArray
from curvedp.problem import Problem
from curvedp.solvers.separable import Separable, to_the_end
from curvedp.solvers.splitting import Coupled
from curvedp.solvers.terms import terms_of, within

_TOLERANCE = 1e-10  # of the optimality residual, relative to the linear term


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """argmin_{θ∈C} ⟨g, θ−c⟩ + ½ Σ_k (θ−c)_kᵀ H (θ−c)_k + r(θ): the same curvature H for every column k."""

    problem: Problem
    H: FloatArray

    @cached_property
    def _terms(self) -> Separable | Coupled:
        shape = (len(self.H), self.problem.loss.n_outputs)
        return terms_of(self.problem.regularizer, self.problem.constraint, shape)

    @cached_property
    def ridge(self) -> FloatArray:
        """The weights of the quadratic part of r, shape (d, K)."""
        return self._terms.l2.reshape(len(self.H), -1)

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
                part.minimize(self.H, np.ascontiguousarray(g[:, k]), center[:, k], center[:, k], to_the_end)
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
