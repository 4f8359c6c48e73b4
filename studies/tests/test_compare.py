"""The comparison on generated tables: three formats, splits, resumption, the report."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

from curvedp.errors import InvalidInput
from curvedp_studies import peers, peers_document
from curvedp_studies.peers import Score, compare, merge
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.peers_descent import COLUMNS
from curvedp_studies.peers_document import document, tables
from curvedp_studies.peers_report import (
    Summary,
    below_zero,
    comparison_page,
    summarise,
    tallies,
    write_report,
)

NAN = math.nan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tables as arrays (numbers with a log column, three classes), one as CSV with a schema."""
    path = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(0)
    n = 600
    colour = random.integers(0, 3, n)
    X = np.column_stack([random.uniform(0, 10, n), np.exp(random.uniform(0, 5, n))])
    onehot = np.column_stack([colour == k for k in range(3)] + [random.random(n) < 0.5]).astype(np.uint8)
    y = 3 * X[:, 0] + 10 * (colour == 1) + random.normal(size=n)
    meta = {
        "task": "regression",
        "d_numeric": 2,
        "feature_names": ["size", "income", "colour=r", "colour=g", "colour=b", "old=1"],
        "bounds": [[0, 10], [0, 100], [0, 1], [0, 1], [0, 1], [0, 1]],
        "y_bounds": [0, 50],
        "classes": None,
        "categorical": {"colour": {"levels": ["r", "g", "b"]}, "old": {"levels": ["0", "1"]}},
        "log1p_columns": ["income"],
    }
    np.savez(path / "houses.npz", Xnum=X, Xbin=onehot, y=y)
    (path / "houses.json").write_text(json.dumps(meta))
    meta = {**meta, "task": "multiclass", "classes": ["r", "g", "b"], "y_bounds": None, "log1p_columns": []}
    np.savez(path / "colours.npz", Xnum=X, Xbin=onehot, y=colour.astype(np.uint8))
    (path / "colours.json").write_text(json.dumps(meta))
    lines = ["a,b,sick"]
    for _ in range(300):
        a, b = random.uniform(-1, 1, 2)
        lines.append(f"{a:.4f},{b:.4f},{'yes' if a + 0.3 * b > 0.1 else 'no'}")
    (path / "health.csv").write_text("\n".join(lines))
    (path / "health.toml").write_text(
        'target = "sick"\n[[column]]\nname = "a"\nkind = "numeric"\nbounds = [-1, 1]\n'
        '[[column]]\nname = "b"\nkind = "numeric"\nbounds = [-1, 1]\n'
        '[[column]]\nname = "sick"\nkind = "categorical"\nlevels = ["no", "yes"]\n'
    )
    (path / "notes.txt").write_text("not a table")
    (path / "unit").mkdir()
    X = random.uniform(-0.5, 0.5, (500, 3))
    y = np.clip(X @ [0.9, -0.4, 0.2] + 0.05 * random.normal(size=500), -1, 1)
    parts = {"X": X[:400], "y": y[:400], "Xt": X[400:], "yt": y[400:]}
    np.savez(path / "unit" / "tiny.npz", **{name: part.astype(np.float32) for name, part in parts.items()})
    (path / "unit" / "reference.csv").write_text(
        "dataset,n,d,epsilon,method,train_mse,test_mse\n"
        "tiny,400,3,,ols,0.1,0.1\ntiny,400,3,,zero,0.5,0.4\n"
        "tiny,400,3,1.0,ihm,0.2,0.3\ntiny,400,3,1.0,adassp,0.2,0.1\ntiny,400,3,1.0,ours,0.2,0.1\n"
        "other,9,3,,zero,0.5,0.4\nother,9,3,1.0,ihm,0.2,0.3\n"
    )
    return path


def test_tables_are_mapped_by_public_bounds(folder):
    assert dataset_names(folder) == ["colours", "health", "houses", "unit/tiny"]
    houses = load_dataset(folder, "houses", 10_000)
    assert houses.kind == "regression" and houses.d == 7 and len(houses.y) == 600
    assert np.abs(houses.y).max() <= 1.0
    np.testing.assert_allclose(houses.X[:, 2:5].sum(axis=1), 0.0, atol=1e-12)  # one-hot minus 1/3
    assert set(np.unique(houses.X[:, 5])) == {-1.0, 1.0} and np.all(houses.X[:, 6] == 1.0)
    raw = np.load(folder / "houses.npz")["Xnum"]
    np.testing.assert_allclose(
        houses.X[:, 1], 2 * np.log1p(np.minimum(raw[:, 1], 100)) / np.log1p(100) - 1, atol=1e-12
    )
    assert houses.x_norm == pytest.approx(math.sqrt(2 + 2 / 3 + 1 + 1))
    health = load_dataset(folder, "health", 10_000)
    assert health.kind == "binary" and set(health.y) == {-1.0, 1.0} and health.d == 3
    colours = load_dataset(folder, "colours", 10_000)
    assert colours.n_classes == 3 and colours.problem.loss.n_outputs == 3
    assert len(load_dataset(folder, "houses", 100).y) == 100


