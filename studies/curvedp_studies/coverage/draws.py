"""Gaussian noise of every kind for B runs at once; torch on a CPU or a GPU."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Tensor = Any  # torch.Tensor: torch is optional, and unknown to the type checker


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers of B runs."""

    B: int
    device: str
    torch_generator: Any
    numpy_generator: np.random.Generator

    @classmethod
    def seeded(cls, B: int, device: str, seed: int) -> Draws:
        generator = torch.Generator(device=device).manual_seed(seed)
        return cls(B, device, generator, np.random.default_rng(seed))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(
            self.B, *shape, generator=self.torch_generator, device=self.device, dtype=torch.float64
        )

    def symmetric(self, r: int) -> Tensor:
        """Deviation 1 on the diagonal, 1/√2 off it."""
        noise = self.normal(r, r)
        return (noise + noise.mT) / 2.0

    def wishart(self, r: int, m: float) -> Tensor:
        """W ~ Wishart(r, m) by Bartlett's decomposition."""
        lower = torch.tril(self.normal(r, r), -1)
        diagonal = np.sqrt(self.numpy_generator.chisquare(m - np.arange(r), (self.B, r)))
        lower = lower + torch.diag_embed(torch.as_tensor(diagonal, device=self.device))
        return lower @ lower.mT

    def indices(self, records: int, n: int) -> Tensor:
        """n records with replacement, for every run."""
        shape = (self.B, n)
        return torch.randint(records, shape, generator=self.torch_generator, device=self.device)


_BATCHED_AT_MOST = 32  # rows of a matrix whose eigenvalues a GPU finds for a whole batch at once


def eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of every matrix; large ones of a GPU by the threads of the CPU."""
    if S.device.type == "cpu" or S.shape[1] <= _BATCHED_AT_MOST:
        values, vectors = torch.linalg.eigh(S)
        return values, vectors
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(np.linalg.eigh, S.cpu().numpy()))
    return tuple(torch.as_tensor(np.array(part)).to(S.device) for part in zip(*done, strict=True))  # type: ignore[return-value]


def histogram(values: Tensor, edges: Tensor) -> Tensor:
    """Counts (B, k+1) of values (B, n) in the cells cut by edges (B, k); cell j holds (e_{j−1}, e_j]."""
    cells = torch.searchsorted(edges.contiguous(), values.contiguous())
    counts = torch.zeros(len(edges), edges.shape[1] + 1, device=edges.device, dtype=edges.dtype)
    return counts.scatter_add_(1, cells, torch.ones_like(values))


def beyond(counts: Tensor) -> Tensor:
    """How many lie beyond each edge; never negative."""
    return counts.flip(1).cumsum(1).flip(1)[:, 1:].clamp_min(0.0)


def first_true(flags: Tensor) -> Tensor:
    """The index of the first True in each row, else of the last column."""
    last = torch.full((len(flags),), flags.shape[1] - 1, device=flags.device)
    return torch.where(flags.any(1), flags.to(torch.int8).argmax(1), last)


def at(rows: Tensor, index: Tensor) -> Tensor:
    """rows[b, index[b]]."""
    return rows.gather(1, index[:, None])[:, 0]


def shortened(lengths: Tensor, bound: Tensor) -> Tensor:
    """min(1, bound/length) for lengths (B, n) and bounds (B,)."""
    return (bound[:, None] / lengths.clamp_min(1e-300)).clamp_max(1.0)


def weighted_gram(Z: Tensor, weights: Tensor) -> Tensor:
    """Σ_i weight_i z_i z_iᵀ of every run."""
    return (Z * weights[..., None]).mT @ Z


def octaves(largest: Tensor, edges: int) -> Tensor:
    """Edges a factor √2 apart, the last of them `largest`."""
    powers = torch.arange(edges - 1, -1, -1, device=largest.device, dtype=largest.dtype)
    return largest[:, None] * math.sqrt(2.0) ** -powers
