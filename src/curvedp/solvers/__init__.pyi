from .dispatch import solve, solve_moments
from .quadratic import solve_path, solve_quadratic
from .solution import Error, Objective, Perturbation, Solution

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
