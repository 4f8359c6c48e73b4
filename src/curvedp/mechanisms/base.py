"""What every mechanism is: a public plan, then one release.

`Mechanism.plan(problem, d)` sees only public things and carries the guarantee and the noise scales.
`Plan.release(rows, generator)` touches data, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from curvedp.domain import FloatArray
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.rows.base import Rows


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves: θ of shape (d, K), the guarantee, and, where it follows from released numbers alone,
    the covariance that the noise gives to θ (shape (dK, dK))."""

    theta: FloatArray
    privacy: Guarantee
    covariance: FloatArray | None = None


class Plan(Protocol):
    """Everything fixed before the data are touched."""

    @property
    def guarantee(self) -> Guarantee: ...

    def release(self, rows: Rows, generator: np.random.Generator) -> Release: ...


class Mechanism(Protocol):
    """A way to release θ under (ε, δ)."""

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...

    def plan(self, problem: Problem, d: int) -> Plan: ...
