"""Scores, searches and statistics of persons with several rows: each counts once, in every container."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from curvedp import Budget, Domain, Ledger, PrivateLogisticRegression, PrivateRidge, Schema, load
from curvedp.analyses.scores import private_scores, score_plan
from curvedp.analyses.scores.source import layout_of, read_scored
from curvedp.analyses.search import PrivateSearch
from curvedp.data import Categorical, Numeric
from curvedp.data.rows import make_rows
from curvedp.errors import CurvedpError, InvalidInput, LedgerRefused
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems import Problem
from curvedp.problems.losses import Squared
from curvedp.release.door import execute
from curvedp.release.fit import PrivateStatistics
from curvedp_studies.mechanisms.wishart import WishartStatistics
from sklearn import metrics

QUICK = Recentered(Rule(rounds=6, first_rounds=3))
FEATURES = (Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("sex", ("f", "m")))
TARGETS = {"y": Numeric("y", -1, 1), "ill": Categorical("ill", ("no", "yes"))}
SEEDED: dict[str, Any] = {"delta": 1e-6, "random_state": 0}


def people(persons: int = 1500, most: int = 9) -> pd.DataFrame:
    """Those with many rows are hard to predict: a mean over rows is another one."""
    random = np.random.default_rng(0)
    k = random.integers(1, most + 1, persons)
    who = random.permutation(np.repeat(np.arange(persons), k))
    a, b = random.uniform(-1, 1, (2, len(who)))
    noise = 0.05 * np.sqrt(k)[who] * (random.normal(size=persons)[who] + random.normal(size=len(who)))
    y = np.clip(0.5 * a + noise, -1, 1)
    sex, names = random.choice(["f", "m"], len(who)), [f"patient-{i}" for i in who]
    ill = np.where(0.5 * a + 2 * noise > 0, "yes", "no")
    return pd.DataFrame({"who": names, "a": a, "b": b, "sex": sex, "y": y, "ill": ill})


def schema(target: str = "y", **options: Any) -> Schema:
    return Schema((*FEATURES, TARGETS[target]), target, **{"unit": "who", **options})


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return people()


@pytest.fixture(scope="module")
def models(frame: pd.DataFrame) -> dict[str, Any]:
    return {
        "y": PrivateRidge(schema=schema(), epsilon=5.0, mechanism=QUICK).fit(frame),
        "ill": PrivateLogisticRegression(schema=schema("ill"), epsilon=5.0, mechanism=QUICK).fit(frame),
    }


def share_of(frame: pd.DataFrame) -> np.ndarray:
    return (1.0 / frame.groupby("who")["a"].transform("size")).to_numpy()


def test_scores_weigh_every_row_by_its_part(frame, models) -> None:
    """At a huge ε they are scikit-learn's, with weights 1/k."""
    w = share_of(frame)
    found = private_scores(models["y"], frame, epsilon=1e4, **SEEDED)
    p, y = models["y"].predict(frame), frame["y"]
    assert found.overall.count.value == pytest.approx(1500, abs=1)
    assert found["r2"].value == pytest.approx(metrics.r2_score(y, p, sample_weight=w), abs=0.005)
    assert abs(metrics.r2_score(y, p) - found["r2"].value) > 0.03
    mae = metrics.mean_absolute_error(y, p, sample_weight=w)
    assert found["mae"].value == pytest.approx(mae, rel=0.01)
    assert found["rmse"].value ** 2 == pytest.approx(np.average((y - p) ** 2, weights=w), rel=0.01)
    errors, curve = np.sort(y - p), found.overall.curves["residuals"]
    below = np.cumsum(w[np.argsort(y - p)]) / 1500
    quantiles = errors[np.searchsorted(below, curve.x)]
    assert (np.array(curve.low) <= quantiles).all() and (quantiles <= np.array(curve.high)).all()
    found = private_scores(models["ill"], frame, epsilon=1e4, by="sex", **SEEDED)
    p, ill = models["ill"].predict_proba(frame)[:, 1], frame["ill"] == "yes"
    accuracy = metrics.accuracy_score(ill, p > 0.5, sample_weight=w)
    assert found["accuracy"].value == pytest.approx(accuracy, abs=0.002)
    assert abs(metrics.accuracy_score(ill, p > 0.5) - accuracy) > 0.01
    assert found["auc"].value == pytest.approx(metrics.roc_auc_score(ill, p, sample_weight=w), abs=0.005)
    assert found["brier"].value == pytest.approx(np.average((p - ill) ** 2, weights=w), rel=0.01)
    assert found["log_loss"].value == pytest.approx(metrics.log_loss(ill, p, sample_weight=w), rel=0.01)
    roc = found.overall.curves["roc"]
    assert np.trapezoid(roc.y, roc.x) == pytest.approx(found["auc"].value, abs=0.01)
    told = zip(*(getattr(found.overall.curves["calibration"], axis) for axis in "xy"), strict=True)
    assert all(abs(share - prob) < 0.25 for prob, share in told)
    for sex in ("f", "m"):  # a person's rows may be in both
        mine = (frame["sex"] == sex).to_numpy()
        assert found.levels[sex].count.value == pytest.approx(w[mine].sum(), abs=1)
        here = metrics.accuracy_score(ill[mine], p[mine] > 0.5, sample_weight=w[mine])
        assert found.levels[sex]["accuracy"].value == pytest.approx(here, abs=0.005)


