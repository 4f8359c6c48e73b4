"""Poisson samples of rows in memory: the one reduction that DP-SGD needs."""

from __future__ import annotations

import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import NotCovered
from curvedp.losses import Loss
from curvedp.rows import reductions
from curvedp.rows.base import Rows
from curvedp.rows.blocks import DenseBlock
from curvedp.rows.dense import DenseRows


def sampled_gradient_sum(
    rows: Rows, loss: Loss, theta: FloatArray, clip: float, rate: float, generator: np.random.Generator
) -> FloatArray:
    """Σ_i b_i·clip_c(∇ℓ(θ; z_i)), b_i independent Bernoulli(rate); dense rows only."""
    if not isinstance(rows, DenseRows):
        raise NotCovered("DP-SGD samples records and needs a dense array X; use NoisyGradient for other rows")
    total = np.zeros(theta.shape)
    for load in rows.loads(keep=True):
        block, y = load()
        chosen = generator.random(len(y)) < rate
        if isinstance(block, DenseBlock) and chosen.any():
            factors = None if block.factors is None else block.factors[chosen]
            sample = DenseBlock(block.X[chosen], block.norms[chosen], factors)
            part = reductions.gradient(
                sample, y[chosen], domain=rows.domain, loss=loss, theta=theta, clip=clip
            )
            total += part[0]
    return total
