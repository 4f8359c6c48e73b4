"""Recentered fits on a GPU by one fused kernel (recentered.cu), compiled at run time by CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curvedp.audit.fits import Bins, Counts
from curvedp.audit.fits.recentered import MAX_RECORDS, Drawn, Numbers, RecenteredFits, Trace
from curvedp.audit.fits.recentered_torch import TorchRecentered

if TYPE_CHECKING:  # a GPU machine needs numpy, torch and CuPy only
    from curvedp.arrays import FloatArray

_THREADS = 128
_ROWS = 2**21  # fits whose outputs are copied back at a time
_LAUNCH = 2**28
_NO_BINS = Bins(0.0, 1.0, 1)


def on_gpu() -> CudaRecentered | TorchRecentered:
    """The fused kernel where CuPy is there to compile it, else torch operations."""
    if find_spec("cupy") is None:
        return TorchRecentered("cuda")
    return CudaRecentered()


@dataclass(frozen=True)
class CudaRecentered:
    """Recentered fits by the fused kernel."""

    def draw(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Drawn:
        """θ and the likelihood ratios of n fresh fits on table `side`."""
        trace = self.trace(fits, side, n, seed)
        return Drawn(trace.theta, trace.ratio)

    def trace(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Trace:
        """`draw`, and what was released on the way."""
        import cupy  # type: ignore[import-not-found]

        theta, rest = np.empty((n, fits.d)), np.empty((n, len(Trace.names()) - 1))
        run = _launcher(fits, side, seed)
        for start in range(0, n, _ROWS):
            size = min(_ROWS, n - start)
            outputs = cupy.empty((size, fits.d)), cupy.empty((size, rest.shape[1]))
            run(start, size, (*outputs, None, None), np.zeros(fits.d), _NO_BINS, _NO_BINS)
            theta[start : start + size], rest[start : start + size] = map(cupy.asnumpy, outputs)
        return Trace(theta, *rest.T)

    def count(
        self,
        fits: RecenteredFits,
        side: int,
        direction: FloatArray,
        ratio_bins: Bins,
        theta_bins: Bins,
        n: int,
        seed: int,
    ) -> tuple[Counts, Counts]:
        """Counts of the likelihood ratio and of direction·θ over n fresh fits that are never stored."""
        import cupy

        totals = [cupy.zeros(bins.count, dtype=cupy.uint64) for bins in (ratio_bins, theta_bins)]
        run = _launcher(fits, side, seed)
        for start in range(0, n, _LAUNCH):
            run(start, min(_LAUNCH, n - start), (None, None, *totals), direction, ratio_bins, theta_bins)
        first, second = (np.asarray(cupy.asnumpy(total)).astype(np.int64) for total in totals)
        return first, second


def source(d: int, records: int = MAX_RECORDS) -> str:
    """The kernel for so many columns and records; the numbers of a plan are set before a launch."""
    folder = Path(__file__).parent
    parts = [
        f"#define D {d}",
        f"#define R {records}",
        f"#define THREADS {_THREADS}",
        f"__constant__ double numbers[{len(Numbers._fields)}];",
        *(f"#define P_{name} numbers[{index}]" for index, name in enumerate(Numbers._fields)),
        *((folder / name).read_text(encoding="utf-8") for name in ("random.cuh", "recentered.cu")),
    ]
    return "\n".join(parts)


@cache
def _module(d: int) -> Any:
    import cupy

    return cupy.RawModule(code=source(d), options=("-std=c++17",))


def _launcher(fits: RecenteredFits, side: int, seed: int) -> Callable[..., None]:
    """A function (first, n, arrays, direction, ratio bins, theta bins) that runs the kernel."""
    import cupy

    fits = _padded(fits)
    module = _module(fits.d)
    kernel = module.get_function("recentered")
    numbers = cupy.ndarray(len(fits.numbers), dtype=np.float64, memptr=module.get_global("numbers"))
    tables = np.concatenate([np.ravel(part) for part in vars(fits.looks).values()])
    data = [_on_device(v) for v in (fits.x, fits.y, fits.counts, *(fits.slopes or (None, None)), tables)]
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def run(
        first: int, n: int, arrays: tuple[Any, ...], direction: FloatArray, ratio: Bins, theta: Bins
    ) -> None:
        cells = [
            value
            for bins in (ratio, theta)
            for value in (
                np.float64(bins.low),
                np.float64(bins.count / (bins.high - bins.low)),
                np.int32(bins.count),
            )
        ]
        blocks = min(-(-n // _THREADS), 32 * processors)
        pointers = [np.uint64(0) if a is None else a for a in arrays]
        counters = [np.uint64(value) for value in (seed, first, n)]
        arguments = (*data, np.int32(side), *counters, *pointers, _on_device(direction), *cells)
        numbers[:] = cupy.asarray(np.array(fits.numbers, dtype=np.float64))
        kernel((blocks,), (_THREADS,), arguments)
        cupy.cuda.get_current_stream().synchronize()

    return run


def _padded(fits: RecenteredFits) -> RecenteredFits:
    """The same fits with so many more records that nobody has that the kernel fits."""
    more = MAX_RECORDS - len(fits.y)

    def longer(part: FloatArray) -> FloatArray:
        return np.concatenate([part, np.zeros((more, *part.shape[1:]))])

    slopes = None if fits.slopes is None else (longer(fits.slopes[0]), longer(fits.slopes[1]))
    counts = np.pad(fits.counts, ((0, 0), (0, more)))
    return replace(fits, x=longer(fits.x), y=longer(fits.y), counts=counts, slopes=slopes)


def _on_device(values: FloatArray | None) -> Any:
    """The doubles on the device; a null pointer where there are none."""
    import cupy

    if values is None:
        return np.uint64(0)
    return cupy.asarray(np.ascontiguousarray(values, dtype=np.float64))
