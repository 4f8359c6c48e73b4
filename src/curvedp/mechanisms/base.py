"""What every mechanism is: a public plan for a budget, then one release of θ."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from curvedp import randomness
from curvedp.arrays import ROWS_AT_MOST, FloatArray
from curvedp.data.rows.base import SUM_SLACK, Layout, Rows
from curvedp.errors import CalibrationFailed, InvalidInput, NotCertified, NotCovered
from curvedp.plans import Plan, require_room, room_of
from curvedp.postprocess.inference import Inference
from curvedp.postprocess.noise import BENT, LocalObjective, ThetaNoise, is_free
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import calibrate_mu, check_budget, discrete_gaussian_excess
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import Curve, GaussianProfile, count_shift, log_rare_probability
from curvedp.problems import Problem
from curvedp.solvers.glm import Certifiable, NoiseBounds, Objective, Perturbation, solve
from curvedp.transcript import UNSTATED, Derivative, Law, Normal, told


@dataclass(frozen=True, eq=False)
class Estimate:
    """What leaves: θ of shape (d, K), the released model of the objective where there is one, what is known
    of the noise of θ, and what intervals are made from where they were asked for.
    """

    theta: FloatArray
    local: LocalObjective | None = None
    noise: ThetaNoise = field(default_factory=ThetaNoise)
    trust: float = 1.0  # θ = trust·(what was estimated) + (1 − trust)·(the constant answer)
    inference: Inference | None = None


class Mechanism(Protocol):
    """A way to release θ; it knows no budget."""

    @property
    def name(self) -> str: ...

    def plan(self, problem: Problem, d: int, budget: Budget) -> Plan[Rows, Estimate]:
        """Calibrate for d model columns from public constants alone, or refuse."""


@dataclass(frozen=True, eq=False)
class FitPlan(ABC):
    """A calibrated mechanism for one problem: subclasses state a guarantee and release an estimate."""

    problem: Problem
    d: int
    budget: Budget
    persons: ClassVar[bool] = False  # whether it bounds what a person with several rows contributes (U-1)
    matrices: ClassVar[float] = 20.0  # of d × d that a release holds at most; 14 to 18 measured for a walk

    def __post_init__(self) -> None:
        if not self.persons:
            self.problem.domain.neighbours.refuse_units(type(self).__name__.removesuffix("Plan"))

    @property
    def layout(self) -> Layout:
        return Layout.of(self.problem, self.d)

    @property
    def room(self) -> float:
        """Bytes of the matrices of a release."""
        return 8.0 * self.matrices * self.d**2

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee: ...

    @abstractmethod
    def release(self, rows: Rows, random: np.random.Generator) -> Estimate: ...

    def accept(self, rows: Rows) -> None:  # noqa: B027 (most plans take any rows of their layout)
        """Refuse, before the charge and from what is public about them, rows that cannot be released from."""

    def promise(
        self,
        mechanism: str,
        accounting: str,
        theorem: str,
        profile: Curve,
        *parameters: Parameter,
        private: bool = True,
    ) -> Guarantee:
        """The guarantee of this plan's budget and neighbours."""
        neighbours, public = self.problem.domain.neighbours, Parameters(*parameters)
        return Guarantee(self.budget, neighbours, mechanism, accounting, theorem, public, profile, private)


def make_plan(mechanism: Mechanism, problem: Problem, d: int, budget: Budget) -> Plan[Rows, Estimate]:
    """mechanism.plan, after every public refusal that does not depend on the mechanism."""
    problem.check(d)
    try:
        plan = mechanism.plan(problem, d, budget)
    except ArithmeticError:
        raise CalibrationFailed(
            "no noise can be calibrated for this (ε, δ): it is beyond what doubles hold; ask for less"
        ) from None
    require_room(room_of([plan]))  # as `execute` does, but before a table is read
    return plan


# Gaussian releases of sums over records: histograms, Gram matrices, clipped gradients (P-2), (S-2).
#
# Every one is exact: the computed sum is rounded to a public grid and gets a discrete Gaussian on that grid.

FEWEST_STEPS = 2**31  # in any standard deviation of a grid made here
_GRID_SHARE = 2.0**-16  # of the sensitivity: the most that rounding to the grid adds, unless μ is tiny


