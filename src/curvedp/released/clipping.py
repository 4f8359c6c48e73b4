"""What clipping took away from a gradient: an empirical Bayes estimate from released numbers."""

from __future__ import annotations

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.released.tails import Tail

_nodes, _weights = np.polynomial.hermite_e.hermegauss(7)
_LOG_WEIGHTS = np.log(_weights / _weights.sum())
ALONG = (-1.0, 0.9)  # mean and deviation of ln(τ/E) along b
ACROSS = (-0.75, 0.6)  # of ln(τ√r/E) elsewhere


def clipped_away(
    tail: Tail, ramp: float, beyond: FloatArray, scale: float, values: FloatArray, pull: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(mean, covariance, moved) of D = Σ(|g| − c)⁺ g/|g|, in coordinates in which J is diag(`values`).

    `moved` is the covariance that noise alone gives the mean.

    `beyond` is Σ min((|g|/c − 1)⁺/ramp, 1)·g/|g| with noise of deviation `scale`: in a tail ∝ |g|^−α, D is
    c·ramp/(1 − (1+ramp)^{1−α}) times that, if directions do not depend on lengths. A priori D is
    N(0, τ₁²bbᵀ + τ₂²J/mean(values)) with b along `pull` = Jw, for a clip attenuates what is explained; τ₁ and
    τ₂ are log-normal in units of the excess E = Σ(|g| − c)⁺.
    """
    r = len(values)
    excess = tail.excess
    E, further, c = float(excess[1]), float(excess[2]), float(tail.edges[1])
    steeper = min(max(-2.0 * np.log2(max(further, 1e-12 * E) / E), 1.0 / 3.0), 9.0)  # α − 1
    factor = c * ramp / (1.0 - (1.0 + ramp) ** -steeper)
    seen, noise2 = factor * beyond, (factor * scale) ** 2
    shape = np.maximum(values, 0.0)
    shape = shape / max(float(shape.mean()), 1e-300)
    b = pull / max(float(np.linalg.norm(pull)), 1e-300)
    one = (E * np.exp(ALONG[0] + ALONG[1] * _nodes)) ** 2
    two = (E * np.exp(ACROSS[0] + ACROSS[1] * _nodes)) ** 2 / r
    logs, means, parts = [], [], []
    for t2, weight2 in zip(two, _LOG_WEIGHTS, strict=True):
        prior = t2 * shape
        for t1, weight1 in zip(one, _LOG_WEIGHTS, strict=True):
            total = prior + noise2
            inverse_b = b / total
            grow = 1.0 + t1 * float(b @ inverse_b)
            projected = seen / total - inverse_b * (t1 * float(inverse_b @ seen) / grow)
            logs.append(
                weight1
                + weight2
                - 0.5 * (float(seen @ projected) + float(np.log(total).sum()) + np.log(grow))
            )
            means.append(prior * projected + t1 * b * float(b @ projected))
            parts.append((1.0 / total, np.sqrt(t1 / grow) * inverse_b))
    share = np.exp(np.array(logs) - max(logs))
    share /= share.sum()
    stacked = np.array(means)
    mean = share @ stacked
    apart = stacked - mean
    # Σ − Σ(Σ + νI)⁻¹Σ = ν(I − ν(Σ + νI)⁻¹), (Σ + νI)⁻¹ = diag(own) − along alongᵀ
    own, along = (np.array(part) for part in zip(*parts, strict=True))
    gain = np.eye(r) - noise2 * (np.diag(share @ own) - (along.T * share) @ along)
    return mean, noise2 * gain + (apart.T * share) @ apart, noise2 * gain @ gain
