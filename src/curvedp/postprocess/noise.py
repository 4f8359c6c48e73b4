"""What privacy noise does to coefficients; released quadratic models, second moments, user units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from curvedp.arrays import FloatArray, kron
from curvedp.data.mapping import ColumnMap
from curvedp.data.targets import CountTarget, NumericTarget, SeveralTargets, Target
from curvedp.errors import InvalidInput
from curvedp.forms import Listed, Packed, Positive
from curvedp.problems import Problem
from curvedp.problems.constraints import ConstrainCoordinates, Constraint, Reals
from curvedp.problems.regularizers import NoRegularizer, Regularizer
from curvedp.solvers.glm import solve_path
from curvedp.solvers.terms import Coupled, Separable, Terms, terms_of, within

# Coefficients in the user's units as linear functionals of θ.


def scale_and_offset(target: Target) -> tuple[Any, Any]:
    """How margins become predictions in user units, one number each or one for each output."""
    match target:
        case NumericTarget():
            return target.scale, target.offset
        case SeveralTargets():
            return target.scales, target.offsets
        case CountTarget():
            return 1.0, target.shift
    return 1.0, 0.0


@dataclass(frozen=True, eq=False)
class UserUnits:
    """(coef, intercept) = Lθ + shift, column by column of θ: the last of the p + 1 rows is the intercept."""

    L: FloatArray  # (p + 1, d)
    shift: FloatArray  # (p + 1,)

    @classmethod
    def of(cls, columns: ColumnMap, target: Target) -> UserUnits:
        """What `ColumnMap.to_user_units` and the scale of one target do; several keep their own."""
        scale, offset = (1.0, 0.0) if isinstance(target, SeveralTargets) else scale_and_offset(target)
        coef, intercept = columns.to_user_units(np.eye(columns.d))
        shift = np.zeros(columns.n_inputs + 1)
        shift[-1] = 0.0 if columns.absorbed else offset
        return cls(np.vstack([coef, intercept]) * scale, shift)

    def each(self, outputs: int) -> UserUnits:
        """Of every column of θ, the d·K numbers of one after another."""
        return UserUnits(kron(np.eye(outputs), self.L), np.tile(self.shift, outputs))

    @property
    def coefficients(self) -> FloatArray:
        """The rows of L without that of the intercept."""
        return self.L[:-1]

    def margins(self, rows: FloatArray) -> FloatArray:
        """The functionals a of θ with xᵀcoef + intercept = aᵀθ + shift, one per row x in user units."""
        return np.asarray(rows @ self.L[:-1] + self.L[-1])


# A released quadratic model of the objective and its minimisers: no data, no certificate needed.


_TOLERANCE = 1e-10  # of the optimality residual, relative to the linear term


@dataclass(frozen=True, eq=False)
class LocalObjective:
    """Σ_i ℓ(θ; z_i) ≈ ⟨g, θ−c⟩ + ½ Σ_k (θ−c)_kᵀ bH (θ−c)_k near c, as a recentered release leaves it (P-9).

    H, released once, is about XᵀX; b = β times the share of records that no clip stops. Every number here was
    released, so that whatever is minimised or compared with it costs nothing more.
    """

    H: Annotated[FloatArray, Packed("dd", symmetric=True)]  # in the coordinates of θ
    curvature: Positive  # b
    centre: Annotated[FloatArray, Packed("dK")]  # c, the mean of the later centres
    gradient: Annotated[FloatArray, Packed("dK")]  # g, the mean of the gradients released there
    noise: Positive  # τ: every column of g has noise of covariance τ²H
    count: Positive  # n̂
    kappa: Positive  # κ = n̂μ/(d·ρ)

    def minimize(self, problem: Problem) -> FloatArray:
        """The minimiser with the regularizer and the constraint of `problem`."""
        return QuadraticModel(problem, self.curvature * self.H).minimize(self.gradient, self.centre)

    def distance(self, theta: FloatArray, other: FloatArray) -> float:
        """‖θ − θ'‖_H/√n̂: how far the margins of a typical record lie from those at θ'."""
        step = theta - other
        return math.sqrt(max(float(np.vdot(step, self.H @ step)), 0.0) / self.count)

    def spread(self, rank: int) -> float:
        """τ√(dρ)/(b√n̂): the deviation of a typical record's margin by the noise of g alone."""
        return self.noise * math.sqrt(len(self.H) * rank / self.count) / self.curvature

    def among(self, kept: Sequence[int]) -> LocalObjective:
        """The same objective for θ that is 0 outside of the coordinates `kept`."""
        S = list(kept)
        rest = [j for j in range(len(self.H)) if j not in set(S)]
        pull = self.curvature * self.H[np.ix_(S, rest)] @ self.centre[rest]
        return replace(self, H=self.H[np.ix_(S, S)], centre=self.centre[S], gradient=self.gradient[S] - pull)

    def check(self) -> None:
        """Refuse what a file says where no release leaves it."""
        if not (len(self.H) and np.linalg.eigvalsh(self.H)[0] > 0):
            raise InvalidInput("its model of the objective is not convex")


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """argmin_{θ∈C} ⟨g, θ−c⟩ + ½ Σ_k (θ−c)_kᵀ H (θ−c)_k + r(θ): the same curvature H for every column k."""

    problem: Problem
    H: FloatArray

    @cached_property
    def _terms(self) -> Terms:
        shape = (len(self.H), self.problem.loss.n_outputs)
        return terms_of(self.problem.regularizer, self.problem.constraint, shape)

    @cached_property
    def ridge(self) -> FloatArray:
        """The weights of the quadratic part of r, shape (d, K)."""
        return self._terms.l2.reshape(len(self.H), -1)

    @property
    def is_free(self) -> bool:
        """Whether there is neither penalty nor constraint."""
        return self.is_smooth and not self.ridge.any()

    @property
    def is_smooth(self) -> bool:
        """Whether r is a quadratic and C everything."""
        return isinstance(self._terms, Separable) and self._terms.plain

    def minimize(self, g: FloatArray, center: FloatArray) -> FloatArray:
        """The minimiser, shape (d, K)."""
        terms = self._terms
        if isinstance(terms, Coupled):
            H = kron(self.H, np.eye(center.shape[1]))
            enough = within(terms, H, g.ravel(), center.ravel(), _TOLERANCE * float(np.linalg.norm(g)))
            flat = terms.minimize(H, g.ravel(), center.ravel(), center.ravel(), enough)
            return flat.reshape(center.shape)
        if terms.plain:
            columns = [
                center[:, k] - cho_solve(factor, g[:, k] + self.ridge[:, k] * center[:, k])
                for k, factor in enumerate(self._factors)
            ]
        else:
            columns = [
                part.minimize(self.H, np.ascontiguousarray(g[:, k]), center[:, k], center[:, k])
                for k, part in enumerate(self._columns)
            ]
        return np.stack(columns, axis=1)

    @cached_property
    def _factors(self) -> list[tuple[FloatArray, bool]]:
        """Cholesky factors of H + diag(ridge) per column, made once when the columns agree."""
        first = cho_factor(self.H + np.diag(self.ridge[:, 0]))
        if np.all(self.ridge == self.ridge[:, :1]):
            return [first] * self.ridge.shape[1]
        return [first] + [cho_factor(self.H + np.diag(weights)) for weights in self.ridge.T[1:]]

    @cached_property
    def _columns(self) -> list[Separable]:
        """The separable terms, column by column."""
        terms, K = self._terms, self.ridge.shape[1]
        assert isinstance(terms, Separable)
        parts = [part.reshape(-1, K) for part in (terms.l1, terms.l2, terms.low, terms.high)]
        return [Separable(*(np.ascontiguousarray(part[:, k]) for part in parts)) for k in range(K)]