def test_splits_are_disjoint_and_differ_by_seed(folder):
    houses = load_dataset(folder, "houses", 10_000)
    train, test = houses.split(0)
    assert len(test) == 120 and not set(train) & set(test) and len(train) + len(test) == 600
    assert not np.array_equal(houses.split(1)[1], test)
    np.testing.assert_array_equal(houses.split(0)[1], test)


def test_unit_tables_keep_their_sizes_and_conventions(folder):
    tiny = load_dataset(folder, "unit/tiny", 10)
    train, test = tiny.split(3)
    assert (len(train), len(test), tiny.d, tiny.x_norm) == (400, 100, 3, 1.0)
    assert tiny.delta == 1 / 400**2 and tiny.from_zero
    assert not np.array_equal(tiny.split(0)[1], test)
    y = tiny.y[test]
    assert tiny.score(np.zeros((100, 1)), y) == 0.0  # by definition, unlike R²
    half = np.full((100, 1), 0.5)
    assert tiny.score(half, y) == pytest.approx(1 - np.mean((y - 0.5) ** 2) / np.mean(y**2))


def test_reference_medians_are_shares_of_the_zero_predictors_error(folder):
    found = {row.mechanism: row for row in peers.reference_scores(folder, ["unit/tiny"])}
    assert set(found) == {"ihm_reference", "adassp_reference"}
    assert found["ihm_reference"].score == pytest.approx(0.25) and found["ihm_reference"].epsilon == 1.0
    assert peers.reference_scores(folder / "unit", ["unit/tiny"]) == []


def test_scores():
    regression = Dataset("r", "regression", np.zeros((4, 1)), np.zeros(4), 1.0)
    y = np.array([1.0, -1.0, 0.5, -0.5])
    assert regression.score(np.array([[9.0], [-9.0], [0.5], [-0.5]]), y) == 1.0  # clipped to the public range
    assert regression.score(np.zeros((4, 1)), y) == 0.0
    assert math.isnan(regression.auc(np.zeros((4, 1)), y))
    binary = Dataset("b", "binary", np.zeros((4, 1)), np.zeros(4), 1.0)
    labels = np.array([1.0, 1.0, -1.0, -1.0])
    margins = np.array([[2.0], [-1.0], [-1.0], [-3.0]])
    assert binary.score(margins, labels) == 0.75
    assert binary.auc(margins, labels) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert binary.score(np.zeros((4, 1)), labels) == 0.5  # θ = 0 tosses a coin
    assert binary.log_loss(np.zeros((4, 1)), labels) == pytest.approx(math.log(2))
    p = 1 / (1 + np.exp(-labels * margins[:, 0]))
    assert binary.log_loss(margins, labels) == pytest.approx(-np.log(p).mean())
    several = Dataset("m", "multiclass", np.zeros((2, 1)), np.zeros(2), 1.0, 3)
    assert several.score(np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 1.0]]), np.array([1.0, 2.0])) == 0.5
    assert several.score(np.array([[0.0, 0.0, 0.0], [0.0, 2.0, 2.0]]), np.array([1.0, 2.0])) == pytest.approx(
        (1 / 3 + 1 / 2) / 2
    )
    assert several.log_loss(np.zeros((2, 3)), np.array([1.0, 2.0])) == pytest.approx(math.log(3))
    assert math.isnan(regression.log_loss(np.zeros((4, 1)), y))


