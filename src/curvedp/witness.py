"""The law of every release, for whoever audits it.

Code that adds noise says what it asked and how it answered: `watched(random, law, value)`. That changes
nothing unless `random` is a `Witness`, a generator that listens. A private run cannot be watched: `execute`
makes its own generator, and that is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from curvedp.arrays import FloatArray

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Law(Protocol[T_contra]):
    """The law of one release, given all before it."""

    def log_density(self, value: T_contra) -> float:
        """log p(value) up to a constant that two neighbouring tables share; −∞ where it cannot occur."""
        ...


class Witness(np.random.Generator):
    """A generator that is told of every release, and may answer in its place."""

    def watch(self, law: Law[T], value: T) -> T:
        """What is released, `value` having been drawn from `law`."""
        raise NotImplementedError


def watched(random: np.random.Generator, law: Law[T], value: T) -> T:
    """`value`, drawn from `law`; where a witness drew it, what the witness says."""
    return random.watch(law, value) if isinstance(random, Witness) else value


@dataclass(frozen=True, eq=False)
class Normal:
    """N(query, σ²I); of a symmetric matrix in the Frobenius norm: σ on the diagonal, σ/√2 off it."""

    query: FloatArray
    sigma: float
    symmetric: bool = False

    def log_density(self, value: FloatArray) -> float:
        if value.shape != self.query.shape:
            return -math.inf
        square = float(np.sum(np.square((value - self.query) / self.sigma)))
        return -0.5 * square - value.size * math.log(self.sigma)


@dataclass(frozen=True, eq=False)
class Laplace:
    """p ∝ e^{−|value − query|₁/scale}."""

    query: FloatArray
    scale: float

    def log_density(self, value: FloatArray) -> float:
        if value.shape != self.query.shape:
            return -math.inf
        return -float(np.sum(np.abs(value - self.query))) / self.scale - value.size * math.log(self.scale)


@dataclass(frozen=True, eq=False)
class NoisyCurvature:
    """query + σ²(W − mI), W ~ Wishart(d, m): p ∝ det(W)^{(m−d−1)/2} e^{−tr W/2}."""

    query: FloatArray
    sigma2: float
    m: float

    def log_density(self, value: FloatArray) -> float:
        d = len(value)
        if value.shape != self.query.shape:
            return -math.inf
        W = (value - self.query) / self.sigma2 + self.m * np.eye(d)
        if not np.linalg.eigvalsh(W)[0] > 0:
            return -math.inf
        logdet = float(np.linalg.slogdet(W)[1])
        scale = d * (d + 1) / 2 * math.log(self.sigma2)
        return (self.m - d - 1) / 2 * logdet - float(np.trace(W)) / 2 - scale
