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
from curvedp_studies.coverage.steps import edges_of_looks, typical_lengths


@dataclass(frozen=True, eq=False)
class Clip:
    """Clips of gradient lengths (B,), and the fraction of records that each is believed to leave alone."""

    size: Tensor
    kept: Tensor


@dataclass(frozen=True, eq=False)
class Stride:
    """So many rounds of every run, their damping, momentum and shift; all (B,)."""

    rounds: Tensor
    damping: Tensor
    momentum: Tensor
    mu: Tensor


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

    def gradient(self, w: Tensor, clip: Tensor, mu: Tensor | float) -> Tensor:
        """Σ clip_c(g) + noise."""
        total = (self.Z.mT @ self.clipped(w, clip)[..., None])[..., 0]
        scale = self.setting.gradient_scale(clip, mu)
        return total + scale[:, None] * self.setting.draws.normal(self.setting.r)

    @cached_property
    def spread(self) -> Tensor:
        """About Σ‖z‖², from a private histogram of record lengths."""
        n = self.metric.n
        length = self._typical_length(self.lengths, (self.metric.resolved / n).sqrt(), "spread", octaves=1.0)
        return (n * length**2).clamp_max(float(self.setting.r))

    @cached_property
    def typical(self) -> Tensor:
        """Of a gradient at w = 0, from a private histogram of their lengths."""
        guess = self.setting.constants.losses[self.setting.loss].slope * (self.spread / self.metric.n).sqrt()
        lengths = self.slopes(torch.zeros_like(self.metric.raw)).abs() * self.lengths
        return self._typical_length(lengths, guess, "scale", octaves=2.0)

    def _typical_length(self, lengths: Tensor, guess: Tensor, look: str, octaves: float) -> Tensor:
        setting, mu = self.setting, self.setting.plan.shifts[look]
        edges = edges_of_looks((setting.constants.rule["widest_clip"] * guess).cpu().numpy())
        counts = setting.noisy_counts(histogram(lengths, torch.as_tensor(edges).to(guess)), mu)
        told, n, guessed = (tensor.cpu().numpy() for tensor in (counts, self.metric.n, guess))
        found = typical_lengths(edges, told, n, guessed, setting.count_scale(mu), octaves)
        return torch.as_tensor(found).to(guess)

    @property
    def first_clip(self) -> Clip:
        rule = self.setting.constants.rule
        kept = torch.full_like(self.metric.n, rule["first_kept"])
        return Clip(rule["first_clip"] * self.typical, kept)

    def choose_clip(self, w: Tensor) -> Clip:
        """From a private histogram at w."""
        setting, constants, n = self.setting, self.setting.constants, self.metric.n
        rule, mu = constants.rule, setting.plan.shifts["clip"]
        edges = octaves(rule["widest_clip"] * self.typical, constants.whole("edges"))
        counts = histogram(self.slopes(w).abs() * self.lengths, edges)
        outside = beyond(setting.noisy_counts(counts, mu))
        few = rule["clipped"] * setting.r * setting.plan.neighbours.sum_factor / setting.plan.mu
        cells = torch.arange(edges.shape[1], 0, -1, device=n.device, dtype=n.dtype)
        doubt = rule["doubt"] * setting.count_scale(mu) * cells.sqrt()
        index = first_true((outside - doubt <= few) & (outside <= (1.0 - rule["kept"]) * n[:, None]))
        kept = (1.0 - at(outside, index) / n).clamp(rule["kept"], 1.0)
        noise = setting.count_scale(mu) * math.sqrt(edges.shape[1] / 2.0) > n / 3.0
        first = self.first_clip
        return Clip(torch.where(noise, first.size, at(edges, index)), torch.where(noise, first.kept, kept))

    @cached_property
    def _quick(self) -> Tensor:
        """Which runs make fewer, bolder rounds."""
        rule = self.setting.constants.rule
        return (self.kappa >= rule["plenty"]) & (rule["rounds"] > rule["quick_rounds"])

    def _paced(self, name: str) -> Tensor:
        """A constant of the rule, or its quick counterpart."""
        rule = self.setting.constants.rule
        slow, quick = (torch.full_like(self.kappa, rule[key]) for key in (name, f"quick_{name}"))
        return torch.where(self._quick, quick, slow)

    def first_stride(self) -> Stride:
        rule = self.setting.constants.rule
        return self._stride(self._paced("first_rounds"), "first", rule["first_travel"])

    def later_stride(self) -> Stride:
        rounds = self._paced("rounds") - self._paced("first_rounds")
        return self._stride(rounds, "later", math.inf)

    def _stride(self, rounds: Tensor, name: str, most: float) -> Stride:
        """Σ damping/(1 − momentum) is the way that noise allows, and at most `most`."""
        plan, rule = self.setting.plan, self.setting.constants.rule
        mu = plan.shifts[name] / plan.neighbours.sum_factor
        way = (rule["travel"] * mu * self.metric.n / self.spread).clamp_max(most)
        step = self._paced("step")
        momentum = (1.0 - step * rounds / way).clamp(0.0, rule["momentum"])
        return Stride(rounds, torch.minimum(step, way / rounds), momentum, plan.shifts[name] / rounds.sqrt())

    def rounds(self, w: Tensor, clip: Clip, stride: Stride) -> Iterator[Round]:
        """As many as the run with most has; the others stand still from their last on."""
        length = (stride.damping / (self.beta * clip.kept))[:, None]
        last = w
        for t in range(int(stride.rounds.max())):
            centre = w + stride.momentum[:, None] * (w - last)
            gradient = self.gradient(centre, clip.size, stride.mu)
            going = (t < stride.rounds)[:, None]
            last, w = w, torch.where(going, centre - length * gradient, w)
            yield Round(centre, gradient, w)
            uphill = (gradient * (w - last)).sum(1) > 0
            last = torch.where(uphill[:, None], w, last)

    def found(self) -> tuple[Tensor, Clip]:
        """Where the first rounds lead, and the clip of the later ones."""
        w = torch.zeros_like(self.metric.raw)
        for step in self.rounds(w, self.first_clip, self.first_stride()):
            w = step.moved
        return w, self.choose_clip(w)

    def walked(self) -> tuple[Tensor, Clip]:
        """The end w₀ of the walk, a Newton step from the weighted mean of the later rounds; and its clip."""
        w, clip = self.found()
        stride = self.later_stride()
        weights = self._weights(stride.rounds)
        mean = torch.zeros_like(w)
        for t, step in enumerate(self.rounds(w, clip, stride)):
            mean += weights[:, t, None] * (step.centre - step.gradient / (self.beta * clip.kept)[:, None])
        return mean, clip

    def _weights(self, rounds: Tensor) -> Tensor:
        """Of every round of every run; 0 beyond its last."""
        rule = self.setting.constants.rule
        power = rule["weight"] * (1.0 + self.kappa / rule["large"])
        t = torch.arange(1, int(rounds.max()) + 1, device=power.device, dtype=power.dtype)
        weights = torch.exp(power[:, None] * torch.log(t / rounds[:, None]))
        weights = weights.masked_fill(t > rounds[:, None], 0.0)
        return weights / weights.sum(1, keepdim=True)
