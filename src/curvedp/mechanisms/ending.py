"""At the end of a walk: what intervals need beside it (P-10).

Four more answers at the walk's estimate: the curvature of the loss, a histogram of gradient lengths, the
covariance of gradients, and where those point that the clip shortens. `postprocess.inference` turns them
and the walk's own centres and gradients into an estimate and its intervals, at no further cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.special import expit

from curvedp.arrays import BoolArray, FloatArray, kron
from curvedp.mechanisms.base import Estimate, gradient_scale, gram_scale
from curvedp.mechanisms.constant import Constant
from curvedp.mechanisms.geometry import Geometry, gram_slack
from curvedp.mechanisms.walk import Clip, Rounds
from curvedp.postprocess.inference import BEYOND, Inference, Tail
from curvedp.problems.losses.margin import Loss, jump_of

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan

TYPICAL_CURVATURE = 2.0  # of the loss, in units of that at the constant answer: not more is looked at
EMPTY = 1.0  # deviations: a level of fewer records may be empty, and is left out of the estimate
EDGES = 13  # of the histogram of gradient lengths, a factor √2 apart, from the walk's clip/√2 on
BREAD_GROWTH = 0.05  # of m with κ
BREAD_BOUNDS = (2.0, 4.0)  # of a record's curvature, in units of β·d/n̂: as many as keep its noise small
BAND_BOUND = 3.0  # likewise where only records of a band have any: 2 would shorten too many, 4 be noise
_STEP = 1e-4  # of a margin, for a derivative
_nodes, _weights = np.polynomial.hermite_e.hermegauss(40)
_weights = _weights / _weights.sum()


def bread_bound(loss: Loss, kappa: float) -> float:
    """m: a record's curvature is bounded by mβd/n̂, κ that of the bread."""
    grown = min(max(BREAD_GROWTH * kappa, BREAD_BOUNDS[0]), BREAD_BOUNDS[1])
    return grown if jump_of(loss) is None else BAND_BOUND


def ended(
    plan: RecenteredPlan, rounds: Rounds, clip: Clip, estimate: Estimate, scatter: float, seen: BoolArray
) -> Estimate:
    """The estimate that the walk and four looks at its end give."""
    local, A = estimate.local, rounds.geometry.metric
    assert local is not None
    theta, noise, shifts, loss = estimate.theta, rounds.noise, plan.shifts, plan.problem.loss
    slack = rounds.slack(theta, clip)
    beta = rounds.shape.curvature(plan.problem.domain, plan.problem.radius(plan.d))
    classes, typical = _class_directions(loss, rounds.constant)
    guess = beta * clip.kept * rounds.share
    if rounds.constant is not None and jump_of(loss) is None:  # most records have a smaller one
        guess = min(guess, float(np.mean(typical)))
        beta = min(beta, TYPICAL_CURVATURE * float(np.linalg.norm(typical)))

    m = bread_bound(loss, rounds.kappa * shifts.bread / plan.mu)
    bound = m * beta * plan.d / rounds.n
    rounding = gram_slack(A, rounds.most)
    if plan.problem.domain.unit is not None:  # of several rows: entries add up to the trace
        rounding *= math.sqrt(plan.d)
    rank = classes.shape[1]
    both = np.einsum("ij,kl->lijk", A, classes).reshape(rank * plan.d, -1)  # from C order: class after class
    total = both @ rounds.rows.curvature_sum(rounds.shape, theta, bound, clip.size) @ both.T
    # u falls by as much as a gradient grows, in units of the clip
    bread = noise.gram(total, math.sqrt(bound), shifts.bread, rounding + slack, "bread")
    bread_scale = gram_scale(bound, shifts.bread, noise.neighbours, rounding + slack)

    edges = clip.size * math.sqrt(2.0) ** np.arange(-1.0, EDGES - 1.0)
    counts = rounds.rows.gradient_norm_histogram(loss, theta, edges)
    counts = noise.counts(counts, shifts.tail, "tail")

    total = both @ rounds.rows.score_sum(loss, theta, clip.size) @ both.T
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
    walked = left_out[:, : len(empty)] @ (plan.coding.contrasts(H, empty) @ theta)[empty]

    def inside(gradient: FloatArray) -> FloatArray:
        """The numbers (d, K) of a gradient in the metric, in the coordinates of w: class after class."""
        return np.ravel((Q.T @ gradient @ classes).T)

    centre, R = inside(A @ (H @ local.centre)), kron(np.eye(rank), Q)
    squares = float(np.tile(np.maximum(look, 0.0), rank) @ centre**2)
    sizes = typical / np.mean(typical) if rank > 1 else np.ones(1)  # how much more curved than on average

    def response(s: FloatArray) -> FloatArray:
        """The mean by one margin; of several classes that of two."""
        return np.asarray(expit(s) if rank > 1 else loss.inverse_link(s.reshape(-1, 1)).reshape(s.shape))

    inference = Inference(
        basis=kron(classes, basis),
        left_out=kron(classes, left_out),
        fixed=np.ravel(walked.T),
        levels=levels,
        shares=shares,
        look=kron(sizes, look),
        look_spread=kron(np.diag(sizes), spread),
        look_scale=rounds.geometry.scale,
        bread=R.T @ bread @ R,
        bread_scale=bread_scale,
        beta=beta,
        guess=guess,
        stiffness=local.curvature,
        centre=centre,
        gradient=inside(A @ local.gradient),
        noise=local.noise,
        tail=Tail(edges, counts, noise.count_scale(shifts.tail), rounds.longest, rounds.outlying),
        beyond=inside(beyond),
        beyond_scale=beyond_scale,
        meat=R.T @ meat @ R,
        meat_scale=meat_scale,
        count=rounds.n,
        count_scale=0.0 if noise.neighbours.count_is_public else 1.0 / shifts.count,
        several=rounds.several,
        common=_common(rounds, Q),
        kappa=rounds.kappa,
        reach=clip.size / rounds.typical * loss.is_quadratic,
        inflation=inflation(response, math.sqrt(squares / (rounds.records * rank)), scatter),
    )
    return Estimate(inference.theta, local, inference=inference)


