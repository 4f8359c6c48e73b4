"""The coverage study: the library's own fits, honest scores, a page from a table."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

import curvedp_studies.coverage.study as whole
from curvedp.analyses.explore import description
from curvedp.analyses.explore.description import GroupSums
from curvedp.cli.console import Commands
from curvedp.data.columns import Categorical, Numeric
from curvedp.data.mapping import Coding
from curvedp.data.rows import make_rows
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Budget
from curvedp.randomness import generator
from curvedp_studies.coverage import groups, noise
from curvedp_studies.coverage.catalogue import population as named
from curvedp_studies.coverage.cells import Cell, Score, grid, scored
from curvedp_studies.coverage.criteria import criteria
from curvedp_studies.coverage.document import document
from curvedp_studies.coverage.library import chunks, plan_of, problem_of, releases, sample
from curvedp_studies.coverage.noise import NoiseScore, noise_scored, ratios
from curvedp_studies.coverage.outcomes import Outcomes
from curvedp_studies.coverage.populations import Population, loss_of
from curvedp_studies.coverage.rivals import METHODS, FieldScore, field_scored, later_centres
from curvedp_studies.coverage.synthetic import counted, people, rare_levels, synthetic
from curvedp_studies.resume import read_rows, write_rows

ROOT = Path(__file__).parents[2]


def small_population() -> Population:
    """Two numbers and a category of three levels; d = 6, r = 5."""
    random = np.random.default_rng(5)
    level = random.choice(3, 20_000, p=(0.6, 0.3, 0.1))
    numbers = np.clip(random.standard_normal((20_000, 2)) / 3.0, -1.0, 1.0)
    X = np.column_stack([numbers, np.eye(3)[level] - 1.0 / 3.0, np.ones(20_000)])
    y = X @ np.array([0.4, -0.2, 0.2, -0.1, -0.1, 0.1]) + 0.1 * random.standard_t(4, 20_000)
    coding = Coding((0.0, 0.0, 1.0, 1.0, 1.0, 0.0), ((2, 3, 4),))
    return Population.of("small", "squared", X, np.clip(y, -1.0, 1.0), math.sqrt(3.0 + 2.0 / 3.0), coding)


@pytest.fixture(scope="module")
def population():
    return small_population()


@pytest.fixture(scope="module")
def plan(population):
    return plan_of(population, 1.0, "add_remove")


def test_a_population_fits_itself(population):
    from scipy.optimize import minimize

    assert population.N.shape == (6, 5)
    direct = np.linalg.lstsq(population.X, population.y, rcond=None)[0]  # least norm sums to zero, too
    np.testing.assert_allclose(population.theta, direct, atol=1e-6)
    assert abs(population.theta[2:5].sum()) < 1e-9
    huber = synthetic("huber-3")
    loss = loss_of("huber")
    found = minimize(lambda w: loss.value((huber.X @ w)[:, None], huber.y).mean(), np.zeros(4), method="BFGS")
    np.testing.assert_allclose(huber.theta, found.x, atol=1e-4)


def test_the_deviation_is_that_of_many_fits(population):
    random = np.random.default_rng(2)
    fits = []
    for _ in range(600):
        rows = random.integers(0, len(population.y), 2000)
        w = np.linalg.lstsq(population.inside[rows], population.y[rows], rcond=None)[0]
        fits.append(population.N @ w)
    ratio = np.std(fits, axis=0) * math.sqrt(2000) / population.deviation
    assert np.all(np.abs(ratio - 1.0) < 4.0 / math.sqrt(2 * 600))


def test_a_run_of_the_study_is_a_release_of_the_library(population, plan, monkeypatch):
    """Bit for bit, whatever piece of work it is in; a plan with another budget gives something else."""
    monkeypatch.setattr(whole, "population", lambda name, data: population)
    cell = Cell("small", 2000, 1.0, "add_remove")
    told = whole.fitted(whole.Chunk(cell, None, range(3, 5)))
    for run, estimate, half in zip((3, 4), told.estimate, told.half, strict=True):
        rows = np.random.default_rng(cell.seed + run).integers(0, 20_000, 2000)
        sampled = make_rows(population.X[rows], population.y[rows], plan.problem.domain)
        own = plan.release(sampled, generator(cell.seed + run)).inference.of(np.eye(6))
        np.testing.assert_allclose(estimate, own.estimate, rtol=1e-12)
        np.testing.assert_allclose(half, own.half_width(0.95), rtol=1e-9)
    fits = releases(population, plan_of(population, 1.1, "add_remove"), 2000, [cell.seed + 3])
    other = Outcomes.of(fits, population)
    assert np.all(other.estimate[0] != told.estimate[0])


def made_up(runs=1000, covered=0.9, se=0.5):
    """Outcomes whose intervals hold 0.3 with a known probability; the second coefficient is refused."""
    random = np.random.default_rng(7)
    estimate = 0.3 + se * random.standard_normal((runs, 2))
    half = np.full((runs, 2), stats.norm.isf((1.0 - covered) / 2.0) * se)
    half[:, 1] = np.nan
    told = np.column_stack([np.ones(runs, bool), np.zeros(runs, bool)])
    errors = np.full((runs, 2), se)
    flat = np.full(runs, 50.0)
    return Outcomes(estimate, np.full((runs, 2), 0.3), errors, 0.6 * errors, half, told, flat, flat, flat)


def test_scores_of_known_intervals(population):
    truth = replace(population, X=np.ones((4, 2)), coding=Coding())
    truth.__dict__.update(theta=np.array([0.3, 0.3]), deviation=np.array([2.0, 2.0]))
    score = scored(Cell("small", 100, 1.0, "replace"), truth, made_up())
    assert abs(score.coverage - 0.9) < 4 * math.sqrt(0.09 / 1000) and score.worst == score.coverage
    assert score.refused == 0.5 and score.counts and abs(score.noise - 0.6) < 1e-12
    assert abs(score.width - stats.norm.isf(0.05) * 0.5 / (1.96 * 0.2)) < 1e-3
    assert abs(score.deviation - 1.0) < 0.1 and score.bias < 0.2


def test_the_noise_ratio_finds_a_halved_statement():
    random = np.random.default_rng(8)
    told = made_up()
    noise = random.choice([0.1, 1.0], (1000, 2))  # what is stated differs from run to run
    right = replace(told, estimate=noise * random.standard_normal((1000, 2)), noise=noise)
    own, of_median = ratios(right)
    assert len(own) == 1 and abs(own[0] - 1.0) < 4 / math.sqrt(2000)
    assert noise_scored("made up", 10, 1.0, right).right == 1.0
    assert noise_scored("made up", 10, 1.0, replace(right, noise=noise / 2.0)).right == 0.0
    assert of_median[0] < 0.9 or of_median[0] > 1.1


def test_cells_are_parsed():
    assert grid(["a"], "5000:1,1000:0.3:replace") == [
        Cell("a", 5000, 1.0, "add_remove"),
        Cell("a", 1000, 0.3, "replace"),
    ]
    assert len(grid(["a", "b"])) == 36
    with pytest.raises(ValueError, match="a cell is"):
        grid(["a"], "5000:1:neither")


def test_one_cell_is_shared_by_processes_and_computed_once(tmp_path, population, monkeypatch):
    monkeypatch.setattr(whole, "population", lambda name, data: population)
    assert [list(part) for part in chunks(45)] == [[*range(20)], [*range(20, 40)], [*range(40, 45)]]
    cells, table = grid(["small"], "2000:1,30:0.3"), tmp_path / "scores.csv"
    first = whole.measured(cells, None, table, 24, workers=2)
    assert [score.runs for score in first] == [24, 24] and first[1].refused > first[0].refused
    alone = whole.measured(cells[:1], None, tmp_path / "alone.csv", 24, workers=1)
    assert alone == first[:1]
    monkeypatch.setattr(whole, "fitted", lambda chunk: pytest.fail("computed twice"))
    again = whole.measured(cells, None, table, 24, workers=1)
    assert [score.point for score in again] == [score.point for score in first]


def test_refits_of_a_table(tmp_path, population, monkeypatch):
    few = replace(population, X=population.X[:3000], y=population.y[:3000])
    monkeypatch.setattr(noise, "population", lambda name, data: few)
    table = tmp_path / "noise.csv"
    one, three = noise.refit(["small"], None, table, 30, workers=1)
    assert (one.epsilon, three.epsilon, one.refits, one.n) == (1.0, 3.0, 30, 3000)
    assert three.withheld <= one.withheld < 0.5 and 0.5 < three.least <= three.largest < 2.0
    assert read_rows(table, NoiseScore) == [one, three]


def test_rare_levels_are_rare():
    X, _, blocks = rare_levels()
    assert sorted(int(X[:, block].sum(axis=0).min()) for block in blocks) == [2] * 8


@pytest.mark.parametrize("method", [name for name in METHODS if name != "default fit"])
def test_rivals_make_intervals(method):
    drawn_from, cell = synthetic("gaussian-3"), Cell("gaussian-3", 5000, 3.0, "add_remove")
    score = field_scored(method, drawn_from, cell, METHODS[method](drawn_from, cell, range(30)))
    assert score.runs == 30 and 0.3 < score.coverage <= 1.0 and 0.2 < score.width < 20.0


def test_centres_are_those_of_the_release():
    """The walk is the library's: the same draws, and the mean of its centres is near what it releases."""
    drawn_from, problem = synthetic("gaussian-3"), problem_of(synthetic("gaussian-3"), "add_remove")
    plan = Recentered(Rule(plenty=np.inf)).plan(problem, 4, Budget(3.0, 1e-6))
    rows = sample(drawn_from, 5000, problem.domain, 1)
    path = later_centres(plan, rows, generator(2))
    theta = plan.release(rows, generator(2)).theta[:, 0]
    assert path.shape == (48, 4)
    assert np.linalg.norm(path[24:].mean(axis=0) - theta) < 0.2 * np.linalg.norm(theta)
    again = later_centres(plan, rows, generator(2))
    np.testing.assert_array_equal(path, again)