@pytest.mark.parametrize("target", TARGETS)
def test_with_one_row_each_nothing_differs(target, frame, models) -> None:
    single = frame.drop_duplicates("who").assign(who=lambda f: np.arange(len(f)))
    plain = type(models[target])(schema=schema(target, unit=None), mechanism=QUICK).fit(frame)
    both = [
        private_scores(plain, single, epsilon=1.0, by="sex", unit=unit, **SEEDED)
        for unit in (None, single["who"])
    ]
    assert both[0].overall == both[1].overall and both[0].levels == both[1].levels
    assert [scores.privacy.neighbours.unit for scores in both] == [None, "who"]
    assert [scores.to_dict()["counted"] for scores in both] == ["rows", "persons"]


CONTAINERS = {
    "mapping": lambda f, p: f.to_dict("list"),
    "polars": lambda f, p: pl.from_pandas(f),
    "arrow": lambda f, p: pa.Table.from_pandas(f),
    "CSV": lambda f, p: f.to_csv(p / "t.csv", index=False) or p / "t.csv",
    "Parquet": lambda f, p: f.to_parquet(p / "t.parquet", row_group_size=500) or p / "t.parquet",
    "Dask": lambda f, p: dd.from_pandas(f, npartitions=1),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_same_scores(container, frame, models, tmp_path) -> None:
    expected = private_scores(models["y"], frame, epsilon=1.0, by="sex", **SEEDED)
    table = CONTAINERS[container](frame, tmp_path)
    found = private_scores(models["y"], table, epsilon=1.0, by="sex", **SEEDED)
    assert found.overall == expected.overall and found.levels == expected.levels


def test_arrays_have_their_persons_beside_them(frame) -> None:
    X, y, who = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy(), frame["who"]
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism=QUICK).fit(X, y, unit=who)
    scores = private_scores(model, X, y, unit=who, epsilon=1e4, **SEEDED)
    assert scores.overall.count.value == pytest.approx(1500, abs=1)
    assert scores.privacy.neighbours.unit == "who"
    with pytest.raises(InvalidInput, match="no column names"):
        private_scores(model, X, y, epsilon=1.0, delta=1e-6)
    with pytest.raises(CurvedpError, match="one entry per row"):
        private_scores(model, X, y, unit=who[:-1], epsilon=1.0, delta=1e-6)


def test_nobodys_rows_contribute_nothing(frame, models) -> None:
    strangers = frame.assign(who=None, y=1.0)
    both = [pd.concat(parts, ignore_index=True) for parts in ([frame], [frame, strangers, strangers])]
    one, other = (private_scores(models["y"], table, epsilon=1.0, **SEEDED).overall for table in both)
    for name in one.scores:
        assert other[name].value == pytest.approx(one[name].value, rel=1e-9)
    assert read_scored(models["y"], both[1]).rows == 1500.0


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_nearly_nobody_are_released_from(rows, frame) -> None:
    model = PrivateRidge(schema=schema(adjacency="add_remove"), mechanism=QUICK).fit(frame)
    found = private_scores(model, frame.iloc[:rows], epsilon=1.0, **SEEDED)
    assert not found["r2"].is_known


