"""At the end of a walk: what intervals need beside it (P-10).

Four more answers at the walk's estimate: the curvature of the loss, a histogram of gradient lengths, the
covariance of gradients, and where those point that the clip shortens. `released.inference` turns them and
the walk's own centres and gradients into an estimate and its intervals, at no further cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from curvedp.arrays import BoolArray, FloatArray
from curvedp.mechanisms.base import Estimate
from curvedp.mechanisms.geometry import Geometry, gram_slack
from curvedp.mechanisms.noise import gradient_scale, gram_scale
from curvedp.released.inference import BEYOND, Inference
from curvedp.released.tails import Tail

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan
    from curvedp.mechanisms.walk import Clip, Rounds

TYPICAL_CURVATURE = 2.0  # of the loss, in units of that at the constant answer: not more is looked at
EMPTY = 1.0  # deviations: a level of fewer records may be empty, and is left out of the estimate
EDGES = 13  # of the histogram of gradient lengths, a factor √2 apart, from the walk's clip/√2 on
BREAD_GROWTH = 0.05  # of m with κ
BREAD_BOUNDS = (2.0, 4.0)  # of a record's curvature, in units of β·d/n̂: as many as keep its noise small
_STEP = 1e-4  # of a margin, for a derivative
_nodes, _weights = np.polynomial.hermite_e.hermegauss(40)
_weights = _weights / _weights.sum()


def ended(
    plan: RecenteredPlan, rounds: Rounds, clip: Clip, estimate: Estimate, scatter: float, seen: BoolArray
) -> Estimate:
    """The estimate that the walk and four looks at its end give."""
    local, A = estimate.local, rounds.geometry.metric
    assert local is not None
    theta, noise, shifts, loss = estimate.theta, rounds.noise, plan.shifts, plan.problem.loss
    slack = rounds.slack(theta, clip)
    beta = loss.curvature(plan.problem.domain, plan.problem.radius(plan.d))
    guess = beta * clip.kept
    if rounds.constant is not None:  # most records have a smaller one
        guess = min(guess, rounds.constant.curvature)
        beta = min(beta, TYPICAL_CURVATURE * rounds.constant.curvature)

    kappa = rounds.kappa * shifts.bread / plan.mu
    m = min(max(BREAD_GROWTH * kappa, BREAD_BOUNDS[0]), BREAD_BOUNDS[1])
    bound = m * beta * plan.d / rounds.n
    rounding = gram_slack(A, rounds.most)
    total = A @ rounds.rows.curvature_sum(loss, theta, bound, clip.size) @ A.T
    # u falls by as much as a gradient grows, in units of the clip
    bread = noise.gram(total, math.sqrt(bound), shifts.bread, rounding + slack, "bread")
    bread_scale = gram_scale(bound, shifts.bread, noise.neighbours, rounding + slack)

    edges = clip.size * math.sqrt(2.0) ** np.arange(-1.0, EDGES - 1.0)
    counts = rounds.rows.gradient_norm_histogram(loss, theta, edges)
    counts = noise.counts(counts, shifts.tail, "tail")

    total = A @ rounds.rows.score_sum(loss, theta, clip.size) @ A.T
    meat = noise.gram(total, clip.size, shifts.meat, rounding, "meat")
    meat_scale = gram_scale(clip.size**2, shifts.meat, noise.neighbours, rounding)

    wider = clip.size * (1.0 + BEYOND)
    total = rounds.rows.gradient_sum(loss, theta, wider) - rounds.rows.gradient_sum(loss, theta, clip.size)
    beyond_slack = (2.0 + BEYOND) / BEYOND * slack
    beyond = noise.gradient(A @ total / (BEYOND * clip.size), 1.0, shifts.beyond, beyond_slack, "beyond")
    beyond_scale = gradient_scale(1.0, shifts.beyond, noise.neighbours, beyond_slack)

    empty = _empty_levels(plan, rounds)
    Q, basis, left_out, look, spread = _inside(plan, rounds.geometry, np.flatnonzero(~seen), empty)
    levels, shares = _level_shares(plan, rounds)
    H = rounds.geometry.H
    walked = (plan.coding.contrasts(H, empty) @ theta[:, 0])[empty]
    centre = Q.T @ (A @ (H @ local.centre[:, 0]))
    mass = rounds.n * rounds.geometry.weight
    margins = math.sqrt(max(float(np.maximum(look, 0.0) @ centre**2), 0.0) / mass)
    inference = Inference(
        basis=basis,
        left_out=left_out,
        fixed=left_out[:, : len(empty)] @ walked,
        levels=levels,
        shares=shares,
        look=look,
        look_spread=spread,
        look_scale=rounds.geometry.look.scale,
        bread=Q.T @ bread @ Q,
        bread_scale=bread_scale,
        beta=beta,
        guess=guess,
        stiffness=local.curvature,
        centre=centre,
        gradient=Q.T @ (A @ local.gradient[:, 0]),
        noise=local.noise,
        tail=Tail(edges, counts, noise.count_scale(shifts.tail)),
        beyond=Q.T @ beyond[:, 0],
        beyond_scale=beyond_scale,
        meat=Q.T @ meat @ Q,
        meat_scale=meat_scale,
        count=rounds.n,
        count_scale=0.0 if noise.neighbours.count_is_public else 1.0 / shifts.count,
        kappa=rounds.kappa,
        inflation=inflation(lambda s: loss.inverse_link(s.reshape(-1, 1)).reshape(s.shape), margins, scatter),
    )
    return Estimate(inference.theta, local, inference=inference)


def _level_shares(plan: RecenteredPlan, rounds: Rounds) -> tuple[FloatArray, FloatArray]:
    """Deviations (d, categories) of the noise in the shares of levels, and the shares (d,)."""
    coding, noise, shares = plan.coding, np.zeros((plan.d, len(plan.coding.blocks))), np.zeros(plan.d)
    if coding.constant is None:
        return noise, shares
    sums, deviation = rounds.geometry.look.sums(coding.constant)
    for k, block in enumerate(coding.blocks):
        index = list(block)
        noise[index, k] = deviation[index] / rounds.n
        shares[index] = np.clip(sums[index] / rounds.n + 1.0 / len(block), 0.0, 1.0)
    return noise, shares


def _empty_levels(plan: RecenteredPlan, rounds: Rounds) -> list[int]:
    """Columns of levels that may have no record: released sums of about 0."""
    coding = plan.coding
    if coding.constant is None:
        return []
    sums, deviation = rounds.geometry.look.sums(coding.constant)
    counts = [(j, sums[j] + rounds.n / len(block)) for block in coding.blocks for j in block]
    return [j for j, count in counts if count <= EMPTY * deviation[j]]


def _inside(
    plan: RecenteredPlan, geometry: Geometry, unseen: NDArray[np.intp], empty: list[int]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """(Q, basis, left out, diagonal, TTᵀ): coordinates z' = Qᵀz of the r directions that records have.

    There θ = basis·w. No record has a part along the sum of a category's columns, nor, but for those of an
    empty level, along e_l + e_c/K: x_l = −x_c/K; nor along e_j − m e_c of a column that is not seen, whose
    mean is m. Coefficients of the latter two are left out.
    Q has orthonormal columns, so that noise which was isotropic stays so, and S is diagonal.
    """
    A, coding, unit = geometry.metric, plan.coding, np.eye(plan.d)
    size = {j: len(block) for block in coding.blocks for j in block}
    sums = [unit[list(block)].sum(axis=0) for block in coding.blocks]
    flat = {j: unit[j] + unit[coding.constant] / size[j] for j in empty}
    flat |= {int(j): unit[j] - geometry.look.means(coding.constant)[j] * plan.constant_unit for j in unseen}
    left_out = np.array(list(flat.values())).reshape(-1, plan.d)
    absent = np.vstack([np.array(sums).reshape(-1, plan.d), left_out])
    N = null_space(absent) if len(absent) else unit
    Q = np.linalg.qr(A @ N)[0]
    S, spread = geometry.look.seen_in(A)
    values, V = np.linalg.eigh(Q.T @ S @ Q)
    Q = Q @ V
    basis, C = N @ (N.T @ A.T @ Q), coding.contrasts(geometry.H, empty)
    for j, direction in flat.items():  # the same for every record: what such a column adds is constant
        basis -= np.outer(direction, basis[j])
    return Q, C @ basis, C @ left_out.T, values, Q.T @ spread @ Q


def inflation(mean: Callable[[FloatArray], FloatArray], spread: float, noise: float) -> float:
    """q: E[G(w* + ξ)] ≈ −q·J w*, so that a Newton step from a centre with noise ξ ends at (1 + q)·w*.

    For margins m ~ N(0, spread²) and noise ξ ~ N(0, noise²) of them, q = −E[(μ(m+ξ) − μ(m))·m]/E[μ'(m)·m²],
    μ the mean response: 0 for a linear one, about noise²/4 for the logistic one.
    """
    m = spread * _nodes
    smeared = mean(m[:, None] + noise * _nodes[None, :]) @ _weights
    slope = (mean(m + _STEP) - mean(m - _STEP)) / (2.0 * _STEP)
    curved = float(_weights @ (slope * m**2))
    return -float(_weights @ ((smeared - mean(m)) * m)) / max(curved, 1e-300)