def score_of(population="gaussian-10", n=20_000, epsilon=1.0, coverage=0.95, worst=0.93, **other):
    values = dict.fromkeys(("bias", "deviation", "noise"), 1.0)
    shared = {"adjacency": "add_remove", "runs": 400, "kappa": 90.0, "width": 1.2}
    named = {"population": population, "n": n, "epsilon": epsilon, "coverage": coverage, "worst": worst}
    return Score(**{**values, **shared, "refused": 0.0, **named, **other})


def test_criteria_know_what_is_met():
    good = [score_of(), score_of(epsilon=3.0, width=1.05), score_of("bike", refused=1.0, coverage=math.nan)]
    assert all(criterion.met for criterion in criteria(good))
    for spoiled in (
        score_of("wine", coverage=0.89),
        score_of("wine", worst=0.84),
        score_of("cps_mixtape", n=5000, refused=0.2),
        score_of(width=1.4),
    ):
        assert not all(criterion.met for criterion in criteria([spoiled, *good[1:]]))


def test_the_page_is_filled_from_tables(tmp_path):
    parts = ("criteria", "coverage", "noise", "field")
    page = tmp_path / "inference.md"
    page.write_text("".join(f"before\n<!-- {part} -->\nold\n<!-- end of {part} -->\n" for part in parts))
    write_rows(tmp_path / "s.csv", Score, [score_of(), score_of("wine", coverage=0.91, adjacency="replace")])
    refits = NoiseScore("bike", 9, 1.0, 200, 50.0, 4, 0.1, 1.0, 0.9, 1.0, 1.1, 0.5, 2.0)
    write_rows(tmp_path / "n.csv", NoiseScore, [refits])
    met = FieldScore("batch means", "heavy-10", 5000, 1.0, 200, 0.71, 0.6, 0.5, 0.0)
    write_rows(tmp_path / "f.csv", FieldScore, [met])
    written = document(page, tmp_path / "s.csv", tmp_path / "n.csv", tmp_path / "f.csv")
    text = page.read_text()
    assert "old" not in text and text.count("before") == 4
    assert "0.950 (0.93) · 1.20 · 0 %" in text and "0.71 · 0.5 · 0 %" in text and "0.90 · 1.00 · 1.10" in text
    assert all(path.exists() for path in written) and len(written) == 4
    again = text
    document(page, tmp_path / "s.csv", tmp_path / "n.csv", tmp_path / "f.csv")
    assert page.read_text() == again
    with pytest.raises(ValueError, match="there is no file"):
        document(page, tmp_path / "nowhere.csv")