def test_compare_writes_everything_and_resumes(folder, tmp_path, monkeypatch):
    steps = []
    arguments = {
        "mechanisms": ["recentered", "statistics", "ihm", "dp_newton"],
        "epsilons": [1.0, 3.0],
        "seeds": 2,
        "out": tmp_path,
        "workers": 1,
    }
    written = compare(folder, progress=lambda done, total: steps.append((done, total)), **arguments)
    assert [path.name for path in written] == [
        "scores.csv",
        "summary.csv",
        "comparison.png",
        "comparison.svg",
        "comparison-unit.png",
        "comparison-unit.svg",
        "comparison.html",
    ]
    each = 2 + 5 * 2  # no privacy, θ = 0; four mechanisms and one of them under both adjacencies
    assert steps[-1] == (4 * each, 4 * each)
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 4 * each * 2
    keys = ("dataset", "mechanism", "adjacency", "epsilon", "seed")
    scores = {tuple(r[key] for key in keys): float(r["score"]) for r in rows}
    add = "add_remove"
    assert scores["houses", "nonprivate", add, "inf", "0"] > 0.9
    assert scores["houses", "recentered", add, "3.0", "1"] > 0.5
    assert scores["houses", "recentered", "replace", "3.0", "1"] > 0.3
    assert scores["colours", "zero", add, "inf", "0"] == pytest.approx(1 / 3)
    assert scores["unit/tiny", "zero", add, "inf", "1"] == 0.0
    assert math.isnan(scores["health", "statistics", add, "1.0", "0"])  # no squared loss there
    assert math.isnan(scores["colours", "dp_newton", add, "1.0", "0"])  # three classes
    health = next(r for r in rows if (r["dataset"], r["mechanism"]) == ("health", "recentered"))
    assert float(health["auc"]) > 0.5 and float(health["log_loss"]) > 0
    assert float(health["n_mu"]) == pytest.approx(3 * float(health["kappa"]))
    assert (tmp_path / "summary.csv").read_text().count("ihm_reference") == 1
    page = (tmp_path / "comparison.html").read_text()
    assert 'id="tallies"' in page and "houses" in page
    before = (tmp_path / "scores.csv").read_text()

    def broken(cell):
        raise AssertionError("a finished study computes nothing")

    monkeypatch.setattr(peers, "compute", broken)
    compare(folder, **arguments)
    assert (tmp_path / "scores.csv").read_text() == before
    compare(folder, **{**arguments, "mechanisms": ["statistics"]})  # a part of it keeps the rest
    assert sorted((tmp_path / "scores.csv").read_text().split()) == sorted(before.split())


def test_scores_computed_elsewhere_are_taken(folder, tmp_path):
    rows = [
        Score("houses", name, "add_remove", 3.0, seed, 0.7 + seed / 100, NAN, NAN, 9.0, 3.0, "there")
        for name in ("descent", "descent_claimed", "descent_plain")
        for seed in range(2)
    ]
    elsewhere = tmp_path / "elsewhere"
    peers.write_rows(tmp_path / "elsewhere.csv", Score, rows)
    options = {"epsilons": [3.0], "seeds": 2, "out": elsewhere, "workers": 1}
    compare(folder, ["houses"], ["recentered", "descent"], scores=[tmp_path / "elsewhere.csv"], **options)
    found = [row for row in csv.DictReader((elsewhere / "scores.csv").open()) if row["detail"] == "there"]
    assert [float(row["score"]) for row in found] == [0.7, 0.71] * 3
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="holds no scores"):
        merge(tmp_path / "foreign.csv", elsewhere)


def test_unknown_names_are_refused(folder, tmp_path):
    with pytest.raises(InvalidInput, match="unknown mechanisms magic"):
        compare(folder, mechanisms=["magic"], out=tmp_path)
    with pytest.raises(InvalidInput, match="no table named"):
        compare(folder, ["castles"], ["recentered"], out=tmp_path, workers=1)
    with pytest.raises(InvalidInput, match="seed"):
        compare(folder, seeds=0, out=tmp_path)
    with pytest.raises(InvalidInput, match="holds no table"):
        dataset_names(tmp_path)


def cell(mechanism, epsilon, median, dataset="t<1>", adjacency="add_remove", n_mu=100.0):
    spread = (3, median - 0.1, median, median + 0.1)
    return Summary(dataset, mechanism, adjacency, epsilon, *spread, NAN, NAN, n_mu, n_mu / 10)


