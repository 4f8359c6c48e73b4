"""Standard errors and intervals of linear functionals of θ: everything follows from released numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import stats

from curvedp.arrays import BoolArray, FloatArray
from curvedp.released.bread import Bread, eigenvalues_above, shrunk
from curvedp.released.folded import folded_quantile
from curvedp.released.tails import Tail

Clipping = Literal["spread", "worst"]

LEAST_KAPPA = 30.0  # below it no interval is stated
_LEAST_SIGNAL = 270.0  # n̂c/s, what all gradients together amount to beside their noise …
_LEAST_SIGNAL_EACH = 20.0  # … and the same for each of the r coefficients
_LEAST_DF = 8.0
_MOST_HIDDEN = 0.3  # of a variance: what unresolved directions may contribute
_PRIOR = 4.0  # deviation of coefficients along unresolved directions, in units of the released ones' rms
_MOST_BIAS = 10.0  # in standard errors: such an interval is as good as none
LEAST_EIGENVALUE = 0.02  # of β: smallest eigenvalue of Ĵ among resolved directions
_MOST_MOVED = 3.0  # deviations: a longer last step shows that Ĵ was wrong, as for a level of few records
_COARSER = 2.0  # noise of the gradient that led to w₁ over that of the last one, at equal clips


@dataclass(frozen=True, eq=False)
class Releases:
    """What the inference mechanism releases (P-10), in the coordinates w of the last metric A: θ = NAᵀw."""

    basis: FloatArray  # NAᵀ, (d, r)
    lengths: FloatArray  # ‖Aᵀe_k‖ of its columns
    resolved: BoolArray  # (r,)
    bread: Bread
    beta: float
    centre: FloatArray  # w₁, 0 where unresolved
    tail: Tail
    edge: int  # of the tail: the clip
    gradient: FloatArray  # Σ clip(g) at w₁ + noise
    noise: float  # its deviation
    meat: FloatArray  # Σ clip(g)clip(g)ᵀ + noise
    meat_scale: float
    count: float
    count_scale: float
    kappa: float
    inflation: float  # what the noise of w₁ adds to the step, relative to w (`smearing`)


@dataclass(frozen=True, eq=False)
class Functionals:
    """Estimates of linear functionals aᵀθ, with what is known of their errors.

    `se` holds sampling and privacy noise together, `noise` the latter alone; `bias` bounds what clipping can
    do, in units of se, if directions of clipped records are spread, `worst` if they are not.
    """

    estimate: FloatArray
    se: FloatArray
    noise: FloatArray
    df: FloatArray
    bias: FloatArray
    worst: FloatArray
    resolved: BoolArray

    def half_width(self, level: float, clipping: Clipping = "spread") -> FloatArray:
        """Of the interval aᵀθ̂ ± half that holds aᵀθ with this probability; NaN where not resolved."""
        half = self.se * self._quantile(np.full(len(self.se), 1.0 - level), clipping)
        return np.where(self.resolved, half, np.nan)

    def _quantile(self, p: FloatArray, clipping: Clipping) -> FloatArray:
        """The 1−p quantile of |N(bias, 1)|, as much larger as that of t_df is than that of N(0, 1)."""
        bias = np.minimum(self.bias if clipping == "spread" else self.worst, _MOST_BIAS)
        heavier = stats.t.isf(p / 2.0, np.maximum(self.df, 1.0)) / stats.norm.isf(p / 2.0)
        return np.asarray(folded_quantile(p, bias) * heavier)

    def pvalues(self, clipping: Clipping = "spread") -> FloatArray:
        """Of aᵀθ = 0: the p at which the interval of level 1 − p ends at 0; NaN where not resolved."""
        z = np.abs(self.estimate) / np.where(self.resolved, self.se, 1.0)
        low, high = np.full(len(z), -690.0), np.zeros(len(z))  # of log p
        for _ in range(60):
            middle = 0.5 * (low + high)
            beyond = self._quantile(np.exp(middle), clipping) > z  # p is too small
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        return np.where(self.resolved, np.exp(high), np.nan)


@dataclass(frozen=True, eq=False)
class Inference:
    """One Newton step from a released centre, with its own bread and meat (P-10)."""

    releases: Releases

    @cached_property
    def _inside(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(Ĵ⁻¹, variances of Ĵ, step v = Ĵ⁻¹Ĝ) among resolved directions."""
        R = self.releases
        J, variance = R.bread.among(R.resolved, LEAST_EIGENVALUE * R.beta)
        inverse = np.asarray(np.linalg.inv(J), dtype=np.float64)
        return inverse, variance, inverse @ R.gradient[R.resolved]

    @cached_property
    def w(self) -> FloatArray:
        """(w₁ − Ĵ⁻¹Ĝ)/(1 + inflation)."""
        moved = self.releases.centre.copy()
        moved[self.releases.resolved] -= self._inside[2]
        return moved / (1.0 + self.releases.inflation)

    @property
    def theta(self) -> FloatArray:
        """The estimate in model units, shape (d, 1)."""
        return (self.releases.basis @ self.w)[:, None]

    @cached_property
    def _meat(self) -> tuple[FloatArray, float]:
        R = self.releases
        index = np.flatnonzero(R.resolved)
        J, _ = R.bread.among(R.resolved, LEAST_EIGENVALUE * R.beta)
        M, scale = shrunk(R.meat[np.ix_(index, index)], J, R.meat_scale)
        return eigenvalues_above(M, 0.0), scale

    @cached_property
    def _bread_noise(self) -> FloatArray:
        """Cov(Ev): what the error E of Ĵ adds to the step v."""
        _, variance, v = self._inside
        off = variance - np.diag(np.diag(variance))
        return np.diag(variance @ v**2) + off * np.outer(v, v)

    @cached_property
    def covariance(self) -> FloatArray:
        """Ĵ⁻¹(s²I + M + Cov(Ev))Ĵ⁻¹ among resolved directions."""
        inverse = self._inside[0]
        core = self.releases.noise**2 * np.eye(len(inverse)) + self._meat[0] + self._bread_noise
        return np.asarray(inverse @ core @ inverse)

    @cached_property
    def _hidden(self) -> tuple[FloatArray, FloatArray]:
        """(Ĵ between resolved and unresolved directions, prior variances of w along the latter)."""
        R = self.releases
        coupling = R.bread.J[np.ix_(np.flatnonzero(R.resolved), np.flatnonzero(~R.resolved))]
        unseen = np.linalg.qr(R.basis[:, ~R.resolved])[0]
        seen = self.theta - unseen @ (unseen.T @ self.theta)  # along the others θ̂ is what noise made it
        size = _PRIOR**2 * float(np.mean(seen**2))
        return coupling, size / R.lengths[~R.resolved] ** 2

    def covariance_of(self, functionals: FloatArray) -> FloatArray:
        """Cov of the estimates of `of`, whose diagonal is se²; NaN where one of the two is not resolved."""
        R = self.releases
        a, told = functionals @ R.basis, self.of(functionals).resolved
        coupling, prior = self._hidden
        apart = a[:, ~R.resolved] - a[:, R.resolved] @ self._inside[0] @ coupling
        seen = a[:, R.resolved]
        return np.where(
            np.outer(told, told), seen @ self.covariance @ seen.T + (apart * prior) @ apart.T, np.nan
        )

    @property
    def has_power(self) -> bool:
        """Whether there are data enough for any interval: κ, and n̂c/s, in which `replace` counts half."""
        R = self.releases
        signal = R.count * float(R.tail.edges[R.edge]) / R.noise
        enough = signal >= max(_LEAST_SIGNAL, _LEAST_SIGNAL_EACH * len(R.centre))
        return R.kappa >= LEAST_KAPPA and enough

    @property
    def _start_noise(self) -> float:
        """Deviation of the noise in the gradient that led to w₁; its clip is the second edge of the tail."""
        R = self.releases
        return _COARSER * R.noise * float(R.tail.edges[1] / R.tail.edges[R.edge])

    def of(self, functionals: FloatArray) -> Functionals:
        """For the rows a of `functionals`, shape (m, d): aᵀθ."""
        R = self.releases
        inverse, variance, step = self._inside
        a = functionals @ R.basis
        P = a[:, R.resolved] @ inverse
        coupling, prior = self._hidden
        hidden = np.square(a[:, ~R.resolved] - P @ coupling) @ prior
        V = np.einsum("mi,ij,mj->m", a[:, R.resolved], self.covariance, a[:, R.resolved])
        squares = np.sum(P**2, axis=1)
        privacy = R.noise**2 * squares + np.einsum("mi,ij,mj->m", P, self._bread_noise, P)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = 4.0 * _bilinear(P, a[:, R.resolved] @ self.covariance, variance) / V**2
            relative += (self._meat[1] * squares / V) ** 2
            df = np.where(V > 0, 2.0 / np.maximum(relative, 1e-9), 0.0)
            se = np.sqrt(V + hidden)
            scaled = np.where(se > 0, np.sqrt(squares) / se, 0.0)  # nothing is resolved where se = 0
            bias, worst = (
                R.tail.excess(max(len(inverse), 1), spread)[R.edge] * scaled for spread in (True, False)
            )
            told = (df >= _LEAST_DF) & (hidden <= _MOST_HIDDEN * se**2) & (se > 0) & self.has_power
            told &= np.abs(a[:, R.resolved] @ step) <= _MOST_MOVED * np.sqrt(
                se**2 + self._start_noise**2 * squares
            )
        return Functionals(a @ self.w, se, np.sqrt(privacy), df, bias, worst, told)


def _bilinear(p: FloatArray, q: FloatArray, variance: FloatArray) -> FloatArray:
    """Var(pᵀEq) of symmetric noise E whose entries have these variances, row by row."""
    off = variance - np.diag(np.diag(variance))
    p2, q2, pq = p**2, q**2, p * q
    crossed = np.sum((p2 @ off) * q2, axis=1) + np.sum((pq @ off) * pq, axis=1)
    return np.asarray(crossed + (p2 * q2) @ np.diag(variance))