def _class_directions(loss: Loss, constant: Constant | None) -> tuple[FloatArray, FloatArray]:
    """Orthonormal (K, ρ), φ'' at the constant answer, or equal shares, diagonal there; that diagonal."""
    K = loss.n_outputs
    if K == 1:
        return np.ones((1, 1)), np.array([1.0 if constant is None else constant.curvature])
    shares = np.full(K, 1.0 / K) if constant is None else constant.mean
    apart = null_space(np.ones((1, K)))  # along equal margins no probability changes
    values, vectors = np.linalg.eigh(apart.T @ (np.diag(shares) - np.outer(shares, shares)) @ apart)
    return apart @ vectors, values


def _common(rounds: Rounds, Q: FloatArray) -> FloatArray:
    """The direction of the mean row's gradient, as long as `several`; 0 where no column is constant."""
    H, at = rounds.geometry.H, rounds.plan.coding.constant
    if at is None:
        return np.zeros(Q.shape[1])
    direction = Q.T @ (rounds.geometry.metric @ H[:, at])
    return np.asarray(rounds.several * direction / max(float(np.linalg.norm(direction)), 1e-300))


def _level_shares(plan: RecenteredPlan, rounds: Rounds) -> tuple[FloatArray, FloatArray]:
    """Deviations (d, categories) of the noise in the shares of levels, and the shares (d,)."""
    coding, noise, shares = plan.coding, np.zeros((plan.d, len(plan.coding.blocks))), np.zeros(plan.d)
    if coding.constant is None:
        return noise, shares
    sums, deviation = rounds.geometry.sums(coding.constant)
    for k, block in enumerate(coding.blocks):
        index = list(block)
        noise[index, k] = deviation[index] / rounds.records
        shares[index] = np.clip(sums[index] / rounds.records + 1.0 / len(block), 0.0, 1.0)
    return noise, shares


def _empty_levels(plan: RecenteredPlan, rounds: Rounds) -> list[int]:
    """Columns of levels that may have no record: released sums of about 0.

    Of every category one stays, the most frequent: a record has a level, and without any the constant would
    be left out as well.
    """
    coding = plan.coding
    if coding.constant is None:
        return []
    sums, deviation = rounds.geometry.sums(coding.constant)
    rare = [
        j
        for block in coding.blocks
        for j in sorted(block, key=lambda j: sums[j])[:-1]
        if sums[j] + rounds.records / len(block) <= EMPTY * deviation[j]
    ]
    return sorted(rare)


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
    flat |= {int(j): unit[j] - geometry.means(coding.constant)[j] * plan.constant_unit for j in unseen}
    left_out = np.array(list(flat.values())).reshape(-1, plan.d)
    absent = np.vstack([np.array(sums).reshape(-1, plan.d), left_out])
    N = null_space(absent) if len(absent) else unit
    Q = np.linalg.qr(A @ N)[0]
    S, spread = geometry.seen_in(A)
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
