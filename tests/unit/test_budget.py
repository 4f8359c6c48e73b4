"""A budget is apart from mechanisms, and its parts add up as a ledger counts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvedp.amounts import exact
from curvedp.budget import Budget
from curvedp.errors import InvalidInput


@given(
    st.floats(1e-6, 1e3),
    st.just(0.0) | st.floats(1e-12, 0.5),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6),
)
def test_parts_never_exceed_the_whole_and_miss_it_by_rounding_only(
    epsilon: float, delta: float, weights: list[float]
) -> None:
    whole = Budget(epsilon, delta)
    parts = whole.split(**{f"part{i}": weight for i, weight in enumerate(weights)}).values()
    for name in ("epsilon", "delta"):
        total = sum((exact(getattr(part, name)) for part in parts), Fraction(0))
        asked = exact(getattr(whole, name))
        assert total <= asked
        assert asked - total <= asked * Fraction(1, 10**14)


def test_ten_equal_parts_are_tenths() -> None:
    parts = Budget(1.0, 1e-5).split(**{f"p{i}": 1.0 for i in range(10)})
    assert {part.epsilon for part in parts.values()} == {0.1}
    assert sum(exact(part.epsilon) for part in parts.values()) == 1


@pytest.mark.parametrize("shares", [{}, {"fit": 0.0}, {"fit": -1.0, "rest": 2.0}, {"fit": float("nan")}])
def test_shares_that_are_no_weights_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="positive weight"):
        Budget(1.0, 1e-6).split(**shares)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0.0, 1e-6),
        (-1.0, 1e-6),
        (float("inf"), 1e-6),
        (float("nan"), 0.0),
        (1.0, 1.0),
        (1.0, -1e-9),
        (True, 0.0),
    ],
)
def test_what_is_no_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidInput):
        Budget(epsilon, delta)
