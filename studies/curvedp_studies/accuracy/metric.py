"""The first half of the mechanism for B runs: count, pilot, lengths, curvature S; a metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from curvedp_studies.accuracy.setting import Setting
from curvedp_studies.coverage.draws import Tensor, at, beyond, eigh, first_true, octaves


@dataclass(frozen=True, eq=False)
class Metric:
    """A whitens the released curvature; n̂; `resolved` estimates Σ‖Ax‖²; the records' lengths in A."""

    A: Tensor  # (B, d, d)
    n: Tensor
    resolved: Tensor
    lengths: Tensor  # (n, B)

    def among(self, runs: Tensor) -> Metric:
        return Metric(self.A[runs], self.n[runs], self.resolved[runs], self.lengths[:, runs])


@dataclass(frozen=True, eq=False)
class Pilot:
    """A metric, a bound of lengths in it, and the Gram matrix there of records shortened to the bound."""

    A: Tensor
    bound: Tensor
    gram: Tensor

    def unless(self, given: Tensor, instead: Pilot) -> Pilot:
        """`instead` where `given`."""
        wide = given[:, None, None]
        return Pilot(
            torch.where(wide, instead.A, self.A),
            torch.where(given, instead.bound, self.bound),
            torch.where(wide, instead.gram, self.gram),
        )


def released_metric(setting: Setting) -> Metric:
    rule, d, B2 = setting.rule, setting.d, setting.records.x_norm**2
    n = _count(setting)
    exact = setting.records.grams(setting.seen)
    unit = torch.eye(d, device=n.device, dtype=n.dtype).expand_as(exact)
    given = Pilot(unit, torch.full_like(n, math.sqrt(B2)), exact)
    precise = setting.kappa(n) >= rule.precise
    pilot = given if bool(precise.all()) else _pilot(setting, n, exact).unless(precise, given)
    sigma2 = pilot.bound**2 * setting.sigma2
    S = pilot.gram + sigma2[:, None, None] * (setting.draws.wishart(d, setting.m) - setting.m * unit)
    norm = 2.0 * sigma2 * math.sqrt(setting.m * d)
    values, lifted, U = _lifted(S, rule.floor * norm, n * pilot.bound**2)
    A = (U / lifted.sqrt()[:, None, :]).mT @ pilot.A
    return Metric(A, n, resolved(values, lifted, norm), setting.records.lengths(A))


def _count(setting: Setting) -> Tensor:
    n = setting.seen.sum(0)
    if setting.neighbours.count_is_public:
        return n.clamp_min(1.0)
    scale = setting.count_scale(setting.shifts.count)
    return torch.maximum(n + scale * setting.draws.normal(), scale.clamp_min(1.0))


def _pilot(setting: Setting, n: Tensor, exact: Tensor) -> Pilot:
    rule, records, shifts = setting.rule, setting.records, setting.shifts
    B2 = records.x_norm**2
    scale = setting.neighbours.gram_factor * B2 / shifts.pilot
    first = exact + scale[:, None, None] * setting.draws.symmetric(setting.d)
    _, values, V = _lifted(first, rule.floor * scale * math.sqrt(2.0 * setting.d), n * B2)
    A = (V / values.sqrt()[:, None, :]).mT
    lengths = records.lengths(A)
    edges = octaves(records.x_norm / values.amin(1).sqrt(), rule.edges)
    outside = beyond(setting.histogram(lengths, edges, shifts.lengths))
    cells = torch.arange(rule.edges, 0, -1, device=n.device, dtype=n.dtype)
    slack = setting.count_scale(shifts.lengths)[:, None] * cells.sqrt()
    bound = at(edges, first_true(outside + slack <= (1.0 - rule.kept_lengths) * n[:, None]))
    shortened = (bound / lengths.clamp_min(1e-300)).clamp_max(1.0)
    return Pilot(A, bound, A @ records.grams(setting.seen * shortened.square()) @ A.mT)


def resolved(values: Tensor, lifted: Tensor, norm: Tensor) -> Tensor:
    """Σ s_j/w_j between ½ and d; of eigenvalues below the noise Σ s_j times the mean of 1/w_j."""
    above = values > norm[:, None]
    bulk = (~above).to(values.dtype)
    mean = (bulk / lifted).sum(1) / bulk.sum(1).clamp_min(1.0)
    total = (above * values / lifted).sum(1) + (bulk * values).sum(1) * mean
    return total.clamp(0.5, float(values.shape[1]))


def _lifted(S: Tensor, lift: Tensor, ceiling: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(eigenvalues, the same cut to [0, ceiling] and lifted, eigenvectors)."""
    values, U = eigh(S)
    cut = torch.minimum(values.clamp_min(0.0), ceiling[:, None])
    return values, cut + torch.minimum(lift, ceiling)[:, None], U
