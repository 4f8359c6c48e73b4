"""B runs over the records of one table: which records each run sees, and what its plan allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.neighbours import Neighbours
from curvedp_studies.accuracy.calibration import Calibration
from curvedp_studies.accuracy.losses import TorchLoss
from curvedp_studies.coverage.draws import Draws, Tensor


@dataclass(frozen=True, eq=False)
class Records:
    """n records on a device, clipped into their domain; margins and lengths for B runs at once."""

    X: Tensor  # (n, d), ‖x‖ ≤ x_norm
    y: Tensor  # (n,)
    loss: TorchLoss
    x_norm: float

    @classmethod
    def on(cls, device: str, X: object, y: object, loss: TorchLoss, x_norm: float) -> Records:
        records, targets = (torch.as_tensor(part, device=device, dtype=torch.float64) for part in (X, y))
        lengths = records.norm(dim=1, keepdim=True).clamp_min(1e-300)
        if loss.kind == "regression":
            targets = targets.clamp(-1.0, 1.0)
        return cls(records * (x_norm / lengths).clamp_max(1.0), targets, loss, x_norm)

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    def margins(self, theta: Tensor) -> Tensor:
        """θᵀx of θ (B, d, K), shape (n, B, K)."""
        B, d, K = theta.shape
        return (self.X @ theta.permute(1, 0, 2).reshape(d, B * K)).view(-1, B, K)

    def sums(self, slopes: Tensor) -> Tensor:
        """Σ x g of slopes g (n, B, K), shape (B, d, K)."""
        n, B, K = slopes.shape
        return (self.X.mT @ slopes.reshape(n, B * K)).view(self.d, B, K).permute(1, 0, 2)

    def lengths(self, A: Tensor) -> Tensor:
        """‖A x‖ for every metric A (B, d, d), shape (n, B)."""
        return torch.stack([(self.X @ metric.mT).norm(dim=1) for metric in A], dim=1)

    def grams(self, weights: Tensor) -> Tensor:
        """Σ w x xᵀ for weights (n, B), shape (B, d, d)."""
        return torch.stack([self.X.mT @ (self.X * w[:, None]) for w in weights.unbind(1)])


@dataclass(frozen=True, eq=False)
class Setting:
    """B runs of the mechanism."""

    records: Records
    seen: Tensor  # (n, B): 1 where a run sees the record, else 0
    neighbours: Neighbours
    rule: Rule
    m: float
    sigma2: Tensor  # (B,)
    mu: Tensor  # (B,)
    shifts: Any  # Shifts of tensors (B,)
    draws: Draws

    @classmethod
    def of(
        cls,
        records: Records,
        seen: Tensor,
        neighbours: Neighbours,
        rule: Rule,
        plans: Sequence[Calibration],
        seed: int,
    ) -> Setting:
        """`plans` are one for each run."""
        tensor = _on(records.X)
        split = [Shifts.split(plan.gaussian, rule, neighbours) for plan in plans]
        shifts = {name: tensor([getattr(one, name) for one in split]) for name in vars(split[0])}
        return cls(
            records,
            seen,
            neighbours,
            rule,
            plans[0].m,
            tensor([plan.sigma2 for plan in plans]),
            tensor([plan.mu for plan in plans]),
            Shifts(**shifts),
            Draws.seeded(len(plans), str(records.X.device), seed),
        )

    @property
    def d(self) -> int:
        return self.records.d

    @property
    def unknowns(self) -> int:
        """d·ρ."""
        return self.d * self.records.loss.rank

    def kappa(self, n: Tensor) -> Tensor:
        return n * self.mu / self.unknowns

    def drawing(self, seed: int) -> Setting:
        """With random numbers of its own, so that what was drawn before does not matter."""
        return replace(self, draws=Draws.seeded(self.draws.B, self.draws.device, seed))

    def among(self, runs: Tensor) -> Setting:
        """Only these runs, with the same source of noise."""
        shifts = Shifts(**{name: shift[runs] for name, shift in vars(self.shifts).items()})
        return replace(
            self,
            seen=self.seen[:, runs],
            sigma2=self.sigma2[runs],
            mu=self.mu[runs],
            shifts=shifts,
            draws=replace(self.draws, B=len(runs)),
        )

    def count_scale(self, shift: Tensor) -> Tensor:
        """The deviation of each count of a histogram."""
        return self.neighbours.histogram_factor / shift

    def histogram(self, lengths: Tensor, edges: Tensor, shift: Tensor) -> Tensor:
        """Noisy counts (B, k+1) of lengths (n, B) in the cells cut by edges (B, k)."""
        below = [((lengths <= edge) * self.seen).sum(0) for edge in edges.unbind(1)]
        upto = torch.stack([*below, self.seen.sum(0)], dim=1)
        counts = torch.diff(upto, dim=1, prepend=torch.zeros_like(upto[:, :1]))
        return counts + self.count_scale(shift)[:, None] * self.draws.normal(counts.shape[1])


def _on(like: Tensor) -> Callable[[Sequence[float]], Tensor]:
    return lambda values: torch.tensor(values, device=like.device, dtype=like.dtype)
