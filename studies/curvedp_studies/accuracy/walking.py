"""The walk for B runs of one pace, in the coordinates of the metric: θ = Aᵀw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from curvedp.mechanisms.rule import Pace
from curvedp_studies.accuracy.looks import Looks
from curvedp_studies.accuracy.metric import Metric
from curvedp_studies.accuracy.setting import Setting
from curvedp_studies.coverage.draws import Tensor, at, beyond, first_true, octaves


@dataclass(frozen=True, eq=False)
class Clip:
    """Clips of gradient lengths (B,), and the fraction of records that each is believed to leave alone."""

    size: Tensor
    kept: Tensor


@dataclass(frozen=True, eq=False)
class Stride:
    """Damping of the Newton steps, and the fraction of the last move that a centre adds."""

    damping: Tensor
    momentum: Tensor


@dataclass(frozen=True, eq=False)
class Round:
    centre: Tensor
    gradient: Tensor
    moved: Tensor


@dataclass(frozen=True, eq=False)
class Walk:
    setting: Setting
    metric: Metric
    looks: Looks
    pace: Pace

    @cached_property
    def kappa(self) -> Tensor:
        return self.setting.kappa(self.metric.n)

    def finished(self) -> tuple[Clip, Tensor]:
        """The clip of the later rounds, and θ (B, d, K)."""
        rule, pace, shifts = self.setting.rule, self.pace, self.setting.shifts
        w = torch.zeros(
            len(self.kappa),
            self.setting.d,
            self.setting.records.loss.outputs,
            device=self.kappa.device,
            dtype=self.kappa.dtype,
        )
        first = self.stride(pace.first, self.setting.shifts.first, rule.first_travel)
        for step in self.rounds(w, self.first_clip, first, pace.first, shifts.first_round(pace)):
            w = step.moved
        clip = self.choose_clip(w)
        later = self.stride(pace.later, self.setting.shifts.later)
        steps = self.rounds(w, clip, later, pace.later, shifts.later_round(pace))
        return clip, self.metric.A.mT @ self.average(steps, clip)

    @property
    def first_clip(self) -> Clip:
        rule = self.setting.rule
        return Clip(rule.first_clip * self.looks.typical, torch.full_like(self.kappa, rule.first_kept))

    def choose_clip(self, w: Tensor) -> Clip:
        """From a private histogram at w."""
        setting, rule, n = self.setting, self.setting.rule, self.metric.n
        edges = octaves(rule.widest_clip * self.looks.typical, rule.edges)
        outside = beyond(setting.histogram(self._slopes(w)[1], edges, setting.shifts.clip))
        few = rule.clipped * setting.unknowns * setting.neighbours.sum_factor / setting.mu
        cells = torch.arange(rule.edges, 0, -1, device=n.device, dtype=n.dtype)
        doubt = rule.doubt * setting.count_scale(setting.shifts.clip)[:, None] * cells.sqrt()
        index = first_true((outside - doubt <= few[:, None]) & (outside <= (1.0 - rule.kept) * n[:, None]))
        kept = (1.0 - at(outside, index) / n).clamp(rule.kept, 1.0)
        noise = setting.count_scale(setting.shifts.clip) * math.sqrt(rule.edges / 2.0) > n / 3.0
        first = self.first_clip
        return Clip(torch.where(noise, first.size, at(edges, index)), torch.where(noise, first.kept, kept))

    def stride(self, rounds: int, mu: Tensor, most: float = math.inf) -> Stride:
        """Of rounds that have a shift of μ together."""
        setting, rule, step = self.setting, self.setting.rule, self.pace.step
        shift = mu / setting.neighbours.sum_factor
        way = rule.travel * self.metric.n * shift / (self.looks.spread * math.sqrt(setting.records.loss.rank))
        way = way.clamp_max(most)
        momentum = (1.0 - step * rounds / way).clamp(0.0, rule.momentum)
        return Stride((way / rounds).clamp_max(step), momentum)

    def rounds(self, w: Tensor, clip: Clip, stride: Stride, rounds: int, mu: Tensor) -> Iterator[Round]:
        length = _wide(stride.damping / self.curvature(clip))
        momentum, last = _wide(stride.momentum), w
        for _ in range(rounds):
            centre = w + momentum * (w - last)
            gradient = self.gradient(centre, clip.size, mu)
            last, w = w, centre - length * gradient
            yield Round(centre, gradient, w)
            uphill = (gradient * (w - last)).sum((1, 2)) > 0
            last = torch.where(uphill[:, None, None], w, last)

    def gradient(self, w: Tensor, clip: Tensor, mu: Tensor) -> Tensor:
        """Σ clip_c(g) + noise, in the metric."""
        setting, loss = self.setting, self.setting.records.loss
        slopes, sizes = self._slopes(w)
        weights = (clip / sizes.clamp_min(1e-300)).clamp_max(1.0) * setting.seen
        total = self.metric.A @ setting.records.sums(slopes * weights[..., None])
        noise = setting.draws.normal(setting.d, loss.outputs)
        gradient = total + _wide(setting.neighbours.sum_factor * clip / mu) * noise
        if loss.rank < loss.outputs:
            gradient = gradient - gradient.mean(2, keepdim=True)
        return gradient

    def _slopes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """φ' of every record at w (n, B, K), and the lengths of the gradients (n, B)."""
        records = self.setting.records
        slopes = records.loss.slopes(records.margins(self.metric.A.mT @ w), records.y)
        return slopes, self.metric.lengths * slopes.norm(dim=2)

    def average(self, steps: Iterator[Round], clip: Clip) -> Tensor:
        """A Newton step from the mean centre and the mean gradient, later rounds weighing more."""
        length, weights = _wide(1.0 / self.curvature(clip)), self._weights(self.pace.later)
        mean = torch.zeros_like(self.metric.n)[:, None, None]
        for weight, step in zip(weights.unbind(1), steps, strict=True):
            mean = mean + _wide(weight) * (step.centre - length * step.gradient)
        return mean

    def curvature(self, clip: Clip) -> Tensor:
        return self.setting.records.loss.curvature * clip.kept

    def _weights(self, rounds: int) -> Tensor:
        rule = self.setting.rule
        power = rule.weight * (1.0 + self.kappa / rule.large)
        t = torch.arange(1, rounds + 1, device=power.device, dtype=power.dtype)
        weights = torch.exp(power[:, None] * torch.log(t / rounds))
        return weights / weights.sum(1, keepdim=True)


def _wide(values: Tensor) -> Tensor:
    return values[:, None, None]
