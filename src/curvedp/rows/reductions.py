"""What one block contributes to each reduction: pure functions of (block, targets), summed by `Rows`."""

from __future__ import annotations

import numpy as np

from curvedp.domain import FloatArray
from curvedp.losses import Loss, clipped_value
from curvedp.rows.blocks import Block


def moments(block: Block, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """(Σ x xᵀ, Σ x yᵀ, Σ y yᵀ, Σ m²) of a block; y has shape (n, T)."""
    return block.gram(), block.combine(y), y.T @ y, float(np.sum(np.square(block.magnitudes)))


def _clip_factors(norms: FloatArray, clip: float) -> FloatArray:
    """min(1, clip/‖g_i‖)."""
    return np.divide(clip, norms, out=np.ones_like(norms), where=norms > clip)


def gradient_norms(block: Block, y: FloatArray, loss: Loss, theta: FloatArray) -> FloatArray:
    """‖x_i φ'_iᵀ‖_F = ‖x_i‖·‖φ'_i‖."""
    slopes = loss.gradient(block.margins(theta), y)
    return np.asarray(block.norms * _row_norms(slopes))


def _row_norms(slopes: FloatArray) -> FloatArray:
    return np.abs(slopes[:, 0]) if slopes.shape[1] == 1 else np.linalg.norm(slopes, axis=1)


def gradient(block: Block, y: FloatArray, loss: Loss, theta: FloatArray, clip: float | None) -> FloatArray:
    """Σ_i clip_c(x_i φ'_iᵀ)."""
    slopes = loss.gradient(block.margins(theta), y)
    if clip is not None:
        slopes = slopes * _clip_factors(block.norms * _row_norms(slopes), clip)[:, None]
    return block.combine(slopes)


def hessian(block: Block, y: FloatArray, loss: Loss, theta: FloatArray, clip: float | None) -> FloatArray:
    """Σ_i φ''_i ⊗ x_i x_iᵀ in C order."""
    s = block.margins(theta)
    second = loss.hessian(s, y)
    d, K = theta.shape
    if K == 1:
        weights = second[:, 0, 0]
        if clip is not None:
            slopes = np.abs(loss.gradient(s, y)[:, 0])
            weights = np.where(slopes * block.norms < clip, weights, 0.0)
        return block.gram(weights)
    H = np.empty((d, K, d, K))
    for k in range(K):
        for l in range(k + 1):
            H[:, k, :, l] = H[:, l, :, k] = block.gram(second[:, k, l])
    return H.reshape(d * K, d * K)


def histogram(block: Block, y: FloatArray, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
    """Counts of gradient norms; cell j holds edges[j−1] < norm ≤ edges[j]."""
    cells = np.searchsorted(edges, gradient_norms(block, y, loss, theta), side="left")
    return np.bincount(cells, minlength=len(edges) + 1).astype(np.float64)


def value(block: Block, y: FloatArray, loss: Loss, theta: FloatArray, clip: float | None) -> float:
    """Σ_i φ_i, or of the Huberised loss whose slope is at most clip/‖x_i‖."""
    s = block.margins(theta)
    if clip is None:
        return float(np.sum(loss.value(s, y)))
    slope = np.divide(clip, block.norms, out=np.full_like(block.norms, np.inf), where=block.norms > 0)
    return float(np.sum(clipped_value(loss, s, y, slope)))


def error_masses(block: Block, y: FloatArray, loss: Loss, theta: FloatArray) -> FloatArray:
    """(Σ m, Σ m², Σ m‖φ'‖): what the rounding error of a gradient sum is proportional to."""
    m = block.magnitudes
    slopes = _row_norms(loss.gradient(block.margins(theta), y))
    return np.array([m.sum(), m @ m, m @ slopes])
