"""What one block of records contributes to each reduction: pure, picklable functions; `Rows` adds them up.

A block comes with its targets y of shape (n, T); every function clips them into the domain first. In a
weighted domain the last of them is a weight v, and the record of every quadratic sum is √v·(x, y) (W-1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.mapping import inside
from curvedp.data.rows import blocks
from curvedp.data.rows.base import Parts
from curvedp.data.rows.blocks import Block
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss, Squared, clipped_value
from curvedp.problems.losses.several import clipped_targets

CELLS = 16  # of the histogram of a column
VectorOf = Callable[[Block, FloatArray, Domain], FloatArray]
WEIGHT_STEPS = 2.0**16  # weights in a histogram are rounded up to multiples of its inverse


def moments(block: Block, y: FloatArray, *, domain: Domain) -> Parts:
    """(Σ x xᵀ, Σ x yᵀ, Σ y yᵀ, Σ m²), m the magnitudes of the records."""
    targets = Squared().clip_target(y[:, : y.shape[1] - domain.weighted], domain)
    if domain.weighted:
        roots = np.sqrt(weights_of(y))
        block, targets = block.rescaled(roots, roots * block.norms), roots[:, None] * targets
    mass = np.asarray(np.sum(np.square(block.magnitudes)))
    return block.gram(), block.combine(targets), blocks.combination(targets, targets), mass


def gradient(
    block: Block, y: FloatArray, *, domain: Domain, loss: Loss, theta: FloatArray, clip: float | None
) -> Parts:
    """Σ_i clip_c(x_i φ'_iᵀ)."""
    slopes = loss.gradient(block.margins(theta), clipped_targets(loss, y, domain))
    if clip is not None:
        slopes = blocks.shortened(slopes, block.norms, inside(clip, theta.size))
    return (block.combine(slopes),)


def hessian(
    block: Block, y: FloatArray, *, domain: Domain, loss: Loss, theta: FloatArray, clip: float | None
) -> Parts:
    """Σ_i φ''_i ⊗ x_i x_iᵀ in C order; with clip, of the Huberised loss (K = 1)."""
    s, targets = block.margins(theta), clipped_targets(loss, y, domain)
    second = loss.hessian(s, targets)
    d, K = theta.shape
    if clip is not None:
        unclipped = _row_norms(loss.gradient(s, targets)) * block.norms < clip
        second = second * unclipped[:, None, None]
    H = np.zeros((d, K, d, K))
    for k in range(K):
        for l in range(k + 1):
            if second[:, k, l].any():
                H[:, k, :, l] = H[:, l, :, k] = block.gram(second[:, k, l])
    return (H.reshape(d * K, d * K),)


def curvature(
    block: Block,
    y: FloatArray,
    *,
    domain: Domain,
    loss: Loss,
    theta: FloatArray,
    bound: float,
    clip: float | None,
) -> Parts:
    """Σ_i min(u_iφ''_i, bound/‖x_i‖²) x_i x_iᵀ (K = 1), u_i = 1 without a clip."""
    s, targets = block.margins(theta), clipped_targets(loss, y, domain)
    second = loss.hessian(s, targets)[:, 0, 0]
    if clip is not None:
        second = second * np.clip(2.0 - block.norms * _row_norms(loss.gradient(s, targets)) / clip, 0.0, 1.0)
    squares = np.square(block.norms)
    most = _at_most(inside(bound, len(theta)), squares)
    return (block.gram(np.minimum(second, most)),)


def scores(
    block: Block, y: FloatArray, *, domain: Domain, loss: Loss, theta: FloatArray, clip: float
) -> Parts:
    """Σ_i g_i g_iᵀ, g_i = clip_c(x_i φ'_i) (K = 1)."""
    slopes = _row_norms(loss.gradient(block.margins(theta), clipped_targets(loss, y, domain)))
    most = _at_most(inside(clip, len(theta)), block.norms)
    return (block.gram(np.square(np.minimum(slopes, most))),)


def histogram(
    block: Block, y: FloatArray, *, domain: Domain, loss: Loss, theta: FloatArray, edges: FloatArray
) -> Parts:
    """Counts of gradient norms ‖x_i‖·‖φ'_i‖; cell j holds edges[j−1] < norm ≤ edges[j]."""
    # One output at a time: a record's cell must not depend on where the record stands.
    margins = np.hstack([block.margins(column[:, None]) for column in theta.T])
    slopes = loss.gradient(margins, clipped_targets(loss, y, domain))
    return (cell_masses(block.norms * _row_norms(slopes), edges),)


def norm_histogram(block: Block, y: FloatArray, *, domain: Domain, edges: FloatArray) -> Parts:
    """Counts of record lengths, or sums of weights by √v‖x‖; cell j holds edges[j−1] < length ≤ edges[j]."""
    if not domain.weighted:
        return (cell_masses(block.norms, edges),)
    v = weights_of(y)
    return (cell_masses(np.sqrt(v) * block.norms, edges, v),)


def cell_masses(lengths: FloatArray, edges: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """How many lengths, or weights of them, lie in each cell; cell j holds edges[j−1] < length ≤ edges[j].

    Weights are rounded up to a grid, so that sums of them are exact and depend on no order.
    """
    cells = np.searchsorted(edges, lengths, side="left")
    masses = None if weights is None else np.ceil(weights * WEIGHT_STEPS) / WEIGHT_STEPS
    return np.bincount(cells, masses, minlength=len(edges) + 1).astype(np.float64)


def vectors(block: Block, y: FloatArray, *, domain: Domain, of: VectorOf, clip: float) -> Parts:
    """Σ_i clip_c(v_i) of the vectors v = of(block, y, domain), shape (n, m)."""
    return (shortened_sum(of(block, y, domain), clip),)


def shortened_sum(v: FloatArray, clip: float) -> FloatArray:
    """Σ clip_c(v_i), Euclidean, each component added up in pairs; a vector that overflowed adds nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms, safe = np.linalg.norm(v, axis=1), inside(clip, v.shape[1] + 1)
    lost = ~np.isfinite(norms)
    if lost.any():
        v, norms = np.where(lost[:, None], 0.0, v), np.where(lost, 0.0, norms)
    factors = np.divide(safe, norms, out=np.ones_like(norms), where=norms > safe)
    return np.asarray(np.ascontiguousarray((v * factors[:, None]).T).sum(axis=1))  # along memory: in pairs


def column_cells(
    block: Block,
    y: FloatArray,
    *,
    domain: Domain,
    columns: Sequence[int],
    d: int,
    parts: FloatArray | None = None,
) -> Parts:
    """Counts of x_ij in the CELLS equal cells of [−1, 1], shape (columns, CELLS).

    A record counts as much as it weighs, times `parts` where they are given.
    """
    X = block.margins(np.eye(d)[:, list(columns)])
    cells = np.clip(np.floor((X + 1.0) * (CELLS / 2.0)), 0, CELLS - 1).astype(np.intp)
    masses = weights_of(y) if domain.weighted else None
    if parts is not None:
        masses = parts if masses is None else parts * masses
    if masses is not None:  # rounded down: the parts of a person never add up to more than 1
        masses = np.repeat(np.floor(masses * WEIGHT_STEPS) / WEIGHT_STEPS, len(columns))
    at = (cells + CELLS * np.arange(len(columns))).ravel()
    counts = np.bincount(at, masses, minlength=CELLS * len(columns))
    return (counts.astype(np.float64).reshape(len(columns), CELLS),)


def value(
    block: Block, y: FloatArray, *, domain: Domain, loss: Loss, theta: FloatArray, clip: float | None
) -> Parts:
    """Σ_i φ_i; with clip, of the Huberised loss, whose slope is at most clip/‖x_i‖."""
    s, targets = block.margins(theta), clipped_targets(loss, y, domain)
    if clip is None:
        return (np.asarray(np.sum(loss.value(s, targets))),)
    return (np.asarray(np.sum(clipped_value(loss, s, targets, _at_most(clip, block.norms)))),)


def error_masses(block: Block, y: FloatArray, *, domain: Domain, loss: Loss, theta: FloatArray) -> Parts:
    """(Σ m, Σ m², Σ m‖φ'‖): what the rounding error of a gradient sum is proportional to."""
    m = block.magnitudes
    slopes = _row_norms(loss.gradient(block.margins(theta), clipped_targets(loss, y, domain)))
    return (np.array([m.sum(), m @ m, m @ slopes]),)


def weights_of(y: FloatArray) -> FloatArray:
    """The last column of a weighted target, within [0, 1]; a record without a weight has none."""
    return np.clip(np.where(np.isnan(y[:, -1]), 0.0, y[:, -1]), 0.0, 1.0)


def _at_most(bound: float, sizes: FloatArray) -> FloatArray:
    """bound/sizes, infinite where a size is 0 or too small for a number."""
    with np.errstate(over="ignore"):
        return np.divide(bound, sizes, out=np.full_like(sizes, np.inf), where=sizes > 0)


def _row_norms(slopes: FloatArray) -> FloatArray:
    return np.abs(slopes[:, 0]) if slopes.shape[1] == 1 else blocks.norms(slopes)