@dataclass(frozen=True)
class Grid:
    """Noise of deviation `sigma` on the multiples of `step`, a power of two; a sum is rounded to it first."""

    sigma: float
    step: float
    share: float = UNSTATED  # μ_j: the shift that the plan pays for

    @classmethod
    def of(cls, sensitivity: float, mu: float, dim: int) -> Grid:
        """For a query in R^dim of this l2-sensitivity, released at shift μ: σ = (sensitivity + √dim·step)/μ.

        Rounding moves a query by √dim/2 steps, two queries apart by √dim of them: that is part of σ.
        """
        fine = min(2.0**-32, _GRID_SHARE * mu / math.sqrt(dim))
        step = randomness.power_of_two(max(fine, 8.0 / randomness.LARGEST_SCALE) * (sensitivity / mu))
        return cls((sensitivity + math.sqrt(dim) * step) / mu * (1 + 1e-14), step, mu)

    def scaled(self, factor: float) -> Grid:
        """For the query times `factor`, the two being one answer."""
        return Grid(self.sigma * factor, randomness.power_of_two(self.step * factor))

    def add(self, value: FloatArray, random: np.random.Generator, name: str = "") -> FloatArray:
        """The value on the grid, plus independent noise of deviation at least σ."""
        noisy = randomness.round_to_grid(value, self.step) + self._noise(random, value.shape, self.sigma)
        return told(random, Normal(value, self.sigma, False, self.share, name, self.step), noisy)

    def add_symmetric(self, value: FloatArray, random: np.random.Generator, name: str = "") -> FloatArray:
        """For a symmetric matrix: σ on the diagonal, σ/√2 off it, isotropic in the Frobenius norm (S-2)."""
        d = len(value)
        noise, upper = np.zeros((d, d)), np.triu_indices(d, 1)
        noise[upper] = self._noise(random, (len(upper[0]),), self.sigma / math.sqrt(2.0))
        noise += noise.T
        np.fill_diagonal(noise, self._noise(random, (d,), self.sigma))
        value = (value + value.T) / 2.0
        noisy = randomness.round_to_grid(value, self.step) + noise
        return told(random, Normal(value, self.sigma, True, self.share, name, self.step), noisy)

    def _noise(self, random: np.random.Generator, shape: tuple[int, ...], sigma: float) -> FloatArray:
        steps = math.ceil(sigma / self.step * (1 + 1e-14))
        return randomness.discrete_gaussian(random, steps, math.prod(shape)).reshape(shape) * self.step


@dataclass(frozen=True, eq=False)
class GaussianNoise:
    """Discrete Gaussian noise for sums over records, each release with a Gaussian shift of at most μ.

    μ covers the sensitivity, rounding errors of the computed sum (SUM_SLACK) and its rounding to the grid.
    What discreteness adds to δ is `excess` of the dimensions and shifts of all releases of a plan: it goes
    into the plan's profile, and μ is calibrated at δ − excess, as `gaussian_profile` does
    ("discrete-gaussian"). `name` is what a transcript calls an answer.
    """

    generator: np.random.Generator
    neighbours: Neighbours

    def count(self, rows: Rows, mu: float) -> float:
        """n where it is public; else n + noise of deviation 1/μ, at least that deviation and 1."""
        if self.neighbours.count_is_public:
            return float(max(rows.count(), 1))
        noisy = self.counts(np.array([float(rows.count())]), mu, "count")[0]
        return float(max(noisy, self.count_scale(mu), 1.0))

    def counts(self, counts: FloatArray, mu: float, name: str = "", slack: float = 0.0) -> FloatArray:
        """A histogram, one record in one cell; below 2⁵³ counts are exact; `slack` for rounded sums."""
        grid = Grid.of(self.neighbours.histogram_factor + slack, mu, counts.size)
        return grid.add(counts, self.generator, name)

    def count_scale(self, mu: float) -> float:
        """The standard deviation of each count."""
        return self.neighbours.histogram_factor / mu

    def gradient(
        self, total: FloatArray, clip: float, mu: float, slack: float = SUM_SLACK, name: str = ""
    ) -> FloatArray:
        """A sum of vectors of norm ≤ clip.

        `slack`·clip is what rounding errors of the sums of two neighbours can add up to. In a metric A they
        grow by up to ‖A‖‖A⁻¹‖: pass a larger one, from released numbers.
        """
        sensitivity = (self.neighbours.sum_factor + slack) * clip
        return Grid.of(sensitivity, mu, total.size).add(total, self.generator, name)

    def gram(
        self, gram: FloatArray, x_norm: float, mu: float, slack: float = SUM_SLACK, name: str = ""
    ) -> FloatArray:
        """Σ x xᵀ with ‖x‖ ≤ x_norm, noise isotropic in the Frobenius norm on symmetric matrices (S-2).

        `slack`·x_norm² is what rounding errors can add, larger in a metric.
        """
        sensitivity = (self.neighbours.gram_factor + slack) * x_norm**2
        return Grid.of(sensitivity, mu, gram.size).add_symmetric(gram, self.generator, name)


