"""The accuracy study: a simulator with the library's law, a choice that leaves tables out, a page."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats

from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Logistic, Multinomial, Squared
from curvedp.mechanisms.noise import GaussianNoise
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.mechanisms.walk import _slope as typical_slope
from curvedp.mechanisms.walk import started
from curvedp.neighbours import Neighbours
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.released import scales
from curvedp.rows import make_rows
from curvedp_studies.accuracy import opponents, variants
from curvedp_studies.accuracy.__main__ import main
from curvedp_studies.accuracy.calibration import Calibration
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
from curvedp_studies.accuracy.document import report, written
from curvedp_studies.accuracy.export import export, split_anew
from curvedp_studies.accuracy.looks import typical_length
from curvedp_studies.accuracy.losses import TorchLoss
from curvedp_studies.accuracy.opponents import Opponent
from curvedp_studies.accuracy.results import Cell, run, scored
from curvedp_studies.accuracy.setting import Records, Setting
from curvedp_studies.accuracy.shipped import outwards
from curvedp_studies.accuracy.simulator import simulate
from curvedp_studies.coverage.rows import append_rows, read_rows
from curvedp_studies.peers_data import Dataset
from curvedp_studies.peers_descent import Table

ROOT = Path(__file__).parents[2]
BLOCKED = (
    "lazy_loader",
    "randomgen",
    "numba",
    "dp_accounting",
    "narwhals",
    "sklearn",
    "threadpoolctl",
    "typer",
)
LOSSES = {"regression": Squared(), "binary": Logistic(), "multiclass": Multinomial(3)}


class Made(NamedTuple):
    """A generated table: correlated columns, an intercept, a few long records."""

    kind: str
    X: np.ndarray
    y: np.ndarray
    x_norm: float
    n: int  # records of which are for training, the first ones

    @property
    def loss(self):
        return LOSSES[self.kind]


def made(kind, n=500, d=4):
    random = np.random.default_rng(11)
    X = np.clip(random.standard_normal((2 * n, d)) @ np.diag([1.0, 0.5, 0.2, 0.05][:d]) / 3.0, -1.0, 1.0)
    X[:, 1] += 0.3 * X[:, 0]
    X[::20] = np.clip(4.0 * X[::20], -1.0, 1.0)
    X[:, -1] = 1.0
    margins = X @ random.uniform(-1.5, 1.5, (d, 3))
    y = np.clip(0.3 * margins[:, 0] + 0.05 * random.standard_t(3, 2 * n), -1.0, 1.0)
    if kind == "binary":
        y = np.where(random.random(2 * n) < 1.0 / (1.0 + np.exp(-3.0 * margins[:, 0])), 1.0, -1.0)
    if kind == "multiclass":
        y = np.argmax(3.0 * margins + random.gumbel(size=margins.shape), axis=1).astype(float)
    return Made(kind, X, y, math.sqrt(d), n)


def plan_of(table, epsilon, adjacency, rule):
    problem = Problem(table.loss, domain=Domain(table.x_norm, 1.0, adjacency))
    return Recentered(rule).plan(problem, table.X.shape[1], Budget(epsilon, 1e-6))


def score_of(table, theta):
    margins = table.X[table.n :] @ theta
    if table.kind == "regression":
        return -np.mean((np.clip(margins[:, 0], -1, 1) - table.y[table.n :]) ** 2)
    if table.kind == "binary":
        return np.mean(np.sign(margins[:, 0]) == table.y[table.n :])
    return np.mean(np.argmax(margins, axis=1) == table.y[table.n :])


def features(table, n, resolved, spread, typical, clip, kept, theta):
    """Numbers of one release."""
    logs = np.log([n, resolved, spread, typical, clip])
    return np.array([*logs, kept, *theta.ravel(), score_of(table, theta)])


def from_library(table, plan, runs, seed):
    """Every number on the way, by the library's own steps; the last of them is what `release` gives."""
    rows = make_rows(table.X[: table.n], table.y[: table.n], plan.problem.domain)
    found = []
    for index in range(runs):
        random = generator(seed + index)
        noise = GaussianNoise(random, plan.problem.domain.neighbours)
        n = noise.count(rows, plan.shifts.count)
        geometry = plan.geometry(rows, noise, n, random)
        rounds = started(
            plan, rows.in_metric(geometry.metric), noise, geometry, n, plan.rows_at_most(noise, n)
        )
        clip, estimate = rounds.finished(np.zeros((plan.d, plan.problem.loss.n_outputs)))
        if index == 0:
            np.testing.assert_array_equal(estimate.theta, plan.release(rows, generator(seed)).theta)
        parts = (n, geometry.resolved, rounds.spread, rounds.typical, clip.size, clip.kept, estimate.theta)
        found.append(features(table, *parts))
    return np.array(found)