def test_one_row_of_each_person_is_chosen_by_a_coin(frame, tmp_path) -> None:
    one = PrivateRidge(schema=schema(rows_per_person="one"), mechanism=QUICK, epsilon=5.0).fit(frame)
    one.save(tmp_path / "model.json")
    one = load(tmp_path / "model.json")
    assert one.schema_.rows_per_person == "one"
    records = [read_scored(one, frame) for _ in range(2)]
    for found in records:
        assert found.rows == 1500.0 and sorted(set(found.parts)) == [0.0, 1.0] and found.parts.sum() == 1500.0
    assert (records[0].parts != records[1].parts).any()  # a fresh coin
    scores = private_scores(one, frame, epsilon=2.0, delta=1e-6)
    assert scores.overall.count.value == pytest.approx(1500, abs=300)
    same = frame.assign(a=0.5, b=0.0, sex="f", y=0.3)  # whatever is chosen
    every = replace(one.release_, schema=schema()).to_estimator()
    both = [private_scores(model, same, epsilon=1.0, **SEEDED).overall["mae"] for model in (one, every)]
    assert both[0].value == pytest.approx(both[1].value, rel=1e-9)


def test_what_is_public_is_refused_before_the_charge(frame, models, tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "who.db", epsilon=9.0, delta=1e-3, unit="who")
    asked = {"epsilon": 1.0, "delta": 1e-6, "ledger": ledger}
    with pytest.raises(InvalidInput, match="persons: raise epsilon, or score more persons"):
        private_scores(models["y"], frame, rows=20, **asked)
    with pytest.raises(InvalidInput, match="persons: raise epsilon"):  # 20 persons with 9,000 rows
        private_scores(
            models["y"], pd.concat([frame.iloc[:9000].assign(who=lambda f: f.index % 20)]), **asked
        )
    with pytest.raises(CurvedpError):
        private_scores(models["y"], frame.drop(columns="who"), **asked)
    with pytest.raises(CurvedpError, match="floating"):
        private_scores(models["y"], frame.assign(who=np.arange(len(frame)) / 2), **asked)
    layout = layout_of(models["y"])
    records = replace(read_scored(models["y"], frame), parts=None)
    with pytest.raises(InvalidInput, match="say not whose they are"):
        execute(score_plan(layout, Budget(1.0, 1e-6)), records, ledger=ledger)
    assert ledger.state().charges == 0


def test_a_ledger_for_persons_pays_for_scores_and_searches_of_persons_alone(frame, models, tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "who.db", epsilon=9.0, delta=1e-3, unit="who")
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "ledger": ledger}
    private_scores(models["y"], frame, **asked)
    grid = {"alpha": [1.0, 100.0]}
    PrivateSearch(PrivateRidge(schema=schema(), mechanism=QUICK), grid, **asked).fit(frame)
    X, domain = frame[["a", "b"]].to_numpy() / 2, Domain(unit="who")
    PrivateStatistics.release(
        X, frame["y"], unit=frame["who"], domain=domain, budget=Budget(1.0, 1e-6), ledger=ledger
    )
    assert [entry.epsilon for entry in ledger.history()] == [1.0, 1.0, 1.0]
    plain = PrivateRidge(schema=schema(unit=None), mechanism=QUICK).fit(frame)
    with pytest.raises(LedgerRefused):
        private_scores(plain, frame, **asked)
    with pytest.raises(LedgerRefused):
        PrivateSearch(PrivateRidge(schema=schema(unit=None), mechanism=QUICK), grid, **asked).fit(frame)
    with pytest.raises(LedgerRefused):
        PrivateStatistics.release(X, frame["y"], budget=Budget(1.0, 1e-6), ledger=ledger)
    assert len(ledger.history()) == 3
    rows = Ledger.create(tmp_path / "rows.db", epsilon=9.0, delta=1e-3)
    with pytest.raises(LedgerRefused):
        private_scores(models["y"], frame, **{**asked, "ledger": rows})


# Searches


@pytest.mark.parametrize("strategy", ["refits", "trials"])
def test_a_search_with_one_row_each_is_that_of_rows(strategy) -> None:
    random = np.random.default_rng(1)
    X = random.uniform(-1, 1, (800, 2))
    found = []
    for unit in (None, np.arange(800)):
        model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism=QUICK)
        search = PrivateSearch(model, {"alpha": [1.0, 1e4]}, strategy=strategy, random_state=3)
        found.append(search.fit(X, 0.5 * X[:, 0], unit=unit))
    assert found[0].best_index_ == found[1].best_index_
    assert found[0].best_estimator_.coef_ == pytest.approx(found[1].best_estimator_.coef_, rel=1e-6)
    assert found[1].privacy_.neighbours.unit == "unit"


