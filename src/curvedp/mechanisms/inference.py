"""Coefficients with standard errors: a recentered walk, then one Newton step with its own bread and meat.

After S and a second curvature the walk only finds the neighbourhood. From there a curvature of the loss and
a coarse step lead to a centre w₁, where a histogram of gradient lengths, their covariance and one precise
gradient are released. `released.inference` turns those into estimates and intervals, at no further cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import BoolArray, FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.geometry import Geometry, curvature_above, noise_norm
from curvedp.mechanisms.noise import GaussianNoise, gradient_scale, gram_scale
from curvedp.mechanisms.recentered import RecenteredPlan, calibrated
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.mechanisms.walk import Clip, Rounds, started
from curvedp.neighbours import Neighbours
from curvedp.plans import require_room
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.released.bread import Bread, Look
from curvedp.released.inference import LEAST_EIGENVALUE, Inference, Releases
from curvedp.released.quadratic_model import QuadraticModel
from curvedp.released.smearing import inflation
from curvedp.released.tails import Tail
from curvedp.rows.base import Rows
from curvedp.rows.contrasts import ContrastRows, contrasts

# A heavier ridge of the pilot than a plain walk's, for Ĵ⁻¹ suffers from directions that no record has; a
# lighter one of S, for a direction that it outweighs is not resolved.
RULE = Rule(pilot_share=0.08, pilot_floor=1.0, floor=0.3)


@dataclass(frozen=True)
class Shares:
    """Fractions of what the walk would have for its rounds; these get the rest."""

    second: float = 0.15  # the curvature again, in the metric of S
    bread: float = 0.15  # the curvature of the loss at the walk's end
    step: float = 0.10  # gradient of a coarse Newton step
    tail: float = 0.075  # histogram of gradient lengths
    meat: float = 0.0375  # covariance of gradients
    final: float = 0.3625  # the gradient that the estimate rests on

    def __post_init__(self) -> None:
        parts = (self.second, self.bread, self.step, self.tail, self.meat, self.final)
        if not (min(parts) > 0 and sum(parts) < 1):
            raise InvalidInput("the shares must be positive and leave something for the walk")

    @property
    def walk(self) -> float:
        return 1.0 - (self.second + self.bread + self.step + self.tail + self.meat + self.final)


@dataclass(frozen=True)
class Looks:
    """The Gaussian shift of every release that inference adds; with the walk's `Shifts`, Σ μ_j² ≤ μ²."""

    second: float
    bread: float
    step: float
    tail: float
    meat: float
    final: float

    @classmethod
    def split(cls, mu: float, rule: Rule, shares: Shares, neighbours: Neighbours) -> Looks:
        """Shares of what the walk's releases but its rounds leave of μ²."""
        walk = Shifts.split(mu, rule, neighbours)
        left = walk.first**2 + walk.later**2
        parts = {name: math.sqrt(left * share) * (1 - 1e-14) for name, share in vars(shares).items()}
        return cls(**parts)

    @property
    def total(self) -> float:
        """√Σ μ_j²."""
        return math.sqrt(math.fsum(shift**2 for shift in vars(self).values()))


@dataclass(frozen=True, eq=False)
class InferredEstimate(Estimate):
    """θ, and what is known of its error."""

    inference: Inference | None = None


@dataclass(frozen=True)
class RecenteredInference:
    """θ of an unpenalised fit with one output, and intervals for it (P-10).

    Parameters
    ----------
    blocks : sequence of sequences of int, optional
        Columns that code the levels of one category, level minus 1/K: their coefficients sum to zero.
    rule : Rule, optional
        The public constants of the walk.
    shares : Shares, optional
        How the budget is split.
    """

    blocks: tuple[tuple[int, ...], ...] = ()
    rule: Rule = field(default_factory=lambda: RULE)
    shares: Shares = field(default_factory=Shares)
    name = "recentered_inference"

    def plan(self, problem: Problem, d: int, budget: Budget) -> InferencePlan:
        """Calibrate the curvature and every Gaussian release, or refuse."""
        problem.domain.neighbours.refuse_units("intervals", "fit without inference")
        if problem.loss.n_outputs > 1:
            raise InvalidInput("intervals need one output: fit two classes at a time, or without inference")
        require_room(8.0 * InferencePlan.matrices * d**2)  # before the first of them
        if not QuadraticModel(problem, np.eye(d)).is_free:
            raise InvalidInput(
                "intervals are for fits without penalty and constraint: pass alpha=0 and no constraint, or "
                "fit without inference"
            )
        problem.loss.inverse_link(np.zeros((1, 1)))  # a loss without a mean response refuses here
        if not problem.loss.curvature(problem.domain, problem.radius(d)) <= _LARGEST_CURVATURE:
            raise InvalidInput("intervals need a loss of moderate curvature: pass a smaller max_margin")
        N = contrasts(d, self.blocks)
        r = N.shape[1]
        if r == 0:
            raise InvalidInput("intervals need a column with more than one value: add one, or an intercept")
        free = Problem(problem.loss, domain=problem.domain)
        profile = calibrated(self.rule, free, r, budget, [r * r] * 3 + [r] * 2 + [EDGES + 1])
        neighbours = problem.domain.neighbours
        shifts = Shifts.split(profile.mu, self.rule, neighbours, self.shares.walk)
        looks = Looks.split(profile.mu, self.rule, self.shares, neighbours)
        walk = RecenteredPlan(free, r, budget, self.rule, shifts, profile, columns=d if d > r else None)
        return InferencePlan(problem, d, budget, walk, looks, N)


