"""Certified solvers: an objective and a tolerance in, a point with a proved distance to the optimum out."""

from curvedp.solvers.solution import Objective, Perturbation, Solution

__all__ = ["Objective", "Perturbation", "Solution"]
