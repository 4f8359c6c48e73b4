"""What a fit minimises, as a number: solvers need gradients alone, and tests compare those with it."""

from __future__ import annotations

from functools import partial

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import At, Parts, Rows, at_most
from curvedp.data.rows.blocks import Block
from curvedp.problems.losses import Loss


def value_sum(rows: Rows, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
    """Σ_i φ(θᵀx_i; y_i); with `clip` (K = 1 only) of the Huberised loss, its slope at most clip/‖x_i‖."""
    total = rows.total(partial(_value, at=At(rows.layout.domain, loss, theta), clip=clip), keep=True)
    return 0.0 if total is None else float(total.parts[0])


def _value(block: Block, y: FloatArray, at: At, clip: float | None) -> Parts:
    s, targets = block.margins(at.theta), at.targets(y)
    if clip is None:
        return (np.asarray(np.sum(at.loss.value(s, targets))),)
    return (np.asarray(np.sum(clipped_value(at.loss, s, targets, at_most(clip, block.norms)))),)


def clipped_value(loss: Loss, s: FloatArray, y: FloatArray, slope: FloatArray) -> FloatArray:
    """The Huberised loss of LOP-Clip (section 5): φ continued linearly where |φ'| exceeds `slope` (K = 1).

    φ̃(s) = φ(s̃) + φ'(s̃)(s − s̃), s̃ the point nearest to s with |φ'(s̃)| ≤ slope, here by bisection.
    """
    steep = loss.gradient(s, y)[:, 0]
    side, width = np.sign(steep), np.ones(len(s))
    beyond = np.abs(steep) > slope

    def reach(step: FloatArray) -> FloatArray:
        return np.asarray(side * loss.gradient(s - (side * step)[:, None], y)[:, 0])

    while np.any(far := beyond & (reach(width) > slope)):
        width = np.where(far, 2.0 * width, width)
    near, far_enough = np.zeros(len(s)), np.where(beyond, width, 0.0)
    for _ in range(100):
        middle = 0.5 * (near + far_enough)
        outside = beyond & (reach(middle) > slope)
        near, far_enough = np.where(outside, middle, near), np.where(outside, far_enough, middle)
    step = np.where(beyond, far_enough, 0.0)
    linear = np.multiply(slope, step, where=beyond, out=np.zeros_like(step))  # slope may be infinite
    return np.asarray(loss.value(s - (side * step)[:, None], y) + linear)