_LARGEST_CURVATURE = 1e6  # β: noise for more would hide every table
EDGES = 13  # of the histogram of gradient lengths, a factor √2 apart, from the walk's clip/√2 on
SECOND_BOUND = 2.0  # of ‖z‖² in the second curvature, in units of its mean
BREAD_GROWTH = 0.05  # of m with κ
BREAD_BOUNDS = (2.0, 12.0)  # likewise in the bread: as many as keep its noise at about 0.05, within these


@dataclass(frozen=True, eq=False)
class InferencePlan(FitPlan):
    """The calibrated mechanism: a walk among r = d − #blocks coordinates, and what follows it."""

    walk: RecenteredPlan
    looks: Looks
    N: FloatArray  # (d, r)
    matrices: ClassVar[float] = 32.0  # 26 to 30 measured

    @cached_property
    def guarantee(self) -> Guarantee:
        k = self.looks
        return self.promise(
            "recentered_inference",
            "gaussian",
            "(P-10)",
            self.walk.profile,
            *self.walk.parameters,
            public.MU_SECOND(k.second),
            public.MU_BREAD(k.bread),
            public.MU_STEP(k.step),
            public.MU_TAIL(k.tail),
            public.MU_MEAT(k.meat),
            public.MU_FINAL(k.final),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> InferredEstimate:
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        view = ContrastRows(rows, self.N)
        n = noise.count(view, self.walk.shifts.count)
        first = self.walk.geometry(view, noise, n)
        geometry, look = self._second(view, noise, first, n)
        rounds = started(self.walk, view.in_metric(geometry.metric), noise, geometry, n)
        inference = Inference(_Newton(self, rounds, look).releases())
        return InferredEstimate(inference.theta, inference=inference)

    def unseen(self, share: float) -> float:
        """The share of a record that N, and so no metric, sees: 0 where N is a rotation."""
        return share if self.d > self.walk.d else 0.0

    def _second(self, rows: Rows, noise: GaussianNoise, first: Geometry, n: float) -> tuple[Geometry, Look]:
        """Σ z zᵀ of z = Ax shortened to ‖z‖² ≤ b² = 2·resolved/n̂, released; the metric that whitens it."""
        A, mu, r = first.metric, self.looks.second, len(first.metric)
        b2 = SECOND_BOUND * first.resolved / n
        gram = A @ rows.in_metric(A, math.sqrt(b2)).moments().xx @ A.T
        most = self.walk.rows_at_most(noise, n)
        slack = first.gram_slack(most, self.d, self.unseen(self.problem.domain.x_norm**2 / b2))
        G = noise.gram(gram, math.sqrt(b2), mu, slack, "second")
        scale = gram_scale(b2, mu, noise.neighbours, slack)
        lifted, U = curvature_above(G, self.walk.rule.floor * noise_norm(scale, r), math.inf)
        look = Look(np.sum(U * (G @ U), axis=0), lifted, scale)
        metric = (U / np.sqrt(lifted)).T @ A
        inverse = np.linalg.inv(metric)
        resolved = min(max(float(np.sum(look.diagonal)), 0.1 * r), float(r))
        return Geometry(metric, inverse @ inverse.T, resolved, first.weight), look


@dataclass(frozen=True, eq=False)
class _Newton:
    """From the walk's end to the releases that an estimate rests on; w are coordinates of the metric."""

    plan: InferencePlan
    rounds: Rounds  # in the metric that whitens the second curvature
    look: Look

    def releases(self) -> Releases:
        plan, rounds, looks = self.plan, self.rounds, self.plan.looks
        clip, w = self._walked()
        bread = self._bread(w, clip)
        resolved = bread.resolved(self.look, self._beta)
        w, inflated = self._step(np.where(resolved, w, 0.0), bread, resolved, clip)
        tail = self._tail(w, clip)
        edge = tail.clip(len(w), rounds.noise.neighbours.sum_factor / looks.final)
        last = Clip(float(tail.edges[edge]), 1.0)
        meat, meat_scale = self._meat(w, last)
        gradient, noise = self._gradient(w, last, looks.final, "final")
        A = rounds.geometry.metric
        return Releases(
            basis=plan.N @ A.T,
            lengths=np.linalg.norm(A, axis=1),
            resolved=resolved,
            bread=bread,
            beta=self._beta,
            centre=w,
            tail=tail,
            edge=edge,
            gradient=gradient,
            noise=noise,
            meat=meat,
            meat_scale=meat_scale,
            count=rounds.n,
            count_scale=0.0 if rounds.noise.neighbours.count_is_public else 1.0 / plan.walk.shifts.count,
            kappa=rounds.kappa,
            inflation=inflated,
        )

    @property
    def _beta(self) -> float:
        problem = self.plan.walk.problem
        return problem.loss.curvature(problem.domain, problem.radius(self.plan.walk.d))

    def _slack(self, share: float) -> float:
        """What rounding adds to a matrix whose terms have at most `share` times their bound outside of N."""
        return self.rounds.geometry.gram_slack(self.rounds.most, self.plan.d, self.plan.unseen(share))

    def _theta(self, w: FloatArray) -> FloatArray:
        return np.asarray(self.rounds.geometry.metric.T @ w)[:, None]

    def _walked(self) -> tuple[Clip, FloatArray]:
        """(clip, w₀) of the walk."""
        clip, found = self.rounds.finished(np.zeros((self.plan.walk.d, 1)))
        A = self.rounds.geometry.metric
        return clip, np.asarray(np.linalg.solve(A.T, found.theta[:, 0]), dtype=np.float64)

    def _bread(self, w: FloatArray, clip: Clip) -> Bread:
        """Σ uφ'' z zᵀ of unclipped records, none more than m·β·resolved/n̂; m keeps the noise small."""
        rounds, mu, loss = self.rounds, self.plan.looks.bread, self.plan.walk.problem.loss
        share = mu / self.plan.walk.mu
        m = min(max(BREAD_GROWTH * rounds.kappa * share, BREAD_BOUNDS[0]), BREAD_BOUNDS[1])
        bound = m * self._beta * rounds.geometry.resolved / rounds.n
        theta, A = self._theta(w), rounds.geometry.metric
        slack = self._slack(self._beta * self.plan.problem.domain.x_norm**2 / bound)
        slack += rounds.slack(theta, clip)  # u falls by as much as a gradient grows, in units of the clip
        total = A @ rounds.rows.curvature_sum(loss, theta, bound, clip.size) @ A.T
        noisy = rounds.noise.gram(total, math.sqrt(bound), mu, slack, "bread")
        return Bread.weighed(self.look, noisy, gram_scale(bound, mu, rounds.noise.neighbours, slack))

    def _step(self, w: FloatArray, bread: Bread, resolved: BoolArray, clip: Clip) -> tuple[FloatArray, float]:
        """w₁ = w₀ − Ĵ⁻¹G, and what its noise does to a step from it.

        What is released at w₁ depends less on the errors of Ĵ; where nothing is resolved, w = 0.
        """
        gradient, noise = self._gradient(w, clip, self.plan.looks.step, "step")
        J, _ = bread.among(resolved, LEAST_EIGENVALUE * self._beta)
        moved = w.copy()
        moved[resolved] -= np.linalg.solve(J, gradient[resolved])
        mass = self.rounds.n * self.rounds.geometry.weight
        curvature = np.maximum(self.look.diagonal, 0.0) / mass  # mean of z_k² over the records
        loss = self.plan.walk.problem.loss
        return moved, inflation(
            lambda m: loss.inverse_link(m.reshape(-1, 1)).reshape(m.shape),
            math.sqrt(float(curvature @ moved**2)),
            noise * math.sqrt(float(curvature[resolved] @ np.sum(np.linalg.inv(J) ** 2, axis=1))),
        )

    def _gradient(self, w: FloatArray, clip: Clip, mu: float, name: str) -> tuple[FloatArray, float]:
        """Σ clip_c(g) in the metric, noisy, and the deviation of its noise."""
        rounds, theta, loss = self.rounds, self._theta(w), self.plan.walk.problem.loss
        slack = rounds.slack(theta, clip)
        total = rounds.geometry.metric @ rounds.rows.gradient_sum(loss, theta, clip.size)
        noisy = rounds.noise.gradient(total, clip.size, mu, slack, name)[:, 0]
        return noisy, gradient_scale(clip.size, mu, rounds.noise.neighbours, slack)

    def _tail(self, w: FloatArray, clip: Clip) -> Tail:
        rounds, mu, loss = self.rounds, self.plan.looks.tail, self.plan.walk.problem.loss
        edges = clip.size * math.sqrt(2.0) ** np.arange(-1.0, EDGES - 1.0)
        counts = rounds.rows.gradient_norm_histogram(loss, self._theta(w), edges)
        counts = rounds.noise.counts(counts, mu, "tail")
        return Tail(edges, counts, rounds.noise.count_scale(mu))

    def _meat(self, w: FloatArray, clip: Clip) -> tuple[FloatArray, float]:
        """Σ g gᵀ of clipped gradients, in the metric, noisy, and the scale of its noise."""
        rounds, mu, theta = self.rounds, self.plan.looks.meat, self._theta(w)
        A = rounds.geometry.metric
        slack = self._slack((rounds.steepest(theta) / clip.size) ** 2)
        total = A @ rounds.rows.score_sum(self.plan.walk.problem.loss, theta, clip.size) @ A.T
        noisy = rounds.noise.gram(total, clip.size, mu, slack, "meat")
        return noisy, gram_scale(clip.size**2, mu, rounds.noise.neighbours, slack)
