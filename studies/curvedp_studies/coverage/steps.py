"""What the mechanism computes from released numbers on its way, one run at a time: the library's own."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from curvedp.arrays import BoolArray, FloatArray
from curvedp.released.bread import Bread, Look
from curvedp.released.inference import LEAST_EIGENVALUE
from curvedp.released.scales import look_edges, typical_length
from curvedp.released.smearing import inflation
from curvedp.released.tails import Tail


def edges_of_looks(largest: FloatArray) -> FloatArray:
    """The edges of every run's histogram, up to `largest`."""
    return np.array([look_edges(float(edge)) for edge in largest])


def typical_lengths(
    edges: FloatArray, counts: FloatArray, n: FloatArray, guess: FloatArray, deviation: float, octaves: float
) -> FloatArray:
    """What such histograms say of every run's lengths."""
    runs = zip(edges, counts, n, guess, strict=True)
    found = [typical_length(e, c, deviation, float(k), float(g), octaves) for e, c, k, g in runs]
    return np.array(found)


def weighed(item: tuple[Look, FloatArray, float, float]) -> tuple[Bread, BoolArray]:
    """Ĵ of one run, and which directions are resolved."""
    look, noisy, scale, beta = item
    bread = Bread.weighed(look, noisy, float(scale))
    return bread, bread.resolved(look, beta)


def coarse_step(
    item: tuple[Look, Bread, BoolArray, FloatArray, float, FloatArray, float, float, str],
) -> tuple[FloatArray, float]:
    """w₁ = w₀ − Ĵ⁻¹G of one run along its resolved directions, and what its noise does to the next step."""
    look, bread, resolved, gradient, noise, w, n, beta, loss = item
    J, _ = bread.among(resolved, LEAST_EIGENVALUE * beta)
    moved = w.copy()
    moved[resolved] -= np.linalg.solve(J, gradient[resolved])
    curvature = np.maximum(look.diagonal, 0.0) / n
    spread = np.sqrt(curvature @ moved**2)
    smeared = noise * np.sqrt(curvature[resolved] @ np.sum(np.linalg.inv(J) ** 2, axis=1))
    mean = expit if loss == "logistic" else np.asarray
    return moved, inflation(mean, float(spread), float(smeared))


def chosen_edge(item: tuple[Tail, int, float]) -> int:
    """The clip of one run, as the index of an edge of its tail."""
    tail, r, noise = item
    return tail.clip(r, noise)
