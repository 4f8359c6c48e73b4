"""At the end of a walk: what intervals need beside it (P-10).

Four more answers at the walk's estimate: the curvature of the loss, a histogram of gradient lengths, the
covariance of gradients, and where those point that the clip shortens. `postprocess.inference` turns them
and the walk's own centres and gradients into an estimate and its intervals, at no further cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import null_space
from scipy.special import expit, logsumexp, softmax

from curvedp.arrays import BoolArray, FloatArray, kron
from curvedp.mechanisms.base import Estimate, gradient_scale, gram_scale
from curvedp.mechanisms.constant import Constant, is_class, is_count
from curvedp.mechanisms.geometry import Geometry, gram_slack
from curvedp.mechanisms.walk import Clip, Rounds
from curvedp.postprocess.inference import BEYOND, Inference, Tail, likely_index
from curvedp.postprocess.noise import DECIDED, ThetaNoise
from curvedp.problems.losses.margin import Loss, jump_of

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan

TYPICAL_CURVATURE = 2.0  # of the loss, in units of that at the constant answer: not more is looked at
ONE_SIDED = 1.645  # deviations: a level with so few records of one outcome may have none
PREDICTED = 0.5  # relative deviation of how many a fit predicts
TWO_VALUES = 4.0  # jump of a column that is −1 or 1
SCATTER = 0.7  # of what single records scatter about their odds: with less, columns decide the class (P-10)
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

    bound = bread_bound(loss, rounds.kappa * shifts.bread / plan.mu) * beta * plan.d / rounds.n
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

    unit, means = np.eye(plan.d), rounds.geometry.means
    unseen = {int(j): unit[j] - means[j] * plan.constant_unit for j in np.flatnonzero(~seen)}
    gone = {j: _of_level(plan, j) for j in _empty_levels(plan, rounds)}
    Q, basis, left_out, look, spread = _inside(plan, rounds.geometry, gone | unseen)
    if is_class(loss) or is_count(loss):
        gone |= _one_sided(plan, rounds, estimate, Q, classes, bread, bread_scale, {*gone, *unseen})
        Q, basis, left_out, look, spread = _inside(plan, rounds.geometry, gone | unseen)
    H, C = rounds.geometry.H, plan.coding.contrasts(means, gone)
    walked = left_out[:, : len(gone)] @ (C @ theta)[[*gone]]

    def inside(gradient: FloatArray) -> FloatArray:
        """The numbers (d, K) of a gradient in the metric, in the coordinates of w: class after class."""
        return np.ravel((Q.T @ gradient @ classes).T)

    centre, R = inside(A @ (H @ local.centre)), kron(np.eye(rank), Q)
    squares = float(np.tile(np.maximum(look, 0.0), rank) @ centre**2)
    sizes = typical / np.mean(typical) if rank > 1 else np.ones(1)  # how much more curved than on average

    def response(s: FloatArray) -> FloatArray:
        """The mean by one margin; of several classes that of two."""
        return np.asarray(expit(s) if rank > 1 else loss.inverse_link(s.reshape(-1, 1)).reshape(s.shape))

    reach = clip.size / rounds.typical * loss.is_quadratic
    likely = likely_index(reach, rounds.several)
    inference = Inference(
        basis=kron(classes, basis),
        left_out=kron(classes, left_out),
        fixed=np.ravel(walked.T),
        levels=_shares_noise(plan, rounds, gone),
        shares=plan.coding.shares(means, gone),
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
        tail=Tail(edges, counts, noise.count_scale(shifts.tail), rounds.longest, rounds.outlying, likely),
        beyond=inside(beyond),
        beyond_scale=beyond_scale,
        meat=R.T @ meat @ R,
        meat_scale=meat_scale,
        count=rounds.n,
        count_scale=0.0 if noise.neighbours.count_is_public else 1.0 / shifts.count,
        several=rounds.several,
        common=_common(rounds, Q),
        kappa=rounds.kappa,
        reach=reach,
        inflation=inflation(response, math.sqrt(squares / (rounds.records * rank)), scatter),
    )
    plain = plan.problem.domain.unit is None and not plan.problem.domain.weighted
    if is_class(loss) and plain and inference.dispersion < SCATTER:
        return Estimate(inference.theta, local, ThetaNoise(reason=DECIDED))
    return Estimate(inference.theta, local, inference=inference)


def _of_level(plan: RecenteredPlan, j: int, sign: float = 1.0) -> FloatArray:
    """The direction of θ, 1 in column j, that moves the margins of one level alone.

    That of a category whose column is j; or of a column that is −1 or 1, the one whose sign is given.
    """
    size = next((len(block) for block in plan.coding.blocks if j in block), 1)
    return np.asarray(np.eye(plan.d)[j] + sign / size * plan.constant_unit)


def _levels(plan: RecenteredPlan, means: FloatArray) -> list[tuple[int, FloatArray, FloatArray]]:
    """Of every level: its column; e, shape (d,), with eᵀx = 1 for its records, else 0; x̄ there less x̄."""
    unit, blocks, found = np.eye(plan.d), plan.coding.blocks, []
    for block in blocks:
        others = np.where(np.isin(np.arange(plan.d), block), -1.0 / len(block) - means, 0.0)
        found += [(j, _of_level(plan, j), others + unit[j]) for j in block]
    for j, sign in product(np.flatnonzero(np.array(plan.coding.jumps) == TWO_VALUES).tolist(), (-1.0, 1.0)):
        found.append((j, 0.5 * sign * _of_level(plan, j, sign), (sign - means[j]) * unit[j]))
    return found


def _one_sided(
    plan: RecenteredPlan,
    rounds: Rounds,
    estimate: Estimate,
    Q: FloatArray,
    classes: FloatArray,
    bread: FloatArray,
    bread_scale: float,
    known: Collection[int],
) -> dict[int, FloatArray]:
    """Levels without records of some class, or counts, by their column, but for those that are `known`.

    For them no coefficient is large enough. How many records are of a class that is rare in a level is what a
    fit predicts, about the curvature k of the level's losses, less what the gradient there says. k is what
    the bread shows, at the θ that the walk came to, weighed against what the fit predicts of normal margins.
    """
    geometry, means, n = rounds.geometry, rounds.geometry.means, max(rounds.records, 1.0)
    local, counts, rank = estimate.local, is_count(plan.problem.loss), classes.shape[1]
    levels = [level for level in _levels(plan, means) if level[0] not in known]
    if plan.coding.constant is None or local is None or not levels:
        return {}
    columns, *parts = zip(*levels, strict=True)
    e, apart = map(np.array, parts)
    records = np.clip(n * (e @ means), 1.0, n)
    dual = np.linalg.solve(geometry.metric.T, e.T).T @ Q @ Q.T  # dualᵀz = eᵀx
    size = np.sum(dual**2, axis=1)

    def predicted(theta: FloatArray, c: int) -> tuple[FloatArray, FloatArray]:
        """(k, mean p): margins vary as much in a level as in all, but for what its own mean adds to that.

        The margin of class c is that against all others, for which the mean record is taken.
        """
        rest = np.delete(theta, c, axis=1) if len(classes) > 1 else np.zeros((plan.d, 1))
        against = theta[:, c] - rest @ softmax(means @ rest)
        moved, lengths = apart @ against, geometry.inverse.T @ against
        own = moved**2 * records / np.maximum(n - records, 1.0)
        spread = float(lengths @ geometry.S @ lengths) / n - float(means @ against) ** 2 - own
        margins = means @ theta[:, c] - logsumexp(means @ rest) + moved
        margins = margins[:, None] + np.sqrt(np.maximum(spread, 0.0))[:, None] * _nodes
        p = np.exp(np.minimum(margins, 0.0)) if counts else expit(margins)
        curved = p if counts else p * (1.0 - p)
        return np.maximum(records * (curved @ _weights), 1e-9), p @ _weights

    least, found = np.full(len(levels), math.inf), np.zeros(len(levels), dtype=bool)
    for c, u in enumerate(classes):
        k, p = predicted(local.centre, c)
        farther = k / predicted(estimate.theta, c)[0]
        of_class = np.einsum("a,aibj,b->ij", u, bread.reshape(rank, plan.d, rank, plan.d), u)
        seen = farther * np.einsum("mi,ij,mj->m", dual, of_class, dual)
        guessed, read = (PREDICTED * k) ** 2, (farther * bread_scale * size * (u @ u)) ** 2
        k = np.maximum(k + guessed / (guessed + read) * (seen - k), 0.0)
        other = len(classes) == 1 and not counts  # the class itself may be what is rare
        told = np.where(other & (p > 0.5), -1.0, 1.0) * (dual @ geometry.metric @ local.gradient[:, c])
        rarer = np.maximum(k - told, 0.0)
        guessed = (PREDICTED * told) ** 2  # were there none, k would be that
        doubt = rarer * (not counts) + local.noise**2 * size + guessed * read / (guessed + read)
        found |= rarer <= ONE_SIDED * np.sqrt(doubt)
        least = np.minimum(least, rarer)
    for block in plan.coding.blocks:  # one stays, lest the constant be left out as well
        there = [i for i, j in enumerate(columns) if j in block]
        found[max(there, key=lambda i: least[i], default=[])] = False
    return {columns[i]: e[i] / e[i, columns[i]] for i in np.flatnonzero(found)}


def _class_directions(loss: Loss, constant: Constant | None) -> tuple[FloatArray, FloatArray]:
    """Orthonormal (K, ρ), φ'' at the constant answer, or equal shares, diagonal there; that diagonal."""
    if (K := loss.n_outputs) == 1:
        return np.ones((1, 1)), np.array([1.0 if constant is None else constant.curvature])
    shares = np.full(K, 1.0 / K) if constant is None else constant.mean
    apart = null_space(np.ones((1, K)))  # along equal margins no probability changes
    values, vectors = np.linalg.eigh(apart.T @ (np.diag(shares) - np.outer(shares, shares)) @ apart)
    return apart @ vectors, values


def _common(rounds: Rounds, Q: FloatArray) -> FloatArray:
    """The direction of the mean row's gradient, of length 1; 0 where no column is constant."""
    H, at = rounds.geometry.H, rounds.plan.coding.constant
    if at is None:
        return np.zeros(Q.shape[1])
    direction = Q.T @ (rounds.geometry.metric @ H[:, at])
    return np.asarray(direction / max(float(np.linalg.norm(direction)), 1e-300))


