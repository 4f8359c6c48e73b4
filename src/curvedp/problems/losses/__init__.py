"""Losses on margins s = θᵀx ∈ R^K: value, derivatives, and their public constants (section 6)."""

from curvedp.losses.classes import Multinomial, OneVsRest, SquaredSeveral
from curvedp.losses.columns import (
    Offset,
    Weighted,
    clipped_targets,
    offset_bound,
    spread_targets,
    target_columns,
)
from curvedp.losses.margin import Huber, Logistic, Poisson, Squared, SquaredHinge
from curvedp.losses.protocol import Loss, clipped_value

__all__ = [
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "Offset",
    "OneVsRest",
    "Poisson",
    "Squared",
    "SquaredHinge",
    "SquaredSeveral",
    "Weighted",
    "clipped_targets",
    "clipped_value",
    "offset_bound",
    "spread_targets",
    "target_columns",
]
