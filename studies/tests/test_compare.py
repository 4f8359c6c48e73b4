"""The comparison on generated tables: both formats, splits, resumption, the report, the tuned peer."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

from curvedp.errors import InvalidInput
from curvedp.randomness import generator
from curvedp_studies import peers
from curvedp_studies.peers import compare, merge, plain_table, prepare
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.peers_document import document
from curvedp_studies.peers_gradient import Descent, Grid, NumpyBackend, Table, main, tuned
from curvedp_studies.peers_report import Summary, comparison_page, summarise, tallies


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
    return path


def test_tables_are_mapped_by_public_bounds(folder):
    assert dataset_names(folder) == ["colours", "health", "houses"]
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
    several = Dataset("m", "multiclass", np.zeros((2, 1)), np.zeros(2), 1.0, 3)
    assert several.score(np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 1.0]]), np.array([1.0, 2.0])) == 0.5


def test_compare_writes_everything_and_resumes(folder, tmp_path, monkeypatch):
    steps = []
    arguments = {
        "mechanisms": ["recentered", "statistics", "lop"],
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
        "comparison.html",
    ]
    assert steps[-1] == (3 * 7, 3 * 7)
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert len(rows) == 3 * 7 * 2
    scores = {(r["dataset"], r["mechanism"], r["epsilon"], r["seed"]): float(r["score"]) for r in rows}
    assert scores["houses", "nonprivate", "inf", "0"] > 0.9
    assert scores["houses", "recentered", "3.0", "1"] > 0.5
    assert math.isnan(scores["health", "statistics", "1.0", "0"])  # no squared loss there
    assert math.isnan(scores["colours", "lop", "1.0", "0"])  # three classes
    page = (tmp_path / "comparison.html").read_text()
    assert 'id="tallies"' in page and "houses" in page
    before = (tmp_path / "scores.csv").read_text()

    def broken(cell):
        raise AssertionError("a finished study computes nothing")

    monkeypatch.setattr(peers, "compute", broken)
    compare(folder, **arguments)
    assert (tmp_path / "scores.csv").read_text() == before


def test_unknown_names_are_refused(folder, tmp_path):
    with pytest.raises(InvalidInput, match="unknown mechanisms magic"):
        compare(folder, mechanisms=["magic"], out=tmp_path)
    with pytest.raises(InvalidInput, match="no table named"):
        compare(folder, ["castles"], ["recentered"], out=tmp_path, workers=1)
    with pytest.raises(InvalidInput, match="seed"):
        compare(folder, seeds=0, out=tmp_path)
    with pytest.raises(InvalidInput, match="holds no table"):
        dataset_names(tmp_path)


@pytest.mark.parametrize("name", ["houses", "health", "colours"])
def test_batched_descent_is_plain_descent(folder, name):
    """Without noise, every column is what a plain loop over its configuration and split gives."""
    dataset = load_dataset(folder, name, 10_000)
    table = plain_table(dataset, 2)
    grid = Grid(np.array([0.05, 0.7]), np.array([0.4, 1.1]))

    class Silent(NumpyBackend):
        def normal(self, shape):
            return np.zeros(shape, dtype=np.float32)

    descent = Descent(table, grid, Silent(generator(0)), cells=5_000)
    theta = descent.run(7, 1.0)
    scores = descent.scores(theta)
    loss = dataset.loss
    for seed in range(2):
        train, test = dataset.split(seed)
        X, y = dataset.X[train], dataset.y[train]
        for c in range(2):
            point = np.zeros((dataset.d, loss.n_outputs))
            for _ in range(7):
                slopes = loss.gradient(X @ point, y)
                sizes = np.linalg.norm(X, axis=1) * np.linalg.norm(slopes, axis=1)
                factors = np.minimum(1, grid.clips[c] / np.maximum(sizes, 1e-300))
                point -= grid.steps[c] / len(y) * X.T @ (slopes * factors[:, None])
            np.testing.assert_allclose(theta[:, seed, c], point, atol=2e-5)
            expected = dataset.score(dataset.X[test] @ point, dataset.y[test])
            assert scores[seed, c] == pytest.approx(expected, abs=0.01)


def test_batched_noise_has_the_accounted_scale(folder):
    """No data to speak of: after T rounds θ has deviation (step/n)·clip·T/μ, σ = clip·√T/μ over T rounds."""
    d, n = 400, 10
    table = Table("t", "regression", np.zeros((n, d)), np.zeros(n), np.zeros((1, n), dtype=bool), 1.0, 2)
    theta = Descent(table, Grid(np.array([0.3]), np.array([2.0])), NumpyBackend(generator(1)), 10_000).run(
        16, 0.5
    )
    assert theta.std() == pytest.approx(2.0 / n * 0.3 * 16 / 0.5, rel=0.15)


def test_tuned_descent_through_files(folder, tmp_path):
    """prepare → script → merge → compare: the scores arrive, and nothing is computed again."""
    prepared = tmp_path / "prepared"
    files = prepare(folder, prepared, ["health"], [3.0], seeds=2)
    table = Table.read(files[0])
    assert table.kind == "binary" and table.test.shape == (2, 300)
    direct = tuned(
        plain_table(load_dataset(folder, "health", 10_000), 2),
        0.6,
        NumpyBackend(generator(0)),
        cells=2**20,
        rounds=(4, 16),
    )
    assert np.median(direct.scores) > 0.8 and np.median(direct.aucs) > 0.8 and "rounds=" in direct.detail
    out = tmp_path / "tuned.csv"
    main([str(prepared), str(out), "--device", "numpy", "--cells", "1000000"])
    main([str(prepared), str(out), "--device", "numpy"])  # finished cells stay
    merge(out, tmp_path / "results")
    compare(folder, ["health"], ["recentered", "gradient_tuned"], [3.0], 2, tmp_path / "results", workers=1)
    rows = list(csv.DictReader((tmp_path / "results" / "scores.csv").open()))
    tuned_rows = [row for row in rows if row["mechanism"] == "gradient_tuned"]
    assert len(tuned_rows) == 2 and all(float(row["score"]) > 0.7 for row in tuned_rows)
    reported = list(csv.DictReader(out.open()))
    assert [row["score"] for row in reported] == [row["score"] for row in tuned_rows]


def test_tallies_and_page():
    def cell(mechanism, epsilon, median):
        return Summary("t<1>", mechanism, epsilon, 3, median - 0.1, median, median + 0.1, math.nan)

    summaries = [
        cell("a", 1.0, 0.50),
        cell("a", 2.0, 0.60),
        cell("a", 3.0, 0.70),
        cell("b", 1.0, 0.48),
        cell("b", 2.0, 0.609),
        cell("b", 3.0, 0.75),
        cell("c", 1.0, math.nan),
        cell("nonprivate", math.inf, 0.8),
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
    fits = [peers.Score("d", "m", 1.0, k, s, math.nan, "") for k, s in enumerate([0.1, 0.2, 0.4])]
    assert summarise(fits)[0].median == pytest.approx(0.2)


def test_the_documented_numbers_come_from_the_results(folder, tmp_path):
    results = tmp_path / "results"
    compare(folder, ["houses"], ["recentered", "statistics"], [3.0], 2, results, workers=1)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    document(results, page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| houses* |" in text and "Gaussian statistics" in text
    assert (tmp_path / "docs" / "page.csv").read_text() == (results / "summary.csv").read_text()
    assert (tmp_path / "docs" / "figures" / "comparison.png").exists()
    document(results, page)
    assert page.read_text() == text
    page.write_text("nothing")
    with pytest.raises(InvalidInput, match="marks"):
        document(results, page)
