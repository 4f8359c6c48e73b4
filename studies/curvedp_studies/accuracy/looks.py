"""Two looks at lengths in the metric, for B runs: how much records spread, how long gradients are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import erf

from curvedp.released import scales
from curvedp_studies.accuracy.metric import Metric
from curvedp_studies.accuracy.setting import Setting
from curvedp_studies.coverage.draws import Tensor


@dataclass(frozen=True, eq=False)
class Looks:
    """About Σ‖Ax‖², and the typical length of a gradient at θ = 0."""

    spread: Tensor
    typical: Tensor

    def among(self, runs: Tensor) -> Looks:
        return Looks(self.spread[runs], self.typical[runs])


def looked(setting: Setting, metric: Metric) -> Looks:
    records, n = setting.records, metric.n
    guess = (metric.resolved / n).sqrt()
    length = _look(setting, metric.lengths, guess, n.clamp_min(1.0), setting.shifts.spread, octaves=1.0)
    spread = (n * length.square()).clamp_max(float(setting.d))
    guess = records.loss.typical_slope * (spread / n).sqrt()
    zero = torch.zeros(1, setting.d, records.loss.outputs, device=n.device, dtype=n.dtype)
    slopes = records.loss.slopes(records.margins(zero), records.y).norm(dim=2)
    typical = _look(setting, metric.lengths * slopes, guess, n, setting.shifts.scale, octaves=2.0)
    return Looks(spread, typical)


def _look(
    setting: Setting, lengths: Tensor, guess: Tensor, n: Tensor, shift: Tensor, octaves: float
) -> Tensor:
    largest = setting.rule.widest_clip * guess
    edges = largest[:, None] * torch.as_tensor(scales.look_edges(1.0), device=n.device)
    counts = setting.histogram(lengths, edges, shift)
    return typical_length(largest, counts, setting.count_scale(shift), n, guess, octaves)


def typical_length(
    largest: Tensor, counts: Tensor, deviation: Tensor, n: Tensor, guess: Tensor, octaves: float
) -> Tensor:
    """`curvedp.released.scales.typical_length` of many histograms with edges `largest`·look_edges(1)."""
    edges = scales.look_edges(1.0)
    s = 2.0 ** -np.arange(1.0, math.log2(edges[-1] / edges[0]) + 1.125, 0.25)
    below = erf(edges / (math.sqrt(2.0) * s[:, None]))
    cells = torch.as_tensor(np.diff(below, axis=1, prepend=0.0, append=1.0), device=n.device)
    logs = largest.log2()[:, None] + torch.as_tensor(np.log2(s), device=n.device)
    error = torch.hypot(deviation, scales._MISFIT * n)
    off = (counts[:, None, :] - n[:, None, None] * cells).square().sum(2)
    fit = -0.5 * off / error.square()[:, None] - 0.5 * ((logs - guess.log2()[:, None]) / octaves).square()
    return 2.0 ** (torch.softmax(fit, 1) * logs).sum(1)
