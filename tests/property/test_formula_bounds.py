"""What is computed from bounded columns stays within the bounds that follow, and every row by itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.privacy import hostile

from curvedp.data import Categorical, Derived, Numeric, Schema
from curvedp.data.formulas.numbers import Interval, Operation
from curvedp.errors import InvalidInput

ends = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.1, 0.3, 1e-300, -1e-9, 1e9, 1 / 3]),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 10),
)
bounds = st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]).map(sorted)
leaves = st.sampled_from(["x", "y", "x", "y", "0.1", "3", "-2.5", "1e-3"])
FUNCTIONS = ("log", "log2", "log10", "log1p", "sqrt", "exp", "expm1", "abs", "I")


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(FUNCTIONS), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("({}) ** {}".format, inner, st.sampled_from([2, 3, 5, -1, -2, 0.5, 1.7, -0.3])),
        st.builds("{}({}, {})".format, st.sampled_from(["minimum", "maximum"]), inner, inner),
        st.builds("-({})".format, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["<", ">=", "=="]), inner),
    )


expressions = st.recursive(leaves, grown, max_leaves=6)


def places(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers within the bounds, often at their ends and next to them; and what clipping must handle."""
    near = [low, high, np.nextafter(low, high), np.nextafter(high, low), 0.5 * low + 0.5 * high]
    near += [v for v in (0.0, np.nextafter(0, 1), -np.nextafter(0, 1), 1.0) if low <= v <= high]
    outside = [np.nan, np.inf, -np.inf, 1e308]
    return st.sampled_from([*near, *outside]) | st.floats(low, high)


@settings(max_examples=200, deadline=None)
@given(st.data(), expressions, bounds, bounds)
def test_a_computed_number_never_leaves_its_bounds(data, text, of_x, of_y):
    columns = (Numeric("x", *of_x), Numeric("y", *of_y))
    try:
        schema = Schema(columns, derived=(Derived("z", text),))
    except InvalidInput:
        assume(False)
    cells = {
        name: data.draw(st.lists(places(*pair), min_size=7, max_size=7))
        for name, pair in (("x", of_x), ("y", of_y))
    }
    (low, high), found = (end[2] for end in schema.bounds), schema.read(cells)[:, 2]
    assert np.all(np.isfinite(found))
    assert np.all((found >= low) & (found <= high)), (text, found, low, high)


@settings(max_examples=200, deadline=None)
@given(bounds, st.sampled_from(["x ** 2", "x * x", "x ** 4", "abs(x)", "x ** 3", "-x", "sqrt(abs(x))"]))
def test_bounds_of_powers_are_attained(pair, text):
    """Tight to the last digit: both ends are values that the column takes."""
    assume(max(map(abs, pair)) > 1e-60)  # a power that underflows does not vary, and is refused
    schema = Schema((Numeric("x", *pair),), derived=(Derived("z", text),))
    low, high = schema.bounds[0][1], schema.bounds[1][1]
    inside = [0.0] if pair[0] <= 0 <= pair[1] else []
    found = schema.read({"x": [*pair, *inside]})[:, 1]
    assert (found.min(), found.max()) == (low, high)


@settings(max_examples=200, deadline=None)
@given(bounds, bounds)
def test_bounds_of_products_are_attained(of_x, of_y):
    assume(min(max(map(abs, of_x)), max(map(abs, of_y))) > 1e-100)
    schema = Schema((Numeric("x", *of_x), Numeric("y", *of_y)), derived=(Derived("z", "x:y"),))
    corners = {"x": [of_x[i] for i in (0, 0, 1, 1)], "y": [of_y[i] for i in (0, 1, 0, 1)]}
    found = schema.read(corners)[:, 2]
    assert (found.min(), found.max()) == (schema.bounds[0][2], schema.bounds[1][2])


@example(np.log, 0.1, 7.3)
@given(st.sampled_from([np.log, np.log1p, np.exp, np.log2, np.expm1]), st.floats(0.01, 5), st.floats(5.1, 50))
def test_transcendental_bounds_are_a_few_units_wide(function, low, high):
    found = Operation(function, exact=False).interval(Interval(low, high))
    for end, value in ((found.low, function(low)), (found.high, function(high))):
        assert abs(end - value) <= 20 * np.spacing(abs(value))
    assert found.low <= function(low) and function(high) <= found.high


