"""The three losses of the study for margins (n, B, K) of B runs, and their public constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from curvedp_studies.coverage.draws import Tensor

KINDS = ("regression", "binary", "multiclass")
_CURVATURE = dict(zip(KINDS, (1.0, 0.25, 0.5), strict=True))


@dataclass(frozen=True)
class TorchLoss:
    """Squared loss of targets in [−1, 1], logistic loss of ±1, multinomial loss of K classes."""

    kind: str
    n_classes: int = 2

    @property
    def outputs(self) -> int:
        """K."""
        return self.n_classes if self.kind == "multiclass" else 1

    @property
    def rank(self) -> int:
        """ρ: how many of the K columns are not redundant."""
        return max(self.outputs - 1, 1)

    @property
    def curvature(self) -> float:
        """β."""
        return _CURVATURE[self.kind]

    @property
    def typical_slope(self) -> float:
        """Root mean square of φ'(0; y) where targets are spread evenly within their bounds."""
        if self.kind == "regression":
            return math.sqrt(float(np.mean(np.linspace(-1.0, 1.0, 101) ** 2)))
        return 0.5 if self.kind == "binary" else math.sqrt(1.0 - 1.0 / self.n_classes)

    def slopes(self, margins: Tensor, y: Tensor) -> Tensor:
        """φ'(s; y), shape (n, B, K), of targets (n,)."""
        if self.kind == "multiclass":
            return torch.softmax(margins, -1) - self._hot(margins, y)
        y = y[:, None, None]
        return margins - y if self.kind == "regression" else -y * torch.sigmoid(-y * margins)

    def errors(self, margins: Tensor, y: Tensor) -> Tensor:
        """(n, B): squared error of predictions clipped to [−1, 1], or −log p(y)."""
        if self.kind == "regression":
            return (margins[..., 0].clamp(-1.0, 1.0) - y[:, None]).square()
        if self.kind == "binary":
            return torch.nn.functional.softplus(-y[:, None] * margins[..., 0])
        return -(torch.log_softmax(margins, -1) * self._hot(margins, y)).sum(-1)

    def hits(self, margins: Tensor, y: Tensor) -> Tensor:
        """(n, B): the chance that the predicted class is y, ties shared; of classes only."""
        if self.kind == "binary":
            return 0.5 + 0.5 * torch.sign(margins[..., 0]) * y[:, None]
        top = (margins == margins.amax(-1, keepdim=True)).to(margins.dtype)
        return (top * self._hot(margins, y)).sum(-1) / top.sum(-1)

    def _hot(self, margins: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(y.long(), self.n_classes).to(margins.dtype)[:, None, :]
