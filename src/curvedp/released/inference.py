"""Standard errors and intervals of linear functionals of θ: everything follows from released numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from curvedp.arrays import BoolArray, FloatArray
from curvedp.released.bread import Bread, eigenvalues_above, shrunk
from curvedp.released.clipping import clipped_away
from curvedp.released.tails import Tail

BEYOND = 0.125  # a record counts as beyond the clip once its gradient is longer by this share of it
_LEAST_DF = 4.0
_MOST_HIDDEN = 0.3  # of a variance: what unresolved directions may contribute
_MOST_FIXED = 0.2  # of a functional's largest entry: its part along directions that are left out
_HOPELESS = 1e3  # times the records: what is so far away is not seen at all
_RESOLVED = 0.5  # of the spectral norm √(2r) of a noise of deviation 1: eigenvalues of Ĵ above it are seen
LEAST_EIGENVALUE = 0.01  # of β: smallest eigenvalue of Ĵ among resolved directions


@dataclass(frozen=True, eq=False)
class Releases:
    """What a fit releases (P-10), in r coordinates w, θ = basis·w + fixed, in which noise is white."""

    basis: FloatArray  # (d, r)
    left_out: FloatArray  # (d, k): directions of θ along which nothing is known …
    fixed: FloatArray  # … but this θ, (d,), among them
    levels: FloatArray  # (d, B): deviations of the noise in shares of levels, by category; 0 in other rows
    shares: FloatArray  # (d,): of the records, 0 where a column is no level
    look: FloatArray  # diagonal of Σ z zᵀ of shortened records, which is diagonal here
    look_spread: FloatArray  # TTᵀ: its noise is τ·T Sym Tᵀ
    look_scale: float  # τ
    bread: FloatArray  # Σ uφ'' z zᵀ + noise
    bread_scale: float
    beta: float
    guess: float  # of Ĵ in units of the look
    stiffness: float  # the curvature b that the walk took for J
    centre: FloatArray  # mean centre of the walk
    gradient: FloatArray  # mean of the noisy gradients there
    noise: float  # its deviation
    tail: Tail  # of gradient lengths; the clip is its second edge
    beyond: FloatArray  # Σ min((|g|/c − 1)⁺/BEYOND, 1)·g/|g| + noise
    beyond_scale: float
    meat: FloatArray  # Σ clip(g)clip(g)ᵀ + noise
    meat_scale: float
    count: float
    count_scale: float
    kappa: float
    inflation: float  # what the scatter of the centres adds to the step, relative to w (`ending.inflation`)


@dataclass(frozen=True, eq=False)
class Functionals:
    """Estimates of linear functionals aᵀθ, with what is known of their errors.

    `se` holds sampling, privacy noise and clipping together, `noise` that of privacy alone. `enough` is about
    how many times the records would do where one is not resolved: infinite where what is released cannot
    tell, as of a level without records.
    """

    estimate: FloatArray
    se: FloatArray
    noise: FloatArray
    df: FloatArray
    resolved: BoolArray
    enough: FloatArray

    def half_width(self, level: float) -> FloatArray:
        """Of the interval aᵀθ̂ ± half that holds aᵀθ with this probability; NaN where not resolved."""
        half = self.se * stats.t.isf((1.0 - level) / 2.0, np.maximum(self.df, 1.0))
        return np.where(self.resolved, half, np.nan)

    def pvalues(self) -> FloatArray:
        """Of aᵀθ = 0: the p at which the interval of level 1 − p ends at 0; NaN where not resolved."""
        z = np.abs(self.estimate) / np.where(self.resolved, self.se, 1.0)
        return np.where(self.resolved, 2.0 * stats.t.sf(z, np.maximum(self.df, 1.0)), np.nan)


@dataclass(frozen=True, eq=False)
class Inference:
    """A Newton step from the walk's mean centre, where Ĵ is resolved; its own bread and meat (P-10)."""

    releases: Releases

    @cached_property
    def _bread(self) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """(U, λ, variances, resolved): eigenvectors and eigenvalues of Ĵ, Var(u_kᵀEu_l) of its error E."""
        R = self.releases
        bread = Bread.weighed(
            R.look, R.look_scale**2 * _pattern(R.look_spread), R.bread, R.bread_scale, R.guess
        )
        values, U = np.linalg.eigh(bread.J)
        squares = U**2
        own = np.diag(np.diag(bread.variance))
        off = bread.variance - own
        variance = squares.T @ bread.variance @ squares
        variance += np.diag(np.diag(squares.T @ off @ squares))
        deviation = np.sqrt(np.diag(variance))
        seen = values >= _RESOLVED * np.sqrt(2.0 * len(values)) * deviation
        resolved = seen & (values >= LEAST_EIGENVALUE * R.beta)
        return U, values, variance, resolved

    @property
    def resolved(self) -> BoolArray:
        return self._bread[3]

    @cached_property
    def _slopes(self) -> FloatArray:
        """1/λ where Ĵ is resolved, elsewhere 1/b as in the walk."""
        _, values, _, resolved = self._bread
        return np.where(resolved, 1.0 / np.where(resolved, values, 1.0), 1.0 / self.releases.stiffness)

    @cached_property
    def _clipped(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(mean, covariance, its noise) of what clipping took from the gradient, in the eigenvectors of Ĵ."""
        R = self.releases
        U, values, _, _ = self._bread
        first = U.T @ R.centre - self._slopes * (U.T @ R.gradient)
        return clipped_away(R.tail, BEYOND, U.T @ R.beyond, R.beyond_scale, values, values * first)

    @cached_property
    def _step(self) -> FloatArray:
        """Ĵ⁻¹(Ĝ + D̂) in its eigenvectors."""
        U = self._bread[0]
        return self._slopes * (U.T @ self.releases.gradient + self._clipped[0])

    @cached_property
    def w(self) -> FloatArray:
        """The estimate in the eigenvectors of Ĵ."""
        return (self._bread[0].T @ self.releases.centre - self._step) / (1.0 + self.releases.inflation)

    @cached_property
    def _basis(self) -> FloatArray:
        return self.releases.basis @ self._bread[0]

    @property
    def theta(self) -> FloatArray:
        """The estimate in model units, shape (d, 1)."""
        return (self._basis @ self.w + self.releases.fixed)[:, None]

    @cached_property
    def _meat(self) -> tuple[FloatArray, float]:
        R = self.releases
        U, values, _, kept = self._bread
        M = (U.T @ R.meat @ U)[np.ix_(kept, kept)]
        M, scale = shrunk(M, np.diag(values[kept]), R.meat_scale)
        return eigenvalues_above(M, 0.0), scale

    @cached_property
    def _bread_noise(self) -> FloatArray:
        """Cov(Ev) among resolved directions: what the error E of Ĵ adds to the step v."""
        _, _, variance, kept = self._bread
        variance, v = variance[np.ix_(kept, kept)], self._step[kept]
        off = variance - np.diag(np.diag(variance))
        return np.diag(variance @ v**2) + off * np.outer(v, v)

    @cached_property
    def covariance(self) -> FloatArray:
        """Ĵ⁻¹(s²I + M + Cov(Ev) + Cov(D))Ĵ⁻¹ among resolved directions."""
        _, values, _, kept = self._bread
        core = self.releases.noise**2 * np.eye(int(kept.sum())) + self._meat[0] + self._bread_noise
        core = core + self._clipped[1][np.ix_(kept, kept)]
        return np.asarray(core / np.outer(values[kept], values[kept]))

    @cached_property
    def _hidden(self) -> FloatArray:
        """Prior variances of w along unresolved directions."""
        R = self.releases
        _, values, variance, kept = self._bread
        lengths = np.sum(self._basis[:, ~kept] ** 2, axis=0)
        size = float(np.mean(self.theta**2)) / lengths
        firm = np.maximum(values - np.sqrt(np.diag(variance)), 1e-12)[~kept]
        return np.asarray(np.minimum(size, (2.0 * R.noise / firm) ** 2))

    @cached_property
    def _means(self) -> tuple[FloatArray, FloatArray]:
        """Variances of every category's mean over the records, from which its coefficients are stated.

        By noise, and by sampling.
        """
        R, squares = self.releases, self.theta**2
        sampled = np.sum((R.levels > 0.0) * R.shares[:, None] * squares, axis=0) / R.count
        return np.sum(R.levels**2 * squares, axis=0), sampled

    @cached_property
    def _largest(self) -> float:
        """Prior variance of θ along what is left out: as large as any coefficient squared."""
        return float(np.max(self.theta**2, initial=0.0))

    def covariance_of(self, functionals: FloatArray) -> FloatArray:
        """Cov of the estimates of `of`, whose diagonal is se²; NaN where one of the two is not resolved."""
        kept = self.resolved
        a, told = functionals @ self._basis, self.of(functionals).resolved
        seen, apart = a[:, kept], a[:, ~kept]
        found = seen @ self.covariance @ seen.T + (apart * self._hidden) @ apart.T
        fixed = functionals @ self.releases.left_out
        found += self._largest * fixed @ fixed.T
        shifted = functionals @ (self.releases.levels > 0.0)
        found += (shifted * sum(self._means)) @ shifted.T
        return np.where(np.outer(told, told), found, np.nan)

    def of(self, functionals: FloatArray) -> Functionals:
        """For the rows a of `functionals`, shape (m, d): aᵀθ."""
        R = self.releases
        _, values, variance, kept = self._bread
        a = functionals @ self._basis
        fixed = np.abs(functionals @ R.left_out)
        hidden = a[:, ~kept] ** 2 @ self._hidden + self._largest * np.sum(fixed**2, axis=1)
        seen = a[:, kept]
        P = seen / values[kept]
        V = np.einsum("mi,ij,mj->m", seen, self.covariance, seen)
        squares = np.sum(P**2, axis=1)
        noise = self._bread_noise + self._clipped[2][np.ix_(kept, kept)]
        shifted = (functionals @ (R.levels > 0.0)) ** 2
        means, sampled = (shifted @ variance for variance in self._means)
        privacy = R.noise**2 * squares + np.einsum("mi,ij,mj->m", P, noise, P) + means
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = variance[np.ix_(kept, kept)]
            relative = 4.0 * _bilinear(P, seen @ self.covariance, inner) / V**2
            relative += (self._meat[1] * squares / V) ** 2
            df = np.where(V > 0, 2.0 / np.maximum(relative, 1e-9), 0.0)
            se = np.sqrt(V + hidden + means + sampled)
            told = (df >= _LEAST_DF) & (hidden <= _MOST_HIDDEN * se**2) & (se > 0)
            told &= fixed.max(axis=1, initial=0.0) <= _MOST_FIXED * np.abs(functionals).max(
                axis=1, initial=0.0
            )
            enough = np.sqrt(_LEAST_DF / np.maximum(df, 1e-9))  # df grows with the square of n
            parts = a[:, ~kept] ** 2 * self._hidden
            enough = np.maximum(
                enough, np.max((parts > 0.1 * se[:, None] ** 2) * self._unseen, axis=1, initial=0.0)
            )
            enough = np.where(enough > _HOPELESS, np.inf, np.maximum(enough, 1.0))
            enough = np.where(np.sum(fixed, axis=1) > _MOST_FIXED, np.inf, enough)
        found = functionals @ self.theta[:, 0]
        return Functionals(found, se, np.sqrt(privacy), df, told, np.where(told, 1.0, enough))

    @property
    def _unseen(self) -> FloatArray:
        """How many times the records would let each unresolved eigenvalue of Ĵ be seen; infinite below 0."""
        _, values, variance, kept = self._bread
        least = _RESOLVED * np.sqrt(2.0 * len(values) * np.diag(variance))
        with np.errstate(divide="ignore"):
            return np.where(values > 0.0, least / np.maximum(values, 0.0), np.inf)[~kept]


def _pattern(spread: FloatArray) -> FloatArray:
    """Variances of the entries of T Sym Tᵀ, spread = TTᵀ."""
    own = np.diag(spread)
    return np.asarray((np.outer(own, own) + spread**2) / 2.0)


def _bilinear(p: FloatArray, q: FloatArray, variance: FloatArray) -> FloatArray:
    """Var(pᵀEq) of symmetric noise E whose entries have these variances, row by row."""
    off = variance - np.diag(np.diag(variance))
    p2, q2, pq = p**2, q**2, p * q
    crossed = np.sum((p2 @ off) * q2, axis=1) + np.sum((pq @ off) * pq, axis=1)
    return np.asarray(crossed + (p2 * q2) @ np.diag(variance))
