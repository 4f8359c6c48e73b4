"""Losses on margins s = θᵀx ∈ R^K: value, derivatives, and their public constants (section 6)."""

from curvedp.losses.classes import Multinomial, OneVsRest
from curvedp.losses.margin import Huber, Logistic, Poisson, Squared, SquaredHinge
from curvedp.losses.protocol import Loss, clipped_value

__all__ = [
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "OneVsRest",
    "Poisson",
    "Squared",
    "SquaredHinge",
    "clipped_value",
]