def test_the_command_is_found_and_gets_its_options(tmp_path, monkeypatch):
    seen = {}

    def study(folder, data, populations, cells, runs, progress, *, workers):
        seen.update(locals())
        return [folder / "coverage.csv"]

    monkeypatch.setattr(whole, "study", study)
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    app.command("coverage")(
        {entry.name: entry for entry in entry_points(group="curvedp.commands")}["coverage"].load()
    )
    done = CliRunner().invoke(app, ["--folder", str(tmp_path), "--cells", "1000:1", "--runs", "7"])
    assert done.exit_code == 0 and done.stdout.strip() == str(tmp_path / "coverage.csv"), done.output
    assert (seen["cells"], seen["runs"], seen["data"]) == ("1000:1", 7, None)


def test_the_whole_study_writes_a_table_and_a_picture(tmp_path):
    steps = []
    written = whole.study(tmp_path, None, "gaussian-3", "5000:3", 25, lambda *at: steps.append(at), workers=1)
    assert [path.name for path in written] == ["coverage.csv", "inference.png", "inference.svg"]
    assert steps == [(0, 1), (1, 1)] and all(path.exists() for path in written)


def test_the_page_of_the_documentation_has_its_marks():
    text = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    for part in ("criteria", "coverage", "noise", "field"):
        assert text.count(f"<!-- {part} -->") == 1 and text.count(f"<!-- end of {part} -->") == 1


