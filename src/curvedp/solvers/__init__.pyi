from .glm import solve
from .quadratic import solve_moments, solve_path, solve_quadratic
from .solution import Objective, Perturbation, Solution

__all__ = [
    "Objective",
    "Perturbation",
    "Solution",
    "solve",
    "solve_moments",
    "solve_path",
    "solve_quadratic",
]