# Why a fit has no intervals, or why its noise is not known; each says what to do.
UNTOLD = "what this mechanism releases does not tell how far its noise moves a coefficient"
ANOTHER_MECHANISM = "the mechanism recentered alone makes intervals: fit with `mechanism=auto`"
WITH_INFERENCE = "it was fitted with `inference=False`: fit with `inference=True`"
ANOTHER_MODEL = (
    "linear, Huber, quantile, Poisson and logistic regression (of two or more classes) without penalty have "
    "them: choose one of these"
)
PENALISED = "a penalty pulls coefficients towards 0, and no interval here knows how far: fit with `alpha=0`"
FAINT = (
    "too few records for this budget (κ is below 12, or 17 under replace; of counts, the mean count is not "
    "seen beside the largest one): fit more records, fewer columns, or with a larger epsilon; counts with an "
    "intercept and a smaller `max_rate`"
)
DECIDED = (
    "columns seem to tell nearly every record's class, where odds ratios are not finite, or too large for an "
    "interval: leave out the column that decides it, or merge its levels; what is predicted stands"
)
BENT = (
    "a constraint or a penalty with corners bends what the noise does to a coefficient, and no formula here "
    "knows how: fit without it"
)
CHOSEN = (
    "a search chose this model, so that intervals would not hold: fit the setting anew, under a budget of "
    "its own"
)
REFITTED = "a refit has no intervals of its own: those of the fit that it was made from stand"
WEAK = "NaN stands where a coefficient depends on a direction whose released curvature is mostly noise"
REASONS = (UNTOLD, WITH_INFERENCE, ANOTHER_MODEL, PENALISED, FAINT, DECIDED, BENT, CHOSEN, REFITTED, WEAK, "")