def _shares_noise(plan: RecenteredPlan, rounds: Rounds, gone: Collection[int]) -> FloatArray:
    """Deviations (d, categories) of the noise in the shares of levels, of the records of those not `gone`."""
    geometry, noise = rounds.geometry, np.zeros((plan.d, len(plan.coding.blocks)))
    for k, block in enumerate(plan.coding.blocks):
        left = [j for j in block if j not in gone]
        records = float(np.sum(geometry.means[left] + 1.0 / len(block)))
        noise[left, k] = geometry.deviations[left] / max(records, 1.0 / rounds.n)
    return noise


def _empty_levels(plan: RecenteredPlan, rounds: Rounds) -> list[int]:
    """Columns of levels that may have no record: released sums of about 0.

    Of every category one stays, the most frequent: a record has a level, and without any the constant would
    be left out as well.
    """
    means, deviation = rounds.geometry.means, rounds.geometry.deviations
    rare = [
        j
        for block in plan.coding.blocks
        for j in sorted(block, key=lambda j: means[j])[:-1]
        if means[j] + 1.0 / len(block) <= EMPTY * deviation[j]
    ]
    return sorted(rare)


def _inside(
    plan: RecenteredPlan, geometry: Geometry, flat: Mapping[int, FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """(Q, basis, left out, diagonal, TTᵀ): coordinates z' = Qᵀz of the r directions that are estimated.

    There θ = basis·w. No record has a part along the sum of a category's columns, nor, but for those of an
    empty level, along e_l + e_c/K: x_l = −x_c/K; nor along e_j − m e_c of a column that is not seen, whose
    mean is m. Those of a level with one outcome have, but no curvature there. Coefficients along `flat`
    directions, by their column, are left out.
    Q has orthonormal columns, so that noise which was isotropic stays so, and S is diagonal.
    """
    A, coding, unit = geometry.metric, plan.coding, np.eye(plan.d)
    sums = [unit[list(block)].sum(axis=0) for block in coding.blocks]
    left_out = np.array(list(flat.values())).reshape(-1, plan.d)
    absent = np.vstack([np.array(sums).reshape(-1, plan.d), left_out])
    N = null_space(absent) if len(absent) else unit
    Q = np.linalg.qr(A @ N)[0]
    S, spread = geometry.seen_in(A)
    values, V = np.linalg.eigh(Q.T @ S @ Q)
    Q = Q @ V
    basis, C = N @ (N.T @ A.T @ Q), coding.contrasts(geometry.means, flat)
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
    curved = float(_weights @ ((mean(m + _STEP) - mean(m - _STEP)) / (2.0 * _STEP) * m**2))
    return -float(_weights @ ((smeared - mean(m)) * m)) / max(curved, 1e-300)
