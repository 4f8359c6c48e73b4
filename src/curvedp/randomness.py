"""Where random numbers come from, and the grid on which noise is released.

The default generator is ChaCha20 keyed by the operating system's entropy. An integer seed gives
reproducible draws for research; the guarantee of such a run is marked `private=False`.
"""

from __future__ import annotations

import math
import secrets

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

from curvedp.errors import InvalidInput

STEPS_PER_SIGMA = 2**20  # grid steps per standard deviation of released noise (section 8)


def generator(random_state: int | None = None) -> np.random.Generator:
    """A cryptographic generator from OS entropy (None), or a reproducible one from an integer seed."""
    if random_state is None:
        return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise InvalidInput(
            "pass random_state=None (private) or an integer seed (research); "
            f"got {type(random_state).__name__}"
        )
    return np.random.Generator(ChaCha(seed=int(random_state), rounds=20))


def grid_step(scale: float) -> float:
    """The largest power of two at most scale/2²⁰: the public grid for noise of standard deviation `scale`."""
    return 2.0 ** math.floor(math.log2(scale / STEPS_PER_SIGMA))


def round_to_grid(values: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Nearest multiples of `step`, a power of two (so the product is exact)."""
    return np.asarray(np.rint(np.asarray(values) / step) * step, dtype=np.float64)


def discrete_gaussian(generator: np.random.Generator, steps: int, size: int) -> NDArray[np.float64]:
    """`size` exact draws of P(k) ∝ exp(−k²/(2·steps²)), k an integer (returned as exact float64).

    Rejection from a discrete Laplace in integer arithmetic alone (Canonne, Kamath, Steinke 2020): no
    rounding enters the law.
    """
    coin = _Coin(generator)
    return np.array([coin.discrete_gaussian(steps) for _ in range(size)], dtype=np.float64)


class _Coin:
    """Exact Bernoulli, Laplace and Gaussian integers from a stream of fair bits."""

    _BUFFER = 4096

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._bytes = b""
        self._at = 0

    def _take(self, count: int) -> int:
        if self._at + count > len(self._bytes):
            self._bytes = self._generator.bytes(max(self._BUFFER, count))
            self._at = 0
        chunk = self._bytes[self._at : self._at + count]
        self._at += count
        return int.from_bytes(chunk, "little")

    def below(self, bound: int) -> int:
        """Uniform on {0, …, bound − 1}."""
        bits = (bound - 1).bit_length()
        count, excess = (bits + 7) // 8, -bits % 8
        while True:
            value = self._take(count) >> excess
            if value < bound:
                return value

    def exp_minus(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(−numerator/denominator) exactly."""
        while numerator > denominator:
            if not self._exp_minus_fraction(1, 1):
                return False
            numerator -= denominator
        return self._exp_minus_fraction(numerator, denominator)

    def _exp_minus_fraction(self, numerator: int, denominator: int) -> bool:
        """exp(−γ), γ ∈ [0, 1]: the parity of the first k at which a γ/k coin fails."""
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1

    def discrete_laplace(self, scale: int) -> int:
        """P(k) ∝ exp(−|k|/scale)."""
        while True:
            remainder = self.below(scale)
            if not self._exp_minus_fraction(remainder, scale):
                continue
            quotient = 0
            while self._exp_minus_fraction(1, 1):
                quotient += 1
            magnitude = remainder + scale * quotient
            negative = self.below(2) == 1
            if not (negative and magnitude == 0):
                return -magnitude if negative else magnitude

    def discrete_gaussian(self, steps: int) -> int:
        """P(k) ∝ exp(−k²/(2·steps²))."""
        variance, scale = steps * steps, steps + 1
        while True:
            k = self.discrete_laplace(scale)
            excess = abs(k) * scale - variance
            if self.exp_minus(excess * excess, 2 * variance * scale * scale):
                return k
