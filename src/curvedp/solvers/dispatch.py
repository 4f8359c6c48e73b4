"""`solve`: quadratic losses through their second moments, every other loss by proximal Newton."""

from __future__ import annotations

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF
from curvedp.errors import InvalidInput
from curvedp.problem import Problem
from curvedp.rows.base import Moments
from curvedp.solvers import exact
from curvedp.solvers.certificate import norm_bound
from curvedp.solvers.glm import solve_glm
from curvedp.solvers.quadratic import Quadratic, quadratic, solve_form
from curvedp.solvers.solution import Error, Objective, Perturbation, Solution


def solve(objective: Objective, eta: float) -> Solution:
    """argmin of the objective with a proved distance of at most η; NotCertified when there is no proof."""
    if not (np.isfinite(eta) and eta > 0):
        raise InvalidInput(f"eta must be a positive number, the distance to be proved; got {eta!r}")
    if objective.problem.loss.is_quadratic and objective.clip is None:
        return solve_moments(objective.problem, objective.rows.moments(), objective.perturbation, eta)
    return solve_glm(objective, eta)


def solve_moments(problem: Problem, moments: Moments, perturbation: Perturbation, eta: float) -> Solution:
    """Squared loss: the Hessian is XᵀX + Q, and the gradient at θ_c is g = XᵀXθ_c − Xᵀy + a."""
    p = perturbation
    data = quadratic(moments.xx, -moments.xy, np.zeros_like(p.center))
    own = quadratic(p.quadratic, p.linear, p.center)
    none = np.zeros_like(own.center)
    at_center, low, rounding = exact.gradient(data.H, data.g, none, none, own.center, none)
    H, tail = exact.two_sum(data.H, own.H)
    g, g_tail = exact.two_sum(at_center, own.g)
    g = g + (g_tail + low)
    error = Error(
        matrix=moments.error + data.error.matrix + own.error.matrix,
        vector=(moments.error + data.error.matrix) * (1.0 + norm_bound(own.center))
        + rounding
        + 2.0 * UNIT_ROUNDOFF * norm_bound(g),
    )
    f = Quadratic(H, g, own.center, error, tail)
    return solve_form(f, p.center.shape, problem.regularizer, problem.constraint, eta)
