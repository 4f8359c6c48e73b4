"""The fused kernel, compiled for the host: its arithmetic can be tested where there is no GPU."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from curvedp.audit.fits import recentered_cuda
from curvedp.audit.fits.recentered import RecenteredFits, Trace

# What a GPU's compiler has built in; one thread does all fits.
_SHIM = """
#include <cmath>
#include <cstdint>
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __global__
#define __shared__ static
#define __constant__ static
#define __launch_bounds__(threads)
#define __syncthreads()
struct Index { unsigned x; };
static Index threadIdx{0}, blockIdx{0}, blockDim{1}, gridDim{1};
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static inline void sincospi(double x, double *s, double *c) {
    *s = std::sin(M_PI * x);
    *c = std::cos(M_PI * x);
}
static inline void atomicAdd(unsigned long long *p, unsigned long long v) { *p += v; }
using std::isnan;
"""
_SET = """
extern "C" void set_numbers(const double *given) { for (double &number : numbers) number = *given++; }
"""


def host_trace(fits: RecenteredFits, side: int, n: int, seed: int, folder: Path) -> Trace:
    """`CudaRecentered.trace`, by a C++ compiler."""
    name = f"recentered-{fits.d}-{len(fits.y)}"
    library = folder / f"{name}.so"
    if not library.exists():
        code = _SHIM + recentered_cuda.source(fits.d, len(fits.y)) + _SET
        (folder / f"{name}.cpp").write_text(code, encoding="utf-8")
        command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", "-o", str(library)]
        subprocess.run([*command, str(folder / f"{name}.cpp")], check=True)
    kernel = ctypes.CDLL(str(library))
    looks = fits.looks
    tables = np.concatenate([np.ravel(part) for part in vars(looks).values()])
    arrays = [fits.x, fits.y, fits.counts, *(fits.slopes or (None, None)), tables]
    kept = [None if a is None else np.ascontiguousarray(a, dtype=np.float64) for a in arrays]
    theta, rest = np.empty((n, fits.d)), np.empty((n, len(Trace.names()) - 1))
    direction, numbers = np.zeros(fits.d), np.array(fits.numbers, dtype=np.float64)

    def pointer(array: np.ndarray | None) -> ctypes.c_void_p:
        return ctypes.c_void_p(0 if array is None else array.ctypes.data)

    counters = [ctypes.c_ulonglong(value) for value in (seed, 0, n)]
    cells = [ctypes.c_double(0.0), ctypes.c_double(1.0), ctypes.c_int(1)]
    kernel.set_numbers(pointer(numbers))
    kernel.recentered(
        *map(pointer, kept),
        ctypes.c_int(side),
        *counters,
        *map(pointer, (theta, rest, None, None, direction)),
        *cells,
        *cells,
    )
    return Trace(theta, *rest.T)