_MOST_WEAK = 0.3  # of a variance: what directions may contribute whose curvature is mostly noise


@dataclass(frozen=True, eq=False)
class ThetaNoise:
    """The covariance of every column of θ by privacy noise alone; where it is None, `reason` says why.

    `weak` is the part of it along directions whose released curvature is mostly noise: to first order in the
    noise, which is what these formulas are, nothing is known there.
    """

    covariance: FloatArray | None = None  # (d, d)
    weak: FloatArray | None = None
    reason: str = UNTOLD

    def after(self, M: FloatArray) -> ThetaNoise:
        """Of Mθ."""
        if self.covariance is None:
            return self
        weak = None if self.weak is None else M @ self.weak @ M.T
        return ThetaNoise(M @ self.covariance @ M.T, weak)

    def deviations(self, functionals: FloatArray) -> FloatArray | None:
        """Of aᵀθ for the rows a, NaN where weak directions have more than 30 % of the variance."""
        if self.covariance is None:
            return None
        total = _quadratic(functionals, self.covariance)
        hidden = np.zeros_like(total) if self.weak is None else _quadratic(functionals, self.weak)
        return np.where(hidden <= _MOST_WEAK * total, np.sqrt(np.maximum(total, 0.0)), np.nan)


def is_free(problem: Problem) -> bool:
    """Whether C is everything."""
    C = problem.constraint
    return isinstance(C.inner if isinstance(C, ConstrainCoordinates) else C, Reals)


@dataclass(frozen=True)
class MomentsNoise:
    """Deviations of independent noise: on the diagonal of XᵀX, off it, on Xᵀy, and on a ridge times I."""

    diagonal: float
    off: float
    xy: float
    ridge: float = 0.0

    def of_score(self, theta: FloatArray) -> FloatArray:
        """Covariance of (noise of Xᵀy) − (noise of XᵀX and of the ridge)θ: Cov(Eθ) of symmetric noise E."""
        spread = self.xy**2 + self.off**2 * float(theta @ theta)
        crossed = (self.off**2 + self.ridge**2) * np.outer(theta, theta)
        return (
            spread * np.eye(len(theta)) + crossed + (self.diagonal**2 - 2.0 * self.off**2) * np.diag(theta**2)
        )

    def of_theta(
        self, problem: Problem, H: FloatArray, theta: FloatArray, lift: float, *, chosen: bool
    ) -> ThetaNoise:
        """To first order, of θ = (H + D)⁻¹v, D the weights of a quadratic penalty: H⁻¹ Cov(score) H⁻¹.

        H = XᵀX + lift·I as released. Weak are directions where XᵀX is below the norm 2·off·√d of its noise.
        Where the lift was `chosen` by the noisy numbers, weak directions make it vary, and all of θ with it.
        """
        model = QuadraticModel(problem, H)
        if not model.is_smooth:
            return ThetaNoise(reason=BENT)
        values, U = np.linalg.eigh(H + np.diag(model.ridge[:, 0]))
        score = U.T @ self.of_score(theta) @ U / np.outer(values, values)
        weak = np.sum(U * (H @ U), axis=0) - lift < 2.0 * self.off * np.sqrt(len(theta))
        if chosen and weak.any():
            weak = np.ones_like(weak)
        return ThetaNoise(np.asarray(U @ score @ U.T), np.asarray((U * weak) @ score @ (U * weak).T))


@dataclass(frozen=True, eq=False)
class CoefficientNoise:
    """Deviations in the user's units, a row per output, NaN where not resolved; or None.

    `reason` says why either.
    """

    deviations: Annotated[FloatArray, Listed(2, gaps=True)] | None = None
    reason: Annotated[str, REASONS] = UNTOLD

    def __post_init__(self) -> None:
        d = self.deviations
        told = self.reason in ("", WEAK)
        if told != (d is not None) or not (d is None or np.all((d >= 0) & (d < 1e300) | np.isnan(d))):
            raise InvalidInput("its noise of the coefficients does not hold what it should")

    @classmethod
    def stated(cls, deviations: FloatArray) -> CoefficientNoise:
        return cls(deviations, WEAK if np.isnan(deviations).any() else "")


def _quadratic(functionals: FloatArray, matrix: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("mi,ij,mj->m", functionals, matrix, functionals))


# Released second moments and what follows from them for free: fits, paths, errors.


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
        self, terms: Iterable[tuple[Regularizer, Constraint]], *, target: int = 0, ridge: float | None = None
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
        values, vectors = self._spectrum
        weak = values < max(_RESOLVED * self.noise_norm, 2.0 * lam)
        parts = (vectors / (values + lam)) ** 2  # of (H⁻²)_jj
        return np.where(parts @ weak > _MOST_WEAK * parts.sum(axis=1), np.nan, np.sqrt(squares))

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
