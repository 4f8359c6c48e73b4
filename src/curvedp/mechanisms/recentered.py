"""Recentered QOP (P-9): one random curvature, many centres.

Once, a private curvature S = XᵀX + σ²W is released, in a metric that a cheap pilot makes nearly isotropic.
Then rounds of clipped, noisy gradients, each at a new centre and measured in the metric of S, move θ by
proximal Newton steps; the last of them are averaged. Every choice on the way is made by one public `Rule`
from released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.ensembles import Wishart
from curvedp.errors import CalibrationFailed, InvalidInput
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.noise import GaussianNoise, excess
from curvedp.privacy import parameters as public
from curvedp.privacy.calibrate import StatisticsParameters, calibrate_statistics
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import CurvatureProfile
from curvedp.problem import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.released.quadratic_model import QuadraticModel
from curvedp.rows.base import Rows
from curvedp.rows.rounding import additions_at_most, relative_error, slope_slack

_RARE = 1e-9  # share of δ that pays for a noisy count far below n


@dataclass(frozen=True)
class Rule:
    """The public constants of the recentered mechanism; the same for every dataset, loss, ε and adjacency.

    Shares are fractions of μ², μ the Gaussian shift that (ε, δ) allows; what they leave goes to the rounds.
    n̂ is the released count, κ = n̂μ/(d·ρ) the signal-to-noise ratio of a fit with d·K unknowns.
    """

    count_share: float = 0.02  # n̂ (nothing under replace: n is public there)
    pilot_share: float = 0.05  # first look at XᵀX, in the given coordinates
    length_share: float = 0.01  # histogram of record lengths in the pilot's metric
    curvature_share: float = 0.10  # S = XᵀX + σ²W in the pilot's metric
    clip_share: float = 0.02  # histogram of gradient lengths that chooses the clip
    first_share: float = 0.20  # of the rounds' μ²: the first rounds, which only find the neighbourhood

    rounds: int = 128
    first_rounds: int = 32
    weight: float = 0.5  # the t-th later round has weight t^(weight·(1 + κ/large)) in the average
    precise: float = 4000.0  # the κ from which S is precise without a pilot
    freedom: float = 50.0  # m = freedom·d degrees of freedom of W
    floor: float = 0.35  # added to every eigenvalue of S, in units of the noise's spectral norm
    kept_lengths: float = 0.8  # quantile of record lengths to which records are shortened in S
    step: float = 0.5  # damping of a Newton step
    momentum: float = 0.9  # of the last move, added to a centre where κ is large: faster, and noisier
    large: float = 1000.0  # the κ at which half of the momentum is used
    travel: float = 40.0  # rounds·damping is at most travel·κ: noise would only diffuse further
    clipped: float = 2.5  # about clipped·d·ρ/μ records are clipped in the later rounds …
    kept: float = 0.4  # … but this fraction never
    first_clip: float = 0.3  # clip of the first rounds, in units of the typical gradient at θ = 0
    first_kept: float = 0.5  # fraction of records assumed unclipped in the first rounds
    widest_clip: float = 4.0  # largest edge of the clip's histogram, in the same units
    edges: int = 13  # edges of a histogram, a factor √2 apart

    def __post_init__(self) -> None:
        shares = (
            self.count_share,
            self.pilot_share,
            self.length_share,
            self.curvature_share,
            self.clip_share,
        )
        if not (min(shares) > 0 and sum(shares) < 1 and 0 < self.first_share < 1):
            raise InvalidInput("the shares of a Rule must be positive and leave something for the rounds")
        if not 0 < self.first_rounds < self.rounds:
            raise InvalidInput("a Rule needs 0 < first_rounds < rounds")

    @property
    def later_rounds(self) -> int:
        return self.rounds - self.first_rounds

    @property
    def share_before(self) -> float:
        """The fraction of the Gaussian μ² that is spent before S: those releases choose the metric of S."""
        return (self.count_share + self.pilot_share + self.length_share) / (1.0 - self.curvature_share)


@dataclass(frozen=True)
class Shifts:
    """The Gaussian shift μ_j of every release, Σ μ_j² = μ² (P-9); `first` and `later` are of one round."""

    count: float
    pilot: float
    lengths: float
    clip: float
    first: float
    later: float

    @classmethod
    def split(cls, mu: float, rule: Rule, *, count_is_public: bool) -> Shifts:
        """μ² (what the curvature leaves) in the proportions of the rule, every part rounded down."""
        weights = {
            "count": 0.0 if count_is_public else rule.count_share,
            "pilot": rule.pilot_share,
            "lengths": rule.length_share,
            "clip": rule.clip_share,
        }
        total = 1.0 - rule.curvature_share
        part = {name: mu * math.sqrt(weight / total) * (1 - 1e-14) for name, weight in weights.items()}
        rounds = (total - sum(weights.values())) / total
        first = mu * math.sqrt(rounds * rule.first_share / rule.first_rounds) * (1 - 1e-14)
        later = mu * math.sqrt(rounds * (1 - rule.first_share) / rule.later_rounds) * (1 - 1e-14)
        return cls(first=first, later=later, **part)

    def total(self, rule: Rule) -> float:
        """√Σ μ_j², every round counted."""
        rounds = rule.first_rounds * self.first**2 + rule.later_rounds * self.later**2
        return math.sqrt(self.count**2 + self.pilot**2 + self.lengths**2 + self.clip**2 + rounds)


@dataclass(frozen=True)
class Recentered:
    """θ by noisy proximal Newton rounds around a released curvature (P-9), the most accurate mechanism here.

    Any loss with bounded curvature, any regularizer and constraint, both adjacencies. Gradients are clipped,
    so that no gradient bound is needed.

    Parameters
    ----------
    rule : Rule, optional
        The public constants; the default serves every table.
    """

    rule: Rule = field(default_factory=Rule)
    name = "recentered"

    def plan(self, problem: Problem, d: int, budget: Budget) -> RecenteredPlan:
        """Calibrate the curvature and every Gaussian release."""
        m = max(self.rule.freedom * d, d + 2.0)
        mu = calibrate_mu(budget.epsilon, budget.delta)
        extra = _discreteness(self.rule, d, d * problem.loss.n_outputs, mu) + _RARE * budget.delta
        if extra >= budget.delta:
            raise CalibrationFailed("delta is too small for noise on a grid: raise it")
        parameters = calibrate_statistics(
            budget.epsilon,
            budget.delta - extra,
            L=1.0,
            d=d,
            m=m,
            adjacency=problem.domain.adjacency,
            curvature_share=self.rule.curvature_share,
            before=self.rule.share_before,
        )
        public_count = problem.domain.neighbours.count_is_public
        shifts = Shifts.split(parameters.mu, self.rule, count_is_public=public_count)
        profile = replace(parameters.profile, excess=extra)
        return RecenteredPlan(problem, d, budget, self.rule, parameters, profile, shifts, mu)


def _discreteness(rule: Rule, d: int, unknowns: int, mu: float) -> float:
    """What the discreteness of all noise adds to δ."""
    dims = [1, d * d, rule.edges + 1, rule.edges + 1, *([unknowns] * rule.rounds)]
    return excess(dims, [mu] * len(dims))


@dataclass(frozen=True, eq=False)
class RecenteredPlan(FitPlan):
    """The calibrated mechanism: σ²/B̃² and m of the curvature, the shift of every Gaussian release."""

    rule: Rule
    parameters: StatisticsParameters  # for L = 1: σ² is in units of B̃², B̃ the bound of record lengths
    profile: CurvatureProfile
    shifts: Shifts
    mu: float  # the shift that (ε, δ) allows, curvature included

    @cached_property
    def guarantee(self) -> Guarantee:
        p, s = self.parameters, self.shifts
        return self.promise(
            "recentered",
            "statistics",
            "(P-9)",
            self.profile,
            public.M(p.m),
            public.SIGMA2(p.sigma2),
            public.MU(p.mu),
            public.MU_COUNT(s.count),
            public.MU_PILOT(s.pilot),
            public.MU_LENGTHS(s.lengths),
            public.MU_CLIP(s.clip),
            public.MU_FIRST_ROUND(s.first),
            public.MU_LATER_ROUND(s.later),
            public.ROUNDS(self.rule.rounds),
            public.FIRST_ROUNDS(self.rule.first_rounds),
        )

    @property
    def far(self) -> float:
        """t with (1 + e^ε)·P(N(0, 1) > t) ≤ _RARE·δ: n̂ + t of its deviations is below n that rarely."""
        return math.sqrt(2.0 * (self.budget.epsilon + math.log(2.0 / (_RARE * self.budget.delta))))

    def pulls(self) -> list[float]:
        return [self.parameters.sigma2 * self.parameters.m / self.problem.domain.x_norm]

    @property
    def unknowns(self) -> int:
        """d·ρ: how many numbers are learned (K−1 columns of K where one is redundant)."""
        return self.d * self.problem.loss.rank

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        n = noise.count(rows, self.shifts.count)
        geometry = self._geometry(rows, noise, n, random)
        rounds = _Rounds(
            self, rows.in_metric(geometry.metric), noise, geometry, n, self._rows_at_most(noise, n)
        )
        theta = self.problem.constraint.project(np.zeros((self.d, self.problem.loss.n_outputs)))
        for step in rounds.walk(theta, rounds.first_clip, self.rule.first_rounds, self.shifts.first):
            theta = step.moved
        clip = rounds.choose_clip(theta)
        later, mu = self.rule.later_rounds, self.shifts.later
        return rounds.average(rounds.walk(theta, clip, later, mu), clip, later)

    def _rows_at_most(self, noise: GaussianNoise, n: float) -> float:
        """A number that n exceeds rarely, whatever the table: n itself where it is public."""
        return n if noise.neighbours.count_is_public else n + self.far * noise.count_scale(self.shifts.count)

    def kappa(self, n: float) -> float:
        """κ = n̂μ/(d·ρ)."""
        return n * self.mu / self.unknowns

    def _geometry(self, rows: Rows, noise: GaussianNoise, n: float, random: np.random.Generator) -> Geometry:
        """The curvature S, in the pilot's metric where there is one: the rest is post-processing."""
        precise = self.kappa(n) >= self.rule.precise
        pilot = self._given_coordinates(rows) if precise else self._pilot(rows, noise, n)
        sigma2, m = pilot.bound**2 * self.parameters.sigma2, self.parameters.m
        S = noisy_curvature(pilot.gram, sigma2, m, random)
        spectral_noise = 2.0 * sigma2 * math.sqrt(m * self.d)
        lifted, U = curvature_above(S, self.rule.floor * spectral_noise, n * pilot.bound**2)
        resolved = float(np.sum((U * (S @ U)).sum(axis=0) / lifted))
        root = np.sqrt(lifted)[:, None] * (U.T @ pilot.inverse.T)
        metric = (U / np.sqrt(lifted)).T @ pilot.metric
        return Geometry(metric, root.T @ root, min(max(resolved, 0.1 * self.d), float(self.d)))

    def _given_coordinates(self, rows: Rows) -> Pilot:
        """No pilot: records as they are. What it would have cost is not spent."""
        unit = np.eye(self.d)
        return Pilot(unit, unit, self.problem.domain.x_norm, rows.moments().xx)

    def _pilot(self, rows: Rows, noise: GaussianNoise, n: float) -> Pilot:
        """Two releases: a first look at XᵀX makes a metric, a histogram of lengths there a bound."""
        B, shift = self.problem.domain.x_norm, self.shifts.pilot
        first = noise.gram(rows.moments().xx, B, shift)
        lift = self.rule.floor * noise_norm(noise.neighbours.gram_factor * B**2 / shift, self.d)
        values, V = curvature_above(first, lift, n * B**2)
        A = (V / np.sqrt(values)).T
        bound = self._length_bound(rows.in_metric(A), noise, n, B / math.sqrt(float(values.min())))
        gram = A @ rows.in_metric(A, bound).moments().xx @ A.T
        return Pilot(A, V * np.sqrt(values), bound, gram)

    def _length_bound(self, measured: Rows, noise: GaussianNoise, n: float, largest: float) -> float:
        """The smallest edge that all but a fifth of the records surely stay below, else the public bound."""
        edges = self.edges(largest)
        counts = noise.counts(measured.norm_histogram(edges), self.shifts.lengths)
        slack = noise.count_scale(self.shifts.lengths) * np.sqrt(np.arange(len(edges), 0, -1))
        inside = np.flatnonzero(records_beyond(counts) + slack <= (1.0 - self.rule.kept_lengths) * n)
        return float(edges[inside[0]]) if inside.size else largest

    def edges(self, largest: float) -> FloatArray:
        return np.asarray(largest * math.sqrt(2.0) ** -np.arange(self.rule.edges)[::-1].astype(float))


