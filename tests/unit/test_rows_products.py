"""Products of rows: steady to the last bit, right to within their bounds."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

from curvedp.arrays import UNIT_ROUNDOFF
from curvedp.data.rows import blocks

COLUMNS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 50, 51, 101)


def records(d: int, n: int = 517) -> np.ndarray:
    random = np.random.default_rng(d)
    return random.standard_normal((n, d)) * 10.0 ** random.uniform(-3, 3, (n, 1))


def numbers(X: np.ndarray, d: int) -> list[np.ndarray]:
    """Everything that is promised to be steady."""
    random = np.random.default_rng(100 + d)
    theta, several = random.standard_normal((d, 1)), random.standard_normal((d, 3))
    triangle = np.triu(random.standard_normal((d, d)))
    return [
        blocks.margins(X, theta),
        blocks.margins(X, several),
        blocks.steady_lengths(X, triangle),
        blocks.steady_lengths(X, np.eye(d)),
        blocks.norms(X),
        blocks.shortened(X[:, :1], blocks.norms(X), 0.7),
        blocks.shortened(X, blocks.norms(X), 0.7),
    ]


@pytest.mark.parametrize("d", COLUMNS)
def test_what_a_row_gives_depends_on_no_other_row_and_on_no_position(d):
    X = records(d)
    whole = numbers(X, d)
    order = np.random.default_rng(0).permutation(len(X))
    for found, expected in zip(numbers(X[order], d), whole, strict=True):
        np.testing.assert_array_equal(found, expected[order])
    for start, stop in ((0, 1), (1, 2), (3, 260), (5, 517), (516, 517)):
        for found, expected in zip(numbers(X[start:stop], d), whole, strict=True):
            np.testing.assert_array_equal(found, expected[start:stop])
    moved = np.empty((len(X) + 1, d))[1:]  # at another address
    moved[:] = X
    for found, expected in zip(numbers(moved, d), whole, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("d", COLUMNS)
def test_steady_numbers_are_right(d):
    X = records(d)
    exact = X.astype(np.longdouble)
    random = np.random.default_rng(100 + d)
    theta, several = random.standard_normal((d, 1)), random.standard_normal((d, 3))
    triangle = np.triu(random.standard_normal((d, d)))
    sizes = np.linalg.norm(X, axis=1)
    room = (d + 16) * UNIT_ROUNDOFF * sizes[:, None]
    for weights in (theta, several):
        error = np.abs(blocks.margins(X, weights) - exact @ weights.astype(np.longdouble))
        assert np.all(error <= room * np.linalg.norm(weights, axis=0))
    image = np.sqrt(np.square(exact @ triangle.T.astype(np.longdouble)).sum(axis=1))
    error = np.abs(blocks.steady_lengths(X, triangle) - image)
    assert np.all(error <= room[:, 0] * np.linalg.norm(triangle))
    for found in (blocks.norms(X), blocks.steady_lengths(X, np.diag((-1.0) ** np.arange(d)))):
        assert np.all(np.abs(found - sizes) <= room[:, 0])


@pytest.mark.parametrize("columns", [1, 4])
def test_weights_are_shortened_only_where_they_are_too_long(columns):
    random = np.random.default_rng(columns)
    weights, lengths = random.standard_normal((300, columns)), random.uniform(0, 3, 300)
    weights[0], lengths[1], lengths[2], weights[2] = 0.0, np.inf, np.inf, 0.0
    found = blocks.shortened(weights, lengths, 0.8)
    sizes = np.linalg.norm(weights, axis=1) * np.where(np.isinf(lengths), 0.0, lengths)
    short = np.isfinite(lengths) & (sizes <= 0.8)
    assert short.sum() > 20 and (~short).sum() > 20
    np.testing.assert_array_equal(found[short], weights[short])
    long = np.isfinite(lengths) & ~short
    np.testing.assert_allclose(np.linalg.norm(found[long], axis=1) * lengths[long], 0.8, rtol=1e-14)
    np.testing.assert_array_equal(found[[1, 2]], 0.0)  # a length that overflowed: nothing is left


@pytest.mark.parametrize("d", [1, 3, 50, 99, 100, 130])
@pytest.mark.parametrize("n", [0, 1, 127, 700])
def test_gram_matrices_with_and_without_factors(n, d):
    X = records(d, n)
    factors = np.random.default_rng(1).uniform(0, 1, n)
    for f in (None, factors):
        Z = (X if f is None else X * f[:, None]).astype(np.longdouble)
        G = blocks.gram(X, f)
        np.testing.assert_array_equal(G, G.T)
        mass = float(np.square(Z).sum())
        error = float(np.linalg.norm((G - Z.T @ Z).astype(float)))
        assert error <= (blocks.chain(max(n, 1), d) + 16) * UNIT_ROUNDOFF * mass


EXTREME = [1e-300, 1e-220, 1e-162, 1e-100, 1e-30, 0.37, 1.0, 1e30, 1e103, 1e150, 1e200, 1e300]


@pytest.mark.parametrize("K", [1, 2, 5])
def test_no_shortened_row_is_longer_than_asked_however_large_or_small_all_numbers_are(K):
    """w·(c/s), never (w·c)/s: that overflows at 1e103, and loses digits where it is subnormal."""
    random = np.random.default_rng(K)
    for most, length in itertools.product(EXTREME, EXTREME):
        if most / length >= 1e-280:  # else the answer itself has no digits left
            w = random.standard_normal((len(EXTREME), K)) * np.array(EXTREME)[:, None]
            found = blocks.shortened(w, np.full(len(w), length), most)
            assert np.isfinite(found).all()
            with mpmath.workdps(30):
                for row, own in zip(found, w, strict=True):
                    size, before = (
                        mpmath.norm(mpmath.matrix(r.tolist())) * mpmath.mpf(length) for r in (row, own)
                    )
                    assert size <= most * (1 + 2e-15)
                    if before <= most * (1 - 1e-14):
                        assert np.array_equal(row, own)
                    elif before < min(most * 1e290, 1e307):
                        assert size >= most * (1 - 2e-15)


def test_nothing_is_left_of_a_row_that_is_no_number_or_endless():
    odd = np.array([[np.nan, 1.0], [1.0, np.inf], [-np.inf, np.nan], [1e300, 1e300], [3.0, 4.0], [0.0, 0.0]])
    lengths = np.array([1.0, 1.0, 1.0, 1e300, np.inf, 1.0])
    assert not blocks.shortened(odd, lengths, 1.0).any()
    assert not blocks.shortened(odd[:3, :1], lengths[:3], 1e-3)[[0, 2]].any()


def test_norms_of_rows_whose_squares_overflow_or_vanish():
    X = np.array([[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [0.0, 0.0], [3e-320, 4e-320]])
    np.testing.assert_allclose(blocks.norms(X), [5e200, 5e-200, 5.0, 0.0, 5e-320], rtol=1e-3)
    np.testing.assert_allclose(blocks.norms(X)[:3], [5e200, 5e-200, 5.0], rtol=1e-15)
    assert not (blocks.norms(np.array([[np.nan, 1.0], [np.inf, 1.0]])) < np.inf).any()
