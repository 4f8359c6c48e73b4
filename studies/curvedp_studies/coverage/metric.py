"""The first half of the mechanism for B runs: count, pilot, curvature S, second curvature; a metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from curvedp_studies.coverage.calibration import Calibration, Constants
from curvedp_studies.coverage.draws import (
    Draws,
    Tensor,
    at,
    beyond,
    eigh,
    first_true,
    histogram,
    octaves,
    shortened,
    weighted_gram,
)


@dataclass(frozen=True, eq=False)
class Setting:
    """B samples X (B, n, r), and the public numbers of the plan."""

    X: Tensor
    y: Tensor
    loss: str
    x_norm: float
    plan: Calibration
    constants: Constants
    draws: Draws

    @property
    def r(self) -> int:
        return int(self.X.shape[2])

    def gram_scale(self, bound: Tensor, mu: float, slack: Tensor | float = 0.0) -> Tensor:
        return (self.plan.neighbours.gram_factor + slack) * bound / mu

    def gradient_scale(self, clip: Tensor, mu: Tensor | float) -> Tensor:
        return self.plan.neighbours.sum_factor * clip / mu

    def count_scale(self, mu: float) -> float:
        return self.plan.neighbours.histogram_factor / mu

    def noisy_counts(self, counts: Tensor, mu: float) -> Tensor:
        return counts + self.count_scale(mu) * self.draws.normal(counts.shape[1])

    def noisy_gram(self, gram: Tensor, scale: Tensor) -> Tensor:
        return gram + scale[:, None, None] * self.draws.symmetric(self.r)

    def slack(self, A: Tensor, n: Tensor) -> Tensor:
        """What rounding in the metric A adds to a Gram matrix, per unit of the bound."""
        squares = eigh(A @ A.mT)[0]  # of the singular values
        most = n + self.plan.far * self.plan.count_scale
        return self.plan.gram_slack * most * squares[:, -1] / squares[:, 0]


@dataclass(frozen=True, eq=False)
class Metric:
    """A whitens a released curvature: there it is diag(raw/lifted), and its noise had this scale before."""

    A: Tensor  # (B, r, r)
    n: Tensor  # the released count
    resolved: Tensor
    raw: Tensor
    lifted: Tensor
    scale: Tensor


def first_metric(setting: Setting) -> Metric:
    """Count, pilot and S."""
    plan, rule, r = setting.plan, setting.constants.rule, setting.r
    n = _count(setting)
    inside, gram, bound = _pilot(setting, n)
    sigma2 = bound**2 * plan.sigma2
    unit = torch.eye(r, device=n.device, dtype=n.dtype)
    S = gram + sigma2[:, None, None] * (setting.draws.wishart(r, plan.m) - plan.m * unit)
    spectral = 2.0 * sigma2 * math.sqrt(plan.m * r)
    raw, lifted, U = _lifted(S, rule["floor"] * spectral, n * bound**2)
    A = (U / lifted.sqrt()[:, None, :]).mT @ inside
    return Metric(A, n, _resolved(raw, lifted, spectral), raw, lifted, spectral)


def second_metric(setting: Setting, first: Metric) -> Metric:
    """The curvature once more, of records shortened in the first metric."""
    A, n, r = first.A, first.n, setting.r
    Z = setting.X @ A.mT
    b2 = setting.constants.second_bound * first.resolved / n
    scale = setting.gram_scale(b2, setting.plan.looks["second"], setting.slack(A, n))
    G = setting.noisy_gram(weighted_gram(Z, shortened(Z.square().sum(2), b2)), scale)
    floor = setting.constants.rule["floor"] * scale * math.sqrt(2.0 * r)
    raw, lifted, U = _lifted(G, floor, torch.full_like(n, math.inf))
    resolved = (raw / lifted).sum(1).clamp(0.1 * r, float(r))
    return Metric((U / lifted.sqrt()[:, None, :]).mT @ A, n, resolved, raw, lifted, scale)


def _count(setting: Setting) -> Tensor:
    n, draws = float(setting.X.shape[1]), setting.draws
    exact = torch.full((draws.B,), n, device=draws.device, dtype=torch.float64)
    if setting.plan.neighbours.count_is_public:
        return exact
    scale = setting.count_scale(setting.plan.shifts["count"])
    return (exact + scale * draws.normal()).clamp_min(max(scale, 1.0))


def _pilot(setting: Setting, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(metric, Gram matrix of shortened records in it, bound of their lengths).

    Without a pilot where κ is large: the given coordinates.
    """
    plan, rule, r, B = setting.plan, setting.constants.rule, setting.r, setting.x_norm
    exact = setting.X.mT @ setting.X
    square = torch.full_like(n, B**2)
    scale = setting.gram_scale(square, plan.shifts["pilot"])
    lift = rule["floor"] * scale * math.sqrt(2.0 * r)
    _, values, V = _lifted(setting.noisy_gram(exact, scale), lift, n * square)
    A = (V / values.sqrt()[:, None, :]).mT
    Z = setting.X @ A.mT
    lengths = Z.norm(dim=2)
    edges = octaves(B / values.amin(1).sqrt(), setting.constants.whole("edges"))
    shift = plan.shifts["lengths"]
    outside = beyond(setting.noisy_counts(histogram(lengths, edges), shift))
    cells = torch.arange(edges.shape[1], 0, -1, device=n.device, dtype=n.dtype)
    surely = outside + setting.count_scale(shift) * cells.sqrt() <= (1.0 - rule["kept_lengths"]) * n[:, None]
    bound = at(edges, first_true(surely))
    gram = weighted_gram(Z, shortened(lengths, bound) ** 2)
    given = (n * plan.mu / r >= rule["precise"])[:, None, None]
    unit = torch.eye(r, device=n.device, dtype=n.dtype).expand_as(A)
    bound = torch.where(given[:, 0, 0], torch.full_like(bound, B), bound)
    return torch.where(given, unit, A), torch.where(given, exact, gram), bound


def _lifted(S: Tensor, lift: Tensor, ceiling: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(eigenvalues, the same cut to [0, ceiling] and lifted, eigenvectors)."""
    values, U = eigh(S)
    cut = torch.minimum(values.clamp_min(0.0), ceiling[:, None])
    return values, cut + torch.minimum(lift, ceiling)[:, None], U


def _resolved(values: Tensor, lifted: Tensor, norm: Tensor) -> Tensor:
    """Σ s_j/w_j, at least ½ and at most r; of eigenvalues below the noise Σ s_j times the mean of 1/w_j."""
    below = values <= norm[:, None]
    single = (values / lifted).masked_fill(below, 0.0).sum(1)
    mean = (below / lifted).sum(1) / below.sum(1).clamp_min(1)
    together = values.masked_fill(~below, 0.0).sum(1) * mean
    return (single + together).clamp(0.5, float(values.shape[1]))