@dataclass(frozen=True, eq=False)
class Pilot:
    """A metric A, its inverse, a bound B̃ of lengths, and Σ A x xᵀAᵀ of records shortened to ‖A x‖ ≤ B̃."""

    metric: FloatArray
    inverse: FloatArray
    bound: float
    gram: FloatArray  # private


@dataclass(frozen=True, eq=False)
class Geometry:
    """A released metric A with AᵀA = H⁻¹ and H ≽ about XᵀX; `resolved` estimates Σ‖A x_i‖² = tr(A XᵀX Aᵀ)."""

    metric: FloatArray
    H: FloatArray
    resolved: float

    @cached_property
    def stretch(self) -> tuple[float, float]:
        """The largest and the smallest singular value of A."""
        values = np.linalg.svd(self.metric, compute_uv=False)
        return float(values[0]), float(values[-1])


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Noisy proximal Newton rounds in a fixed metric."""

    plan: RecenteredPlan
    rows: Rows  # measured in the metric
    noise: GaussianNoise
    geometry: Geometry
    n: float
    most: float  # rows, but for rare draws of the noise

    @property
    def kappa(self) -> float:
        return self.plan.kappa(self.n)

    @property
    def confidence(self) -> float:
        """κ/(κ + large): 0 where noise dominates, 1 where only convergence matters."""
        return self.kappa / (self.kappa + self.plan.rule.large)

    @property
    def typical(self) -> float:
        """Length of a typical gradient at θ = 0 in the metric, targets being uniform within their bounds."""
        loss, domain = self.plan.problem.loss, self.plan.problem.domain
        targets = loss.clip_target(np.linspace(-domain.y_bound, domain.y_bound, 101), domain)
        slopes = loss.gradient(np.zeros((len(targets), loss.n_outputs)), targets)
        slope = math.sqrt(float(np.mean(np.sum(slopes**2, axis=1))))
        return slope * math.sqrt(self.geometry.resolved / self.n)

    @property
    def first_clip(self) -> Clip:
        rule = self.plan.rule
        return Clip(rule.first_clip * self.typical, rule.first_kept)

    def choose_clip(self, theta: FloatArray) -> Clip:
        """The clip beyond which about `clipped`·unknowns/μ records lie, from a private histogram at θ."""
        plan, rule = self.plan, self.plan.rule
        edges = plan.edges(rule.widest_clip * self.typical)
        scale = self.noise.count_scale(plan.shifts.clip)
        counts = self.rows.gradient_norm_histogram(plan.problem.loss, theta, edges)
        outside = records_beyond(self.noise.counts(counts, plan.shifts.clip))
        if scale * math.sqrt(len(edges) / 2.0) > self.n / 3.0:  # the histogram is noise
            return self.first_clip
        target = min(rule.clipped * plan.unknowns / plan.mu, (1.0 - rule.kept) * self.n)
        below = np.flatnonzero(outside <= target)
        index = int(below[0]) if below.size else len(edges) - 1
        return Clip(float(edges[index]), min(max(1.0 - outside[index] / self.n, rule.kept), 1.0))

    def walk(self, theta: FloatArray, clip: Clip, rounds: int, mu: float) -> Iterator[Round]:
        """Rounds from θ on: the gradient released at each centre, and the centre it leads to."""
        plan, problem, A = self.plan, self.plan.problem, self.geometry.metric
        damping = min(plan.rule.step, plan.rule.travel * self.kappa / plan.rule.rounds)
        momentum = plan.rule.momentum * self.confidence
        model = QuadraticModel(problem, self.curvature(clip) / damping * self.geometry.H)
        last = theta
        for _ in range(rounds):
            centre = theta + momentum * (theta - last)
            total = A @ self.rows.gradient_sum(problem.loss, centre, clip.size)
            gradient = self.noise.gradient(total, clip.size, mu, self.slack(centre, clip))
            if problem.loss.rank < problem.loss.n_outputs:  # true gradients sum to 0 over the classes
                gradient = gradient - gradient.mean(axis=1, keepdims=True)
            pulled = self._pulled_back(gradient)
            last, theta = theta, model.minimize(pulled, centre)
            yield Round(centre, gradient, theta)
            if np.vdot(pulled, theta - last) > 0:  # moving uphill: momentum starts anew
                last = theta

    def slack(self, centre: FloatArray, clip: Clip) -> float:
        """What rounding adds to the difference of two gradient sums, in units of the clip (P-9).

        Sums are computed in the given coordinates: in the metric their errors grow by its condition number. A
        record's length in the metric errs by 16(d^{3/2}+1)·2⁻⁵³ of it.
        """
        problem, d = self.plan.problem, self.plan.d
        largest, smallest = self.geometry.stretch
        sums = relative_error(additions_at_most(d) + 2 * d + math.ceil(16.0 * (d**1.5 + 1.0)))
        slopes = slope_slack(problem, d, centre, clip.size, rows=self.most, stretch=largest)
        return 2.0 * self.most * sums * largest / smallest + slopes

    def average(self, walk: Iterable[Round], clip: Clip, rounds: int) -> Estimate:
        """A last Newton step from the mean centre and the mean gradient, later rounds weighing more."""
        rule = self.plan.rule
        power = rule.weight * (1.0 + self.kappa / rule.large)  # large κ: noise is no reason to average
        weights = np.exp(power * np.log(np.arange(1, rounds + 1) / rounds))
        weights = weights / weights.sum()
        shape = (self.plan.d, self.plan.problem.loss.n_outputs)
        centre, gradient = np.zeros(shape), np.zeros(shape)
        for weight, step in zip(weights, walk, strict=True):
            centre += weight * step.centre
            gradient += weight * step.gradient
        model = QuadraticModel(self.plan.problem, self.curvature(clip) * self.geometry.H)
        return Estimate(model.minimize(self._pulled_back(gradient), centre))

    def curvature(self, clip: Clip) -> float:
        """β times the fraction of records that still move when θ does."""
        problem = self.plan.problem
        return problem.loss.curvature(problem.domain, problem.radius(self.plan.d)) * clip.kept

    def _pulled_back(self, gradient: FloatArray) -> FloatArray:
        """A⁻¹ g: from the metric's coordinates to those of θ."""
        return np.asarray(self.geometry.H @ (self.geometry.metric.T @ gradient))