def test_tallies_and_page():
    summaries = [
        cell("a", 1.0, 0.50),
        cell("a", 2.0, 0.60),
        cell("a", 3.0, 0.70),
        cell("a", 3.0, 0.10, adjacency="replace"),
        cell("b", 1.0, 0.48),
        cell("b", 2.0, 0.609),
        cell("b", 3.0, 0.75),
        cell("c", 1.0, NAN),
        cell("nonprivate", math.inf, 0.8),
        cell("zero", math.inf, 0.1),
    ]
    b, c = tallies(summaries, "a")
    assert (
        (b.wins, b.ties, b.losses) == (1, 1, 1)
        and b.worst == pytest.approx(-0.05)
        and b.share == pytest.approx(2 / 3)
    )
    assert (c.wins, c.ties, c.losses) == (0, 0, 0) and math.isnan(c.share)
    page = comparison_page(summaries, "a")
    assert "WtL" in page and "t&lt;1&gt;" in page and "0.800" in page
    scores = enumerate([0.1, 0.2, 0.4])
    fits = [Score("d", "m", "add_remove", 1.0, k, s, NAN, NAN, 9.0, 3.0, "") for k, s in scores]
    (found,) = summarise(fits)
    assert found.median == pytest.approx(0.2) and found.lower == pytest.approx(0.15) and found.kappa == 3.0


def test_worse_than_the_constant_is_one_per_cent_of_its_error():
    """Errors: 1.6 of θ = 0; 1.61 is within one per cent, 1.62 is not."""
    zero = cell("zero", math.inf, -0.6)
    assert below_zero([zero, cell("a", 1.0, -0.615)], "a") == []
    assert [s.epsilon for s in below_zero([zero, cell("a", 1.0, -0.617)], "a")] == [1.0]


def test_a_report_of_what_is_finished_computes_nothing(folder, tmp_path, monkeypatch):
    compare(folder, ["houses"], ["statistics"], [1.0], seeds=2, out=tmp_path, workers=1)
    before = (tmp_path / "scores.csv").read_bytes()
    monkeypatch.setattr(peers, "complete", None)
    written = compare(folder, None, ["statistics"], out=tmp_path, finished=True)
    assert (tmp_path / "scores.csv").read_bytes() == before
    assert "houses" in (tmp_path / "summary.csv").read_text(encoding="utf-8") and written
    with pytest.raises(InvalidInput, match="run the comparison first"):
        compare(folder, None, ["statistics"], out=tmp_path / "empty", finished=True)


def test_what_the_page_says(monkeypatch):
    monkeypatch.setattr(peers_document, "CHOSEN_ON", ("wine",))
    summaries = [
        cell("recentered", 1.0, 0.50, "wine"),
        cell("recentered", 1.0, 0.46, "wine", "replace"),
        cell("descent", 1.0, 0.53, "wine"),
        cell("descent_claimed", 1.0, 0.60, "wine"),
        cell("adassp", 1.0, 0.20, "wine"),
        cell("zero", math.inf, -0.2, "wine"),
        cell("recentered", 1.0, -0.30, "unit/servo", n_mu=9.0),
        cell("ihm_reference", 1.0, 0.10, "unit/servo"),
        cell("zero", math.inf, 0.0, "unit/servo"),
    ]
    text = tables(summaries, "recentered")
    assert "| tuned descent, fresh noise | 0 / 0 / 1 | -0.030 | 0 / 0 / 1 | — | — | — |" in text
    assert "| iterative Hessian mixing, authors' code | — | — | — | — | 0 / 0 / 1 | -0.400 |" in text
    assert "0 cells with nμ ≥ 25, 1 in all (unit/servo ε = 1)" in text
    assert (
        "| wine | 1 | 10 | 0.500 [0.400, 0.600] | **0.530 [0.430, 0.630]** | **0.600** | 0.200 (AdaSSP) |"
        in text
    )
    assert "| servo | 1 | 9 | 0.9 | -0.300 [-0.400, -0.200] ! | **0.100** |" in text
    assert "| wine | 1 | 0.500 [0.400, 0.600] | 0.460 [0.360, 0.560] |" in text
    assert "The rule was chosen on wine; held out: unit/servo." in text


def test_the_documented_numbers_come_from_the_results(folder, tmp_path):
    results = tmp_path / "results"
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- results -->\nstale\n<!-- end of results -->\nafter\n")
    names = ["houses", "health", "unit/tiny"]
    options = {"seeds": 2, "out": results, "workers": 1, "page": page}
    written = compare(folder, names, ["recentered", "statistics"], [3.0], **options)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "| houses* | 3 |" in text and "Gaussian statistics" in text and "log-loss" in text
    assert (tmp_path / "docs" / "page.csv").read_text() == (results / "summary.csv").read_text()
    for name in ("comparison.png", "comparison-unit.png"):
        assert tmp_path / "docs" / "figures" / name in written
    compare(folder, names, ["recentered", "statistics"], [3.0], **options)
    assert page.read_text() == text
    page.write_text("nothing")
    with pytest.raises(InvalidInput, match="marks"):
        document([], results, page, "recentered")
    assert write_report([], results, "recentered")  # nothing to draw is no error
