from .glm import Objective, Perturbation, Solution, solve, solve_moments, solve_path, solve_quadratic

__all__ = [
    "Objective",
    "Perturbation",
    "Solution",
    "solve",
    "solve_moments",
    "solve_path",
    "solve_quadratic",
]
