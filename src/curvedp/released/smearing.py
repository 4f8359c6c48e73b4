"""What the noise of a centre does to a gradient that is taken there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from curvedp.arrays import FloatArray

_STEP = 1e-4  # of a margin, for a derivative
_nodes, _weights = np.polynomial.hermite_e.hermegauss(40)
_weights = _weights / _weights.sum()


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
