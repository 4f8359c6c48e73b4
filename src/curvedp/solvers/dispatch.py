"""`solve`: quadratic losses through their second moments, every other loss by proximal Newton."""

from __future__ import annotations

import numpy as np

from curvedp.domain import UNIT_ROUNDOFF
from curvedp.errors import InvalidInput
from curvedp.solvers import exact
from curvedp.solvers.certificate import norm_bound
from curvedp.solvers.glm import solve_glm
from curvedp.solvers.quadratic import solve_quadratic
from curvedp.solvers.solution import Error, Objective, Solution


def solve(objective: Objective, eta: float) -> Solution:
    """argmin of the objective with a proved distance of at most η; NotCertified when there is no proof."""
    if not (np.isfinite(eta) and eta > 0):
        raise InvalidInput(f"eta must be a positive number, the distance to be proved; got {eta!r}")
    if objective.problem.loss.is_quadratic and objective.clip is None:
        return _solve_from_moments(objective, eta)
    return solve_glm(objective, eta)


def _solve_from_moments(objective: Objective, eta: float) -> Solution:
    """Squared loss: H = XᵀX + Q and the gradient at θ_c is g = XᵀXθ_c − Xᵀy + a."""
    p, moments = objective.perturbation, objective.rows.moments()
    center, none = p.center.ravel(), np.zeros(p.center.size)
    at_center, tail, rounding = exact.gradient(moments.xx, -moments.xy.ravel(), none, none, center, none)
    g = at_center + p.linear.ravel() + tail
    H = moments.xx + p.quadratic
    error = Error(
        matrix=moments.error + UNIT_ROUNDOFF * norm_bound(H.ravel()),
        vector=moments.error * (1.0 + norm_bound(center))
        + rounding
        + 2.0 * UNIT_ROUNDOFF * (norm_bound(at_center) + norm_bound(p.linear.ravel())),
    )
    problem = objective.problem
    return solve_quadratic(H, g, p.center, problem.regularizer, problem.constraint, eta, error=error)
