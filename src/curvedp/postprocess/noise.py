"""Released second moments and what follows from them for free: fits, paths, errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from curvedp.arrays import BoolArray, FloatArray
from curvedp.constraints import Constraint, Reals
from curvedp.errors import InvalidInput
from curvedp.regularizers import NoRegularizer, Regularizer
from curvedp.released.noise import MomentsNoise
from curvedp.solvers import solve_path

_ACCURACY = 1e-9  # of a solve, relative to the size of the unregularised answer
_RIDGES = 61  # candidates for the ridge
_RESOLVED = 3.0  # eigenvalues of xx above so many norms of its noise have errors that are known
_WIDEST = 1e9  # the largest of them, relative to the spectrum: as good as θ = 0


@dataclass(frozen=True, eq=False)
class ReleasedMoments:
    """Noisy Σ x xᵀ, Σ x yᵀ and perhaps Σ y yᵀ, centred; everything computed from them is post-processing.

    The noise of xx is symmetric, of deviation `xx_scale` on the diagonal and xx_scale/√2 off it; that of
    every entry of xy is `xy_scale`. `count` is the number of records where it is public or was released.
    """

    xx: FloatArray = field(repr=False)
    xy: FloatArray = field(repr=False)  # (d, T), T targets
    xx_scale: float
    xy_scale: float
    yy: FloatArray | None = field(default=None, repr=False)
    count: float | None = None

    @property
    def d(self) -> int:
        return len(self.xx)

    @property
    def targets(self) -> int:
        return int(self.xy.shape[1])

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues (positive part) and eigenvectors of xx."""
        values, vectors = np.linalg.eigh((self.xx + self.xx.T) / 2.0)
        return np.maximum(values, 0.0), vectors

    @property
    def noise_norm(self) -> float:
        """The spectral norm of the noise of xx: about xx_scale·√(2d)."""
        return self.xx_scale * math.sqrt(2.0 * self.d)

    def ridge(self, target: int = 0) -> float:
        """The λ ≥ noise_norm/2 with the least unbiased estimate of the risk of θ_λ = (S + λI)⁻¹v:

            Σ_j ½ s_j θ_j² − v_j θ_j + τ²/(s_j + λ),   τ = xy_scale, in the eigenbasis of S.

        At λ → ∞ it is the risk of θ = 0, so that a hopeless signal is answered by 0 and not by noise.
        """
        values, vectors = self._spectrum
        v = vectors.T @ self.xy[:, self._index(target)]
        smallest = max(self.noise_norm / 2.0, 1e-12 * max(float(values.max()), 1e-300))
        largest = _WIDEST * max(smallest, float(values.max()))
        candidates = np.geomspace(smallest, largest, _RIDGES)
        lifted = values[None, :] + candidates[:, None]
        theta = v / lifted
        risk = np.sum(0.5 * values * theta**2 - v * theta + self.xy_scale**2 / lifted, axis=1)
        return float(candidates[np.argmin(risk)])

    def curvature(self, ridge: float) -> FloatArray:
        """H = the positive part of xx, plus ridge·I."""
        values, vectors = self._spectrum
        H = (vectors * (values + ridge)) @ vectors.T
        return np.asarray((H + H.T) / 2.0)

    def solve(
        self,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        *,
        target: int = 0,
        ridge: float | None = None,
    ) -> FloatArray:
        """argmin_{θ∈C} ½θᵀHθ − vᵀθ + r(θ), H = xx₊ + ridge·I and v the column of xy (S-1), (S-2).

        Parameters
        ----------
        regularizer : Regularizer, optional
            r; none by default.
        constraint : Constraint, optional
            C; everything by default.
        target : int, default=0
            The column of y.
        ridge : float, optional
            By default the one that the released matrix suggests, `self.ridge(target)`.

        Returns
        -------
        theta : array of shape (d,)
            In model units.
        """
        terms = [(regularizer or NoRegularizer(), constraint or Reals())]
        return self.path(terms, target=target, ridge=ridge)[0]

    def path(
        self,
        terms: Iterable[tuple[Regularizer, Constraint]],
        *,
        target: int = 0,
        ridge: float | None = None,
    ) -> list[FloatArray]:
        """One solution per (r, C): a regularisation path costs no privacy.

        Parameters
        ----------
        terms : iterable of (Regularizer, Constraint)
            The problems to solve.
        target, ridge
            As in `solve`; one ridge for all of them.

        Returns
        -------
        thetas : list of arrays of shape (d,)
            In the order of `terms`.
        """
        index = self._index(target)
        H = self.curvature(self.ridge(target) if ridge is None else _checked(ridge))
        g = -self.xy[:, index : index + 1]
        size = float(np.linalg.norm(np.linalg.solve(H, g)))
        zero = np.zeros((self.d, 1))
        eta = _ACCURACY * max(size, 1e-12)
        return [solution.theta[:, 0] for solution in solve_path(H, g, zero, terms, eta)]

    def residual_sum(self, theta: FloatArray, target: int = 0) -> float:
        """Σ (y − xᵀθ)² as the released moments see it, at least 0."""
        if self.yy is None:
            raise InvalidInput("this release has no Σy²; use PrivateStatistics.release, which releases it")
        index = self._index(target)
        total = self.yy[index, index] - 2.0 * theta @ self.xy[:, index] + theta @ self.xx @ theta
        return max(float(total), 0.0)

    def residual_variance(self, theta: FloatArray, target: int = 0) -> float:
        """Σ (y − xᵀθ)²/(n − d) as the released moments see it.

        Parameters
        ----------
        theta : array of shape (d,)
            A fit, in model units.
        target : int, default=0
            The column of y.

        Returns
        -------
        variance : float
            At least 0. Needs the number of records: public under replace, or released with an intercept.
        """
        if self.count is None:
            raise InvalidInput(
                "the number of records is not part of this release; map the columns with an intercept"
            )
        return self.residual_sum(theta, target) / max(self.count - self.d, 1.0)

    @property
    def noise(self) -> MomentsNoise:
        """The deviations of the noise, entry by entry."""
        return MomentsNoise(self.xx_scale, self.xx_scale / math.sqrt(2.0), self.xy_scale)

    def noise_covariance(self, theta: FloatArray, ridge: float) -> FloatArray:
        """Of θ = H⁻¹v, by the noise alone: H⁻¹(τ²I + ½s²(‖θ‖²I + θθᵀ))H⁻¹, s = xx_scale, τ = xy_scale."""
        return self._sandwich(self.noise.of_score(theta), ridge)

    def standard_errors(
        self, theta: FloatArray, *, target: int = 0, ridge: float | None = None
    ) -> FloatArray:
        """Errors of an unconstrained least-squares θ: sampling, privacy noise and the pull of the ridge.

        The square roots of the diagonal of H⁻¹(s²·xx₊ + noise + λ²θθᵀ)H⁻¹, s² the residual variance, λ the
        ridge and H = xx₊ + λI: root mean squares, so that θ ± 1.96 of them covers the coefficients of the
        population's least-squares fit on records clipped to the domain. To first order in the noise, and for
        errors y − xᵀθ of one variance: of strongly heteroskedastic ones the sampling part may be too small.
        Measured on 48 kinds of generated tables: on average over the coefficients, 0.92 to 0.97 of such
        intervals cover; of the worst coefficient, in a nearly collinear pair, 0.85.

        Parameters
        ----------
        theta : array of shape (d,)
            What `solve` gave without regularizer and constraint.
        target, ridge
            As they were passed to `solve`.

        Returns
        -------
        errors : array of shape (d,)
            In model units. NaN where a coefficient depends on directions in which xx is less than 3 times
            its noise: there the ridge decides, and no error is known.
        """
        lam = self.ridge(target) if ridge is None else _checked(ridge)
        sampling = self.residual_variance(theta, target) * self.curvature(0.0)
        pull = lam**2 * np.outer(theta, theta)
        squares = np.diag(self._sandwich(sampling + self.noise.of_score(theta) + pull, lam))
        return np.where(self._depends_on_weak(lam), np.nan, np.sqrt(squares))

    def _depends_on_weak(self, ridge: float) -> BoolArray:
        """Whether weak directions have more than 30 % of (H⁻²)_jj."""
        values, vectors = self._spectrum
        weak = values < max(_RESOLVED * self.noise_norm, 2.0 * ridge)
        parts = (vectors / (values + ridge)) ** 2
        return np.asarray(parts @ weak > 0.3 * parts.sum(axis=1))

    def _sandwich(self, middle: FloatArray, ridge: float) -> FloatArray:
        values, vectors = self._spectrum
        inverse = (vectors / (values + ridge)) @ vectors.T
        return np.asarray(inverse @ middle @ inverse)

    def _index(self, target: int) -> int:
        if not 0 <= target < self.targets:
            raise InvalidInput(f"target must lie between 0 and {self.targets - 1}, got {target!r}")
        return target


def _checked(ridge: float) -> float:
    if not (math.isfinite(ridge) and ridge > 0):
        raise InvalidInput(f"ridge must be a positive number or None, got {ridge!r}")
    return ridge
