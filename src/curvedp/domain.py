"""What is publicly declared about a record: bounds, adjacency, and the map from user units to model units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from curvedp.errors import InvalidInput

Adjacency = Literal["replace", "add_remove"]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Domain:
    """The public set that every record is clipped into: ‖x‖₂ ≤ x_norm, |y| ≤ y_bound.

    `adjacency` says which datasets are neighbours: "replace" (same n, one record differs) or
    "add_remove" (one record more or fewer).
    """

    x_norm: float = 1.0
    y_bound: float = 1.0
    adjacency: Adjacency = "replace"

    def __post_init__(self) -> None:
        for name in ("x_norm", "y_bound"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InvalidInput(f"{name} must be a positive number, a public bound; got {value!r}")
        if self.adjacency not in ("replace", "add_remove"):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {self.adjacency!r}')


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """Row map x ↦ ((clip(x, low, high) − center) / scale, intercept), then clipped to ‖·‖ ≤ x_norm.

    Every array is public. `intercept` > 0 appends a constant column of that value; 0 appends none.
    A NaN (missing or unparsable value) becomes the middle of the bounds (THEORY section 8).
    """

    low: FloatArray
    high: FloatArray
    center: FloatArray
    scale: FloatArray
    intercept: float = 0.0
    x_norm: float = field(default=np.inf)

    @property
    def n_inputs(self) -> int:
        return int(self.low.shape[0])

    @property
    def d(self) -> int:
        """Number of model columns: inputs plus the intercept column, if any."""
        return self.n_inputs + (1 if self.intercept else 0)
