"""Others' tables: their numbers as quoted, metrics by their formulas, a tiny run of the whole command."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

from curvedp.cli.console import Commands
from curvedp_studies import commands
from curvedp_studies.others import card, quoted, simulations, tables
from curvedp_studies.others.document import card_table, interval_table, lost, prediction_table
from curvedp_studies.others.simulations import AWAN_WANG, BINAGG, Setting

ROOT = Path(__file__).parents[2]
PARTS = ("card", "binagg", "tables", "awan", "sources")


def made_wages(n: int = 4000) -> pd.DataFrame:
    random = np.random.default_rng(3)
    x, school = random.uniform(0.0, 65.0, n), random.uniform(0.0, 18.0, n)
    other = (random.random(n) < 0.3).astype(float)
    mean = 4.5 + 0.09 * school + 0.11 * x - 3.2e-3 * x**2 + 2.7e-5 * x**3 - 0.25 * other
    wage = np.clip(mean + 0.3 * random.standard_normal(n), 3.9, 9.9)
    return pd.DataFrame({"education": school, "experience": x, "nonwhite": other, "log_wage": wage})


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0.0, 2.0), (0.0, 2.0), 1.0),
        ((0.0, 2.0), (1.0, 3.0), 0.5),  # half of either
        ((-1.0, 3.0), (0.0, 2.0), 0.75),  # ½ + 1/(2k), k = 2
        ((0.0, 1.0), (1.0, 5.0), 0.0),  # they touch
        ((0.0, 1.0), (3.0, 5.0), -1.5),  # ½(−2/1 − 2/2)
    ],
)
def test_overlap_is_the_mean_share_of_both(one, other, expected):
    first, second = np.array(one), np.array(other)
    assert card.overlap(first, second) == pytest.approx(expected, abs=1e-15)
    assert card.overlap(second, first) == pytest.approx(expected, abs=1e-15)
    assert card.overlap(7.0 * first + 3.0, 7.0 * second + 3.0) == pytest.approx(expected, abs=1e-12)


def test_a_wrong_overlap_would_be_seen():
    """Shares of one interval alone, and an intersection cut at 0, differ on the cases above."""

    def of_one(one, other):
        return (min(one[1], other[1]) - max(one[0], other[0])) / (one[1] - one[0])

    assert of_one((-1.0, 3.0), (0.0, 2.0)) != card.overlap(np.array([-1.0, 3.0]), np.array([0.0, 2.0]))
    assert card.overlap(np.array([0.0, 1.0]), np.array([3.0, 5.0])) < 0.0


def test_classical_intervals_are_those_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    table = made_wages(500)
    x = table["experience"]
    X = np.column_stack([table["education"], x, x**2, x**3, table["nonwhite"], np.ones(len(x))])
    theirs = sm.OLS(table["log_wage"].to_numpy(), X).fit()
    ours = card.classical(table)
    np.testing.assert_allclose(ours[:, 0], theirs.params[:5], rtol=1e-6)
    half = stats.norm.ppf(0.975) * theirs.bse[:5]
    np.testing.assert_allclose(ours[:, 2] - ours[:, 0], half, rtol=1e-6)


def test_scores_of_the_wage_model_by_hand():
    plain = np.array([[1.0, 0.5, 1.5]] * 5)
    twice = np.array([[1.0, 0.0, 2.0]] * 5)  # around the same middle, and it holds 0
    wrong = np.array([[-1.0, -1.5, -0.5]] * 5)  # apart by 1, of length 1
    refused = np.array([[1.0, np.nan, np.nan]] * 5)
    request = card.Request(1.0, "replace")
    scores = card.scored(request, plain, np.array([twice, wrong, refused, refused]))
    assert [score.term for score in scores] == list(card.TERMS)
    first = scores[0]
    assert (first.runs, first.sign, first.significance, first.refused) == (4, 0.75, 0.25, 0.5)
    assert first.ratio == 1.5 and first.overlap == pytest.approx((0.75 - 1.0) / 2.0)
    nothing = card.scored(request, plain, np.array([refused, refused]))[0]
    assert math.isnan(nothing.overlap) and nothing.refused == 1.0 and nothing.sign == 1.0


def test_every_quoted_number_has_a_source_and_every_cell_its_methods():
    assert {quote.source for quote in quoted.quotes()} == {*quoted.SOURCES}
    assert all(quote.low <= quote.high for quote in quoted.quotes())
    assert quoted.cells(BINAGG) == [(2000, 0.5), (2000, 1.0), (2000, 2.0), (2000, 5.0)]
    assert quoted.theirs(BINAGG, 2000, 1.0) == {"BinAgg": {"coverage": 0.931, "width": 0.291}}
    for n, level in quoted.cells(AWAN_WANG):
        assert {*quoted.theirs(AWAN_WANG, n, level)} == {"DP-CI-ERM", "repro samples"}


def test_simulations_are_the_published_ones():
    """Without privacy: σ over the root of Σx², for a fit through zero; a slope of known information."""
    assert simulations.plain_width(BINAGG, 2000) == pytest.approx(0.0254, abs=1e-4)
    assert simulations.plain_width(AWAN_WANG, 500) == pytest.approx(0.70, abs=0.01)
    setting = Setting(BINAGG, 2000, 5.0, "add_remove", range(6))
    score = simulations.scored(setting, simulations.intervals(setting))
    assert score.coverage > 0.7 and 0.025 < score.median < 0.03 and score.refused < 0.5


def test_a_fit_without_intercept_passes_through_zero():
    X, y = simulations.drawn(BINAGG, 2000, np.random.default_rng(0))
    model = simulations._model(Setting(BINAGG, 2000, 5.0, "replace"), 0).fit(X, y)
    assert model.intercept_ == 0.0


def test_scores_of_intervals_by_hand():
    limits = np.array([[[1.0, 3.0]], [[2.5, 3.0]], [[np.nan, np.nan]]])
    score = simulations.scored(Setting(AWAN_WANG, 500, 1.0, "replace"), limits)
    assert (score.coverage, score.width, score.median) == (0.5, 1.25, 1.25)
    assert score.refused == pytest.approx(1 / 3)
    assert score.coverage_error == pytest.approx(0.5) and score.width_error == pytest.approx(0.75)
    nothing = simulations.scored(Setting(AWAN_WANG, 500, 1.0, "replace"), limits[2:])
    assert math.isnan(nothing.coverage) and nothing.refused == 1.0


def test_lost_cells_are_marked():
    limits = np.array([[[1.6, 2.4]]] * 30)
    good = simulations.scored(Setting(AWAN_WANG, 1000, 1.0, "add_remove"), limits)
    assert not lost(good)  # 0.8: narrower than 0.97, and DP-CI-ERM, 0.77, does not cover
    assert lost(replace(good, width=0.98)) and lost(replace(good, coverage=0.92))
    assert lost(replace(good, refused=0.6)) and lost(replace(good, coverage=math.nan))
    lines = interval_table([good, replace(good, adjacency="replace", width=1.2)], AWAN_WANG, "ε")
    row = next(line for line in lines if line.startswith("| 1,000 | 1 |"))
    assert "1.000 ± 0.033 · 0.8 (0.8) |" in row and "1.2 (0.8) † |" in row
    score = tables.TableScore("D4 Abalone", "replace", 3, 4177, 10, 0.0601, 0.001, 0.044)
    assert "0.0601 ± 0.0010 †" in "\n".join(prediction_table([score]))
    better = "\n".join(prediction_table([replace(score, relmse=0.0589)]))
    assert "0.0589 ± 0.0010 |" in better and "| D7 Air quality | 9,357 | 0.441 | 0.463 | 0.682 |" in better


def test_tables_of_the_package_are_read_as_they_are(tmp_path, monkeypatch):
    shells = "M,0.4,0.3,0.1,0.5,0.2,0.1,0.15,15\nF,0.5,0.4,0.1,0.6,0.2,0.1,0.2,9\n"
    wines = '"a";"quality"\n' + "7.4;5\n"
    texts = {"classification/abalone/abalone.data.txt": shells}
    texts |= {f"regression/winequality_{c}/winequality-{c}.csv": wines for c in ("red", "white")}
    monkeypatch.setattr(tables, "_file", texts.__getitem__)
    X, y = tables.TABLES["D4 Abalone"]()
    np.testing.assert_array_equal(X[:, :3], [[0, 0, 1], [1, 0, 0]])
    assert X.shape == (2, 10) and y.tolist() == [15, 9] and X[0, -1] == 0.15
    X, y = tables.TABLES["D6 Wine quality"]()
    np.testing.assert_array_equal(X, [[7.4, 0.0], [7.4, 1.0]])
    assert y.tolist() == [5, 5]
    assert tables.relmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == pytest.approx(4.0 / 17.0)


@pytest.fixture
def small(monkeypatch):
    """Generated tables in the place of shipped ones, few cells."""
    random = np.random.default_rng(0)
    X = random.uniform(0.0, 1.0, (800, 2))
    made = {"D4 Abalone": lambda: (X, 5.0 + X @ [3.0, 2.0] + random.standard_normal(800))}
    table = made_wages()
    monkeypatch.setattr(card, "wages", lambda: table)
    monkeypatch.setattr(tables, "TABLES", made)
    tables.loaded.cache_clear()
    requests, settings = card.requests(), simulations.settings()
    monkeypatch.setattr(card, "requests", lambda: [requests[2], requests[6]])
    monkeypatch.setattr(simulations, "settings", lambda: [*settings[4:6], *settings[-2:]])
    yield
    tables.loaded.cache_clear()


def test_the_command_fills_its_page(small, tmp_path):
    page = tmp_path / "others.md"
    page.write_text("".join(f"<!-- {part} -->\nold\n<!-- end of {part} -->\n" for part in PARTS))
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    app.command("others")(commands.others)
    words = ["--folder", str(tmp_path / "results"), "--page", str(page), "--runs", "3", "--workers", "1"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    written = [Path(path) for path in json.loads(done.stdout)["written"]]
    assert all(path.exists() for path in written)
    assert [path.name for path in written if path.suffix == ".csv"] == [
        "card.csv",
        "simulations.csv",
        "tables.csv",
    ]
    text = page.read_text()
    assert "old" not in text and "| ours, add_remove | 5 |" in text and "| D4 Abalone |" in text
    assert "| 2,000 | 2 | 0.934 · 0.181 |" in text and "arXiv 2303.05328" in text
    again = CliRunner().invoke(app, [*words, "--quiet"])  # everything is read back
    assert again.exit_code == 0 and page.read_text() == text
    missing = CliRunner().invoke(app, [*words[:2], "--page", str(tmp_path / "no.md")])
    assert missing.exit_code != 0 and "there is no page" in str(missing.exception)


def test_the_page_of_the_documentation_has_its_marks():
    text = (ROOT / "docs" / "others.md").read_text(encoding="utf-8")
    for part in PARTS:
        assert text.count(f"<!-- {part} -->") == 1 and text.count(f"<!-- end of {part} -->") == 1


def test_the_distribution_declares_command_and_file():
    declared = tomllib.loads((ROOT / "studies" / "pyproject.toml").read_text(encoding="utf-8"))
    entry = declared["project"]["entry-points"]["curvedp.commands"]["others"]
    assert entry == "curvedp_studies.commands:others" and callable(commands.others)
    assert "others/*.csv" in declared["tool"]["setuptools"]["package-data"]["curvedp_studies"]


def test_a_table_of_the_wage_model_has_theirs_and_ours():
    plain = np.array([[1.0, 0.5, 1.5]] * 5)
    scores = card.scored(card.Request(5.0, "add_remove"), plain, np.array([plain, plain]))
    lines = "\n".join(card_table(scores))
    assert "| theirs: Laplace, experience | 5 | 0.6 … 1.5 | −35 … −1 |" in lines
    assert "| ours, add_remove | 5 | 1.00 … 1.00 | 1.00 … 1.00 | 100 % | 100 % | 0 % |" in lines
