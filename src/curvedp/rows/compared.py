"""How much better some θ fit than a reference, record by record: clipped sums, and what rounding adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.domain import Domain
from curvedp.losses import Loss, clipped_targets, offset_bound
from curvedp.rows.base import Rows
from curvedp.rows.blocks import Block
from curvedp.rows.rounding import SUM_SLACK


def improvement_sum(
    rows: Rows,
    loss: Loss,
    reference: FloatArray,
    thetas: Sequence[FloatArray],
    scales: FloatArray,
    clip: float,
) -> FloatArray:
    """Σ_i clip_c(v_i), v_ij = (φ(θ_refᵀx_i; y_i) − φ(θ_jᵀx_i; y_i))/scale_j, Euclidean clip per record."""
    of = partial(_improvements, loss=loss, stacked=np.hstack([reference, *thetas]), scales=np.asarray(scales))
    return rows.vector_sum(of, len(thetas), clip)


def _improvements(
    block: Block, y: FloatArray, domain: Domain, *, loss: Loss, stacked: FloatArray, scales: FloatArray
) -> FloatArray:
    targets, margins = clipped_targets(loss, y, domain), block.margins(stacked)
    parts = np.split(margins, len(scales) + 1, axis=1)
    values = np.stack([loss.value(part, targets) for part in parts], axis=1)
    return np.asarray((values[:, :1] - values[:, 1:]) / scales)


def improvement_slack(
    domain: Domain,
    loss: Loss,
    thetas: Sequence[FloatArray],
    scales: FloatArray,
    clip: float,
    *,
    rows: float = 1.002 * ROWS_AT_MOST,
) -> float:
    """What rounding adds to the difference of two such sums over neighbours, in units of the clip.

    A product of arrays may round a record's margin by where the record stands: |δs| ≤ (d+16)·2⁻⁵³·B‖θ‖. A
    value φ ≤ φ(0) + S·B‖θ‖ then errs by S|δs| + 16K·2⁻⁵³(1 + φ), S ≥ ‖φ'‖.
    """
    d, K = thetas[0].shape
    reach = max(float(np.linalg.norm(theta)) for theta in thetas) + offset_bound(loss) / domain.x_norm
    slope = loss.gradient_bound(domain, reach) / domain.x_norm
    at_zero = 1.0 + domain.y_bound**2 + math.log(K + 1.0) * K
    value = slope * (d + 16) * domain.x_norm * reach + 16.0 * K * (at_zero + slope * domain.x_norm * reach)
    spread = math.sqrt(float(np.sum(1.0 / np.asarray(scales) ** 2)))
    return float(SUM_SLACK + 2.02 * rows * UNIT_ROUNDOFF * (2.0 * value * spread / clip + 16.0))
