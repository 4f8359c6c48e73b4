"""Where random numbers come from, and the grid on which noise is released.

The default generator is ChaCha20 keyed by the operating system's entropy. An integer seed gives
reproducible draws for research; the guarantee of such a run is marked `private=False`.
"""

from __future__ import annotations

import math
import secrets

import numpy as np
from randomgen import ChaCha

from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput

STEPS_PER_SIGMA = 2**20  # grid steps per standard deviation of released noise (section 8)


def generator(random_state: int | None = None) -> np.random.Generator:
    """A cryptographic generator from OS entropy (None), or a reproducible one from an integer seed."""
    if random_state is None:
        return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise InvalidInput(
            f"pass random_state=None (private) or an integer seed (research), not {type(random_state).__name__}"
        )
    return np.random.Generator(ChaCha(seed=int(random_state), rounds=20))


def grid_step(scale: float) -> float:
    """The power of two at most scale/2²⁰: the public grid for noise of standard deviation `scale`."""
    return 2.0 ** math.floor(math.log2(scale / STEPS_PER_SIGMA))


def round_to_grid(values: FloatArray, step: float) -> FloatArray:
    """Nearest multiples of `step`."""
    return np.asarray(np.rint(np.asarray(values) / step) * step, dtype=np.float64)
