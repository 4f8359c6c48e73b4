"""Rows measured in another metric: clips and histograms see ‖A x‖, sums keep their coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows, ChunkedRows
from curvedp.errors import InvalidInput
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Multinomial, Squared

DOMAIN = Domain(x_norm=1.5, y_bound=1.0)
COLUMNS = ColumnMap.from_bounds(-np.ones(4), np.ones(4), intercept=0.5)


def doors(X, y):
    yield ArrayRows(X, y, DOMAIN, COLUMNS)
    yield ArrayRows(sparse.csr_array(X), y, DOMAIN, COLUMNS)
    yield ChunkedRows(
        lambda: ((X[i : i + 700], y[i : i + 700]) for i in range(0, len(X), 700)), DOMAIN, COLUMNS
    )


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    X = random.normal(size=(3001, 4)) * (random.random((3001, 4)) < 0.6)
    Z = np.column_stack([np.clip(X, -1, 1), np.full(len(X), 0.5)])
    Z *= np.minimum(1.0, min(DOMAIN.x_norm, COLUMNS.x_norm) / np.linalg.norm(Z, axis=1))[:, None]
    return X, Z, random.normal(size=(5, 5)), random


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Multinomial(3)], ids=lambda loss: loss.name)
def test_clips_and_histograms_use_the_metric(table, loss):
    X, Z, A, random = table
    K = loss.n_outputs
    y = random.integers(0, 3, len(X)).astype(float) if K > 1 else np.sign(random.normal(size=len(X)))
    theta = random.normal(size=(5, K))
    slopes = loss.gradient(Z @ theta, y)
    sizes = np.linalg.norm(Z @ A.T, axis=1) * np.linalg.norm(slopes, axis=1)
    clip = float(np.quantile(sizes, 0.6))
    expected = Z.T @ (slopes * np.minimum(1.0, clip / sizes)[:, None])
    edges = np.quantile(sizes, [0.2, 0.5, 0.9]) * 1.000001
    counts = np.histogram(sizes, np.concatenate([[0.0], edges, [np.inf]]))[0]
    for rows in doors(X, y):
        measured = rows.in_metric(A)
        for _ in range(2):  # the second pass uses the kept lengths
            np.testing.assert_allclose(
                measured.gradient_sum(loss, theta, clip), expected, rtol=1e-11, atol=1e-10
            )
        np.testing.assert_array_equal(measured.gradient_norm_histogram(loss, theta, edges), counts)
        plain = measured.gradient_sum(loss, theta)
        np.testing.assert_allclose(plain, rows.gradient_sum(loss, theta), rtol=1e-12, atol=1e-12)
        assert measured.count() == len(X)


def test_a_bound_shortens_records(table):
    X, Z, A, random = table
    y = random.uniform(-1, 1, len(X))
    lengths = np.linalg.norm(Z @ A.T, axis=1)
    bound = float(np.median(lengths))
    short = Z * np.minimum(1.0, bound / lengths)[:, None]
    for rows in doors(X, y):
        view = rows.in_metric(A, bound)
        moments = view.moments()
        np.testing.assert_allclose(moments.xx, short.T @ short, rtol=1e-11)
        np.testing.assert_allclose(moments.xy[:, 0], short.T @ y, rtol=1e-9, atol=1e-9)
        counts = view.norm_histogram(np.array([0.5 * bound, bound]))
        np.testing.assert_array_equal(
            counts, [np.sum(lengths <= 0.5 * bound), np.sum(lengths > 0.5 * bound), 0]
        )
        raw = rows.in_metric(A).norm_histogram(np.array([bound * 1.000001]))
        np.testing.assert_array_equal(
            raw, [np.sum(lengths <= bound * 1.000001), np.sum(lengths > bound * 1.000001)]
        )


def test_lengths_are_never_below_the_true_ones():
    """Cancellation in A x must not make a record look short: then a clip would let through too much."""
    random = np.random.default_rng(0)
    X = np.ones((500, 6)) + 1e-9 * random.normal(size=(500, 6))
    A = np.eye(6) * 1e6 - 1e6 / 6  # annihilates constants
    rows = ArrayRows(X, np.zeros(500), Domain(x_norm=10.0)).in_metric(A)
    exact = np.linalg.norm((X.astype(np.longdouble) @ A.T.astype(np.longdouble)).astype(float), axis=1)
    for value in np.quantile(exact, [0.1, 0.5, 0.9]):
        below = rows.norm_histogram(np.array([value]))[0]
        assert below <= np.sum(exact <= value)


def test_wrong_metrics_are_refused(table):
    X, _, A, _ = table
    rows = ArrayRows(X, np.zeros(len(X)), DOMAIN, COLUMNS)
    with pytest.raises(InvalidInput, match="5 columns"):
        rows.in_metric(A[:, :3])
    with pytest.raises(InvalidInput, match="positive"):
        rows.in_metric(A, 0.0)
    with pytest.raises(InvalidInput, match="increasing"):
        rows.norm_histogram(np.array([2.0, 1.0]))
