"""Certified solvers: an objective and a tolerance in, a point with a proved distance to the optimum out."""

from curvedp.solvers.dispatch import solve, solve_moments
from curvedp.solvers.quadratic import solve_path, solve_quadratic
from curvedp.solvers.solution import Error, Objective, Perturbation, Solution

__all__ = [
    "Error",
    "Objective",
    "Perturbation",
    "Solution",
    "solve",
    "solve_moments",
    "solve_path",
    "solve_quadratic",
]
