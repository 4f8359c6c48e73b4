"""Public bounds: the row map, its inverse on coefficients, and the norm it promises."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from curvedp.data.mapping import ColumnMap, clip_to_ball
from curvedp.errors import InvalidInput
from curvedp.problems.domain import Domain

LOW, HIGH = np.array([0.0, -5.0, 100.0]), np.array([10.0, 5.0, 300.0])
few = settings(max_examples=40, deadline=None)
anything = st.floats(allow_nan=True, allow_infinity=True)


def test_columns_go_to_a_centred_range():
    columns = ColumnMap.from_bounds(LOW, HIGH)
    X = np.array([LOW, HIGH, (LOW + HIGH) / 2, LOW - 1, HIGH + 1, [np.nan, np.inf, -np.inf]])
    expected = [[-1, -1, -1, 1], [1, 1, 1, 1], [0, 0, 0, 1], [-1, -1, -1, 1], [1, 1, 1, 1], [0, 1, -1, 1]]
    np.testing.assert_allclose(columns.apply(X), expected)
    assert columns.d == 4 and columns.n_inputs == 3
    assert columns.norm_bound == pytest.approx(2.0)
    np.testing.assert_allclose(columns.clip(X)[-1], [5.0, 5.0, 100.0])


def test_without_intercept():
    columns = ColumnMap.from_bounds(LOW, HIGH, intercept=0.0)
    assert columns.d == 3 and columns.apply(np.zeros((2, 3))).shape == (2, 3)
    assert columns.norm_bound == pytest.approx(math.sqrt(3))
    coef, intercept = columns.to_user_units(np.ones((3, 1)))
    x = np.array([[3.0, 1.0, 120.0]])
    np.testing.assert_allclose(x @ coef + intercept, columns.apply(x) @ np.ones((3, 1)))


def test_a_smaller_norm_shortens_rows_and_a_larger_one_is_not_needed():
    columns = ColumnMap.from_bounds(LOW, HIGH, x_norm=1.2)
    rows = columns.apply(np.array([LOW, (LOW + HIGH) / 2]))
    assert np.linalg.norm(rows[0]) == pytest.approx(1.2)
    np.testing.assert_allclose(rows[1], [0, 0, 0, 1])
    assert columns.norm_bound == 1.2
    assert ColumnMap.from_bounds(LOW, HIGH, x_norm=7.0).norm_bound == pytest.approx(2.0)


@few
@given(arrays(np.float64, (4, 3), elements=anything), st.floats(0.1, 5.0), st.floats(0.0, 3.0))
def test_every_row_obeys_the_norm_exactly(X, x_norm, intercept):
    columns = ColumnMap.from_bounds(LOW, HIGH, x_norm=x_norm, intercept=intercept)
    bound = Fraction(columns.norm_bound) ** 2
    for row in columns.apply(X):
        assert sum(Fraction(float(v)) ** 2 for v in row) <= bound


@few
@given(arrays(np.float64, (5, 3), elements=anything), st.floats(1e-3, 1e3))
def test_clip_to_ball_takes_anything(X, bound):
    stored, norms, factors = clip_to_ball(X, bound)
    factors = np.ones(5) if factors is None else factors
    assert np.all(np.isfinite(stored)) and np.all(norms <= bound)
    for x, f, norm in zip(stored, factors, norms, strict=True):
        exact = Fraction(float(f)) ** 2 * sum(Fraction(float(v)) ** 2 for v in x)
        assert exact <= Fraction(bound) ** 2
        # Entries below 1e-150 vanish from a squared norm, and nothing else does.
        assert math.sqrt(exact) == pytest.approx(norm, rel=1e-13, abs=1e-150)


def test_one_hot_blocks_are_centred_and_have_the_norm_of_a_level():
    columns = ColumnMap.from_bounds([0.0] * 4, [1.0] * 4, one_hot=[(0, 1, 2)], intercept=0.0)
    rows = columns.apply(np.array([[1.0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0.5]]))
    np.testing.assert_allclose(rows[0, :3], [2 / 3, -1 / 3, -1 / 3])
    assert np.linalg.norm(rows[0, :3]) == pytest.approx(math.sqrt(1 - 1 / 3))
    assert columns.norm_bound == pytest.approx(math.sqrt(2 / 3 + 1))
    assert np.all(np.linalg.norm(rows, axis=1) <= columns.norm_bound)
    single = ColumnMap.from_bounds([0.0], [1.0], one_hot=[(0,)], intercept=0.0)
    assert single.norm_bound == 1.0  # a missing value of a column with one level


def test_a_row_with_several_levels_is_shortened():
    columns = ColumnMap.from_bounds([0.0] * 5, [1.0] * 5, one_hot=[range(5)], intercept=0.0)
    assert np.linalg.norm(columns.apply(np.ones((1, 5)))) <= columns.norm_bound


@few
@given(arrays(np.float64, (3, 3), elements=st.floats(-400, 400)), st.integers(0, 99), st.floats(0.1, 3.0))
def test_user_units_give_the_same_margins(X, seed, intercept):
    columns = ColumnMap.from_bounds(LOW, HIGH, intercept=intercept)
    theta = np.random.default_rng(seed).normal(size=(4, 2))
    coef, offset = columns.to_user_units(theta)
    assert coef.shape == (3, 2) and offset.shape == (2,)
    np.testing.assert_allclose(columns.clip(X) @ coef + offset, columns.apply(X) @ theta, atol=1e-11)


@few
@given(st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_other_units_change_nothing(scale, shift):
    X = np.random.default_rng(0).normal(size=(10, 3)) * [5, 3, 100] + [5, 0, 200]
    here = ColumnMap.from_bounds(LOW, HIGH).apply(X)
    there = ColumnMap.from_bounds(LOW * scale + shift, HIGH * scale + shift).apply(X * scale + shift)
    np.testing.assert_allclose(there, here, atol=1e-7 * (1 + abs(shift) / scale / 100))


def test_a_constant_column_is_zero():
    columns = ColumnMap.from_bounds([3.0], [3.0])
    np.testing.assert_allclose(columns.apply(np.array([[99.0], [np.nan]])), [[0, 1], [0, 1]])
    assert ColumnMap.from_bounds([3.0], [3.0], intercept=0.0).norm_bound > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Domain(x_norm=0.0),
        lambda: Domain(x_norm=math.inf),
        lambda: Domain(y_bound=math.nan),
        lambda: Domain(y_bound=-1.0),
        lambda: Domain(x_norm=1.1e60),
        lambda: Domain(x_norm=0.9e-60),
        lambda: Domain(y_bound=1e150),
        lambda: Domain(adjacency="swap"),
        lambda: ColumnMap.from_bounds([0.0], [1.0, 2.0]),
        lambda: ColumnMap.from_bounds([2.0], [1.0]),
        lambda: ColumnMap.from_bounds([-math.inf], [1.0]),
        lambda: ColumnMap.from_bounds([math.nan], [1.0]),
        lambda: ColumnMap.from_bounds([0.0], [1.0], intercept=-1.0),
        lambda: ColumnMap.from_bounds([0.0], [1.0], x_norm=0.0),
        lambda: ColumnMap.from_bounds([0.0, 0.0], [1.0, 2.0], one_hot=[(0, 1)]),
        lambda: ColumnMap.from_bounds([0.0], [1.0], one_hot=[(0, 1)]),
        lambda: ColumnMap.from_bounds([0.0] * 3, [1.0] * 3, one_hot=[(0, 1), (1, 2)]),
        lambda: ColumnMap.from_bounds([0.0], [1.0]).apply(np.zeros((2, 2))),
        lambda: ColumnMap.from_bounds([0.0], [1.0]).apply(np.zeros(2)),
        lambda: ColumnMap(np.zeros(2), np.ones(2), np.zeros(1), np.ones(2)),
        lambda: ColumnMap(np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1)),
    ],
)
def test_bad_declarations_are_refused(make):
    with pytest.raises(InvalidInput):
        make()
