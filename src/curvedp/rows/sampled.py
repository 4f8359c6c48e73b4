"""Poisson samples of rows: the one reduction that DP-SGD needs."""

from __future__ import annotations

from functools import partial

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.domain import Domain
from curvedp.losses import Loss
from curvedp.randomness import generator
from curvedp.rows import reductions
from curvedp.rows.blocked import BlockRows, SummedRows, contribution
from curvedp.rows.blocks import Block, DenseBlock
from curvedp.rows.sums import Parts, tree_sum


def sampled_gradient_sum(
    rows: SummedRows, loss: Loss, theta: FloatArray, clip: float, rate: float, random: np.random.Generator
) -> FloatArray:
    """Σ_i b_i·clip_c(∇ℓ(θ; z_i)), b_i independent Bernoulli(rate); `rate` a multiple of 2⁻⁵³.

    Blocks of this process are sampled in order by `random`; those of a cluster where they are, by entropy.
    """
    sample = partial(_gradient, domain=rows.layout.domain, loss=loss, theta=theta, clip=clip, rate=rate)
    if isinstance(rows, BlockRows):
        reduction = partial(sample, random=random)
        total = tree_sum(map(partial(contribution, reduction), rows.loads(keep=True)))
    else:
        total = rows.total(partial(sample, random=None), keep=True)
    return np.zeros(theta.shape) if total is None else total.parts[0]


def _gradient(
    block: Block,
    y: FloatArray,
    *,
    domain: Domain,
    loss: Loss,
    theta: FloatArray,
    clip: float,
    rate: float,
    random: np.random.Generator | None,
) -> Parts:
    chosen = (generator() if random is None else random).random(len(y)) < rate
    if isinstance(block, DenseBlock):  # the others stay unread
        block, y = block.chosen(chosen), y[chosen]
    else:
        block = block.rescaled(chosen.astype(np.float64), block.norms)
    return reductions.gradient(block, y, domain=domain, loss=loss, theta=theta, clip=clip)
