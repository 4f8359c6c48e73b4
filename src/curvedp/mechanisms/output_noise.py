"""The last step of every solved mechanism: certify, round to a public grid, add a discrete Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput, NotCertified
from curvedp.randomness import discrete_gaussian, grid_step, round_to_grid
from curvedp.solvers import Objective, solve

RELATIVE_ETA = 1e-6  # default η as a fraction of the radius (section 7)


@dataclass(frozen=True)
class OutputNoise:
    """θ_final = ⌊θ_approx⌉_grid + b with ‖⌊θ_approx⌉ − θ_priv‖ ≤ η and b ~ N_Z(0, σ̃²) on the grid.

    Half a grid step per coordinate of η is kept for the rounding; the solver must certify the rest.
    η = 0 means the study mode of the paper: no noise, no rounding, not private in floating point.
    """

    eta: float
    sigma_tilde: float

    @property
    def step(self) -> float:
        return grid_step(self.sigma_tilde)

    @property
    def steps(self) -> int:
        """σ̃ in grid steps, rounded up to an integer."""
        return math.ceil(self.sigma_tilde / self.step)

    def tolerance(self, size: int) -> float:
        """What remains of η for the solver once `size` coordinates were rounded."""
        rounding = 0.5 * self.step * math.sqrt(size) * (1 + 1e-12)
        if rounding >= self.eta / 2:
            raise InvalidInput(
                f"eta={self.eta:g} is finer than the release grid of sigma_tilde={self.sigma_tilde:g}; "
                "pass a larger eta"
            )
        return self.eta - rounding

    def release(self, objective: Objective, generator: np.random.Generator) -> FloatArray:
        """Solve to the accounted accuracy, prove it, add b; project back onto C (post-processing)."""
        shape = objective.perturbation.center.shape
        size = int(np.prod(shape))
        if self.eta == 0:
            return solve(objective, RELATIVE_ETA).theta
        tolerance = self.tolerance(size)
        solution = solve(objective, tolerance)
        if not solution.distance <= tolerance:
            raise NotCertified("the solver's certificate exceeds the accounted eta; nothing is released")
        rounded = round_to_grid(solution.theta, self.step)
        b = discrete_gaussian(generator, self.steps, size).reshape(shape) * self.step
        return objective.problem.constraint.project(rounded + b)
