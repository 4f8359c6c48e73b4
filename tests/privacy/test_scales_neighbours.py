"""At the ends of what may be declared no single record decides whether there is a release.

Every mechanism, on tables of zeros, on their neighbour with one record at the ends, and on records that all
stand there: what is not refused by the plan, before any charge, is released, and is finite.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from tests.catalogue import MECHANISMS, adjacencies_of
from tests.privacy.replay import moved_by

from curvedp import Budget, Domain, Problem
from curvedp.data import kernels
from curvedp.data.rows import make_rows
from curvedp.errors import CurvedpError, InvalidInput
from curvedp.mechanisms import make_plan
from curvedp.problems.constraints import Constraint, L2Ball, Reals
from curvedp.problems.domain import LARGEST_DECLARED, SMALLEST_DECLARED
from curvedp.problems.losses import Huber, Logistic, Loss, Multinomial, Offset, Poisson, Squared, SquaredHinge
from curvedp.problems.losses.several import target_columns
from curvedp.release import catalogue
from curvedp.release.door import execute
from curvedp_studies.mechanisms.baselines import NoisyGradient

ENDS = list(itertools.product((SMALLEST_DECLARED, 1.0, LARGEST_DECLARED), repeat=2))
LOSSES: list[Loss] = [
    Squared(),
    Logistic(),
    Huber(0.7),
    Huber(LARGEST_DECLARED),
    SquaredHinge(),
    Poisson(max_margin=0.5),
    Multinomial(3),
    Offset(Huber(0.7), LARGEST_DECLARED),
]
QUICK = {**MECHANISMS, "gradient": NoisyGradient(rounds=20)}
PURE = ("functional", "exponential", "pure_lop")


def tables(domain: Domain, width: int, n: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """All zeros; one record at the ends; all of them there."""
    X, y = np.zeros((n, 2)), np.zeros((n, width))
    one, its_target = X.copy(), y.copy()
    one[0, 0], its_target[0] = domain.x_norm, domain.y_bound
    return [(X, y), (one, its_target), (X + domain.x_norm, y + domain.y_bound)]


def released(name: str, loss: Loss, domain: Domain, constraint: Constraint) -> list[str] | None:
    """What becomes of each table: "finite", or the name of what stopped it; None where the plan refuses."""
    delta = 0.0 if name in PURE else 1e-6
    width = target_columns(loss)
    try:
        problem = Problem(loss, domain=domain, constraint=constraint)
        plan = make_plan(QUICK[name], problem, 2, Budget(1.0, delta))
        assert plan.guarantee
        plan.accept(make_rows(np.zeros((20, 2)), np.zeros((20, width)), domain))
    except CurvedpError:
        return None
    found = []
    for X, y in tables(domain, width):
        try:
            theta = execute(plan, make_rows(X, y, domain)).value.theta
            found.append("finite" if np.isfinite(theta).all() else "no numbers")
        except CurvedpError as error:
            found.append(str(error))
    return found


CHARGED = [name for name in MECHANISMS if catalogue.MECHANISMS[name].role != "study"]


every_charged = pytest.mark.parametrize("name", CHARGED)
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}-{type(loss).__name__}")


def stops_no_release(name: str, loss: Loss, domain: Domain, constraint: Constraint) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = released(name, loss, domain, constraint)
    assert found in (None, ["finite"] * 3), (domain, constraint, found)


@every_loss
@every_charged
def test_no_record_at_the_ends_of_the_domain_stops_a_release(name: str, loss: Loss) -> None:
    """At the four corners; free where adjacency is the first of the mechanism's, else in a ball."""
    for B, Y in itertools.product((SMALLEST_DECLARED, LARGEST_DECLARED), repeat=2):
        for adjacency, constraint in zip(adjacencies_of(name), (Reals(), L2Ball(1.0 / B)), strict=False):
            stops_no_release(name, loss, Domain(B, Y, adjacency), constraint)


