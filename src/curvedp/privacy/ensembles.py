"""Random curvature: Wishart matrices, and the constants that privacy and utility need ("Lemma W").

All of it is in log space: the constants hold at d = 10,000, where the incomplete gamma function underflows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.special import gammainc

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput

_EPS = float(np.finfo(np.float64).eps)
_UNDERFLOW = 1e-270


def log_gammainc(p: float, x: FloatArray) -> FloatArray:
    """log P(p, x), P(p, x) = γ(x, p)/Γ(p) the regularised lower incomplete gamma function, for p > 0, x ≥ 0.

    Where P underflows: log P = p ln x − x − lnΓ(p+1) + ln Σ_n xⁿ/((p+1)…(p+n)).
    """
    value = gammainc(p, x)
    tiny = value < _UNDERFLOW
    result = np.log(np.where(tiny, 1.0, value))
    if tiny.any():
        low = x[tiny]
        with np.errstate(divide="ignore"):
            result[tiny] = p * np.log(low) - low - math.lgamma(p + 1) + np.log(_ascending_sum(p, low))
    return np.asarray(result)


def _log_gammainc(p: float, x: float) -> float:
    """The same for one number: most calls are inside root-findings."""
    value = gammainc(p, x)
    return math.log(value) if value > _UNDERFLOW else float(log_gammainc(p, np.array([x]))[0])


def _ascending_sum(p: float, x: FloatArray) -> FloatArray:
    """Σ_{n≥0} xⁿ/((p+1)…(p+n)) for x < p."""
    total = np.ones_like(x)
    term = np.ones_like(x)
    n = 0
    while (term > _EPS / 8 * total).any():
        n += 1
        term = term * (x / (p + n))
        total = total + term
    return total


def log_gammainc_inverse(p: float, log_probability: float) -> float:
    """The x with log P(p, x) = log_probability < 0, up to rounding.

    u ↦ log P(p, e^u) is increasing and concave, so Newton's iterates from the left stay on the left.
    """
    u = (log_probability + math.lgamma(p + 1)) / p  # from P(p, x) ≤ x^p/Γ(p+1)
    for _ in range(200):
        x = math.exp(u)
        log_p = _log_gammainc(p, x)
        slope = math.exp(p * u - x - math.lgamma(p) - log_p)
        step = (log_probability - log_p) / slope
        if step <= 4 * _EPS * max(1.0, abs(u)):
            break
        u += step
    return math.exp(u)


@dataclass(frozen=True)
class WishartConstants:
    """The constants of "Lemma W" for given (δ1, δ3); `alpha`, `alpha1` are rounded down.

    P(λ_min ≥ α) ≥ 1−δ3,  P(α ≤ λ_min ≤ α+α1)/P(λ_min ≥ α) ≤ δ1,  E[W] = μI,  E[W⁻¹] = νI,
    q(W+U)/q(W) ≤ exp(‖U‖ f(rank U)) where λ_min(W) ≥ α; f2 = f(2).
    """

    alpha: float
    alpha1: float
    f2: float
    mu: float
    nu: float
    log_D: float


@dataclass(frozen=True)
class Wishart:
    """W = GGᵀ, G of shape d×m standard normal, and its extension to every real m > d−1.

    Density ∝ det(W)^k e^{−tr W/2} with k = (m−d−1)/2. The bounds below need m ≥ d+1 (k ≥ 0).
    """

    d: int
    m: float

    def __post_init__(self) -> None:
        if isinstance(self.d, bool) or not isinstance(self.d, (int, np.integer)) or self.d < 1:
            raise InvalidInput(f"the dimension d must be an integer ≥ 1, got {self.d!r}")
        if isinstance(self.m, bool) or not isinstance(self.m, (int, float, np.integer, np.floating)):
            raise InvalidInput(f"the hidden dimension m must be a number, got {type(self.m).__name__}")
        if not (math.isfinite(self.m) and self.m > self.d - 1):
            raise InvalidInput(
                f"the hidden dimension m must be finite and > d−1 = {self.d - 1}, got {self.m!r}"
            )

    @property
    def k(self) -> float:
        """The power of the determinant in the density, (m−d−1)/2."""
        return (self.m - self.d - 1) / 2

    @property
    def p(self) -> float:
        """The shape of the tail of λ_min, (m−d+1)/2 = k + 1."""
        return (self.m - self.d + 1) / 2

    @property
    def mean(self) -> float:
        """E[W] = m I."""
        return float(self.m)

    @property
    def inverse_mean(self) -> float:
        """E[W⁻¹] = I/(m−d−1) for m > d+1; infinite otherwise."""
        excess = self.m - self.d - 1
        return 1.0 / excess if excess > 0 else math.inf

    def sample(self, generator: np.random.Generator, size: int | None = None) -> FloatArray:
        """Bartlett: W = TTᵀ, T lower triangular, T_ii² ~ χ²_{m−i+1} (i = 1…d), T_ij ~ N(0,1) below."""
        count = 1 if size is None else size
        factor = np.zeros((count, self.d, self.d))
        rows, columns = np.tril_indices(self.d, -1)
        factor[:, rows, columns] = generator.standard_normal((count, rows.size))
        diagonal = np.arange(self.d)
        factor[:, diagonal, diagonal] = np.sqrt(generator.chisquare(self.m - diagonal, (count, self.d)))
        W = factor @ factor.transpose(0, 2, 1)
        W = (W + W.transpose(0, 2, 1)) / 2  # exactly symmetric
        return np.asarray(W[0] if size is None else W)

    @cached_property
    def log_D(self) -> float:
        """D = d Γ(3/2) Γ((m+1)/2) / (Γ(d/2+1) Γ((m−d+1)/2) Γ((m−d+2)/2)), in logarithm (Lemma W)."""
        d, m = self.d, self.m
        return (
            math.log(d)
            + math.lgamma(1.5)
            + math.lgamma((m + 1) / 2)
            - math.lgamma(d / 2 + 1)
            - math.lgamma((m - d + 1) / 2)
            - math.lgamma((m - d + 2) / 2)
        )

    @cached_property
    def _log_total(self) -> float:
        """log(D Γ(p)): the tail bound D γ(x, p) is this times the regularised P(p, x)."""
        return self.log_D + math.lgamma(self.p)

    def _rounding(self) -> float:
        """A bound of the rounding error of a logarithm of D γ(x, p), for x up to the order of m."""
        return 16 * _EPS * (1 + self.m) * (1 + math.log1p(self.m))

    def lambda_min_tail(self, s: ArrayLike) -> FloatArray:
        """P(λ_min(W) ≤ s) ≤ min(1, D γ(s/2, (m−d+1)/2))  (Lemma W).

        For integer m the better of that and exp(−(√m−√d−√s)₊²/2) (Davidson and Szarek).
        """
        self._require_nonnegative_power()
        points = np.maximum(np.atleast_1d(np.asarray(s, dtype=np.float64)), 0.0)
        log_tail = self._log_total + log_gammainc(self.p, points / 2) + self._rounding()
        if float(self.m).is_integer():
            gap = np.maximum(math.sqrt(self.m) - math.sqrt(self.d) - np.sqrt(points), 0.0)
            log_tail = np.minimum(log_tail, -gap * gap / 2 + self._rounding())
        return np.asarray(np.exp(np.minimum(log_tail, 0.0)).reshape(np.shape(s)))

    def log_tail_and_slope(self, s: float) -> tuple[float, float]:
        """ln T and d ln T/d ln s at s > 0, T(s) = D γ(s/2, p) ≥ P(λ_min ≤ s)  (Lemma W)."""
        half = s / 2
        log_tail = self._log_total + _log_gammainc(self.p, half)
        return log_tail, math.exp(self.log_D + self.p * math.log(half) - half - log_tail)

    def constants(self, delta1: float, delta3: float) -> WishartConstants:
        """The constants of "Lemma W" (γ unregularised, p = (m−d+1)/2):

        α = 2 γ⁻¹(δ3/D, p),  α1 = 2 γ⁻¹(δ1(1−δ3)/D + γ(α/2, p), p) − α,  f(j) = ((p−1)/α + 1/2) j.
        """
        self._require_nonnegative_power()
        for name, value in (("delta1", delta1), ("delta3", delta3)):
            if not isinstance(value, (int, float, np.floating)) or not 0 < value < 1:
                raise InvalidInput(f"{name} must be a number strictly between 0 and 1, got {value!r}")
        slack = self._rounding()
        alpha = 2 * log_gammainc_inverse(self.p, math.log(delta3) - self._log_total - slack)
        below = delta3 * math.exp(-3 * slack)  # D γ(α/2, p), rounded down
        log_total = math.log(delta1 * (1 - delta3) + below) - self._log_total - slack
        alpha1 = 2 * log_gammainc_inverse(self.p, log_total) - alpha
        if not (alpha > 0 and alpha1 > 0):
            raise InvalidInput(
                f"no α, α1 > 0 for delta1={delta1!r}, delta3={delta3!r} at d={self.d}, m={self.m}: "
                "pass larger ones"
            )
        return WishartConstants(
            alpha=alpha,
            alpha1=alpha1,
            f2=self.log_density_ratio_bound(1.0, 2, alpha),
            mu=self.mean,
            nu=self.inverse_mean,
            log_D=self.log_D,
        )

    def log_density_ratio(self, W: FloatArray, U: FloatArray) -> float:
        """log q(W+U)/q(W) = k log det(I + W⁻¹U) − tr(U)/2; −∞ where W+U is not positive definite."""
        eigenvalues = eigh(U, W, eigvals_only=True)
        if eigenvalues[0] <= -1:
            return -math.inf
        return float(self.k * np.log1p(eigenvalues).sum() - np.trace(U) / 2)

    def log_density_ratio_bound(self, norm: float, rank: int, alpha: float) -> float:
        """‖U‖ f(rank U), f(j) = ((p−1)/α + 1/2) j  (Lemma W)."""
        return norm * (self.k / alpha + 0.5) * rank

    def _require_nonnegative_power(self) -> None:
        if self.m < self.d + 1:
            raise InvalidInput(
                f"privacy needs a hidden dimension m ≥ d+1 = {self.d + 1}, got {self.m!r}; "
                "below that the density is unbounded at singular matrices"
            )
