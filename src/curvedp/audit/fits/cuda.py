"""Many private fits on a GPU, fused: draw, factor, solve, score and count in one CUDA kernel (fits.cu).

The kernel is compiled at run time by CuPy for smooth quadratic fits; without CuPy, and for fits with an L1
term, a box or logistic loss, the torch operations do the work. Up to 12 features a fit lives in the
registers of one thread; up to 160 in the shared memory of one block of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from curvedp.audit.fits import Bins, Counts, Draws, Fits, QuadraticFits
from curvedp.audit.fits.torch import Torch

if TYPE_CHECKING:  # a GPU machine needs numpy, torch and CuPy only
    from curvedp.arrays import FloatArray

MAX_THREAD_D = 12  # beyond it a thread runs out of registers
MAX_BLOCK_D = 160  # beyond it a block runs out of shared memory
_THREADS, _BLOCK_THREADS = 128, 256  # threads per block when a thread, or a block, solves a fit
_LAUNCH = 2**28  # fits per launch at most: block counters are 32 bits wide
_ROWS = 2**26  # doubles of θ copied back at a time


@dataclass(frozen=True)
class Cuda:
    """The GPU backend: fused kernels where they apply, torch operations elsewhere."""

    def sample(self, fits: Fits, n: int, seed: int) -> FloatArray:
        """n fits with fresh draws, shape (n, d)."""
        if not is_fused(fits):
            return Torch("cuda").sample(fits, n, seed)
        out, size = np.empty((n, fits.d)), max(1, _ROWS // fits.d)
        for a in range(0, n, size):
            out[a : a + size] = Fused(fits).theta(seed, a, min(size, n - a))
        return out

    def histogram(
        self, fits: Fits, direction: FloatArray, bins: Bins, n: int, seed: int, output_noise: float
    ) -> Counts:
        """Counts of direction·θ + output_noise·N(0, 1) over n fresh fits."""
        if not is_fused(fits):
            return Torch("cuda").histogram(fits, direction, bins, n, seed, output_noise)
        return Fused(fits, direction, output_noise).histogram(bins, seed, n)

    def solve_draws(self, fits: Fits, draws: Draws) -> FloatArray:
        """The fits for the given draws."""
        if not is_fused(fits):
            return Torch("cuda").solve_draws(fits, draws)
        return Fused(fits).theta(0, 0, draws.normal.shape[0], draws)


def is_fused(fits: Fits) -> TypeGuard[QuadraticFits]:
    """Whether the fused kernel covers these fits, and CuPy is there to compile it."""
    try:
        import cupy  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return False
    return isinstance(fits, QuadraticFits) and fits.penalty.is_smooth and fits.d <= MAX_BLOCK_D


@cache
def _kernel(d: int, threads: int) -> Any:
    """The compiled kernel for d features and blocks of so many threads: a thread or a block per fit."""
    import cupy

    folder = Path(__file__).parent
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("random.cuh", "fits.cu"))
    small = d <= MAX_THREAD_D
    options = ("-std=c++17", f"-DTHREADS={threads}", *((f"-DSMALL_D={d}",) if small else ()))
    kernel = cupy.RawModule(code=source, options=options).get_function(
        "fits_in_threads" if small else "fits_in_blocks"
    )
    if not small:
        # One compiled function serves every large d, so the limit must not follow the last d seen.
        kernel.max_dynamic_shared_size_bytes = _block_bytes(MAX_BLOCK_D, threads)
    return kernel


def _block_bytes(d: int, threads: int) -> int:
    """d rows of odd width ≥ d+3, and one double per warp."""
    return 8 * (d * ((d + 3) | 1) + threads // 32)


@dataclass(frozen=True, eq=False)
class Fused:
    """The fused kernel for one problem; `direction` is the score that a histogram counts."""

    fits: QuadraticFits
    direction: FloatArray | None = None
    output_noise: float = 0.0
    threads: int | None = None

    def theta(self, seed: int, first: int, n: int, draws: Draws | None = None) -> FloatArray:
        """θ of fits first … first+n−1 of the stream `seed`, or of the given draws."""
        import cupy

        out = cupy.full((n, self.fits.d), np.nan)
        given = [None, None] if draws is None else [cupy.asarray(draws.factor), cupy.asarray(draws.normal)]
        self._launch(seed, first, n, (*given, out, None), Bins(0.0, 1.0, 0))
        return np.asarray(cupy.asnumpy(out))

    def histogram(self, bins: Bins, seed: int, n: int) -> Counts:
        """Counts of the scores of fits 0 … n−1 of the stream `seed`."""
        import cupy

        counts = cupy.zeros(bins.count, dtype=cupy.uint64)
        for first in range(0, n, _LAUNCH):
            self._launch(seed, first, min(_LAUNCH, n - first), (None, None, None, counts), bins)
        return np.asarray(cupy.asnumpy(counts)).astype(np.int64)

    def _launch(self, seed: int, first: int, n: int, arrays: tuple[Any, ...], bins: Bins) -> None:
        """Run the kernel. `arrays`: given factor, given normal, θ, histogram; None where unused."""
        import cupy

        d, noise = self.fits.d, self.fits.noise
        data = [
            cupy.asarray(np.ascontiguousarray(v, dtype=np.float64))
            for v in (
                self.fits.gram + noise.ridge * np.eye(d),
                self.fits.linear,
                np.zeros(d) if self.direction is None else self.direction,
                np.zeros(d) if self.fits.center is None else self.fits.center,
            )
        ]
        arguments = (
            *data,
            *(np.float64(v) for v in (noise.sigma2, noise.m, noise.sigma0, self.output_noise)),
            *(np.uint64(v) for v in (seed, first, n)),
            *(np.uint64(0) if a is None else a for a in arrays),  # a null pointer where there is no array
            np.float64(bins.low),
            np.float64(bins.count / (bins.high - bins.low)),
            np.int32(bins.count),
        )
        multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        threads = self.threads or (_THREADS if d <= MAX_THREAD_D else _BLOCK_THREADS)
        kernel = _kernel(d, threads)
        if d <= MAX_THREAD_D:
            blocks = min(-(-n // threads), 32 * multiprocessors)
            kernel((blocks,), (threads,), arguments, shared_mem=4 * bins.count)
        else:
            blocks, shared = min(n, 32 * multiprocessors), _block_bytes(d, threads)
            kernel((blocks,), (threads,), (*arguments, np.int32(d)), shared_mem=shared)
        cupy.cuda.get_current_stream().synchronize()
