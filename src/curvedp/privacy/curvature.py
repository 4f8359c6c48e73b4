"""Random curvature: Wishart matrices W, and the accountings of QOP, directional on linear models (P-6), by
add_remove and by replace (P-7), (P-7j), and spectral for any loss whose Hessian has rank ≤ ρ, through λ_min
of the curvature (P-5).

χ = ‖x‖²/(xᵀW⁻¹x) ~ χ²_n, n = m−d+1, whatever d is; k = (m−d−1)/2, g = L/σ², s = 1/χ:

    A(s) = max(log(1+gs), g/2 − k log(1+gs))          the record that D' has and D lacks
    R(s) = max(0, −(k+1) log(1−gs) − g/2)             the record that D has and D' lacks; ∞ where gs ≥ 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput, NotCovered
from curvedp.privacy import quadrature
from curvedp.privacy.budget import Adjacency, Neighbours
from curvedp.privacy.quadrature import LARGEST_LOSS, AngularLoss, Boxes, LossLaw, MassBins

_EPS = float(np.finfo(np.float64).eps)
_UNDERFLOW = 1e-270  # of the incomplete gamma function, at d = 10,000 say: bounds are in log space


def log_gammainc(p: float, x: FloatArray) -> FloatArray:
    """log P(p, x), P(p, x) = γ(x, p)/Γ(p) the regularised lower incomplete gamma function, for p > 0, x ≥ 0.

    Where P underflows: log P = p ln x − x − lnΓ(p+1) + ln Σ_n xⁿ/((p+1)…(p+n)).
    """
    value = gammainc(p, x)
    tiny = value < _UNDERFLOW
    result = np.log(np.where(tiny, 1.0, value))
    if tiny.any():
        low, n = x[tiny], 0  # < p: the terms fall
        total, term = np.ones_like(low), np.ones_like(low)
        while (term > _EPS / 8 * total).any():
            n += 1
            term = term * (low / (p + n))
            total = total + term
        with np.errstate(divide="ignore"):
            result[tiny] = p * np.log(low) - low - math.lgamma(p + 1) + np.log(total)
    return np.asarray(result)


def _log_gammainc(p: float, x: float) -> float:
    """The same for one number: most calls are inside root-findings."""
    value = gammainc(p, x)
    return math.log(value) if value > _UNDERFLOW else float(log_gammainc(p, np.array([x]))[0])


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
class Wishart:
    """W = GGᵀ, G of shape d×m standard normal, and its extension to every real m > d−1; E[W] = m I.

    Density ∝ det(W)^k e^{−tr W/2} with k = (m−d−1)/2. The bounds below need m ≥ d+1 (k ≥ 0).
    """

    d: int
    m: float

    def __post_init__(self) -> None:
        if isinstance(self.d, bool) or not isinstance(self.d, (int, np.integer)) or self.d < 1:
            raise InvalidInput(f"the dimension d must be an integer ≥ 1, got {self.d!r}")
        if isinstance(self.m, bool) or not (isinstance(self.m, Real) and self.d - 1 < self.m < math.inf):
            raise InvalidInput(
                f"the hidden dimension m must be a finite number > d−1 = {self.d - 1}, got {self.m!r}"
            )

    @property
    def k(self) -> float:
        """The power of the determinant in the density, (m−d−1)/2."""
        return (self.m - self.d - 1) / 2

    @property
    def p(self) -> float:
        """The shape of the tail of λ_min, (m−d+1)/2 = k + 1."""
        return (self.m - self.d + 1) / 2

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
        above = math.log(d) + math.lgamma(1.5) + math.lgamma((m + 1) / 2)
        return above - math.lgamma(d / 2 + 1) - math.lgamma((m - d + 1) / 2) - math.lgamma((m - d + 2) / 2)

    @cached_property
    def _log_total(self) -> float:
        """log(D Γ(p)): the tail bound D γ(x, p) is this times the regularised P(p, x)."""
        return self.log_D + math.lgamma(self.p)

    def _rounding(self) -> float:
        """A bound of the rounding error of a logarithm of D γ(x, p), for x up to the order of m."""
        return 16 * _EPS * (1 + self.m) * (1 + math.log1p(self.m))

    def require_power(self) -> None:
        """Refuse k < 0: the density is unbounded at singular matrices, and no theorem covers it."""
        if self.m < self.d + 1:
            raise InvalidInput(f"privacy needs m ≥ d+1 = {self.d + 1} degrees of freedom, got {self.m!r}")

    def lambda_min_tail(self, s: ArrayLike) -> FloatArray:
        """P(λ_min(W) ≤ s) ≤ min(1, D γ(s/2, (m−d+1)/2))  (Lemma W).

        For integer m the better of that and exp(−(√m−√d−√s)₊²/2) (Davidson and Szarek).
        """
        self.require_power()
        points = np.maximum(np.atleast_1d(np.asarray(s, dtype=np.float64)), 0.0)
        log_tail = self._log_total + log_gammainc(self.p, points / 2) + self._rounding()
        if float(self.m).is_integer():
            gap = np.maximum(math.sqrt(self.m) - math.sqrt(self.d) - np.sqrt(points), 0.0)
            log_tail = np.minimum(log_tail, -gap * gap / 2 + self._rounding())
        return np.asarray(np.exp(np.minimum(log_tail, 0.0)).reshape(np.shape(s)))


LEVELS = np.geomspace(LARGEST_LOSS, 0.05, 400)  # losses at which bins of χ end, near the pole χ = g
FEW_LEVELS = LEVELS[::40]  # of drafts, and of bins in three coordinates


def refuse_uncovered(d: int, m: float, adjacency: Adjacency) -> None:
    """Refuse what no theorem covers: m < d+1, an unknown adjacency."""
    Wishart(d, m).require_power()
    Neighbours(adjacency)


@dataclass(frozen=True)
class AlongRecords:
    """Wishart(d, m) in the directions of the records in which neighbours differ: n = m−d+1."""

    d: int
    m: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        refuse_uncovered(self.d, self.m, self.adjacency)

    @property
    def n(self) -> float:
        return self.m - self.d + 1

    @property
    def replaces(self) -> bool:
        return Neighbours(self.adjacency).moves == 2

    def draft(self) -> Draft:
        return Draft(self.d, self.m, self.adjacency)


class Draft(AlongRecords):
    """Not a bound: a quick approximation of `Directional` that steers searches. A replacing record is taken
    for a removed one beside a Gaussian shift of the same standard deviation, g/√(2n)."""

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        shift = g / math.sqrt(2 * self.n) if self.replaces else 0.0
        return removed_law(self.n, g, tail=0.5, body=0.2).divergence(epsilon, math.hypot(mu, shift))


class Directional(AlongRecords):
    """QOP with Wishart(d, m) on a linear model: (P-6), for replaced records the better of (P-7), (P-7j)."""

    name = "directional"

    @property
    def theorem(self) -> str:
        return "(P-7j)" if self.replaces else "(P-6)"

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        n = self.n
        if self.replaces and self.d > 1:
            angled = quadrature.angle_bound(Replaced(n, g), epsilon, mu)
            return np.minimum(split_bound(n, g, epsilon, mu), angled)
        laws = [aligned_law(n, g)] if self.replaces else [added_law(n, g), removed_law(n, g)]
        return np.asarray(np.max([law.divergence(epsilon, mu) for law in laws], axis=0))


def falling(g: float, power: float, s: FloatArray) -> FloatArray:
    """g/2 − power·log(1+gs): convex, decreasing."""
    return np.asarray(g / 2 - power * np.log1p(g * s))


def rising(g: float, power: float, s: FloatArray) -> FloatArray:
    """−power·log(1−gs) − g/2 for gs < 1: convex, increasing."""
    return np.asarray(-power * np.log1p(-g * s) - g / 2)


def added(g: float, k: float, s: FloatArray) -> FloatArray:
    """A(s) = max(log(1+gs), g/2 − k log(1+gs))  (P-6)."""
    return np.maximum(np.log1p(g * s), falling(g, k, s))


def removed(g: float, k: float, s: FloatArray) -> FloatArray:
    """R(s) = max(0, −(k+1) log(1−gs) − g/2)  (P-6), for gs < 1."""
    return np.maximum(rising(g, k + 1, s), 0.0)


def pole_edges(g: float, power: float, levels: FloatArray) -> FloatArray:
    """The χ > g at which −power·log(1−g/χ) − g/2 takes the (decreasing) `levels`."""
    return np.maximum(g / -np.expm1(-(levels + g / 2) / power), g * (1 + 1e-12))


def vertex(g: float, k: float) -> float:
    """The χ at which the two branches of A meet: log(1+g/χ) = g/(2(k+1))."""
    return g / math.expm1(g / (2 * (k + 1)))


def _added_on(bins: MassBins, g: float, k: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(least, largest, bound of the mean) of A on every bin.

    Decreasing branch: convex in s, a chord. Increasing branch: concave in s, Jensen.
    """
    value = added(g, k, bins.edges)
    mean = np.where(np.diff(value) > 0, np.log1p(g * bins.mean), bins.interpolate(value))
    return np.minimum(value[1:], value[:-1]), np.maximum(value[1:], value[:-1]), mean


