"""Gaussian releases of sums over records: histograms, Gram matrices, clipped gradients (P-2), (S-2).

Every one is exact: the computed sum is rounded to a public grid and gets a discrete Gaussian on that grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import CalibrationFailed
from curvedp.neighbours import Neighbours
from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess
from curvedp.privacy.profiles import GaussianProfile
from curvedp.randomness import LARGEST_SCALE, discrete_gaussian, power_of_two, round_to_grid
from curvedp.rows.base import Rows
from curvedp.rows.rounding import SUM_SLACK
from curvedp.transcript import UNSTATED, Normal, told

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
        step = power_of_two(max(fine, 8.0 / LARGEST_SCALE) * (sensitivity / mu))
        return cls((sensitivity + math.sqrt(dim) * step) / mu * (1 + 1e-14), step, mu)

    def scaled(self, factor: float) -> Grid:
        """For the query times `factor`, the two being one answer."""
        return Grid(self.sigma * factor, power_of_two(self.step * factor))

    def add(self, value: FloatArray, random: np.random.Generator, name: str = "") -> FloatArray:
        """The value on the grid, plus independent noise of deviation at least σ."""
        noisy = round_to_grid(value, self.step) + self._noise(random, value.shape, self.sigma)
        return told(random, Normal(value, self.sigma, False, self.share, name, self.step), noisy)

    def add_symmetric(self, value: FloatArray, random: np.random.Generator, name: str = "") -> FloatArray:
        """For a symmetric matrix: σ on the diagonal, σ/√2 off it, isotropic in the Frobenius norm (S-2)."""
        d = len(value)
        noise, upper = np.zeros((d, d)), np.triu_indices(d, 1)
        noise[upper] = self._noise(random, (len(upper[0]),), self.sigma / math.sqrt(2.0))
        noise += noise.T
        np.fill_diagonal(noise, self._noise(random, (d,), self.sigma))
        value = (value + value.T) / 2.0
        noisy = round_to_grid(value, self.step) + noise
        return told(random, Normal(value, self.sigma, True, self.share, name, self.step), noisy)

    def _noise(self, random: np.random.Generator, shape: tuple[int, ...], sigma: float) -> FloatArray:
        steps = math.ceil(sigma / self.step * (1 + 1e-14))
        return discrete_gaussian(random, steps, math.prod(shape)).reshape(shape) * self.step


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

    def counts(self, counts: FloatArray, mu: float, name: str = "") -> FloatArray:
        """A histogram, one record in one cell; below 2⁵³ counts are exact."""
        grid = Grid.of(self.neighbours.histogram_factor, mu, counts.size)
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
    if any(2.0**8 * math.sqrt(dim) > mu * LARGEST_SCALE for dim, mu in made):
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
