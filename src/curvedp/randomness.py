"""Where random numbers come from, the grid on which noise is released, and exact noise on it.

The default generator is ChaCha20 keyed by the operating system's entropy. An integer seed gives
reproducible draws for research; the guarantee of such a run is marked `private=False`.

Discrete laws are drawn exactly. A proposal |k| = r + q·scale, r uniform and q ≥ 0 geometric, is accepted when
a uniform U lies below a probability p. Floating point decides that only where its error cannot matter; else
U gets more bits and p more digits until the answer is certain.
"""

from __future__ import annotations

import decimal
import math
import secrets
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

from curvedp.errors import InvalidInput

STEPS_PER_SIGMA = 2**20  # grid steps per standard deviation of released noise (section 8)
LARGEST_SCALE = 2**45  # of a discrete law: its draws are exact in float64

_BITS = 53  # of U that the quick decision sees
_MARGIN = 2.0**-40  # more than the relative error of p in floating point, below 2⁻⁴³ wherever p ≥ 2⁻⁵⁴
_ALL_ONES = np.uint64(2**64 - 1)


def generator(random_state: int | None = None) -> np.random.Generator:
    """A cryptographic generator from OS entropy (None), or a reproducible one from an integer seed."""
    if random_state is None:
        return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise InvalidInput(
            "`random_state` is an integer seed (research), or left out (private); "
            f"got {type(random_state).__name__}"
        )
    return np.random.Generator(ChaCha(seed=int(random_state), rounds=20))


def power_of_two(bound: float) -> float:
    """The largest power of two at most `bound` > 0."""
    return math.ldexp(1.0, math.frexp(bound)[1] - 1)


def grid_step(scale: float) -> float:
    """The largest power of two at most scale/2²⁰: the public grid for noise of standard deviation `scale`."""
    return power_of_two(scale / STEPS_PER_SIGMA)


def round_to_grid(values: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Nearest multiples of `step`, a power of two (so the product is exact)."""
    return np.asarray(np.rint(np.asarray(values) / step) * step, dtype=np.float64)


def discrete_gaussian(generator: np.random.Generator, steps: int, size: int) -> NDArray[np.float64]:
    """`size` exact draws of P(k) ∝ exp(−k²/(2·steps²)), k an integer (returned as exact float64)."""
    return _draw(generator, steps, size, _gaussian, halvings=1)


def discrete_laplace(generator: np.random.Generator, scale: int, size: int) -> NDArray[np.float64]:
    """`size` exact draws of P(k) ∝ exp(−|k|/scale), k an integer (returned as exact float64)."""
    return _draw(generator, scale, size, _laplace, halvings=0)


def _gaussian(x: Any) -> Any:
    """log of e^{½(1−x²)}, so that 2^{q−1}e^{½(1−x²)} ≤ 1 on q ≤ x < q+1."""
    return (1 - x * x) / 2


def _laplace(x: Any) -> Any:
    """log of e^{−x}, so that 2^q e^{−x} ≤ 1 on q ≤ x < q+1."""
    return -x


def _draw(
    generator: np.random.Generator, scale: int, size: int, log_weight: Callable[[Any], Any], halvings: int
) -> NDArray[np.float64]:
    """Draws of P(k) ∝ exp(log_weight(|k|/scale)): the first `size` proposals that are accepted."""
    if isinstance(scale, bool) or not isinstance(scale, int) or not 1 <= scale <= LARGEST_SCALE:
        raise InvalidInput(f"the scale of a discrete law must be an integer from 1 to 2^45, got {scale!r}")
    draws, found = np.empty(size), 0
    while found < size:
        batch = _accepted(generator, scale, 2 * (size - found) + 16, log_weight, halvings)[: size - found]
        draws[found : found + len(batch)] = batch
        found += len(batch)
    return draws


def _accepted(
    generator: np.random.Generator, scale: int, tries: int, log_weight: Callable[[Any], Any], halvings: int
) -> NDArray[np.int64]:
    """The accepted ones of `tries` proposals.

    |k| = r + q·scale has probability 2^{−q−1}/scale and is accepted if U < p = 2^{q−halvings}e^{log_weight}.
    """
    r = generator.integers(0, scale, size=tries, dtype=np.int64)
    q = _geometric(generator, tries)
    word = _words(generator, tries)
    m, negative = word >> np.uint64(64 - _BITS), (word & np.uint64(1)).astype(bool)
    size = r + q * scale
    with np.errstate(under="ignore"):
        p = np.ldexp(np.exp(log_weight(r / scale + q)), q.astype(np.int32) - halvings)
    threshold, u = p * 2.0**_BITS, m.astype(np.float64)  # u ≤ 2⁵³·U < u + 1
    accepted = u + 1.0 <= threshold * (1.0 - _MARGIN)
    rejected = (u >= threshold * (1.0 + _MARGIN)) & (u > 0)
    for i in np.flatnonzero(~(accepted | rejected) | (q >= 64)):
        exponent = Fraction(log_weight(Fraction(int(size[i]), scale)))
        accepted[i] = _is_below(generator, int(m[i]), int(q[i]) - halvings, exponent)
    accepted &= ~(negative & (size == 0))  # zero has one sign
    return np.asarray(np.where(negative, -size, size)[accepted])


def _geometric(generator: np.random.Generator, size: int) -> NDArray[np.int64]:
    """P(q) = 2^{−q−1}: heads in a row before the first tail."""
    q, tossing = np.zeros(size, dtype=np.int64), np.arange(size)
    while tossing.size:
        word = _words(generator, tossing.size)
        all_heads = word == _ALL_ONES
        lowest_tail = ~word & (word + np.uint64(1))  # a power of two; 0 where all are heads
        q[tossing] += np.where(all_heads, 64, np.frexp(lowest_tail.astype(np.float64))[1] - 1)
        tossing = tossing[all_heads]
    return q


def _is_below(generator: np.random.Generator, m: int, power: int, exponent: Fraction) -> bool:
    """Whether U < p = 2^power·e^exponent for a uniform U in [m, m+1)·2⁻⁵³, exactly; p = 1 where exponent = 0.

    `Decimal.exp` is correctly rounded, so p is known to the digits asked for. They and the bits of U grow.
    """
    bits = _BITS
    while exponent:
        context = decimal.Context(prec=bits + abs(power))
        with decimal.localcontext(context):
            argument = Decimal(exponent.numerator) / Decimal(exponent.denominator)
            threshold = argument.exp() * Decimal(2) ** (bits + power)
            slack = threshold * (abs(argument) + 10) * Decimal(10) ** (2 - context.prec)
            if m + 1 <= threshold - slack:
                return True
            if m >= threshold + slack:
                return False
        m, bits = (m << 64) | int(_words(generator, 1)[0]), bits + 64
    return True


def _words(generator: np.random.Generator, size: int) -> NDArray[np.uint64]:
    """64 fair bits each."""
    return generator.integers(0, _ALL_ONES, size=size, dtype=np.uint64, endpoint=True)