@lru_cache(maxsize=64)
def added_law(n: float, g: float) -> LossLaw:
    """A(1/χ), χ ~ χ²_n."""
    k = n / 2 - 1
    edges = np.union1d(quadrature.tail_edges(n, tail=0.1, body=0.02), [vertex(g, k)])
    bins = quadrature.inverse_chi_square_bins(n, edges)
    return LossLaw.of_bins(bins.mass, *_added_on(bins, g, k), bins.outside)


@lru_cache(maxsize=128)
def removed_law(n: float, g: float, *, tail: float = 0.1, body: float = 0.02) -> LossLaw:
    """R(1/χ), χ ~ χ²_n; ∞ where χ ≤ g."""
    edges = pole_edges(g, n / 2, LEVELS if tail < 0.2 else FEW_LEVELS)
    bins = quadrature.chi_bins(n, edges, tail=tail, body=body)
    value = np.maximum(rising(g, n / 2, bins.edges), 0.0)
    return LossLaw.of_bins(bins.mass, value[:-1], value[1:], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def aligned_law(n: float, g: float) -> LossLaw:
    """A(1/χ) + R(1/χ): replacement in dimension one, where every x is parallel to every x'."""
    k = n / 2 - 1
    special = np.union1d(pole_edges(g, k + 1, LEVELS), [vertex(g, k)])
    bins = quadrature.chi_bins(n, special[special >= pole_edges(g, k + 1, LEVELS[:1])])
    low, high, mean = _added_on(bins, g, k)
    r = removed(g, k, bins.edges)
    return LossLaw.of_bins(bins.mass, low + r[:-1], high + r[1:], mean + bins.interpolate(r), bins.outside)


def split_bound(n: float, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
    """min over u ≥ 0 of E[(1 − e^{u−A(χ')})₊] + E[H_Φ(ε − u − R(χ); μ)]: valid at every angle  (P-7)."""
    a, r = added_law(n, g), removed_law(n, g)
    best = np.ones(epsilon.size)
    low, high = np.zeros(epsilon.size), np.full(epsilon.size, max(g, float(np.max(epsilon))))
    for _ in range(4):  # every u is valid: a shrinking grid around the best
        values = []
        for fraction in np.linspace(0.0, 1.0, 9):
            u = low + fraction * (high - low)
            values.append(a.divergence(u, 0.0) + r.divergence(epsilon - u, mu))
        best = np.minimum(best, np.min(values, axis=0))
        width = (high - low) / 8
        centre = low + np.argmin(values, axis=0) * width
        low, high = np.maximum(centre - width, 0.0), centre + width
    return best


class Replaced(AngularLoss):
    """A(χ') + R(χ) at every angle of x and x'  (P-6), (P-7j)."""

    @property
    def chi_edges(self) -> FloatArray:
        return pole_edges(self.g, self.n / 2, FEW_LEVELS)

    def boxes(self, s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> Boxes:
        """Over a cell, A ≤ log(1+gX_high) + (g/2 − (k+1) log(1+gX_low))₊.

        X_high is convex in s, r and w. X_low is concave in (s, r), and X_low − sin²ψ (r+s) w² is concave in
        w: its image under the decreasing convex (g/2 − (k+1) log(1+g·))₊ is convex in s and in r, and bends
        in w by at most (k+1)g·2 sin²ψ (r+s).
        """
        g, k = self.g, self.n / 2 - 1
        form = quadrature.form_over(s, r, w, cell)
        gone = removed(g, k, s)

        rise = g * form.high, g * quadrature.floor_of_high(s, r, w, cell)
        bend = 2 * (k + 1) * g * math.sin(cell[1]) ** 2 * (r[1:] + s[1:])
        corners, floor = (np.maximum(falling(g, k + 1, X), 0.0) for X in (form.low, form.ceiling_of_low()))
        return rise, (gone + corners, gone[:-1] + floor), bend


@dataclass(frozen=True)
class Spectral:
    """(P-5): ℓ* = −(k+1) log(1 − g/λ) + ρ log(1 + g/λ), λ = λ_min(W), W ~ Wishart(d, m); ∞ where λ ≤ g.

    `classes` = K > 1 (θ has d/K rows and K columns, Hessians live in R^K ⊗ x): λ is then that of
    Wishart_K(m−d+K) under add_remove and of Wishart_2K(m−d+2K) under replace; k is the same.
    """

    d: int
    m: float
    rank: int
    adjacency: Adjacency
    classes: int = 1
    points: int = 16_000

    name = "spectral"
    theorem = "(P-5)"

    def __post_init__(self) -> None:
        refuse_uncovered(self.d, self.m, self.adjacency)
        if self.d < 2:
            raise NotCovered("the spectral accounting (P-5) needs d ≥ 2; pass `accounting=directional`")

    @property
    def ensemble(self) -> Wishart:
        """The law whose smallest eigenvalue enters: of W, or of W⁻¹ compressed to the directions of the
        records."""
        if self.classes == 1:
            return Wishart(self.d, self.m)
        size = min(self.d, self.classes * Neighbours(self.adjacency).moves)
        return Wishart(size, self.m - self.d + size)

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        return spectral_law(self.ensemble, self.rank, g, self.points).divergence(epsilon, mu)

    def draft(self) -> Spectral:
        return replace(self, points=1000)


def spectral(g: float, k: float, rank: int, eigenvalue: FloatArray) -> FloatArray:
    """−(k+1) log(1 − g/λ) + ρ log(1 + g/λ)  (P-5), decreasing in λ > g."""
    ratio = g / eigenvalue
    return np.asarray(-(k + 1) * np.log1p(-ratio) + rank * np.log1p(ratio))


@lru_cache(maxsize=64)
def spectral_law(ensemble: Wishart, rank: int, g: float, points: int) -> LossLaw:
    """Each bin of λ at its largest loss, under a law with P(λ ≤ s) ≤ the tail bound: larger losses only."""
    top = max((math.sqrt(ensemble.m) + math.sqrt(ensemble.d) + 8) ** 2, 2 * g)
    near_pole = g + np.geomspace(1e-12 * g, top, points // 4)
    edges = np.union1d(near_pole, np.geomspace(g * (1 + 1e-12), top, points - points // 4))
    tail = np.maximum.accumulate(ensemble.lambda_min_tail(edges))
    loss = spectral(g, ensemble.k, rank, edges)
    return LossLaw.of_bins(np.append(np.diff(tail), 1.0 - tail[-1]), loss, loss, loss, float(tail[0]))
