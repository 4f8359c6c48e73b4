"""DP-SGD: noisy gradient steps on Poisson samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from typing import Any, ClassVar

import numpy as np
from dp_accounting import dp_event, mechanism_calibration
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from scipy import stats

from curvedp.arrays import FloatArray
from curvedp.data.rows import base
from curvedp.data.rows.base import SUM_SLACK, Parts, Rows, slope_slack, tree_sum
from curvedp.data.rows.blocked import BlockRows, contribution
from curvedp.data.rows.blocks import Block, DenseBlock
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan, GaussianNoise, excess
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import check_budget
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.privacy.profiles import Curve
from curvedp.problems import Problem
from curvedp.problems.losses import Loss
from curvedp.randomness import generator
from curvedp.transcript import Law
from curvedp_studies.mechanisms import vocabulary
from curvedp_studies.mechanisms.baselines import RUNAWAY, Descent, check_descent, default_clip, default_step

RATE = Parameter("rate", "q", "chance of a record to take part in a round")
NOISE_MULTIPLIER = Parameter(
    "noise_multiplier", "σ/c", "noise of a round, in units of one record", is_noise=True
)
COUNT_MULTIPLIER = Parameter("count_multiplier", "σₙ", "standard deviation of the number of records")


@dataclass(frozen=True)
class DPSGD:
    """Noisy gradient steps on Poisson samples: every record takes part in a round with probability `rate`.

    Accounted by the privacy loss distribution of the subsampled Gaussian (dp_accounting), for add_remove.
    On a Dask cluster the workers toss the coins, from their own entropy, and a seed does not repeat them.
    """

    rounds: int = 500
    rate: float = 0.05
    clip: float | None = None
    step: float | None = None
    name = "dp_sgd"

    def plan(self, problem: Problem, d: int, budget: Budget) -> DPSGDPlan:
        """The least noise multiplier that keeps this budget."""
        if problem.domain.neighbours.count_is_public:
            raise NotCovered(
                "DP-SGD is accounted for add_remove adjacency only; use NoisyGradient for replace"
            )
        clip = default_clip(problem) if self.clip is None else self.clip
        step = default_step(problem, d) if self.step is None else self.step
        check_descent(self.rounds, clip, step)
        if not 0 < self.rate < 1:
            raise InvalidInput(f"rate must lie strictly between 0 and 1, got {self.rate!r}")
        rate = math.ceil(self.rate * 2**53) / 2**53  # what comparing a uniform double with it amounts to
        size = d * problem.loss.n_outputs
        profile = calibrate_subsampled(budget.epsilon, budget.delta, rate, self.rounds, size)
        return DPSGDPlan(problem, d, budget, self.rounds, clip, step, profile)


@dataclass(frozen=True, eq=False)
class DPSGDPlan(FitPlan):
    """The noise multiplier σ/c of every round, in its profile."""

    rounds: int
    clip: float
    step: float
    profile: SubsampledProfile
    matrices: ClassVar[float] = 0.0

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "dp_sgd",
            "pld",
            "Peers (DP-SGD)",
            self.profile,
            public.ROUNDS(self.rounds),
            RATE(self.profile.rate),
            vocabulary.CLIP(self.clip),
            vocabulary.STEP(self.step),
            NOISE_MULTIPLIER(self.profile.multiplier),
            COUNT_MULTIPLIER(count_multiplier(self.profile.multiplier, self.rounds)),
        )

    def accept(self, rows: Rows) -> None:
        if not isinstance(rows, Rows):
            raise NotCovered(
                "DP-SGD samples the rows that make_rows makes: pass an array, a matrix or a table"
            )

    def pulls(self) -> list[float]:
        return []  # a shared gradient is carried by very many records, and these are sampled one by one

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        assert isinstance(rows, Rows)
        multiplier, rate = self.profile.multiplier, self.profile.rate
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        n = noise.count(rows, 1.0 / count_multiplier(multiplier, self.rounds))
        descent = Descent(self.problem, self.step)
        loss = self.problem.loss
        theta = self.problem.constraint.project(np.zeros((self.d, loss.n_outputs)))
        for t in range(self.rounds):
            total = sampled_gradient_sum(rows, loss, theta, self.clip, rate, random)
            slack = SUM_SLACK + slope_slack(self.problem, self.d, theta, self.clip)
            if t > 0 and slack > RUNAWAY:
                break
            theta = descent.move(
                theta, noise.gradient(total, self.clip, 1.0 / multiplier, slack, "round"), rate * n
            )
        return Estimate(theta)

    def sampling_problems(
        self, budget: Budget, rate: float, runs: Sequence[Sequence[tuple[Law, Any, Law]]]
    ) -> Iterator[str]:
        """For an audit: stated shifts of rounds sampled at this rate, composed; how often the record was.

        A run has the law of every answer, the answer, and its law on the neighbouring table.
        """
        from curvedp.auditing.exam import LEVEL

        times = Counter((law.name, law.share) for law, *_ in runs[0])
        plds = [
            privacy_loss_distribution.from_gaussian_mechanism(
                1.0 / share, sampling_prob=rate if name == "round" else 1.0
            ).self_compose(count)
            for (name, share), count in times.items()
        ]
        whole = reduce(lambda a, b: a.compose(b), plds)
        if whole.get_delta_for_epsilon(budget.epsilon) > budget.delta:
            yield f"the stated shifts, sampled at {rate:.3g}, cost more than (ε, δ)"
        moved = [
            law.distance(other, value) > 0 for run in runs for law, value, other in run if law.name == "round"
        ]
        if stats.binomtest(sum(moved), len(moved), rate, "greater").pvalue < LEVEL:
            yield f"a record is sampled in {np.mean(moved):.3g} of the rounds, and not in {rate:.3g}"


def count_multiplier(multiplier: float, rounds: int) -> float:
    """Noise of the one unsampled count, which is composed with the rounds."""
    return max(10.0 * multiplier / math.sqrt(rounds), 10.0 * multiplier / rounds)


@dataclass(frozen=True)
class SubsampledProfile(Curve):
    """`rounds` Poisson-subsampled Gaussians and one noisy count, composed as privacy loss distributions.

    `excess` is what their discreteness adds: sampling multiplies the excess of a round by at most 1.
    """

    multiplier: float
    rate: float
    rounds: int
    excess: float
    discretization: float = 1e-4

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        pld = _subsampled_pld(self.multiplier, self.rate, self.rounds, self.discretization)
        found = np.array([pld.get_delta_for_epsilon(float(level)) for level in epsilon])
        return np.minimum(found * (1 + 1e-9) + self.excess, 1.0)


@lru_cache(maxsize=64)
def _subsampled_pld(multiplier: float, rate: float, rounds: int, discretization: float) -> Any:
    def gaussian(deviation: float, probability: float) -> Any:
        return privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=deviation,
            value_discretization_interval=discretization,
            sampling_prob=probability,
            pessimistic_estimate=True,
        )

    count = gaussian(count_multiplier(multiplier, rounds), 1.0)
    return gaussian(multiplier, rate).self_compose(rounds).compose(count)


@lru_cache(maxsize=64)
def calibrate_subsampled(
    epsilon: float, delta: float, rate: float, rounds: int, size: int
) -> SubsampledProfile:
    """The profile of the least noise (to 0.1 %) that keeps (ε, δ), for gradients of `size` numbers."""
    check_budget(epsilon, delta)
    discretization = 1e-4 * max(1.0, epsilon)  # pessimistic at any size; finer costs time

    def event(multiplier: float) -> dp_event.DpEvent:
        sampled = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        count = dp_event.GaussianDpEvent(count_multiplier(multiplier, rounds))
        return dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(sampled, rounds), count])

    def profile(multiplier: float) -> SubsampledProfile:
        shifts = [1.0 / count_multiplier(multiplier, rounds)] + [1.0 / multiplier] * rounds
        extra = excess([1] + [size] * rounds, shifts)
        return SubsampledProfile(multiplier, rate, rounds, extra, discretization)

    try:
        multiplier = float(
            mechanism_calibration.calibrate_dp_mechanism(
                lambda: PLDAccountant(value_discretization_interval=discretization),
                event,
                epsilon,
                delta,
                tol=1e-3,
            )
        )
    except (ValueError, mechanism_calibration.NoBracketIntervalFoundError):
        multiplier = math.inf
    found = multiplier
    while math.isfinite(found) and profile(found).delta_at(epsilon) > delta:
        found *= 1.0002
        if found > 1.1 * multiplier:
            found = math.inf
    if not math.isfinite(found):
        raise CalibrationFailed("no noise within reach keeps the promised (ε, δ): relax epsilon or delta")
    return profile(found)


def sampled_gradient_sum(
    rows: Rows, loss: Loss, theta: FloatArray, clip: float, rate: float, random: np.random.Generator
) -> FloatArray:
    """Σ_i b_i·clip_c(∇ℓ(θ; z_i)), b_i independent Bernoulli(rate); `rate` a multiple of 2⁻⁵³.

    Blocks of this process are sampled in order by `random`; those of a cluster where they are, by entropy.
    """
    sample = partial(_gradient, at=base.At(rows.layout.domain, loss, theta), clip=clip, rate=rate)
    if isinstance(rows, BlockRows):
        reduction = partial(sample, random=random)
        total = tree_sum(map(partial(contribution, reduction), rows.loads(keep=True)))
    else:
        total = rows.total(partial(sample, random=None), keep=True)
    return np.zeros(theta.shape) if total is None else total.parts[0]


def _gradient(
    block: Block, y: FloatArray, at: base.At, clip: float, rate: float, random: np.random.Generator | None
) -> Parts:
    chosen = (generator() if random is None else random).random(len(y)) < rate
    if isinstance(block, DenseBlock):  # the others stay unread
        block, y = block.chosen(chosen), y[chosen]
    else:
        block = block.rescaled(chosen.astype(np.float64), block.norms)
    return base.gradient(block, y, at, clip)
