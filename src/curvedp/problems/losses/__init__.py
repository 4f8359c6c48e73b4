"""Losses on margins s = θᵀx ∈ R^K: value, derivatives, and their public constants (section 6)."""

from curvedp.problems.losses.margin import Huber, Logistic, Loss, Poisson, Quantile, Squared, SquaredHinge
from curvedp.problems.losses.several import Multinomial, Offset, OneVsRest, SquaredSeveral, Weighted

__all__ = [
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "Offset",
    "OneVsRest",
    "Poisson",
    "Quantile",
    "Squared",
    "SquaredHinge",
    "SquaredSeveral",
    "Weighted",
]