def gradient_scale(clip: float, mu: float, neighbours: Neighbours, slack: float = SUM_SLACK) -> float:
    """σ of a release of Σ clip_c(∇ℓ) at shift μ (P-9), the grid's share of 2⁻¹⁶ aside."""
    return (neighbours.sum_factor + slack) * clip / mu


def gram_scale(bound: float, mu: float, neighbours: Neighbours, slack: float = SUM_SLACK) -> float:
    """σ on the diagonal of a release of Σ x xᵀ, ‖x‖² ≤ bound, at shift μ (S-2)."""
    return (neighbours.gram_factor + slack) * bound / mu


def excess(dims: Sequence[int], mus: Sequence[float]) -> float:
    """What the discreteness of such releases together adds to δ at every ε: about 2e-20 per number.

    A shift of 0 stands for a release that is not made. Refuses shifts too small for any grid.
    """
    made = [(dim, mu) for dim, mu in zip(dims, mus, strict=True) if mu > 0]
    if any(2.0**8 * math.sqrt(dim) > mu * randomness.LARGEST_SCALE for dim, mu in made):
        raise CalibrationFailed("the budget is too small for noise on a grid: raise epsilon or delta")
    parts = (discrete_gaussian_excess(mu, d=dim, steps_per_sigma=FEWEST_STEPS) for dim, mu in made)
    return math.fsum(parts) * (1 + 1e-14)


def gaussian_profile(budget: Budget, dims: Sequence[int], shares: Sequence[float]) -> GaussianProfile:
    """The largest shift μ with H_Φ(ε; μ) + excess ≤ δ, release j of dimension dim_j and shift μ√share_j."""
    most = calibrate_mu(budget.epsilon, budget.delta)
    extra = excess(dims, [most * math.sqrt(share) for share in shares])
    if extra >= budget.delta:
        raise CalibrationFailed("delta is too small for noise on a grid: raise it")
    return GaussianProfile(calibrate_mu(budget.epsilon, budget.delta - extra), extra)


# What solved mechanisms share: draw a perturbation, solve to a publicly fixed accuracy, blur the answer.
#
# θ_final = ⌊θ_approx⌉_grid + b with ‖⌊θ_approx⌉ − θ_priv‖ ≤ η. Privacy counts the ratio 2η/σ̃, which the plan
# fixes. η is what double precision can certify of every table with as many rows, or the least η of the plan:
# it grows with the number of rows where that is public, else with a noisy count of them ("Certificates").

RELATIVE_ETA = 1e-6  # least η as a fraction of the radius
LEAST_ETA = Parameter(
    "eta", "η", "certified distance of the solve from the exact minimiser; more for very long tables"
)
LEAST_SIGMA_TILDE = Parameter(
    "sigma_tilde", "σ̃", "standard deviation of the output noise b; grows with η", is_noise=True
)

_RARE = 1e-6  # share of δ that pays for rare draws of the noise
_SAFETY = 1.5  # η over what can be proved of every table: the rest is for the solver's residual


@dataclass(frozen=True)
class RareDraws:
    """What a plan pays for draws of the noise beyond the bounds that its certificates need.

    Whether a draw is rare depends on the noise alone. Each of the bounds fails with probability e^`log_each`
    at most, on every table; all of them together, and the discreteness of a count, cost `delta`.
    """

    delta: float
    log_each: float

    @classmethod
    def of(cls, budget: Budget, neighbours: Neighbours) -> RareDraws:
        check_budget(budget.epsilon, budget.delta)
        paid = _RARE * budget.delta
        shift = 0.0 if neighbours.count_is_public else count_shift(budget.epsilon, budget.delta)
        each = log_rare_probability(budget.epsilon, paid) - math.log(4.0)
        return cls(paid + excess([1], [shift]), each)

    @property
    def deviations(self) -> float:
        """t with P(N(0, 1) > t) ≤ e^log_each."""
        return math.sqrt(-2.0 * self.log_each)

    def gaussian_norm(self, size: int) -> float:
        """A bound of ‖z‖, z ~ N(0, I) in R^size: √size + t."""
        return math.sqrt(size) + self.deviations

    def chi_square(self, degrees: float) -> float:
        """A bound of χ² with k = `degrees`: (√k + t)² ≥ k + √2·t√k + t² (Laurent and Massart)."""
        return (math.sqrt(degrees) + self.deviations) ** 2


