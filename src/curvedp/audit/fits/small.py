"""Small symmetric matrices in compiled code."""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from curvedp.arrays import FloatArray

# Reductions may be reordered and fused; infinities keep their meaning.
FLAGS: Any = {"reassoc", "contract", "nsz"}
_SWEEPS = 30  # about 7 are needed for d = 10


@njit(nogil=True, fastmath=FLAGS, cache=True)
def diagonalize(S: FloatArray, V: FloatArray) -> None:
    """S ← its eigenvalues on the diagonal, V ← its eigenvectors in columns (Jacobi's rotations)."""
    d = S.shape[0]
    for i in range(d):
        for j in range(d):
            V[i, j] = 1.0 if i == j else 0.0
    for _ in range(_SWEEPS):
        off = size = 0.0
        for i in range(d):
            size += S[i, i] * S[i, i]
            for j in range(i):
                off += S[i, j] * S[i, j]
        if off <= 1e-30 * size:
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                if S[p, q] == 0.0:
                    continue
                cot = (S[q, q] - S[p, p]) / (2.0 * S[p, q])
                t = math.copysign(1.0, cot) / (abs(cot) + math.sqrt(1.0 + cot * cot))
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = c * t
                S[p, p] -= t * S[p, q]
                S[q, q] += t * S[p, q]
                S[p, q] = S[q, p] = 0.0
                for k in range(d):
                    if k != p and k != q:
                        a, b = S[k, p], S[k, q]
                        S[k, p] = S[p, k] = c * a - s * b
                        S[k, q] = S[q, k] = s * a + c * b
                    a, b = V[k, p], V[k, q]
                    V[k, p] = c * a - s * b
                    V[k, q] = s * a + c * b


@njit(nogil=True, fastmath=FLAGS, cache=True)
def log_determinant(W: FloatArray) -> float:
    """log det W by Cholesky, in the lower triangle of W; −∞ where W is not positive definite."""
    total = 0.0
    for i in range(W.shape[0]):
        for j in range(i + 1):
            rest = W[i, j]
            for k in range(j):
                rest -= W[i, k] * W[j, k]
            if j < i:
                W[i, j] = rest / W[j, j]
            elif rest > 0.0:
                W[i, i] = math.sqrt(rest)
                total += math.log(rest)
            else:
                return -math.inf
    return total
