"""Scores of neighbouring tables, replayed with the same released values: no record moves more than μ.

Planted bugs show that the replay, and an attack on released scores, would notice.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.privacy.hostile import objects
from tests.privacy.replay import moved_by, refuted

from curvedp import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.analyses.explore import noisy
from curvedp.analyses.scores import private_scores, score_plan
from curvedp.analyses.scores.means import FARTHEST_DEVIANCE, deviance
from curvedp.analyses.scores.source import ScoredRecords, ScoreLayout, class_records, layout_of, read_scored
from curvedp.data import Categorical, Numeric, Schema
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Grid
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.release.ledger import Ledger

BUDGET = Budget(1.0, 1e-6)
FEATURES = (Numeric("a", -1, 1), Numeric("b", 0, 10), Categorical("sex", ("f", "m")))
TARGETS = {
    "regression": Numeric("y", -4, 4),
    "two": Categorical("y", ("no", "yes")),
    "svc": Categorical("y", ("no", "yes")),
    "three": Categorical("y", ("0", "1", "2")),
    "counts": Numeric("y", 0, 20),
}
KINDS = {
    "regression": PrivateRidge,
    "two": PrivateLogisticRegression,
    "svc": PrivateLinearSVC,
    "three": PrivateLogisticRegression,
    "counts": PrivatePoissonRegressor,
}
PAIRS = [(kind, adjacency) for kind in KINDS for adjacency in ("add_remove", "replace")]


def table(n: int, kind: str, seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    labels = {"two": ["no", "yes"], "svc": ["no", "yes"], "three": [0, 1, 2]}
    numbers = {"regression": random.normal(0, 1, n), "counts": 1.0 * random.poisson(3.0, n)}
    y = (numbers[kind] if kind in numbers else random.choice(labels[kind], n)).tolist()
    return {
        "a": random.uniform(-1, 1, n).tolist(),
        "b": random.uniform(0, 10, n).tolist(),
        "sex": random.choice(["f", "m"], n).tolist(),
        "y": y,
    }


def fitted(kind: str, adjacency: Adjacency) -> Any:
    schema = Schema((*FEATURES, TARGETS[kind]), target="y", adjacency=adjacency)
    train = table(400, kind, 1)
    train["y"] = train["y"] if kind != "regression" else [3 * a for a in train["a"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind](schema=schema, epsilon=20.0).fit(train)


MODELS = {pair: fitted(*pair) for pair in PAIRS}  # type: ignore[arg-type]


def neighbours(
    kind: str, adjacency: str, record: list[Any], n: int = 60, seed: int = 0
) -> tuple[ScoredRecords, ScoredRecords]:
    """A table, and the same with its middle record replaced, or with one more there: all others move on."""
    left = table(n, kind, seed)
    right = {name: list(cells) for name, cells in left.items()}
    for name, cell in zip(right, record, strict=True):
        if adjacency == "replace":
            right[name][n // 2] = cell
        else:
            right[name].insert(n // 2, cell)
    model = MODELS[kind, adjacency]
    return read_scored(model, left, by="sex"), read_scored(model, right, by="sex")


def outliers(kind: str) -> list[list[Any]]:
    """Records at the corners of what is declared, and some beyond."""
    ys = {"regression": [-4, 4, 1e9], "three": [0, 2], "counts": [0, 20, 1e9]}.get(kind, ["no", "yes"])
    return [[a, b, sex, y] for a in (-1, 1e9) for b in (0, 10) for sex in ("f", "m", "?") for y in ys]


few = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def moved(kind: str, adjacency: str, record: list[Any], seed: int = 0) -> tuple[float, float]:
    """(how far the record moved all releases together, the planned μ)."""
    left, right = neighbours(kind, adjacency, record, seed=seed)
    plan = score_plan(left.layout, BUDGET)
    with pytest.MonkeyPatch.context() as patch:
        return moved_by(plan, left, right, patch, seed).gaussian, plan.split.profile.mu


@pytest.mark.parametrize(("kind", "adjacency"), PAIRS)
@few
@given(st.data())
def test_a_hostile_record_moves_no_more_than_planned(kind: str, adjacency: str, data: st.DataObject) -> None:
    record = [data.draw(objects) for _ in range(3)]
    labels = {"three": [0, 1, 2], "regression": [-4, 0.5, 4], "counts": [0, 3, 20]}.get(kind, ["no", "yes"])
    y = data.draw(objects | st.sampled_from(labels))
    shift, mu = moved(kind, adjacency, [*record, y], data.draw(st.integers(0, 5)))
    assert shift <= mu


@pytest.mark.parametrize(("kind", "adjacency"), PAIRS)
def test_the_worst_record_moves_nearly_as_much_as_planned(kind: str, adjacency: str) -> None:
    """No record more, and some record more than half: the sensitivities are not vacuous.

    Of counts no record is at the far end of the deviances of both the model and the constant.
    """
    found = [moved(kind, adjacency, record) for record in outliers(kind)]
    assert max(shift / mu for shift, mu in found) <= 1.0
    assert max(shift / mu for shift, mu in found) > (0.45 if kind == "counts" else 0.5)


def test_one_row_does_not_change_how_others_are_read() -> None:
    for kind, adjacency in PAIRS:
        left, right = neighbours(kind, adjacency, [0.2, 3, "f", "nobody"])
        rest = [i for i in range(60) if i != 30]
        if adjacency == "replace":
            for part in ("score", "target", "level", "predicted", "loss"):
                assert np.array_equal(getattr(left, part)[rest], getattr(right, part)), part
        else:
            assert np.array_equal(left.score, right.score)


BUGS = {
    "a replaced number moves a sum by the whole window": (
        lambda neighbours, low, high, several: max(-low, high),
        "sum_sensitivity",
    ),
    "a replaced record leaves one cell and enters another": (
        lambda neighbours: 1.0,
        "count_sensitivity",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_forgotten_factor_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, name = BUGS[bug]
    monkeypatch.setattr(noisy, name, wrong)
    shifts = []
    for kind in ("regression", "two", "three"):
        for record in outliers(kind):
            left, right = neighbours(kind, "replace", record)
            plan = score_plan(left.layout, BUDGET)
            shifts.append(worst_part(plan, left, right))
    assert max(shifts) > 1.0


def test_without_the_bug_no_part_moves_more_than_it_was_given() -> None:
    for kind, adjacency in PAIRS:
        for record in outliers(kind):
            left, right = neighbours(kind, adjacency, record)
            assert worst_part(score_plan(left.layout, BUDGET), left, right) <= 1.0


def attacked() -> tuple[str, ...]:
    """Premises that fail for a table of one record and of none."""
    model = MODELS["two", "add_remove"]
    one, none = (
        read_scored(model, {name: cells[:k] for name, cells in table(5, "two", 0).items()}) for k in (1, 0)
    )
    plan = score_plan(layout_of(model), BUDGET)
    return refuted(plan, one, none)


def test_noise_that_is_too_small_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not attacked()
    monkeypatch.setattr(noisy, "count_sensitivity", lambda neighbours: 1.0 / 1.05)
    assert attacked()


def worst_part(plan: Any, left: ScoredRecords, right: ScoredRecords) -> float:
    """The largest shift of a single part in units of what that part was given."""
    asked: list[np.ndarray] = []
    released: list[np.ndarray] = []
    ratios: list[float] = []
    add = Grid.add
    names: list[str] = []
    grid_of = type(plan.split).grid

    def named(self: Any, name: str, sensitivity: float) -> Grid:
        names.append(name)
        return grid_of(self, name, sensitivity)

    def first(grid: Grid, value: np.ndarray, random: Any, name: str = "") -> np.ndarray:
        asked.append(value)
        released.append(add(grid, value, random))
        return released[-1]

    def second(grid: Grid, value: np.ndarray, random: Any, name: str = "") -> np.ndarray:
        i = len(ratios)
        moved = np.linalg.norm(value - asked[i]) / grid.sigma
        ratios.append(float(moved / plan.split.shift(names[i])))
        return released[i]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plan.split), "grid", named)
        patch.setattr(Grid, "add", first)
        plan.release(left, np.random.default_rng(0))
        names.clear()
        patch.setattr(Grid, "add", second)
        plan.release(right, np.random.default_rng(0))
    return max(ratios)


HOT = {
    "regression": [1, 10, "f", 4],
    "counts": [1, 10, "f", 20],
    "two": [1, 10, "f", "yes"],
    "svc": [1, 10, "f", "yes"],
    "three": [1, 10, "f", 2],
}


def with_coefficients(kind: str, size: float, intercept: float) -> Any:
    """A model whose file says anything: ±size in turn, so that margins cancel at some records only."""
    model = copy.copy(MODELS[kind, "replace"])
    coef = np.full(np.shape(model.coef_), size)
    coef[..., 1::2] *= -1.0
    if coef.ndim == 2:
        coef[1::2] *= -1.0
    told = model.release_
    model.release_ = replace(
        told,
        coefficients=coef.reshape(np.shape(told.coefficients)),
        intercept=np.full(np.shape(told.intercept), intercept),
    )
    return model


def cold_and_hot(kind: str) -> list[dict[str, list[Any]]]:
    """Records near 0, and the same with one at the far corner of what is declared."""
    cold = table(80, kind, 4)
    for name in ("a", "b"):
        cold[name] = [0.01 * abs(x) for x in cold[name]]
    hot = {name: list(cells) for name, cells in cold.items()}
    for name, cell in zip(hot, HOT[kind], strict=True):
        hot[name][0] = cell
    return [cold, hot]


@pytest.mark.parametrize("size", [0.0, 5e-324, 1.0, 1e16, 1e100, 1e148])
@pytest.mark.parametrize("kind", KINDS)
def test_one_record_moves_the_scores_of_a_hostile_model_as_planned(
    kind: str, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_coefficients(kind, size, -size)
    left, right = (read_scored(model, cells) for cells in cold_and_hot(kind))
    for records in (left, right):
        assert np.isfinite(records.score).all() and np.isfinite(records.loss).all()
    plan = score_plan(left.layout, BUDGET)
    assert moved_by(plan, left, right, monkeypatch).gaussian <= plan.split.profile.mu


@pytest.mark.parametrize(
    ("size", "intercept"), [(1e150, 0.0), (1e160, 0.0), (1e308, 0.0), (1.79e308, 0.0), (1.0, 1.79e308)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_some_record_could_overflow_is_refused_whatever_the_records_are(
    kind: str, size: float, intercept: float, tmp_path: Path
) -> None:
    """Each class has its own coefficients; nothing is charged."""
    model = with_coefficients(kind, size, intercept)
    if np.ndim(model.coef_) == 2:
        model.coef_[:-1] = 0.0  # one class is enough
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=9.0, delta=1e-3, adjacency="replace")
    told = set()
    for cells in cold_and_hot(kind):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InvalidInput, match="exceed 1e150") as refused:
                private_scores(model, cells, epsilon=2.0, delta=1e-6, ledger=ledger)
        told.add(str(refused.value))
    assert len(told) == 1 and not ledger.history()


def test_counts_have_finite_deviances_whatever_the_file_says() -> None:
    schema = Schema((*FEATURES, Numeric("y", 0, 20)), target="y", adjacency="replace")
    model = PrivatePoissonRegressor(schema=schema).fit(table(400, "regression", 1))
    for size in (1.0, 1e140, 1e308):
        coefficients = np.array([[size, -size, size, -size]])
        model.release_ = replace(model.release_, coefficients=coefficients)
        if size == 1e308:
            with pytest.raises(InvalidInput, match="1e150"):
                layout_of(model)
            continue
        found = read_scored(model, table(50, "counts", 2))
        assert np.all(np.abs(found.score) <= 1) and np.all(np.abs(found.target) <= 1)
        losses = deviance(1 + found.target, 1 + found.score[:, 0])
        assert np.all((losses >= 0) & (losses <= FARTHEST_DEVIANCE))


def test_margins_that_are_no_numbers_are_clipped_like_any_other() -> None:
    """A second wall: `class_records` itself makes finite logits and losses of anything."""
    for k, classes in ((1, ("no", "yes")), (3, ("a", "b", "c"))):
        layout = ScoreLayout("classification", Neighbours("replace"), classes=classes, probabilities=True)
        odd = np.array([np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 0.0])
        margins = np.array(list(itertools.product(odd, repeat=k)))
        n = len(margins)
        with np.errstate(all="ignore"):
            found = class_records(layout, margins, np.arange(n) % len(classes), np.full(n, -1), n)
        assert np.isfinite(found.score).all() and np.isfinite(found.loss).all()
        assert set(found.predicted) <= set(range(len(classes)))
