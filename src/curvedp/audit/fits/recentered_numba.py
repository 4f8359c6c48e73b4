"""Recentered fits on the CPU: blocks of fits on threads, each block with a generator of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.fits import Bins, Counts
from curvedp.audit.fits.numba import seeds_from
from curvedp.audit.fits.recentered import Drawn, Numbers, RecenteredFits, Trace
from curvedp.audit.fits.recentered_kernels import Constants, Table, run

_BLOCK = 2048  # fits
_SPAN = 64  # blocks in flight

Block = Callable[[int, FloatArray, FloatArray, FloatArray], None]


@dataclass(frozen=True)
class ThreadsRecentered:
    """Recentered fits on `threads` threads; the numbers do not depend on how many there are."""

    threads: int = 2

    def draw(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Drawn:
        """θ and L of n fresh fits on table `side`."""
        theta, ratio = np.empty((n, fits.d)), np.empty(n)
        self._fill(fits, side, seed, theta, ratio, np.empty((n, 0)))
        return Drawn(theta, ratio)

    def trace(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Trace:
        """The fits of `draw`, and what they released on the way."""
        theta, ratio, columns = np.empty((n, fits.d)), np.empty(n), np.empty((n, len(Trace.names()) - 2))
        self._fill(fits, side, seed, theta, ratio, columns)
        return Trace(theta, ratio, *columns.T)

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
        """Counts of L and of direction·θ over the fits of `draw`, none of which is stored."""
        block = _block(fits, side)

        def counted(size: int, seed: int) -> tuple[Counts, Counts]:
            theta, ratio = np.empty((size, fits.d)), np.empty(size)
            block(seed, theta, ratio, np.empty((size, 0)))
            return _counts(ratio_bins, ratio), _counts(theta_bins, theta @ direction)

        totals = np.zeros(ratio_bins.count, dtype=np.int64), np.zeros(theta_bins.count, dtype=np.int64)
        sizes = [_BLOCK] * (n // _BLOCK) + [n % _BLOCK] * (n % _BLOCK > 0)
        seeds = seeds_from(seed, len(sizes))
        with ThreadPoolExecutor(self.threads) as pool:
            for a in range(0, len(sizes), _SPAN):
                for found in pool.map(counted, sizes[a : a + _SPAN], seeds[a : a + _SPAN]):
                    totals[0][:] += found[0]
                    totals[1][:] += found[1]
        return totals

    def _fill(
        self,
        fits: RecenteredFits,
        side: int,
        seed: int,
        theta: FloatArray,
        ratio: FloatArray,
        columns: FloatArray,
    ) -> None:
        block, parts = _block(fits, side), [slice(a, a + _BLOCK) for a in range(0, len(ratio), _BLOCK)]

        def filled(seed: int, part: slice) -> None:
            block(seed, theta[part], ratio[part], columns[part])

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(filled, seeds_from(seed, len(parts)), parts))


def _block(fits: RecenteredFits, side: int) -> Block:
    """(seed, θ, L, columns of `Trace` or none): fresh fits on one table, written there."""
    n = len(fits.y)
    low, high = (np.zeros(n), np.zeros(n)) if fits.slopes is None else fits.slopes
    x, y, counts, low, high = (
        np.array(v, dtype=np.float64) for v in (fits.x, fits.y, fits.counts, low, high)
    )
    table = Table(x, y, counts, counts[1] - counts[0], fits.slopes is None, low, high)
    looks = fits.looks
    constants = Constants(looks.edges, looks.sizes, looks.cells, looks.squares, looks.priors)
    numbers = Numbers(*map(float, fits.numbers))

    def block(seed: int, theta: FloatArray, ratio: FloatArray, columns: FloatArray) -> None:
        run(randomness.generator(seed), numbers, table, constants, side, theta, ratio, columns)

    return block


def _counts(bins: Bins, values: FloatArray) -> Counts:
    return np.bincount(bins.index(values), minlength=bins.count)
