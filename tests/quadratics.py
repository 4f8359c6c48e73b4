"""One certified solve of a quadratic, for tests of the solver."""

from __future__ import annotations

from curvedp.arrays import FloatArray
from curvedp.problems.constraints import Constraint
from curvedp.problems.regularizers import Regularizer
from curvedp.solvers.glm import Solution, quadratic, solve_form
from curvedp.solvers.terms import terms_of


def solve_quadratic(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    regularizer: Regularizer,
    constraint: Constraint,
    eta: float,
    *,
    warm: FloatArray | None = None,
    **errors: float,
) -> Solution:
    """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = vec(θ − center); `errors` are `Quadratic`'s."""
    return solve_form(
        quadratic(H, g, center, **errors),
        terms_of(regularizer, constraint, center.shape),
        center.shape,
        eta,
        warm,
    )
