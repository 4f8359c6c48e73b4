"""The comparison on generated tables: three formats, splits, resumption, the report."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

from curvedp.errors import InvalidInput
from curvedp_studies import peers
from curvedp_studies.peers import Score, compare, merge
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.peers_descent import COLUMNS
from curvedp_studies.peers_document import document, tables
from curvedp_studies.peers_report import Summary, below_constant, minus_log_loss, summarise, tally

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


def test_a_name_says_how_many_records_and_how_loose_the_bounds(folder):
    whole, few = load_dataset(folder, "houses", 10_000), load_dataset(folder, "houses@200", 10_000)
    train, test = few.split(1)
    assert len(train) == 200 and len(test) == 120
    np.testing.assert_array_equal(test, whole.split(1)[1])
    loose = load_dataset(folder, "houses~10", 10_000)
    np.testing.assert_allclose(loose.X[:, :2], whole.X[:, :2] / 10.0)
    np.testing.assert_array_equal(loose.X[:, 2:], whole.X[:, 2:])
    assert loose.x_norm == whole.x_norm
    with pytest.raises(InvalidInput, match="too few"):
        load_dataset(folder, "houses@500", 10_000)
    drawn = load_dataset(folder, "generated_class@1000", 10_000)
    assert len(drawn.split(0)[0]) == 1000 and 0.08 < np.mean(drawn.y > 0) < 0.13
    names = peers.all_names(folder)
    assert {"houses", "unit/tiny", "houses~10", "houses@200", "generated@1000000"} <= set(names)
    assert not {"houses@500", "unit/tiny~10", "unit/tiny@200"} & set(names)
    assert peers.epsilons_of("houses@200") == (1.0,)


def test_the_constant_answer(folder):
    for name in ("houses", "health", "colours"):
        dataset = load_dataset(folder, name, 10_000)
        train, test = dataset.split(0)
        margins = dataset.X[test] @ peers._constant(dataset, 0)
        if dataset.kind == "regression":
            np.testing.assert_allclose(margins, dataset.y[train].mean())
        else:
            labels = (dataset.y > 0).astype(int) if dataset.kind == "binary" else dataset.y.astype(int)
            shares = np.bincount(labels[train]) / len(train)
            expected = -np.mean(np.log(shares[labels[test]]))
            assert dataset.log_loss(margins, dataset.y[test]) == pytest.approx(expected, rel=0.01)
    assert not peers._constant(load_dataset(folder, "unit/tiny", 10_000), 0).any()


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
    names = dataset_names(folder)
    written = compare(folder, names, progress=lambda done, total: steps.append((done, total)), **arguments)
    assert [path.name for path in written] == ["scores.csv", "summary.csv"]
    each = 2 + 4 * 2 * 2  # no privacy, the constant; four mechanisms under both adjacencies
    assert steps[-1] == (4 * each, 4 * each)
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 4 * each * 2
    keys = ("dataset", "mechanism", "adjacency", "epsilon", "seed")
    scores = {tuple(r[key] for key in keys): float(r["score"]) for r in rows}
    add = "add_remove"
    assert scores["houses", "nonprivate", add, "inf", "0"] > 0.9
    assert scores["houses", "recentered", add, "3.0", "1"] > 0.5
    assert scores["houses", "recentered", "replace", "3.0", "1"] > 0.3
    assert scores["unit/tiny", "constant", add, "inf", "1"] == 0.0
    assert scores["houses", "statistics", "replace", "3.0", "0"] > 0.0
    assert math.isnan(scores["houses", "ihm", "replace", "3.0", "0"])  # published for add_remove
    assert math.isnan(scores["health", "statistics", add, "1.0", "0"])  # no squared loss there
    assert math.isnan(scores["colours", "dp_newton", add, "1.0", "0"])  # three classes
    health = next(r for r in rows if (r["dataset"], r["mechanism"]) == ("health", "recentered"))
    assert float(health["auc"]) > 0.5 and float(health["log_loss"]) > 0
    assert float(health["n_mu"]) == pytest.approx(3 * float(health["kappa"]))
    assert (tmp_path / "summary.csv").read_text().count("ihm_reference") == 1
    before = (tmp_path / "scores.csv").read_text()

    def broken(cell):
        raise AssertionError("a finished study computes nothing")

    monkeypatch.setattr(peers, "compute", broken)
    compare(folder, names, **arguments)
    assert (tmp_path / "scores.csv").read_text() == before
    compare(folder, names, **{**arguments, "mechanisms": ["statistics"]})  # a part of it keeps the rest
    assert sorted((tmp_path / "scores.csv").read_text().split()) == sorted(before.split())


def test_scores_computed_elsewhere_are_taken(folder, tmp_path):
    rows = [
        Score("houses", name, adjacency, 3.0, seed, 0.7 + seed / 100, NAN, NAN, 9.0, 3.0, "there")
        for adjacency in ("add_remove", "replace")
        for name in ("descent", "descent_claimed", "descent_plain")
        for seed in range(2)
    ]
    elsewhere = tmp_path / "elsewhere"
    peers.write_rows(tmp_path / "elsewhere.csv", Score, rows)
    options = {"epsilons": [3.0], "seeds": 2, "out": elsewhere, "workers": 1}
    compare(folder, ["houses"], ["recentered", "descent"], scores=[tmp_path / "elsewhere.csv"], **options)
    found = [row for row in csv.DictReader((elsewhere / "scores.csv").open()) if row["detail"] == "there"]
    assert [float(row["score"]) for row in found] == [0.7, 0.71] * 6
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


def cell(mechanism, epsilon, median, dataset="t", adjacency="add_remove", n_mu=100.0, log_loss=NAN):
    spread = (3, median - 0.2, median - 0.1, median, median + 0.1)
    return Summary(dataset, mechanism, adjacency, epsilon, *spread, NAN, log_loss, n_mu, n_mu / 10)


def test_tallies():
    summaries = [
        *(cell("recentered", e, score) for e, score in ((1.0, 0.50), (2.0, 0.60), (3.0, 0.70))),
        cell("recentered", 3.0, 0.10, adjacency="replace"),
        *(cell("b", e, score) for e, score in ((1.0, 0.48), (2.0, 0.609), (3.0, 0.75))),
        cell("nonprivate", math.inf, 0.8),
    ]
    b = tally(summaries, "b")
    assert (b.wins, b.ties, b.losses) == (1, 1, 1) and b.worst == pytest.approx(-0.05)
    assert tally(summaries, "c").cells == 0
    b = tally([*summaries, cell("b", 3.0, 0.05, adjacency="replace")], "b")
    assert (b.wins, b.ties, b.losses) == (2, 1, 1)  # each adjacency with its own
    losses = [cell("recentered", 1.0, 0.9, log_loss=0.3), cell("b", 1.0, 0.9, log_loss=0.4)]
    assert tally(losses, "b").ties == 1 and tally(losses, "b", minus_log_loss).wins == 1
    scores = enumerate([0.1, 0.2, 0.4])
    fits = [Score("d", "m", "add_remove", 1.0, k, s, NAN, NAN, 9.0, 3.0, "") for k, s in scores]
    (found,) = summarise(fits)
    assert found.median == pytest.approx(0.2) and found.lower == pytest.approx(0.15) and found.worst == 0.1


def test_worse_than_the_constant_is_one_per_cent_of_its_error():
    """Errors: 1.6 of the constant; 1.61 is within one per cent, 1.62 is not; of classes their log-loss."""
    constant = cell("constant", math.inf, -0.6)
    assert below_constant([constant, cell("recentered", 1.0, -0.615)]) == []
    assert [s.epsilon for s in below_constant([constant, cell("recentered", 1.0, -0.617)])] == [1.0]
    constant = cell("constant", math.inf, 0.9, log_loss=0.3)
    assert below_constant([constant, cell("recentered", 1.0, 0.8, log_loss=0.302)]) == []
    assert len(below_constant([constant, cell("recentered", 1.0, 0.95, log_loss=0.304)])) == 1


def test_a_report_of_what_is_finished_computes_nothing(folder, tmp_path, monkeypatch):
    compare(folder, ["houses"], ["statistics"], [1.0], seeds=2, out=tmp_path, workers=1)
    before = (tmp_path / "scores.csv").read_bytes()
    monkeypatch.setattr(peers, "complete", None)
    written = compare(folder, None, ["statistics"], out=tmp_path, finished=True)
    assert (tmp_path / "scores.csv").read_bytes() == before
    assert "houses" in (tmp_path / "summary.csv").read_text(encoding="utf-8") and written
    with pytest.raises(InvalidInput, match="run the comparison first"):
        compare(folder, None, ["statistics"], out=tmp_path / "empty", finished=True)


def test_cells_that_are_not_computed_stay_as_they_were(folder, tmp_path):
    compare(folder, ["houses"], ["statistics"], [1.0, 3.0], seeds=2, out=tmp_path / "before", workers=1)
    before = (tmp_path / "before" / "summary.csv").read_text(encoding="utf-8").replace(",2,0.", ",2,9.")
    (tmp_path / "known.csv").write_text(before, encoding="utf-8")
    anew = {"seeds": 2, "out": tmp_path / "now", "workers": 1, "known": tmp_path / "known.csv"}
    compare(folder, ["houses"], ["statistics"], [3.0], **anew)
    lines = (tmp_path / "now" / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[:4] for line in lines] == [line.split(",")[:4] for line in before.splitlines()]
    assert all((",2,9." in line) == (line.split(",")[3] == "1") for line in lines if ",statistics," in line)


def test_what_the_page_says():
    summaries = [
        cell("recentered", 1.0, 0.50, "wine"),
        cell("recentered", 1.0, 0.46, "wine", "replace"),
        cell("descent", 1.0, 0.53, "wine"),
        cell("descent_claimed", 1.0, 0.60, "wine"),
        cell("adassp", 1.0, 0.20, "wine"),
        cell("constant", math.inf, 0.0, "wine"),
        cell("recentered", 1.0, 0.40, "wine~10"),
        cell("adassp", 1.0, 0.05, "wine~10"),
        cell("recentered", 1.0, -0.30, "wine@200", n_mu=9.0),
        cell("recentered", 1.0, 0.20, "wine@1000"),
        cell("constant", math.inf, 0.0, "wine@200"),
        cell("recentered", 1.0, 0.30, "unit/servo"),
        cell("ihm_reference", 1.0, 0.40, "unit/servo"),
    ]
    text = "\n".join(tables(summaries))
    assert "| tuned descent, fresh noise | 0 / 0 / 1 (-0.030) | — | — | — | — | — | — |" in text
    assert "| AdaSSP | 1 / 0 / 0 (+0.300) | — | — | — | — | 1 / 0 / 0 (+0.350) | — |" in text
    assert "0 cells with nμ ≥ 25, 1 of 6 in all (wine@200 ε = 1 add_remove)" in " ".join(text.split())
    assert (
        "| wine | 1 | 10 | 0.500 [0.400, 0.600] 0.300 | **0.530 [0.430, 0.630] 0.330** | **0.600** "
        "| 0.200 (AdaSSP) | — |" in text
    )
    assert "| servo | 1 | 100 | 10 | 0.300 [0.200, 0.400] 0.100 | — | **0.400** | — | — | — |" in text
    assert "| wine | add_remove | 0.500 → 0.400 [0.300, 0.500] 0.200 | 0.200 → 0.050 (AdaSSP) |" in text
    assert "| mean change |  | -0.100 | -0.150 |" in text
    few, many = (text.index(f"| wine | {n} |") for n in ("200", "1,000"))
    assert few < many and "| wine | 200 | -0.300 ! |" in text


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
    assert "| houses | 3 |" in text and "Gaussian statistics" in text and "log-loss" in text
    assert (tmp_path / "docs" / "page.csv").read_text() == (results / "summary.csv").read_text()
    assert written[-2:] == [page, page.with_suffix(".csv")]
    compare(folder, names, ["recentered", "statistics"], [3.0], **options)
    assert page.read_text() == text
    page.write_text("nothing")
    with pytest.raises(InvalidInput, match="marks"):
        document([cell("recentered", 1.0, 0.5)], page)