@dataclass(frozen=True, eq=False)
class Round:
    """A centre, the noisy gradient released there (in the metric), and the next centre."""

    centre: FloatArray
    gradient: FloatArray
    moved: FloatArray


@dataclass(frozen=True)
class Clip:
    """A clip of gradient lengths and the fraction of records that it is believed to leave alone."""

    size: float
    kept: float


def noisy_curvature(gram: FloatArray, sigma2: float, m: float, random: np.random.Generator) -> FloatArray:
    """S = Σ x xᵀ + σ²(W − mI), W ~ Wishart(d, m), on its grid (S-1)."""
    d = len(gram)
    S = gram + sigma2 * Wishart(d, m).sample(random)
    return round_to_grid((S + S.T) / 2.0, grid_step(sigma2 * math.sqrt(m))) - sigma2 * m * np.eye(d)


def noise_norm(scale: float, d: int) -> float:
    """The spectral norm of symmetric Gaussian noise: about scale·√(2d)."""
    return scale * math.sqrt(2.0 * d)


def curvature_above(S: FloatArray, lift: float, ceiling: float) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues min(max(s, 0), ceiling) + min(lift, ceiling) and eigenvectors of S."""
    values, vectors = np.linalg.eigh(S)
    return np.clip(values, 0.0, ceiling) + min(lift, ceiling), vectors


def records_beyond(counts: FloatArray) -> FloatArray:
    """How many records lie beyond each edge, from the counts of all cells; never negative."""
    return np.maximum(np.cumsum(counts[::-1])[::-1][1:], 0.0)
