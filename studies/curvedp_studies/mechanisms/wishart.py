"""Second moments with Wishart noise (S-1): XᵀX + σ²W, and Xᵀy beside it with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import ClassVar

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import SUM_SLACK, Rows
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan, Grid, excess
from curvedp.mechanisms.statistics import minimizer
from curvedp.postprocess.noise import ReleasedMoments
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.calibrate import confirm, largest, log_excess, solve_curvature
from curvedp.privacy.curvature import (
    FEW_LEVELS,
    LEVELS,
    AlongRecords,
    Wishart,
    falling,
    pole_edges,
    rising,
)
from curvedp.privacy.gaussian import calibrate_mu, check_budget
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import CurvatureProfile, LossFamily
from curvedp.privacy.quadrature import (
    CELLS,
    RESOLUTIONS,
    AngularLoss,
    Boxes,
    LossLaw,
    angle_bound,
    cell_law,
    chi_bins,
    corner_max,
    form_over,
    inverse_chi_square_bins,
    tail_edges,
)
from curvedp.problems import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.transcript import UNSTATED, Unit, bartlett, told

FREEDOM = 50.0  # m = FREEDOM·dimension: within 5 % of Gaussian noise, and positive definite


@dataclass(frozen=True)
class WishartStatistics:
    """Squared loss by its statistics: XᵀX + σ²W, and Xᵀy − a with Gaussian a, half of the budget each (S-1).

    Solved for any r and C, as `curvedp.mechanisms.Statistics`, whose Gaussian noise is smaller and exact.
    """

    name = "wishart"

    def plan(self, problem: Problem, d: int, budget: Budget) -> WishartPlan:
        """Calibrate the noise of both statistics."""
        if not problem.loss.is_quadratic:
            raise NotCovered(
                f"statistics need the squared loss, not {problem.loss.name}; recentered covers both"
            )
        domain = problem.domain
        B, Y = domain.x_norm, domain.y_bound
        extra = excess([d], [calibrate_mu(budget.epsilon, budget.delta)])
        left = Budget(budget.epsilon, budget.delta - extra)
        mu = math.sqrt(0.5) * calibrate_mu(left.epsilon, left.delta)  # half of μ² for Xᵀy
        law = MomentAccounting(d, FREEDOM * d, domain.neighbours.adjacency)
        sigma2, profile = calibrate_statistics(left.epsilon, left.delta, law, L=B**2, mu=mu)
        sensitivity = problem.center_sensitivity(np.zeros((d, 1))) + SUM_SLACK * B * Y
        grid = Grid.of(sensitivity, mu, d)
        return WishartPlan(problem, d, budget, sigma2, law.m, grid, replace(profile, excess=extra))


@dataclass(frozen=True, eq=False)
class WishartPlan(FitPlan):
    """σ²W, W ~ Wishart(d, m), for XᵀX, and the noise of Xᵀy."""

    sigma2: float
    m: float
    xy_grid: Grid
    profile: CurvatureProfile
    persons: ClassVar[bool] = True  # each of k rows counts 1/k (U-2)

    @property
    def xx_scale(self) -> float:
        """The standard deviation of a diagonal entry; off the diagonal it is this over √2."""
        return self.sigma2 * math.sqrt(2.0 * self.m)

    @cached_property
    def guarantee(self) -> Guarantee:
        noise = public.SIGMA2(self.sigma2), public.M(self.m), public.XY_SCALE(self.xy_grid.sigma)
        return self.promise("wishart", "statistics", "(S-1)", self.profile, *noise)

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        return minimizer(self.problem, self.release_moments(rows, random))

    def release_moments(self, rows: Rows, random: np.random.Generator) -> ReleasedMoments:
        """The private statistics themselves."""
        exact = rows.moments()
        xx = self.noisy(exact.xx, random)
        xy = self.xy_grid.add(exact.xy, random, "moments with the target")
        return ReleasedMoments(xx, xy, self.xx_scale, self.xy_grid.sigma)

    def noisy(self, gram: FloatArray, random: np.random.Generator) -> FloatArray:
        """XᵀX + σ²W on a public grid, the mean of the noise subtracted."""
        noisy = gram + self.sigma2 * Wishart(self.d, self.m).sample(random)
        noisy = round_to_grid(noisy, grid_step(self.xx_scale)) - self.sigma2 * self.m * np.eye(self.d)
        return told(random, NoisyCurvature(gram, self.sigma2, self.m, self.profile.g), noisy)


@dataclass(frozen=True, eq=False)
class NoisyCurvature:
    """query + σ²(W − mI), W ~ Wishart(d, m): p ∝ det(W)^{(m−d−1)/2} e^{−tr W/2}."""

    query: FloatArray
    sigma2: float
    m: float
    share: float = UNSTATED  # g: no record adds more than gσ²
    name: str = "curvature"
    unit: ClassVar[Unit] = "g"

    def wishart(self, value: FloatArray) -> FloatArray:
        """The W that gives this value; values may have leading axes."""
        return np.asarray((value - self.query) / self.sigma2 + self.m * np.eye(len(self.query)))

    def log_density(self, value: FloatArray) -> float:
        return float(self.log_densities(value[None])[0])

    def log_densities(self, values: FloatArray) -> FloatArray:
        """`log_density` of each of n values."""
        d, W = len(self.query), self.wishart(values)
        inside = np.linalg.eigvalsh(W)[:, 0] > 0
        logdet = np.linalg.slogdet(W)[1]
        found = (self.m - d - 1) / 2 * logdet - np.trace(W, axis1=1, axis2=2) / 2
        return np.where(inside, found, -np.inf)

    def distance(self, other: NoisyCurvature, value: FloatArray) -> float:
        """The spectral norm of the change over σ²."""
        return float(np.linalg.norm(other.query - self.query, 2)) / self.sigma2

    def residuals(self, value: FloatArray) -> FloatArray:
        return bartlett(self.wishart(value), self.m)

    def log_ratios(self, other: NoisyCurvature, draws: int, random: np.random.Generator) -> FloatArray:
        d = len(self.query)
        draws = max(draws // math.ceil(d / 5), 500)  # few columns show as much as many
        values = self.query + self.sigma2 * (Wishart(d, self.m).sample(random, draws) - self.m * np.eye(d))
        return self.log_densities(values) - other.log_densities(values)


# What the release of XᵀX + σ²W (and Xᵀy) costs (S-1).
#
# A squared loss depends on the data through S = XᵀX + σ²W and v = Xᵀ(y−Xθ_c) − a only: once they are private,
# everything computed from them is. No determinant enters the loss, so the bounds are below those of (P-6).

_LOWEST_LOSS = -50.0  # signed losses below this are raised to it
_G_RANGE = (1e-8, 1e4)  # searched ratios L/σ²
_SLOPE = 2.0  # of log δ against log g beside Gaussian releases, roughly: a search near its end starts with it


class MomentAccounting(AlongRecords):
    """(S-1): S = β XᵀX + σ²W with W ~ Wishart(d, m), g = βB²/σ²."""

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        n = self.n
        if self.replaces and self.d > 1:
            return angle_bound(MomentReplaced(n, g), epsilon, mu)
        if self.replaces:
            return moment_aligned_law(n, g).divergence(epsilon, mu)
        laws = moment_added_law(n, g), moment_removed_law(n, g)
        return np.asarray(np.maximum(*(law.divergence(epsilon, mu) for law in laws)))

    def near(self) -> MomentAccounting:
        """A family whose δ is that of this one, or a little less, and is quicker to evaluate."""
        return MomentDraft(self.d, self.m, self.adjacency) if self.replaces and self.d > 1 else self


class MomentDraft(MomentAccounting):
    """Not a bound: (S-1) for replaced records at nearly right angles alone, where δ is largest by far most
    often. It steers searches."""

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        loss = MomentReplaced(self.n, g)
        return cell_law(loss, CELLS - 2, len(RESOLUTIONS) - 1).divergence(epsilon, mu)


def moment_edges(g: float, k: float, levels: FloatArray) -> FloatArray:
    """As `pole_edges`. Power 0 has no pole; the loss is infinite below g all the same."""
    return pole_edges(g, k, levels) if k > 0 else np.array([g * (1 + 1e-12)])


@lru_cache(maxsize=64)
def moment_added_law(n: float, g: float) -> LossLaw:
    """g/2 − k log(1+g/χ), signed, χ ~ χ²_n."""
    bins = inverse_chi_square_bins(n, tail_edges(n, tail=0.1, body=0.02))
    value = np.maximum(falling(g, n / 2 - 1, bins.edges), _LOWEST_LOSS)
    return LossLaw.of_bins(bins.mass, value[1:], value[:-1], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def moment_removed_law(n: float, g: float) -> LossLaw:
    """−k log(1−g/χ) − g/2, signed, χ ~ χ²_n; ∞ where χ ≤ g."""
    k = n / 2 - 1
    bins = chi_bins(n, moment_edges(g, k, LEVELS))
    value = np.maximum(rising(g, k, bins.edges), _LOWEST_LOSS)
    return LossLaw.of_bins(bins.mass, value[:-1], value[1:], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def moment_aligned_law(n: float, g: float) -> LossLaw:
    """max(0, adding, removing) at one χ: replacement in dimension one."""
    k = n / 2 - 1
    bins = chi_bins(n, moment_edges(g, k, LEVELS))
    come, gone = (np.maximum(loss(g, k, bins.edges), 0.0) for loss in (falling, rising))
    value = np.maximum(come, gone)
    low = np.maximum(come[1:], gone[:-1])
    high = np.maximum(value[1:], value[:-1])
    return LossLaw.of_bins(bins.mass, low, high, bins.interpolate(value), bins.outside)


class MomentReplaced(AngularLoss):
    """The largest of 0, adding x', removing x, and both, −k log[(1+τ')(1−τ)+S²], at every angle (S-1).

    With τ = gs, τ' = gX(ψ), S = gs(cosψ − w sinψ) the bracket is 1−τ plus the form of (P-7j) with gs for s
    and (1−gs)gr for r.
    """

    @property
    def chi_edges(self) -> FloatArray:
        return moment_edges(self.g, self.n / 2 - 1, FEW_LEVELS)

    def boxes(self, s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> Boxes:
        """Each of the four is convex in s and in r: −k log of something concave in each. In w the bracket is
        semiconcave like X, with gs + (1−gs)gr ≤ g(s+r) and 1−gs ≤ bracket."""
        g, k = self.g, self.n / 2 - 1
        left = 1 - g * s
        alone = form_over(s, r, w, cell)
        both = form_over(g * s, left * (g * r), w, cell)
        gone = np.maximum(rising(g, k, s), 0.0)
        corners = np.maximum(falling(g, k, alone.low), gone)
        np.maximum(corners, -k * np.log(left + both.low), out=corners)
        # Multilinear in (s, r) and convex in w: the bracket is largest at a corner.
        bracket = np.minimum(*(corner_max(left + end) for end in both.ends))
        floor = np.maximum(falling(g, k, alone.ceiling_of_low()), gone[:-1])
        np.maximum(floor, -k * np.log(bracket), out=floor)
        bend = 2 * k * g * math.sin(cell[1]) ** 2 * (r[1:] + s[1:]) / left[1:]
        none = np.zeros_like(corners), np.zeros_like(floor)
        return none, (corners, floor), bend


@lru_cache(maxsize=1024, typed=True)
def calibrate_statistics(
    epsilon: float, delta: float, law: MomentAccounting, *, L: float, mu: float = 0.0
) -> tuple[float, CurvatureProfile]:
    """The least σ² of a release of βXᵀX + σ²W beside Gaussian releases of total shift μ: (S-1), L = βB²."""
    check_budget(epsilon, delta)

    def rounded(g: float, family: LossFamily) -> tuple[float, CurvatureProfile]:
        """σ² = L/g, rounded up, and its profile: the search evaluates what will be promised, no more."""
        sigma2 = L / g * (1 + 1e-12)
        return sigma2, CurvatureProfile(family, L / sigma2 * (1 + 1e-15), mu)

    g = solve_curvature(epsilon, delta, mu, law.draft())
    for family in (law.near(), law):
        over = partial(lambda family, g: log_excess(rounded(g, family)[1], epsilon, delta), family)
        g = largest(over, *_G_RANGE, start=g, slope=_SLOPE, what="curvature ratio g")
    sigma2, profile = rounded(g, law)
    confirm(profile, epsilon, delta)
    return sigma2, profile
