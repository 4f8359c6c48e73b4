"""The walk of the mechanism for B runs, in the coordinates of the metric: θ = Aᵀw, z = Ax."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from curvedp_studies.coverage.derivatives import slope
from curvedp_studies.coverage.draws import Tensor, at, beyond, first_true, histogram, octaves, shortened
from curvedp_studies.coverage.metric import Metric, Setting


@dataclass(frozen=True, eq=False)
class Clip:
    """Clips of gradient lengths (B,), and the fraction of records that each is believed to leave alone."""

    size: Tensor
    kept: Tensor


@dataclass(frozen=True, eq=False)
class Round:
    centre: Tensor
    gradient: Tensor
    moved: Tensor


@dataclass(frozen=True, eq=False)
class Walk:
    setting: Setting
    metric: Metric

    @cached_property
    def Z(self) -> Tensor:
        return self.setting.X @ self.metric.A.mT

    @cached_property
    def lengths(self) -> Tensor:
        return self.Z.norm(dim=2)

    @cached_property
    def kappa(self) -> Tensor:
        return self.metric.n * self.setting.plan.mu / self.setting.r

    @property
    def beta(self) -> float:
        return self.setting.constants.losses[self.setting.loss].beta

    def margins(self, w: Tensor) -> Tensor:
        return (self.Z @ w[..., None])[..., 0]

    def slopes(self, w: Tensor) -> Tensor:
        return slope(self.setting.loss, self.margins(w), self.setting.y, torch)

    def clipped(self, w: Tensor, clip: Tensor) -> Tensor:
        """Slopes of the clipped gradients at w."""
        slopes = self.slopes(w)
        return slopes * shortened(slopes.abs() * self.lengths, clip)

    def gradient(self, w: Tensor, clip: Tensor, mu: float) -> Tensor:
        """Σ clip_c(g) + noise."""
        total = (self.Z.mT @ self.clipped(w, clip)[..., None])[..., 0]
        scale = self.setting.gradient_scale(clip, mu)
        return total + scale[:, None] * self.setting.draws.normal(self.setting.r)

    @property
    def _typical(self) -> Tensor:
        constants = self.setting.constants.losses[self.setting.loss]
        return constants.slope * (self.metric.resolved / self.metric.n).sqrt()

    @property
    def first_clip(self) -> Clip:
        rule = self.setting.constants.rule
        kept = torch.full_like(self.metric.n, rule["first_kept"])
        return Clip(rule["first_clip"] * self._typical, kept)

    def choose_clip(self, w: Tensor) -> Clip:
        """From a private histogram at w."""
        setting, constants, n = self.setting, self.setting.constants, self.metric.n
        rule, mu = constants.rule, setting.plan.shifts["clip"]
        edges = octaves(rule["widest_clip"] * self._typical, constants.whole("edges"))
        counts = histogram(self.slopes(w).abs() * self.lengths, edges)
        outside = beyond(setting.noisy_counts(counts, mu))
        target = torch.minimum(
            torch.full_like(n, rule["clipped"] * setting.r / setting.plan.mu), (1.0 - rule["kept"]) * n
        )
        index = first_true(outside <= target[:, None])
        kept = (1.0 - at(outside, index) / n).clamp(rule["kept"], 1.0)
        noise = setting.count_scale(mu) * math.sqrt(edges.shape[1] / 2.0) > n / 3.0
        first = self.first_clip
        return Clip(torch.where(noise, first.size, at(edges, index)), torch.where(noise, first.kept, kept))

    def rounds(self, w: Tensor, clip: Clip, rounds: int, mu: float) -> Iterator[Round]:
        rule = self.setting.constants.rule
        damping = (rule["travel"] * self.kappa / rule["rounds"]).clamp_max(rule["step"])
        length = (damping / (self.beta * clip.kept))[:, None]
        momentum = (rule["momentum"] * self.kappa / (self.kappa + rule["large"]))[:, None]
        last = w
        for _ in range(rounds):
            centre = w + momentum * (w - last)
            gradient = self.gradient(centre, clip.size, mu)
            last, w = w, centre - length * gradient
            yield Round(centre, gradient, w)
            uphill = (gradient * (w - last)).sum(1) > 0
            last = torch.where(uphill[:, None], w, last)

    def found(self) -> tuple[Tensor, Clip]:
        """Where the first rounds lead, and the clip of the later ones."""
        constants, shifts = self.setting.constants, self.setting.plan.shifts
        w = torch.zeros_like(self.metric.raw)
        for step in self.rounds(w, self.first_clip, constants.whole("first_rounds"), shifts["first"]):
            w = step.moved
        return w, self.choose_clip(w)

    def walked(self) -> tuple[Tensor, Clip]:
        """The end w₀ of the walk, a Newton step from the weighted mean of the later rounds; and its clip."""
        constants, shifts = self.setting.constants, self.setting.plan.shifts
        w, clip = self.found()
        later = constants.whole("rounds") - constants.whole("first_rounds")
        weights = self._weights(later)
        mean = torch.zeros_like(w)
        for t, step in enumerate(self.rounds(w, clip, later, shifts["later"])):
            mean += weights[:, t, None] * (step.centre - step.gradient / (self.beta * clip.kept)[:, None])
        return mean, clip

    def _weights(self, rounds: int) -> Tensor:
        rule = self.setting.constants.rule
        power = rule["weight"] * (1.0 + self.kappa / rule["large"])
        t = torch.arange(1, rounds + 1, device=power.device, dtype=power.dtype)
        weights = torch.exp(power[:, None] * torch.log(t / rounds))
        return weights / weights.sum(1, keepdim=True)
