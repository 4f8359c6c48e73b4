"""A block: some thousand records, mapped and clipped, and the linear algebra that reductions need of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from curvedp.domain import FloatArray


class Block(Protocol):
    """Records x_1 … x_n in R^d, all with ‖x_i‖ ≤ B."""

    @property
    def norms(self) -> FloatArray:
        """‖x_i‖, shape (n,)."""
        ...

    @property
    def magnitudes(self) -> FloatArray:
        """m_i ≥ ‖x_i‖ such that every computed sum of x_i errs by at most c·2⁻⁵³·m_i per record."""
        ...

    def margins(self, theta: FloatArray) -> FloatArray:
        """θᵀx_i, shape (n, K)."""
        ...

    def combine(self, weights: FloatArray) -> FloatArray:
        """Σ_i x_i w_iᵀ, shape (d, K), for weights of shape (n, K)."""
        ...

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """Σ_i w_i x_i x_iᵀ, shape (d, d)."""
        ...


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """x_i = scale_i · X_i: rows of an array that is never copied when all of them lie within the bound."""

    X: FloatArray
    norms: FloatArray
    scale: FloatArray | None = None

    @property
    def magnitudes(self) -> FloatArray:
        return self.norms

    def margins(self, theta: FloatArray) -> FloatArray:
        s = self.X @ theta
        return s if self.scale is None else np.multiply(s, self.scale[:, None], out=s)

    def combine(self, weights: FloatArray) -> FloatArray:
        w = weights if self.scale is None else weights * self.scale[:, None]
        return np.asarray(self.X.T @ w)

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        if weights is None:
            Z = self.X if self.scale is None else self.X * self.scale[:, None]
            return np.asarray(Z.T @ Z)
        w = weights if self.scale is None else weights * np.square(self.scale)
        if w.min(initial=0.0) >= 0.0:  # the symmetric product costs half of the general one
            Z = self.X * np.sqrt(w)[:, None]
            return np.asarray(Z.T @ Z)
        G = (self.X * w[:, None]).T @ self.X
        return np.asarray(0.5 * (G + G.T))