@dataclass(frozen=True, kw_only=True)
class OutputNoise(Grid):
    """The last step: rounding to a public grid, and b ~ N_Z(0, σ̃²) on it, for a solve to within η."""

    eta: float

    def tolerance(self, size: int) -> float:
        """What remains of η for the solver once `size` coordinates were rounded, half a step each."""
        return self.eta - 0.5 * self.step * math.sqrt(size) * (1 + 1e-12)


@dataclass(frozen=True, eq=False, kw_only=True)
class SolvedPlan(FitPlan):
    """A plan that minimises a perturbed objective and releases the minimiser, or is refused.

    The answer gets noise σ̃ = base_sigma + ratio·η for a solve to within η ≥ least_eta. `mu_count` is the
    shift of a count of the rows, 0 where their number is public. `exact` is the study mode: no output noise,
    and a guarantee that says private=False, since a solution can have bits that a neighbour's cannot.
    """

    center: FloatArray = field(repr=False)
    least_eta: float
    ratio: float
    mu_count: float
    base_sigma: float = 0.0
    exact: bool = False
    clip: float | None = None
    matrices: ClassVar[float] = 12.0  # of dK × dK, for Newton steps; 7 to 9 measured

    def __post_init__(self) -> None:
        """Refuse, before anything is charged, what could not be certified for some table."""
        super().__post_init__()
        if self.exact:
            return
        if not self._grid_share * self.ratio < 0.5:
            raise InvalidInput("this budget is too small for output noise on a grid: raise epsilon or delta")
        if not math.isfinite(self._eta(ROWS_AT_MOST, self.problem.domain.x_norm)):
            raise NotCovered(
                f"rounding over {ROWS_AT_MOST:.0e} rows could hide the curvature that this plan adds, and no "
                "accuracy can be promised for every table. Pass a smaller epsilon, or choose the mechanism "
                "recentered"
            )

    @cached_property
    def rare(self) -> RareDraws:
        return RareDraws.of(self.budget, self.problem.domain.neighbours)

    @property
    def room(self) -> float:
        return super().room * self.problem.loss.n_outputs**2

    @property
    @abstractmethod
    def noise_bounds(self) -> NoiseBounds:
        """What the perturbation is within, rare draws aside."""

    @abstractmethod
    def perturbation(self, random: np.random.Generator) -> Perturbation:
        """The noise, drawn before any record is touched."""

    def on_grid(self, drawn: Perturbation, rows: Rows, random: np.random.Generator) -> Perturbation:
        """The noise as it is used: a noisy sum over the rows may have to be on a grid."""
        return drawn

    def law(self, drawn: Perturbation, used: Perturbation, rows: Rows, eta: float) -> Law | None:
        """The law of the minimiser, of problems whose only penalty is an L2; None: it has none of its own."""
        return None

    def derivatives(self, rows: Rows) -> tuple[Derivative, Derivative]:
        """θ ↦ ∇J, of the shape of θ, and ∇²J, θ flattened in C order."""
        loss, shape = self.problem.loss, self.center.shape
        weights = self.problem.regularizer.separable(*shape)
        ridge = np.zeros(shape) if weights is None else weights[1]
        return (
            lambda theta: rows.gradient_sum(loss, theta, self.clip) + ridge * theta,
            lambda theta: rows.hessian_sum(loss, theta, self.clip) + np.diag(ridge.ravel()),
        )

    def grid_error(self, rows: float, magnitude: float) -> float:
        """How far rounding in `on_grid` may move the gradient of the objective."""
        return 0.0

    @cached_property
    def certifiable(self) -> Certifiable:
        clipped = self.clip is not None
        return Certifiable(self.problem, self.center, self.noise_bounds, self.least_eta, clipped)

    def output(self, rows: float, magnitude: float) -> OutputNoise:
        """η and σ̃ for a table of at most so many rows, whose sums have terms of this magnitude. Public."""
        eta = self._eta(rows, magnitude)
        if not math.isfinite(eta):
            raise NotCovered(
                "the bounds of the sparse columns are too wide for this `x_norm`: pass dense ones"
            )
        share = 2.0 / self.ratio if self.base_sigma > 0.0 else UNSTATED  # else θ has a law of its own
        sigma = (self.base_sigma + self.ratio * eta) * (1 + 1e-15)
        return OutputNoise(sigma=sigma, step=randomness.grid_step(sigma), share=share, eta=eta)

    def pulls(self) -> list[float]:
        """Sizes of a gradient shared by both tables at which one more record is seen best (for attacks)."""
        return [30.0 * self.problem.domain.x_norm]

    @property
    def _grid_share(self) -> float:
        """Of σ̃: how far rounding to its grid moves θ at most, half a step per coordinate."""
        return 0.5 * math.sqrt(self.center.size) / randomness.STEPS_PER_SIGMA * (1 + 1e-9)

    def _eta(self, rows: float, magnitude: float) -> float:
        """The least η ≥ `least_eta` that leaves 1.5·(proved distance) once rounding to grids is paid."""
        needed = _SAFETY * self.certifiable.distance(rows, magnitude)
        needed += self._moved_by_grid(rows, magnitude) + self._grid_share * self.base_sigma
        return max(self.least_eta, needed / (1.0 - self._grid_share * self.ratio))

    def _moved_by_grid(self, rows: float, magnitude: float) -> float:
        return self.grid_error(rows, magnitude) / (0.999 * self.noise_bounds.curvature)

    def accept(self, rows: Rows) -> None:
        if not self.exact:
            self.output(ROWS_AT_MOST, rows.magnitude)

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        drawn = self.perturbation(random)
        if self.exact:
            objective = Objective(self.problem, rows, self.on_grid(drawn, rows, random), self.clip)
            return Estimate(solve(objective, RELATIVE_ETA).theta)
        n = rows.count()
        most = self.rows_at_most(n, random)
        output = self.output(most, rows.magnitude)
        if self.noise_bounds.hold(drawn) and n <= most:
            theta = self._solved(drawn, rows, output, most, random)
        else:  # a rare draw: no record is used, and δ has paid for it
            theta = self.center
        blurred = self.problem.constraint.project(output.add(theta, random, "output"))
        if self.base_sigma == 0.0:  # the objective was perturbed, too: nothing is known of the noise of θ
            return Estimate(blurred)
        if not is_free(self.problem):
            return Estimate(blurred, noise=ThetaNoise(reason=BENT))
        return Estimate(blurred, noise=ThetaNoise(output.sigma**2 * np.eye(self.d)))

    def rows_at_most(self, n: int, random: np.random.Generator) -> float:
        """A public number that n exceeds in rare draws only: n, or a noisy n and t of its deviations."""
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        if noise.neighbours.count_is_public:
            return float(max(n, 1))
        noisy = float(noise.counts(np.array([float(n)]), self.mu_count, "count")[0])
        return max(noisy, 0.0) + self.rare.deviations * 1.001 * noise.count_scale(self.mu_count) + 1.0

    def _solved(
        self, drawn: Perturbation, rows: Rows, output: OutputNoise, most: float, random: np.random.Generator
    ) -> FloatArray:
        tolerance = output.tolerance(self.center.size) - self._moved_by_grid(most, rows.magnitude)
        used = self.on_grid(drawn, rows, random)
        solution = solve(Objective(self.problem, rows, used, self.clip), tolerance)
        if not solution.distance <= tolerance:
            raise NotCertified("the solver's certificate exceeds the accounted eta; please report this")
        law = self.law(drawn, used, rows, output.eta)
        return solution.theta if law is None else told(random, law, solution.theta)


def accuracy(radius: float, eta: float | None, exact: bool) -> float:
    """The least η that a mechanism accounts for: as asked, or 1e-6·radius; 0 for an exact solve."""
    if not (math.isfinite(radius) and radius > 0):
        raise InvalidInput(
            f"`radius` must be a positive number, a public guess of the length of θ; got {radius!r}"
        )
    if exact:
        return 0.0
    if eta is None:
        return RELATIVE_ETA * radius
    if eta == 0:
        raise InvalidInput(
            "exact solves are for studies: pass exact=True, whose guarantee says private=False"
        )
    if not (math.isfinite(eta) and eta > 0):
        raise InvalidInput(f"eta must be a positive number, the distance to certify; got {eta!r}")
    return eta
