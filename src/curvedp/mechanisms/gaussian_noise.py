"""Gaussian releases of sums over records: histograms, Gram matrices, clipped gradients (P-2), (S-2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.domain import Adjacency, FloatArray
from curvedp.privacy.statistics import gram_sensitivity
from curvedp.randomness import grid_step, round_to_grid
from curvedp.rows.base import Rows


@dataclass(frozen=True, eq=False)
class GaussianNoise:
    """Adds noise of standard deviation sensitivity/μ and rounds to a public grid (section 8)."""

    generator: np.random.Generator
    adjacency: Adjacency

    def count(self, rows: Rows, mu: float) -> float:
        """n under replace, where it is public; else n + N(0, 1/μ²), at least the noise's deviation and 1."""
        if self.adjacency == "replace":
            return float(max(rows.count(), 1))
        noisy = self.counts(np.array([float(rows.count())]), mu)[0]
        return float(max(noisy, self.count_scale(mu), 1.0))

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
        noisy = gram + scale * symmetric_gaussian(self.generator, len(gram))
        return round_to_grid(noisy, grid_step(scale))

    def _add(self, value: FloatArray, scale: float) -> FloatArray:
        noisy = value + scale * self.generator.standard_normal(value.shape)
        return round_to_grid(noisy, grid_step(scale))


def symmetric_gaussian(random: np.random.Generator, d: int) -> FloatArray:
    """A symmetric matrix with N(0, 1) on the diagonal and N(0, ½) off it: isotropic in the Frobenius norm."""
    raw = random.standard_normal((d, d))
    return np.asarray((raw + raw.T) / 2.0)


def gradient_scale(clip: float, mu: float, adjacency: Adjacency) -> float:
    """σ of a release of Σ clip_c(∇ℓ) at shift μ: c/μ (add_remove) or 2c/μ (replace)  (P-9)."""
    return (2.0 if adjacency == "replace" else 1.0) * clip / mu