def test_intervals_of_groups_cover_and_without_the_chance_of_the_sample_they_do_not(monkeypatch):
    cell = groups.Cell("generated", 3.0, "add_remove")
    assert groups.drawn_from("generated").sample(np.random.default_rng(0))["wage"].shape == (6250,)
    chunk = groups.Chunk(cell, range(80))
    for row in groups.scored(cell, 80, [groups.counted_hits(chunk)]):
        assert groups.BAND[0] <= row.coverage <= 0.975 and row.told > 0.95, row
    blind = lambda *sums: replace(GroupSums(*sums), most=1e-9)  # noqa: E731
    monkeypatch.setattr(description, "GroupSums", blind)
    hits = groups.counted_hits(chunk)
    largest = [hits["records", statistic, ("about 5000",)] for statistic in ("mean", "share")]
    assert all(held < 0.5 * told for told, held, _ in largest)


def test_groups_of_persons_have_the_truths_of_persons_and_of_rows():
    drawn = groups.Drawn(
        {
            "g": np.array(["a", "a", "b", "a"]),
            "x": np.array([1.0, 2.0, 9.0, 4.0]),
            "who": np.array([0, 0, 0, 1]),
        },
        (Categorical("g", ("a", "b")), Numeric("x", 0, 10)),
        ("g",),
        2,
    )
    assert drawn.truths("persons")[("a",), "x", "mean"] == pytest.approx(((1 + 2 + 3 * 4) / 5, 5 / 3))
    assert drawn.truths("rows")[("a",), "x", "mean"] == pytest.approx(((1 + 2 + 4) / 3, 3))


def test_the_study_of_groups_writes_a_table_for_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "EPSILONS", (3.0,))
    (table,) = groups.study(tmp_path / "groups.csv", "generated", 3, None, 1)
    rows = read_rows(table, groups.GroupScore)
    assert len(rows) == 4 and {row.statistic for row in rows} == {"mean", "share"}
    page = tmp_path / "page.md"
    page.write_text("<!-- groups -->\n<!-- end of groups -->\n", encoding="utf-8")
    assert document(page, groups=table) == [page]
    assert page.read_text("utf-8").count("| generated |") == 2
    assert "<!-- groups -->" in (ROOT / "docs" / "howto" / "tables.md").read_text("utf-8")


def test_persons_are_drawn_with_all_their_rows_and_their_errors_are_by_person():
    """√n times the standard error of many fits without privacy, each of n persons."""
    whole = people("persons-linear")
    assert whole.starts is not None
    few = whole.starts[2001]
    small = replace(whole, X=whole.X[:few], y=whole.y[:few], starts=whole.starts[:2002])
    domain, fits = problem_of(small, "replace").domain, []
    stated = small.differences @ small.coding.contrasts(small.X.mean(axis=0))
    for seed in range(60):
        rows = sample(small, 1500, domain, seed)
        assert rows.count() == 1500
        everything = rows.in_metric(np.eye(small.d), 1e9)
        at_zero = rows.gradient_sum(loss_of("squared"), np.zeros((small.d, 1)), 1e9)
        fits.append(-stated @ np.linalg.pinv(everything.moments().xx) @ at_zero[:, 0])
    spread = math.sqrt(1500) * np.std(fits, axis=0)
    assert spread == pytest.approx(small.deviation, rel=0.35)
    assert np.median(spread / small.deviation) == pytest.approx(1.0, abs=0.12)


def test_the_truth_of_a_quantile_is_that_of_the_check_loss_itself():
    """Against statsmodels; the median of the same population is elsewhere."""
    from statsmodels.regression.quantile_regression import QuantReg

    whole = named("skewed-3@0.9", None)
    few = replace(whole, X=whole.X[:5000], y=whole.y[:5000])
    found = QuantReg(few.y, few.X).fit(q=0.9, max_iter=5000, p_tol=1e-9).params
    assert np.max(np.abs(few.theta - found)) < 1e-3
    assert whole.coding.constant == whole.d - 1 and np.mean(
        whole.y <= whole.X @ whole.theta
    ) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("name", ["counts-exposed", "classes-rare"])
def test_the_truth_of_counts_and_classes_is_that_of_statsmodels(name):
    import statsmodels.api as sm

    whole = counted(name)
    if name == "counts-exposed":
        y, offset = whole.y.T
        plain = sm.GLM(y, whole.X, family=sm.families.Poisson(), offset=offset).fit(cov_type="HC0", tol=1e-12)
    else:
        plain = sm.MNLogit(whole.y, whole.X).fit(disp=0, cov_type="HC0", tol=1e-12)
    params, errors = (np.asarray(part).T.ravel() for part in (plain.params, plain.bse))
    np.testing.assert_allclose(whole.theta, params, atol=1e-5)
    np.testing.assert_allclose(whole.deviation, errors * np.sqrt(len(whole.X)), rtol=1e-4)
