"""What solved mechanisms share: draw a perturbation, solve to a publicly fixed accuracy, blur the answer.

θ_final = ⌊θ_approx⌉_grid + b with ‖⌊θ_approx⌉ − θ_priv‖ ≤ η. Privacy counts the ratio 2η/σ̃, which the plan
fixes. η is what double precision can certify of every table with as many rows, or the least η of the plan:
it grows with the number of rows where that is public, else with a noisy count of them ("Certificates").
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput, NotCertified, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.noise import GaussianNoise, Grid
from curvedp.mechanisms.noise import excess as discreteness
from curvedp.neighbours import Neighbours
from curvedp.privacy.gaussian import check_budget
from curvedp.privacy.parameters import Symbol
from curvedp.privacy.profiles import count_shift, log_rare_probability
from curvedp.randomness import STEPS_PER_SIGMA, grid_step
from curvedp.released.noise import output_noise
from curvedp.rows.base import Rows
from curvedp.solvers import Objective, Perturbation, solve
from curvedp.solvers.accuracy import Certifiable, NoiseBounds
from curvedp.transcript import UNSTATED, Derivative, Law, told

RELATIVE_ETA = 1e-6  # least η as a fraction of the radius
LEAST_ETA = Symbol(
    "eta", "η", "certified distance of the solve from the exact minimiser; more for very long tables"
)
LEAST_SIGMA_TILDE = Symbol(
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
        return cls(paid + discreteness([1], [shift]), each)

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


@dataclass(frozen=True)
class OutputNoise:
    """The last step: rounding to a public grid, and b ~ N_Z(0, σ̃²) on it."""

    eta: float
    sigma_tilde: float
    share: float = UNSTATED  # the shift that the plan pays for

    @property
    def grid(self) -> Grid:
        return Grid(self.sigma_tilde, grid_step(self.sigma_tilde), self.share)

    def tolerance(self, size: int) -> float:
        """What remains of η for the solver once `size` coordinates were rounded, half a step each."""
        return self.eta - 0.5 * self.grid.step * math.sqrt(size) * (1 + 1e-12)


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
        return Certifiable(
            self.problem, self.center, self.noise_bounds, self.least_eta, self.clip is not None
        )

    def output(self, rows: float, magnitude: float) -> OutputNoise:
        """η and σ̃ for a table of at most so many rows, whose sums have terms of this magnitude. Public."""
        eta = self._eta(rows, magnitude)
        if not math.isfinite(eta):
            raise NotCovered(
                "the bounds of the sparse columns are too wide for this `x_norm`: pass dense ones"
            )
        share = 2.0 / self.ratio if self.base_sigma > 0.0 else UNSTATED  # else θ has a law of its own
        return OutputNoise(eta, (self.base_sigma + self.ratio * eta) * (1 + 1e-15), share)

    def pulls(self) -> list[float]:
        """Sizes of a gradient shared by both tables at which one more record is seen best (for attacks)."""
        return [30.0 * self.problem.domain.x_norm]

    @property
    def _grid_share(self) -> float:
        """Of σ̃: how far rounding to its grid moves θ at most, half a step per coordinate."""
        return 0.5 * math.sqrt(self.center.size) / STEPS_PER_SIGMA * (1 + 1e-9)

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
        blurred = self.problem.constraint.project(output.grid.add(theta, random, "output"))
        if self.base_sigma == 0.0:  # the objective was perturbed, too: nothing is known of the noise of θ
            return Estimate(blurred)
        return Estimate(blurred, noise=output_noise(self.problem, self.d, output.sigma_tilde))

    def rows_at_most(self, n: int, random: np.random.Generator) -> float:
        """A public number that n exceeds in rare draws only: n, or a noisy n and t of its deviations."""
        neighbours = self.problem.domain.neighbours
        if neighbours.count_is_public:
            return float(max(n, 1))
        noise = GaussianNoise(random, neighbours)
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
