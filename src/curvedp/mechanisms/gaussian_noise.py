"""Gaussian releases of sums over records: histograms, Gram matrices, clipped gradients (P-2), (S-2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.domain import Adjacency, FloatArray
from curvedp.privacy.statistics import gram_sensitivity
from curvedp.randomness import grid_step, round_to_grid


@dataclass(frozen=True, eq=False)
class GaussianNoise:
    """Adds noise of standard deviation sensitivity/μ and rounds to a public grid (section 8)."""

    generator: np.random.Generator
    adjacency: Adjacency

    def counts(self, counts: FloatArray, mu: float) -> FloatArray:
        """A histogram: one record is in one cell, so it moves by 1 (add_remove) or √2 (replace)."""
        return self._add(counts, self.count_scale(mu))

    def count_scale(self, mu: float) -> float:
        """The standard deviation of each count."""
        return (math.sqrt(2.0) if self.adjacency == "replace" else 1.0) / mu

    def gradient(self, total: FloatArray, clip: float, mu: float) -> FloatArray:
        """A sum of vectors of norm ≤ clip: sensitivity clip (add_remove) or 2·clip (replace)."""
        return self._add(total, gradient_scale(clip, mu, self.adjacency))

    def gram(self, gram: FloatArray, x_norm: float, mu: float) -> FloatArray:
        """Σ x xᵀ with ‖x‖ ≤ x_norm, noise isotropic in the Frobenius norm on symmetric matrices (S-2)."""
        scale = gram_sensitivity(x_norm, self.adjacency) / mu
        raw = self.generator.standard_normal(gram.shape)
        noisy = gram + scale * (raw + raw.T) / 2.0
        return round_to_grid(noisy, grid_step(scale))

    def _add(self, value: FloatArray, scale: float) -> FloatArray:
        noisy = value + scale * self.generator.standard_normal(value.shape)
        return round_to_grid(noisy, grid_step(scale))


def gradient_scale(clip: float, mu: float, adjacency: Adjacency) -> float:
    """σ of a release of Σ clip_c(∇ℓ) at shift μ: c/μ (add_remove) or 2c/μ (replace)  (P-9)."""
    return (2.0 if adjacency == "replace" else 1.0) * clip / mu
