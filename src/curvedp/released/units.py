"""Coefficients in the user's units as linear functionals of θ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.schema.targets import CountTarget, NumericTarget, SeveralTargets, Target


def scale_and_offset(target: Target) -> tuple[Any, Any]:
    """How margins become predictions in user units, one number each or one for each output."""
    match target:
        case NumericTarget():
            return target.scale, target.offset
        case SeveralTargets():
            return target.scales, target.offsets
        case CountTarget():
            return 1.0, target.shift
    return 1.0, 0.0


@dataclass(frozen=True, eq=False)
class UserUnits:
    """(coef, intercept) = Lθ + shift, column by column of θ: the last of the p + 1 rows is the intercept."""

    L: FloatArray  # (p + 1, d)
    shift: FloatArray  # (p + 1,)

    @classmethod
    def of(cls, columns: ColumnMap, target: Target) -> UserUnits:
        """What `ColumnMap.to_user_units` and the scale of one target do; several keep their own."""
        scale, offset = (1.0, 0.0) if isinstance(target, SeveralTargets) else scale_and_offset(target)
        coef, intercept = columns.to_user_units(np.eye(columns.d))
        shift = np.zeros(columns.n_inputs + 1)
        shift[-1] = offset
        return cls(np.vstack([coef, intercept]) * scale, shift)

    @property
    def coefficients(self) -> FloatArray:
        """The rows of L without that of the intercept."""
        return self.L[:-1]

    def margins(self, rows: FloatArray) -> FloatArray:
        """The functionals a of θ with xᵀcoef + intercept = aᵀθ + shift, one per row x in user units."""
        return np.asarray(rows @ self.L[:-1] + self.L[-1])
