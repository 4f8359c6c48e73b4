"""A budget is apart from mechanisms, and its parts add up as a ledger counts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvedp.errors import InvalidInput
from curvedp.numbers import exact
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import Cost, calibrate_mu, pure_mu
from curvedp.release.ledger.filters import Filter, Tally

SPLITS = (
    st.floats(1e-3, 100),
    st.floats(1e-12, 0.5),
    st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=6),
)


@given(*SPLITS, st.sets(st.sampled_from(["part0", "part1"])))
def test_a_ledger_of_the_whole_grants_all_parts_and_hardly_more(
    epsilon: float, delta: float, weights: list[float], pure: set[str]
) -> None:
    rule, tally = Filter("gaussian", epsilon, delta), Tally()
    parts = Budget(epsilon, delta).split(pure=pure, **{f"part{i}": w for i, w in enumerate(weights)})
    for name, part in parts.items():
        assert (part.delta == 0) == (name in pure) and part.delta <= delta
        mu = calibrate_mu(part.epsilon, part.delta) if part.delta else pure_mu(part.epsilon)
        tally = tally.plus(Cost(mu))
    left = tally.left_of(rule.boxes[0])
    assert left is not None and left.squares <= Fraction(rule.boxes[0].mu) ** 2 / 10**6


@given(SPLITS[0], SPLITS[2])
def test_parts_of_a_pure_budget_never_exceed_it(epsilon: float, weights: list[float]) -> None:
    parts = Budget(epsilon).split(**{f"part{i}": weight for i, weight in enumerate(weights)}).values()
    total = sum((exact(part.epsilon) for part in parts), Fraction(0))
    assert exact(epsilon) * (1 - Fraction(1, 10**14)) <= total <= exact(epsilon)
    assert all(part.delta == 0 for part in parts)


def test_a_quarter_of_the_squares_is_about_half_of_epsilon() -> None:
    parts = Budget(1.0, 1e-6).split(check=1, bounds=1, fit=1, score=1, pure=["bounds"])
    assert parts["fit"].epsilon == pytest.approx(0.47, abs=0.01)  # a quarter of ε would be twice the noise
    assert parts["bounds"].delta == 0 and parts["bounds"].epsilon < 0.1
    assert Budget(1.0, 1e-6).split(fit=3) == {"fit": Budget(1.0, 1e-6)}
    with pytest.raises(InvalidInput, match="'bound', which has no share"):
        Budget(1.0, 1e-6).split(fit=1, pure=["bound"])


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
        (1e308, 1e-6),
        (1.1e6, 0.0),
    ],
)
def test_what_is_no_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidInput):
        Budget(epsilon, delta)