FORMULA = (
    "~ x + I(x**2):C(level) + log1p(abs(x)) + spline(y, knots=[0.5], degree=2):level + cut(y, breaks=[0.25]) "
    "+ x:y + exp(y) + I(x > y)"
)
HOSTILE = Schema(
    (Numeric("x", -1, 1), Numeric("y", 0, 1, missing="indicator"), Categorical("level", ["0", "1", "yes"]))
).with_formula(FORMULA)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(hostile.objects, hostile.objects, hostile.objects), min_size=1, max_size=6))
def test_every_row_is_computed_by_itself_whatever_it_holds(rows):
    """One record, however odd, changes no other, and no cell is NaN but one that the column map handles."""
    table = {name: [row[j] for row in rows] for j, name in enumerate(("x", "y", "level"))}
    whole = HOSTILE.read(table)
    for i in range(len(rows)):
        one = HOSTILE.read({name: [cells[i]] for name, cells in table.items()})
        np.testing.assert_array_equal(whole[i : i + 1], one)
    low, high = HOSTILE.bounds
    derived = whole[:, 1:]
    assert np.all((derived >= low[1:]) & (derived <= high[1:]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(hostile.objects, hostile.objects, hostile.objects), min_size=1, max_size=6))
def test_no_row_needs_clipping_to_the_norm_bound(rows):
    """The bound of ‖x‖ holds by itself: what blocks and rays are said to be is true."""
    table = {name: [row[j] for row in rows] for j, name in enumerate(("x", "y", "level"))}
    columns = HOSTILE.column_map()
    mapped, _ = columns.within(HOSTILE.read(table), 1e9)
    assert np.all(np.linalg.norm(mapped, axis=1) <= columns.x_norm * (1 + 1e-12))


def test_the_property_can_fail():
    """A function whose bounds were taken from its corners, though it is not monotone, is caught."""
    wrong = Operation(lambda x: (x - 0.5) ** 2).interval(Interval(0.0, 1.0))
    assert not wrong.low <= 0.0


@pytest.mark.parametrize(
    ("formula", "square"),
    [
        ("~ x", 1.0),
        ("~ C(level)", 1 - 1 / 3),
        ("~ C(level):C(kind)", 1 - 1 / 6),
        ("~ C(level):x", 1.0),
        ("~ C(level):C(kind):x:y", 1.0),
        ("~ spline(y, knots=[0.2, 0.4, 0.6, 0.8])", 1 - 1 / 8),
        ("~ spline(y, knots=[0.5]):C(level)", 1 - 1 / 15),
        ("~ spline(y, knots=[0.5]):x", 1.0),
        ("~ C(level)*C(kind)", (1 - 1 / 3) + 1 / 2 + 1 / 2),
        ("~ cut(y, breaks=[0.1, 0.2, 0.3])", 1 - 1 / 4),
    ],
)
def test_the_norm_of_a_block_is_that_of_one_column(formula, square):
    """Not √(number of columns): one level at a time, or parts of one whole."""
    columns = (
        Numeric("x", -3, 2),
        Numeric("y", 0, 1),
        Categorical("level", ["a", "b", "c"]),
        Categorical("kind", ["u", "v"]),
    )
    schema = Schema(columns).with_formula(formula)
    assert schema.column_map(intercept=0.0).x_norm == pytest.approx(np.sqrt(square), rel=1e-12)
    grid = list(product((-3, 0, 2, None), np.linspace(0, 1, 33), "abcz", "uvz"))
    names = ("x", "y", "level", "kind")
    X = schema.read({name: [row[j] for row in grid] for j, name in enumerate(names)})
    mapped, _ = schema.column_map(intercept=0.0).within(X, 1e9)
    assert np.linalg.norm(mapped, axis=1).max() <= np.sqrt(square) * (1 + 1e-12)
