"""Many private fits at once: the same or adjacent data, a fresh perturbation for every fit.

An audit needs millions of fits of one tiny problem. `sample` draws and solves them: on the CPU by
compiled kernels on threads, on a GPU by one fused kernel (draw, factor, solve, score, histogram in
registers) or by torch operations. Float64 throughout.

`solve_draws` takes the draws instead of making them, so that every path can be compared with the
one-at-a-time solver. The random numbers of the CPU path come from `curvedp.randomness` generators
seeded by the generator handed in, one for each block of fits, so that they do not depend on the number
of threads; a GPU's come from counter-based streams seeded in the same way. These fits are for research:
they are reproducible and certify nothing, so nothing private may be released from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from curvedp.errors import InvalidInput

if TYPE_CHECKING:  # a GPU machine needs numpy, torch and CuPy only
    from curvedp.arrays import FloatArray

Device = Literal["auto", "cpu", "cuda"]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Perturbations:
    """a = σ0 z and Q = ridge·I + σ²W: z ~ N(0, I), W ~ Wishart(d, m), fresh for every fit.

    QOP has ridge = 0, LOP has σ² = 0 and ridge = Δ (an L2 penalty adds to it).
    """

    sigma2: float = 0.0
    m: float = 0.0
    sigma0: float = 0.0
    ridge: float = 0.0


@dataclass(frozen=True)
class Penalty:
    """l1·‖θ‖₁ and the box lower ≤ θ_j ≤ upper, the same for every coordinate."""

    l1: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf

    @property
    def is_smooth(self) -> bool:
        return self.l1 == 0 and math.isinf(self.lower) and math.isinf(self.upper)


@dataclass(frozen=True, eq=False)
class QuadraticFits:
    """argmin over the box of ½uᵀ(G + Q)u − (c − a)ᵀu + l1‖θ‖₁, u = θ − θ_c: squared loss (P-1).

    G = XᵀX and c = Xᵀ(y − Xθ_c) stand for data of any size.
    """

    gram: FloatArray
    linear: FloatArray
    noise: Perturbations
    penalty: Penalty = field(default_factory=Penalty)
    center: FloatArray | None = None

    @property
    def d(self) -> int:
        return int(self.linear.shape[0])


@dataclass(frozen=True, eq=False)
class MarginFits:
    """argmin over the box of Σ counts·φ(xᵀθ; y) + aᵀu + ½uᵀQu + l1‖θ‖₁, u = θ − θ_c (P-1).

    `counts` are the multiplicities of the records; few distinct records are meant. φ is logistic, y = ±1, or
    has the slope φ'(s; y) = clip(s − y, low, high), one low and high per record: squared, Huber and squared
    hinge losses, and the squared loss with clipped gradients of LOP-Clip.
    """

    x: FloatArray
    y: FloatArray
    noise: Perturbations
    counts: FloatArray
    penalty: Penalty = field(default_factory=Penalty)
    center: FloatArray | None = None
    slopes: tuple[FloatArray, FloatArray] | None = None  # (low, high); None: logistic

    @property
    def d(self) -> int:
        return int(self.x.shape[1])


Fits = QuadraticFits | MarginFits


@dataclass(frozen=True, eq=False)
class Draws:
    """z and lower triangular factors with W = factor·factorᵀ, shape (n, d, d), or (0, d, d) when σ² = 0."""

    factor: FloatArray
    normal: FloatArray


@dataclass(frozen=True)
class Bins:
    """`count` equal cells between `low` and `high`; what falls outside goes to the first or last one."""

    low: float
    high: float
    count: int

    def index(self, values: FloatArray) -> Counts:
        """The cell of each value; a NaN (a fit without minimiser) goes to the last."""
        cells = np.floor((values - self.low) * (self.count / (self.high - self.low)))
        cells = np.where(np.isnan(cells), self.count - 1, cells)
        return np.asarray(np.clip(cells, 0, self.count - 1), dtype=np.int64)


class Backend(Protocol):
    """Where fits are computed. Seeds, not generators, cross this line: a GPU has streams of its own."""

    def sample(self, fits: Fits, n: int, seed: int) -> FloatArray: ...

    def histogram(
        self, fits: Fits, direction: FloatArray, bins: Bins, n: int, seed: int, output_noise: float
    ) -> Counts: ...

    def solve_draws(self, fits: Fits, draws: Draws) -> FloatArray: ...


def has_cuda() -> bool:
    """True when torch is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def backend(device: Device = "auto", threads: int = 2) -> Backend:
    """The GPU where there is one ("auto"), or the CPU on `threads` threads."""
    if device == "cuda" and not has_cuda():
        raise InvalidInput('device="cuda" needs torch and a GPU; pass device="cpu" or "auto"')
    if device == "cuda" or (device == "auto" and has_cuda()):
        from curvedp.audit.fits.cuda import Cuda

        return Cuda()
    from curvedp.audit.fits.numba import Threads

    return Threads(threads)


def sample(fits: Fits, n: int, generator: np.random.Generator, *, device: Device = "auto") -> FloatArray:
    """n fits with fresh draws, shape (n, d)."""
    return backend(device).sample(fits, n, int(generator.integers(2**63)))


def histogram(
    fits: Fits,
    direction: FloatArray,
    bins: Bins,
    n: int,
    generator: np.random.Generator,
    *,
    output_noise: float = 0.0,
    device: Device = "auto",
) -> Counts:
    """Counts of the score direction·θ + output_noise·N(0, 1) of n fresh fits; memory does not grow with n."""
    seed = int(generator.integers(2**63))
    return backend(device).histogram(fits, direction, bins, n, seed, output_noise)


def solve_draws(fits: Fits, draws: Draws, *, device: Device = "auto") -> FloatArray:
    """The fits for the given draws, shape (n, d)."""
    return backend(device).solve_draws(fits, draws)