@pytest.mark.full
@every_loss
@every_charged
def test_no_record_at_any_end_stops_a_release_under_any_constraint(name: str, loss: Loss) -> None:
    for (B, Y), adjacency in itertools.product(ENDS, adjacencies_of(name)):
        for constraint in (Reals(), L2Ball(1.0 / B)):
            stops_no_release(name, loss, Domain(B, Y, adjacency), constraint)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in CHARGED])
def test_no_record_at_the_ends_decides_about_a_study(name: str) -> None:
    for (B, Y), adjacency in itertools.product([*ENDS, (1e-3, 1e3), (1e3, 1e-3)], adjacencies_of(name)):
        for loss in (Logistic(), Squared()):
            found = released(name, loss, Domain(B, Y, adjacency), L2Ball(1.0 / B))
            assert found in (None, ["finite"] * 3), (B, Y, adjacency, found)


@pytest.mark.parametrize("name", ["recentered", "gradient", "statistics", "dp_sgd"])
def test_one_record_at_the_ends_moves_no_more_than_planned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensitivities hold there, rounding included."""
    moved = {}
    for (B, Y), adjacency in itertools.product(ENDS, adjacencies_of(name)):
        domain = Domain(B, Y, adjacency)
        plan = make_plan(QUICK[name], Problem(Squared(), domain=domain), 2, Budget(1.0, 1e-6))
        X, y = np.zeros((20, 2)), np.zeros(20)
        one, target = np.array([[B, 0.0]]), np.array([Y])
        for record, its in ((one, target), (-one, target)):
            keep = slice(1, None) if adjacency == "replace" else slice(None)
            left = make_rows(X, y, domain)
            right = make_rows(np.vstack([record, X[keep]]), np.append(its, y[keep]), domain)
            moved[B, Y, adjacency] = moved_by(plan, left, right, monkeypatch)
    assert max(m.curvature for m in moved.values()) <= 1.0 + 1e-9
    mu = 0.6  # more than the shift of any (1, 1e-6)-private Gaussian release
    assert max(m.gaussian for m in moved.values()) <= mu


def test_the_reassociated_clip_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: (w·c)/s, which overflowed for every record with |slope|·clip beyond 1.8e308."""

    def overflowing(weights, norms, lengths, most, out):  # type: ignore[no-untyped-def]
        with np.errstate(all="ignore"):
            sizes = np.abs(norms) * lengths
            out[:] = np.where((sizes > most)[:, None], weights * most / sizes[:, None], weights)

    huge = Domain(1e60, 1e60)
    X, y = tables(huge, 1)[1]
    theta = np.array([[1e160], [0.0]])  # far from any optimum: slopes of 1e220
    rows = make_rows(X, y, huge)
    assert np.linalg.norm(rows.gradient_sum(Squared(), theta, 1e119)) <= 1e119
    monkeypatch.setattr(kernels, "shorten_rows", overflowing)
    assert not np.isfinite(rows.gradient_sum(Squared(), theta, 1e119)).all()


@pytest.mark.parametrize("B", [1e61, 1e103, 1e150, 1e-61, 1e-100, 0.0, np.inf, np.nan])
def test_what_lies_beyond_is_refused_with_what_to_do(B: float) -> None:
    for make in (lambda: Domain(x_norm=B), lambda: Domain(y_bound=B)):
        with pytest.raises(InvalidInput, match="units nearer to 1"):
            make()
    with pytest.raises(InvalidInput, match="units nearer to 1"):
        Huber(B)
    if not B <= LARGEST_DECLARED:
        with pytest.raises(InvalidInput, match="units nearer to 1"):
            Offset(Huber(0.7), B)


def test_many_rounds_of_descent_stay_finite_at_every_end() -> None:
    """Slopes that rounding hides make the noise larger, round by round."""
    for B, Y in ENDS:
        domain = Domain(B, Y, "add_remove")
        plan = NoisyGradient(rounds=200).plan(Problem(Squared(), domain=domain), 2, Budget(0.1, 1e-6))
        for X, y in tables(domain, 1):
            assert np.isfinite(execute(plan, make_rows(X, y, domain)).value.theta).all()
