"""A typical length from a noisy histogram: near the truth where one shows, near the guess where none does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from curvedp.mechanisms.geometry import LOOK_EDGES as EDGES
from curvedp.mechanisms.geometry import look_edges, typical_length


def histogram(lengths, edges):
    return np.bincount(np.searchsorted(edges, lengths), minlength=len(edges) + 1).astype(float)


def looked_at(lengths, *, guess, deviation, octaves=2.0, reach=1.0, seed=0):
    edges = look_edges(4.0 * guess, reach)
    counts = histogram(lengths, edges) + deviation * np.random.default_rng(seed).normal(size=EDGES + 1)
    return typical_length(edges, counts, deviation, len(lengths), guess, octaves)


def test_edges_span_eight_octaves_and_what_the_reach_adds():
    edges = look_edges(4.0)
    assert len(edges) == EDGES
    assert edges[-1] == 4.0
    assert edges[0] == pytest.approx(2.0**-6)
    wide = look_edges(4.0, reach=16.0)
    assert (wide[0], wide[-1]) == (pytest.approx(2.0**-6), 64.0)


@pytest.mark.parametrize("ratio", [2.0**-6, 0.05, 0.3, 1.0, 1.9])
@pytest.mark.parametrize("deviation", [1.0, 100.0, 600.0])
def test_half_normal_lengths_are_found(ratio, deviation):
    """To a quarter of an octave; where noise is an eighth of the records in a cell, to a third of the way."""
    lengths = ratio * np.abs(np.random.default_rng(1).normal(size=5000))
    found = [looked_at(lengths, guess=1.0, deviation=deviation, seed=seed) for seed in range(20)]
    allowed = 0.3 if deviation <= 100.0 else 0.5 + abs(math.log2(ratio)) / 3.0
    assert np.mean(np.abs(np.log2(np.array(found) / ratio))) < allowed


@pytest.mark.parametrize("shape", ["uniform", "exponential", "equal"])
def test_other_shapes_are_found_within_an_octave(shape):
    random = np.random.default_rng(2)
    lengths = {
        "uniform": random.uniform(size=4000) * math.sqrt(3.0),
        "exponential": random.exponential(size=4000) / math.sqrt(2.0),
        "equal": np.ones(4000),
    }[shape]
    for scale in (0.02, 0.3):
        assert abs(math.log2(looked_at(scale * lengths, guess=1.0, deviation=50.0) / scale)) < 1.0


def test_where_all_is_noise_the_guess_stands():
    lengths = 0.02 * np.abs(np.random.default_rng(3).normal(size=30))
    found = [looked_at(lengths, guess=1.0, deviation=3000.0, octaves=1.0, seed=seed) for seed in range(20)]
    assert 0.5 < np.exp(np.mean(np.log(found))) < 1.5


def test_longer_than_thought_is_found_within_reach():
    lengths = 20.0 * np.abs(np.random.default_rng(4).normal(size=4000))
    found = looked_at(lengths, guess=1.0, deviation=30.0, octaves=4.0, reach=32.0)
    assert found == pytest.approx(20.0, rel=0.15)
    assert looked_at(lengths, guess=1.0, deviation=30.0, octaves=4.0) <= 2.0
