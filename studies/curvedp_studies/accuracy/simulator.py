"""The recentered mechanism for B runs at once: the same in law as the library's, noise not on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from curvedp_studies.accuracy.looks import looked
from curvedp_studies.accuracy.metric import Metric, released_metric
from curvedp_studies.accuracy.setting import Setting
from curvedp_studies.accuracy.walking import Clip, Walk
from curvedp_studies.coverage.draws import Tensor


@dataclass(frozen=True, eq=False)
class Released:
    """What matters of B releases."""

    n: Tensor
    kappa: Tensor
    resolved: Tensor
    spread: Tensor
    typical: Tensor
    clip: Clip
    theta: Tensor  # (B, d, K)


def simulate(setting: Setting) -> Released:
    """Everything, from the count to the average."""
    return walked(setting, released_metric(setting))


def walked(setting: Setting, metric: Metric) -> Released:
    """The second half, in a metric that was released; runs of one pace walk together."""
    looks = looked(setting, metric)
    kappa = setting.kappa(metric.n)
    paces = [setting.rule.pace(value) for value in kappa.tolist()]
    size, kept = torch.empty_like(kappa), torch.empty_like(kappa)
    shape = (len(kappa), setting.d, setting.records.loss.outputs)
    theta = torch.empty(shape, device=kappa.device, dtype=kappa.dtype)
    for pace in dict.fromkeys(paces):
        runs = torch.tensor([b for b, own in enumerate(paces) if own == pace], device=kappa.device)
        clip, found = Walk(setting.among(runs), metric.among(runs), looks.among(runs), pace).finished()
        size[runs], kept[runs], theta[runs] = clip.size, clip.kept, found
    return Released(metric.n, kappa, metric.resolved, looks.spread, looks.typical, Clip(size, kept), theta)