@pytest.mark.parametrize("strategy", ["refits", "trials"])
def test_a_search_of_persons_leaves_the_candidate_that_is_far_off(strategy, frame) -> None:
    chosen = [
        PrivateSearch(
            PrivateRidge(schema=schema(), mechanism=QUICK),
            {"alpha": [1.0, 1e7]},
            epsilon=3.0,
            strategy=strategy,
            trials=6.0,
            random_state=seed,
        )
        .fit(frame)
        .best_params_.get("alpha")
        for seed in range(3)
    ]
    assert chosen == [1.0] * 3


def test_refits_and_paths_of_persons_cost_nothing_more(frame, tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "who.db", epsilon=1.0, delta=1e-3, unit="who")
    model = PrivateRidge(schema=schema(), mechanism=QUICK, ledger=ledger).fit(frame)
    other = model.refit(alpha=50.0, trust=1e9)
    assert other.privacy_.neighbours.unit == "who" and (other.coef_ != model.coef_).any()
    assert len(model.path([1.0, 50.0]).coefs) == 2
    assert len(ledger.history()) == 1


# Statistics


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_statistics_of_persons_are_those_of_weights_1_over_k(noise, frame) -> None:
    X, y, w = frame[["a", "b"]].to_numpy() / 2, frame["y"].to_numpy(), share_of(frame)
    domain, budget = Domain(unit="who"), Budget(1e3, 1e-6)
    read = make_rows(X, y, domain, unit=frame["who"])
    rows = read.moments()
    Z = np.sqrt(w)[:, None] * np.column_stack([X, y])
    exact = Z.T @ Z
    for computed, block in ((rows.xx, exact[:2, :2]), (rows.xy, exact[:2, 2:]), (rows.yy, exact[2:, 2:])):
        assert computed == pytest.approx(block, rel=1e-12)
    if noise == "gaussian":
        found = PrivateStatistics.release(X, y, unit=frame["who"], domain=domain, budget=budget)
        assert found.count == 1500.0 and found.privacy.neighbours.unit == "who"
    else:
        plan = WishartStatistics().plan(Problem(Squared(), domain=domain), 2, budget)
        found = plan.release_moments(read, np.random.default_rng())
        assert plan.guarantee.neighbours.unit == "who"
    assert found.xx == pytest.approx(exact[:2, :2], rel=0.05, abs=3)
    weighted = np.linalg.lstsq(np.sqrt(w)[:, None] * X, np.sqrt(w) * y, rcond=None)[0]
    assert found.solve() == pytest.approx(weighted, abs=0.05)


def test_standard_errors_of_statistics_are_on_the_safe_side() -> None:
    """Errors of a person that agree: the deviation over many tables is what is stated, or less."""
    random, estimates, stated = np.random.default_rng(0), [], []
    for t in range(60):
        who = np.repeat(np.arange(2000), random.integers(1, 9, 2000))
        X = random.uniform(-0.7, 0.7, (len(who), 1)) * 0.3 + 0.7 * random.uniform(-1, 1, (2000, 1))[who]
        y = np.clip(0.4 * X[:, 0] + 0.15 * random.normal(size=2000)[who], -1, 1)
        found = PrivateStatistics.release(
            X, y, unit=who, domain=Domain(unit="who"), budget=Budget(5.0, 1e-6), random_state=t
        )
        theta = found.solve()
        estimates.append(theta[0])
        stated.append(found.standard_errors(theta)[0])
    assert 0.75 < np.std(estimates) / np.mean(stated) < 1.2


def test_an_estimator_by_statistics_protects_persons(frame) -> None:
    model = PrivateRidge(schema=schema(), mechanism="statistics", epsilon=20.0, alpha=1e-3).fit(frame)
    assert model.privacy_.neighbours.unit == "who" and model.privacy_.theorem == "(S-2)"
    assert model.coef_[0] == pytest.approx(0.5, abs=0.1)
    assert model.coef_noise_ is not None


def test_a_scorer_of_scikit_learn_finds_the_persons_in_the_frame(frame, models) -> None:
    from curvedp.analyses.scores import private_scorer

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = private_scorer("r2", epsilon=5.0, delta=1e-6)(models["y"], frame)
    assert isinstance(found, float) and found > 0.3


def test_the_page_says_persons(models, frame, tmp_path: Path) -> None:
    from curvedp.analyses.scores.door import scores_page

    scores = private_scores(models["ill"], frame, epsilon=1.0, by="sex", **SEEDED)
    page = scores_page(scores, "ill", models["ill"].schema_.protects)
    assert "persons scored, about" in page and "Every person counts once" in page
    assert "how much one person may shift" in page and "patient-" not in page