def setting_of(table, plan, runs, seed, rule=None):
    neighbours = Neighbours(plan.problem.domain.adjacency)
    loss = TorchLoss(table.kind, 3 if table.kind == "multiclass" else 2)
    records = Records.on("cpu", table.X[: table.n], table.y[: table.n], loss, table.x_norm)
    p = plan.parameters
    public = [Calibration(p.sigma2, p.m, p.mu, plan.mu)] * runs
    seen = torch.ones(table.n, runs, dtype=torch.float64)
    return Setting.of(records, seen, neighbours, rule or plan.rule, public, seed)


def from_simulator(table, setting):
    told = simulate(setting)
    columns = (told.n, told.resolved, told.spread, told.typical, told.clip.size, told.clip.kept)
    numbers = [column.numpy() for column in columns]
    return np.array([features(table, *row) for row in zip(*numbers, told.theta.numpy(), strict=True)])


def least_p(one, other):
    """The smallest p-value, times their number: KS tests of features and of their distances to the middle."""
    p = []
    for a, b in zip(one.T, other.T, strict=True):
        middle = np.median(np.concatenate([a, b]))
        p += [stats.ks_2samp(a, b).pvalue, stats.ks_2samp(np.abs(a - middle), np.abs(b - middle)).pvalue]
    return min(p) * len(p)


RUNS = 150
CASES = {  # kind, ε, adjacency, changes
    "noise rules": ("regression", 0.5, "add_remove", {}),
    "n is public, rounds are quick": ("regression", 4.0, "replace", {"plenty": 20.0}),
    "no pilot, rounds are quick in some runs": (
        "binary",
        3.0,
        "add_remove",
        {"precise": 50.0, "plenty": 81.0},
    ),
}
LONG = {
    "classes": ("multiclass", 1.0, "add_remove", {}),
    "two classes": ("binary", 1.0, "replace", {}),
    "classes, quick rounds": ("multiclass", 6.0, "replace", {"plenty": 20.0, "clipped": 1.0}),
}
PLANTED = (
    {"count_share": 0.08},
    {"scale_share": 0.0005},
    {"spread_share": 0.002},
    {"clip_share": 0.002},
    {"first_share": 0.8},
    {"kept_lengths": 0.5},
    {"travel": 0.2},
)


def both(case, runs):
    kind, epsilon, adjacency, changes = case
    table = made(kind)
    plan = plan_of(table, epsilon, adjacency, replace(Rule(), **changes))
    return table, plan, from_library(table, plan, runs, 1)


@pytest.fixture(scope="module")
def where_noise_rules():
    return both(CASES["noise rules"], RUNS)


def one_law(table, plan, code):
    simulated = from_simulator(table, setting_of(table, plan, 4 * len(code), 2))
    return least_p(code, simulated) > 0.01


def test_the_simulator_has_the_librarys_law(where_noise_rules):
    assert one_law(*where_noise_rules)


