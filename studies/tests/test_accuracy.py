"""The accuracy study: the library's own fits, a choice that leaves tables out, a page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from curvedp.data.rows import make_rows
from curvedp.errors import InvalidInput
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Budget
from curvedp.randomness import generator
from curvedp_studies.accuracy import opponents, results, variants
from curvedp_studies.accuracy.__main__ import main
from curvedp_studies.accuracy.choose import (
    Difference,
    Field,
    Verdict,
    against_present,
    folds,
    leave_out,
    worse_than_zero,
)
from curvedp_studies.accuracy.constants import REASONS, constants_table
from curvedp_studies.accuracy.document import report
from curvedp_studies.accuracy.opponents import Opponent
from curvedp_studies.accuracy.results import Cell, Task, loaded, measured, noise_seed, run, scored
from curvedp_studies.accuracy.shipped import outwards
from curvedp_studies.pages import fill
from curvedp_studies.peers_data import Dataset
from curvedp_studies.resume import read_rows, write_rows

ROOT = Path(__file__).parents[2]
TABLE = "shipped/diabetes"


def task_of(rule, adjacency="add_remove"):
    return Task(None, TABLE, 1.0, adjacency, "some", rule, range(3, 5))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_a_run_of_the_study_is_a_release_of_the_library(adjacency):
    """Bit for bit with the same split and draws, for the present rule and another; and they differ."""
    dataset, told = loaded(None, TABLE), {}
    for travel in (Rule().travel, 0.9):
        rule = Rule(travel=travel)
        told[travel] = measured(task_of(rule, adjacency))
        plan = Recentered(rule, dataset.coding).plan(
            dataset.problem_under(adjacency), dataset.d, Budget(1.0, 1e-6)
        )
        for seed, fit in zip((3, 4), told[travel], strict=True):
            train, test = dataset.split(seed)
            rows = make_rows(dataset.X[train], dataset.y[train], plan.problem.domain)
            theta = plan.release(rows, generator(noise_seed(TABLE, 1.0, adjacency, seed))).theta
            assert fit[:2] == scored(dataset, dataset.X[test] @ theta, dataset.y[test])
            assert fit.kappa == plan.mu * len(train) / dataset.d
    assert all(own.score != other.score for own, other in zip(*told.values(), strict=True))


@pytest.mark.parametrize("from_zero", [True, False])
@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_errors_are_relative_to_those_of_zero(kind, from_zero):
    random = np.random.default_rng(5)
    X, K = random.normal(size=(400, 3)), 3 if kind == "multiclass" else 1
    theta = random.normal(size=(3, K))
    margins = X @ theta
    y = np.clip(0.1 * margins[:, 0], -1.0, 1.0)
    if kind == "binary":
        y = np.sign(margins[:, 0])
    if kind == "multiclass":
        y = np.argmax(margins, axis=1).astype(float)
    dataset = Dataset("made", kind, X, y, 9.0, max(K, 2), from_zero=from_zero)
    score, error = scored(dataset, 0.1 * margins, y)
    assert score == dataset.score(0.1 * margins, y) and error < 1.0
    assert scored(dataset, 0.0 * margins, y)[1] == pytest.approx(1.0)
    if kind == "regression":
        assert error == pytest.approx(0.0, abs=1e-12)
        assert scored(dataset, 0.2 * np.clip(margins, -5.0, 5.0), y)[1] < 1.0 + 1e-12


def test_variants_run_and_go_on_where_they_stopped(tmp_path, monkeypatch, capsys):
    (tmp_path / "variants.json").write_text('{"present": {}, "rounds-": {"rounds": 8.0, "first_rounds": 2}}')
    rules = variants.rules(tmp_path / "variants.json")
    assert rules["present"] == Rule() and rules["rounds-"] == replace(Rule(), rounds=8, first_rounds=2)
    table = tmp_path / "a.csv"
    assert len(run(None, table, rules, "add_remove", 2, tables=[TABLE], workers=1, seconds=0.0)) == 0
    words = ["run", "--tables", f"shipped/cultivars,{TABLE}", "--variants", tmp_path / "variants.json"]
    words += ["--seeds", "4", "--workers", "1", "--out", table]
    main([str(word) for word in words])
    cells = read_rows(table, Cell)
    assert len(cells) == 2 * 2 * 4 and {cell.seeds for cell in cells} == {4}
    assert "16 of 16" in capsys.readouterr().out and all(math.isfinite(cell.score) for cell in cells)
    present, other = ([c.score for c in cells if c.variant == name] for name in rules)
    assert present != other
    monkeypatch.setattr(results, "measured", lambda task: pytest.fail("computed twice"))
    again = run(None, table, rules, "add_remove", 4, tables=[TABLE], workers=1)
    assert again == [cell for cell in cells if cell.table == TABLE]


def test_wide_tables_get_fewer_seeds(monkeypatch):
    monkeypatch.setattr(results, "_WIDE", 5)
    monkeypatch.setattr(results, "WIDE_SEEDS", 4)
    assert len(measured(task_of(Rule()))) == 1


def cell(table, variant, score, *, epsilon=1.0, error=0.5, n_mu=100.0):
    return Cell(table, epsilon, "add_remove", variant, 20, score, score, score, 0.001, error, n_mu, 50.0)


def test_folds_keep_versions_of_a_table_together():
    tables = ["a", "b", "c", "d", "unit/a", "unit/e"]
    parts = folds(tables, 3)
    assert sorted(table for part in parts for table in part) == tables
    assert [part for part in parts if "a" in part] == [part for part in parts if "unit/a" in part]
    assert folds(tables, 3) == parts
    with pytest.raises(InvalidInput, match="folds"):
        folds(tables, 6)


def test_a_variant_that_helps_one_table_and_hurts_another_is_seen():
    """`lucky` gains on a alone and loses on every other table: without a nobody chooses it."""
    cells = [cell(t, "present", 0.50) for t in "abcd"] + [cell("a", "lucky", 0.90)]
    cells += [cell(t, "lucky", 0.40) for t in "bcd"] + [cell("z", "present", 0.3), cell("z", "lucky", 0.2)]
    field = Field(cells, [Opponent(t, 1.0, "descent", 0.505) for t in "abcd"])
    assert field.chosen_on == list("abcd") and field.unopposed == ["z"]
    assert field.verdict("present", "abcd") == Verdict(0, 0, -0.5)  # 0.005 is a tie
    assert field.verdict("lucky", "abcd").lost == 3
    told = leave_out(field, 4)
    assert {fold.chosen for fold in told} == {"present"}
    assert against_present(field, "lucky", "abcd") == Difference(1, 3, pytest.approx(0.025))
    lines = "\n".join(report(field, 4))
    assert "1 variants" not in lines and "| present | 0 | 0 | 0.5000 | 0 / 0 | 0 | 0 / 0 | +0.0000 |" in lines
    assert "| lucky | 3 | 0 | 0.5250 | 1 / 3 | 0 | 0 / 1 | -0.1000 |" in lines


def test_lost_cells_come_first_then_those_worse_than_zero():
    bad = cell("a", "bold", 0.9, error=1.02)
    assert worse_than_zero(bad) and not worse_than_zero(replace(bad, n_mu=20.0))
    field = Field([bad, cell("a", "present", 0.6), cell("a", "shy", 0.3)], [Opponent("a", 1.0, "ihm", 0.4)])
    assert [field.verdict(name, "a") for name in ("bold", "present", "shy")] == [
        Verdict(0, 1, -0.9),
        Verdict(0, 0, -0.6),
        Verdict(1, 0, -0.3),
    ]
    assert field.best("a") == "present"


def test_opponents_are_read_in_the_units_of_the_study(tmp_path):
    (tmp_path / "d.csv").write_text("dataset,epsilon,full_fresh\nwine,0.5,0.25\n")
    (tmp_path / "u.csv").write_text(
        "dataset,n,d,epsilon,method,train_mse,test_mse\ns,9,2,,zero,1,0.5\ns,9,2,4.0,ihm,1,0.1\ns,9,2,,ols,1,0\n"
    )
    assert list(opponents.descents(tmp_path / "d.csv")) == [Opponent("wine", 0.5, "descent", 0.25)]
    assert list(opponents.published(tmp_path / "u.csv")) == [Opponent("unit/s", 4.0, "ihm", 0.8)]


def test_the_command_fills_the_page(tmp_path, capsys):
    cells = [cell(t, v, 0.5) for t in ("wine", "bike") for v in ("present", "x")]
    write_rows(tmp_path / "r.csv", Cell, cells)
    (tmp_path / "d.csv").write_text("dataset,epsilon,full_fresh\nwine,1.0,0.6\nbike,1.0,0.5\n")
    page = tmp_path / "rule.md"
    page.write_text("before\n<!-- constants -->\nstale\n<!-- end of constants -->\nafter\n")
    words = ["choose", "--results", tmp_path / "r.csv", "--descent", tmp_path / "d.csv", "--page", page]
    main([*map(str, words), "--folds", "2"])
    text = page.read_text()
    assert "stale" not in text and text.startswith("before") and text.endswith("after\n")
    assert "| `clipped` |" in text and "1 of 2 (wine ε = 1: -0.100)" in capsys.readouterr().out
    page.write_text("no marks")
    with pytest.raises(InvalidInput, match="marks"):
        fill(page, {"results": []})


def test_bounds_are_rounded_outwards():
    assert outwards(17.0, 68.0) == (10.0, 70.0)
    assert outwards(-0.31, 0.42) == pytest.approx((-0.4, 0.5))
    assert outwards(3.0, 3.0) == (3.0, 4.0)


def test_the_page_states_the_rule_as_it_is():
    """After a change of the rule: `python -m curvedp_studies.accuracy choose … --page docs/rule.md`."""
    assert REASONS.keys() == vars(Rule()).keys()
    text = (ROOT / "docs" / "rule.md").read_text(encoding="utf-8")
    for line in constants_table(Rule()):
        assert line in text