@pytest.mark.parametrize("case", [case for case in CASES if case != "noise rules"])
def test_the_simulator_has_the_librarys_law_elsewhere(case):
    assert one_law(*both(CASES[case], RUNS // 2))


@pytest.mark.parametrize("changes", PLANTED, ids=lambda changes: next(iter(changes)))
def test_planted_differences_are_caught(where_noise_rules, changes):
    table, plan, code = where_noise_rules
    wrong = setting_of(table, plan, 4 * RUNS, 3, replace(plan.rule, **changes))
    assert least_p(code, from_simulator(table, wrong)) < 1e-4


@pytest.mark.full
@pytest.mark.parametrize("case", [*CASES, *LONG])
def test_the_simulator_has_the_librarys_law_in_many_runs(case):
    assert one_law(*both({**CASES, **LONG}[case], 800))


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_the_librarys(kind):
    table, loss, ours = made(kind), LOSSES[kind], TorchLoss(kind, 3 if kind == "multiclass" else 2)
    random, y = np.random.default_rng(3), torch.as_tensor(made(kind).y)
    margins = random.normal(0.0, 2.0, (len(table.y), ours.outputs))
    slopes = ours.slopes(torch.as_tensor(margins)[:, None], y)[:, 0].numpy()
    np.testing.assert_allclose(slopes, loss.gradient(margins, table.y), atol=1e-14)
    assert ours.curvature == loss.curvature(Domain(), math.inf)
    assert (ours.outputs, ours.rank) == (loss.n_outputs, loss.rank)
    problem = Problem(loss, domain=Domain())
    assert ours.typical_slope == pytest.approx(typical_slope(problem), rel=1e-14)


def test_typical_lengths_are_the_librarys():
    random = np.random.default_rng(4)
    guess, n = np.exp(random.normal(0.0, 2.0, 50)), random.uniform(10.0, 1e5, 50)
    deviation = random.uniform(1.0, 500.0, 50)
    counts = n[:, None] * random.dirichlet(np.full(14, 0.3), 50) + deviation[:, None] * random.normal(
        size=(50, 14)
    )
    own = [
        scales.typical_length(scales.look_edges(3.0 * g), c, s, rows, g, 2.0)
        for g, c, s, rows in zip(guess, counts, deviation, n, strict=True)
    ]
    tensors = (torch.as_tensor(part) for part in (3.0 * guess, counts, deviation, n, guess))
    np.testing.assert_allclose(typical_length(*tensors, 2.0).numpy(), own, rtol=1e-12)


def dataset_of(table, *, from_zero=False):
    K = 3 if table.kind == "multiclass" else 2
    return Dataset("made", table.kind, table.X, table.y, table.x_norm, K, from_zero=from_zero)


@pytest.mark.parametrize("from_zero", [True, False])
@pytest.mark.parametrize("kind", LOSSES)
def test_scores_are_those_of_the_comparison(kind, from_zero):
    table, random = made(kind), np.random.default_rng(5)
    dataset = dataset_of(table, from_zero=from_zero)
    records = Records.on("cpu", table.X, table.y, TorchLoss(kind, dataset.n_classes), table.x_norm)
    theta = random.normal(size=(2, dataset.d, records.loss.outputs))
    theta[1] = 0.0
    test = random.random((len(table.y), 2)) < 0.2
    margins = records.margins(torch.as_tensor(theta))
    score, error = scored(records, margins, torch.as_tensor(test).double(), from_zero=from_zero)
    for b in range(2):
        rows = test[:, b]
        own = table.X[rows] @ theta[b]
        assert score[b].item() == pytest.approx(dataset.score(own, table.y[rows]), abs=1e-12)
        if kind != "regression":
            relative = dataset.log_loss(own, table.y[rows]) / dataset.log_loss(0.0 * own, table.y[rows])
            assert error[b].item() == pytest.approx(relative, rel=1e-9)
    assert error[1].item() == pytest.approx(1.0)


def exported(folder, rules):
    """Two small tables of a package."""
    names = ["shipped/cultivars", "shipped/diabetes"]
    return list(export(None, folder, rules, ["add_remove"], 4, names))


def test_variants_run_where_there_is_only_numpy_scipy_and_torch(tmp_path):
    (tmp_path / "variants.json").write_text('{"present": {}, "rounds-": {"rounds": 8.0, "first_rounds": 2}}')
    rules = variants.rules(tmp_path / "variants.json")
    assert rules["present"] == Rule() and rules["rounds-"] == replace(Rule(), rounds=8, first_rounds=2)
    folder = tmp_path / "tables"
    assert [path.name for path in exported(folder, rules)][-1] == "calibrations.json"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {BLOCKED!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    words = ["run", "--exported", folder, "--variants", tmp_path / "variants.json", "--seeds", "3"]
    command = [sys.executable, "-m", "curvedp_studies.accuracy", *words, "--out", tmp_path / "a.csv"]
    path = os.pathsep.join(map(str, (tmp_path / "site", ROOT / "src", ROOT / "studies")))
    done = subprocess.run(
        [*map(str, command), "--device", "cpu"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = read_rows(tmp_path / "a.csv", Cell)
    assert len(cells) == 2 * 2 * 4 and {cell.seeds for cell in cells} == {3}
    assert "diabetes" in done.stdout and all(math.isfinite(cell.score) for cell in cells)

    told = []
    run(folder, tmp_path / "a.csv", rules, "add_remove", 3, lambda *at: told.append(at))
    assert not told  # everything is there
    wrong = {"other": replace(Rule(), pilot_share=0.2)}
    with pytest.raises(InvalidInput, match="export again"):
        run(folder, tmp_path / "a.csv", wrong, "add_remove", 3, lambda *at: None)


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
    append_rows(tmp_path / "r.csv", [cell(t, v, 0.5) for t in ("wine", "bike") for v in ("present", "x")])
    (tmp_path / "d.csv").write_text("dataset,epsilon,full_fresh\nwine,1.0,0.6\nbike,1.0,0.5\n")
    page = tmp_path / "rule.md"
    marks = "".join(f"<!-- {part} -->\nstale\n<!-- end of {part} -->\n" for part in ("constants", "results"))
    page.write_text(f"before\n{marks}after\n")
    words = ["choose", "--results", tmp_path / "r.csv", "--descent", tmp_path / "d.csv", "--page", page]
    main([*map(str, words), "--folds", "2"])
    text = page.read_text()
    assert "stale" not in text and text.startswith("before") and text.endswith("after\n")
    assert "1 of 2 (wine ε = 1: -0.100)" in text and "1 of 2 (wine" in capsys.readouterr().out
    page.write_text("no marks")
    with pytest.raises(InvalidInput, match="marks"):
        written(page, {"results": []})


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


def test_tables_with_test_rows_of_their_own_are_split_anew():
    table = made("regression")
    own = Table(
        "unit/made", "regression", table.X, table.y, np.arange(1000)[None] >= [[900]] * 3, 2.0, 2, True
    )
    test = split_anew(own).test
    assert test.sum(axis=1).tolist() == [100] * 3 and len(np.unique(test, axis=0)) == 3
    assert split_anew(replace(own, from_zero=False)).test is own.test
