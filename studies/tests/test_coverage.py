"""The coverage study: two engines with one law, honest scores, a page from a table."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

from curvedp.cli.console import Commands
from curvedp.mechanisms import geometry, recentered
from curvedp.mechanisms.noise import Grid
from curvedp.mechanisms.walk import Rounds
from curvedp.released.inference import Functionals
from curvedp.rows.contrasts import contrasts
from curvedp_studies.coverage import derivatives
from curvedp_studies.coverage.batched import Batched
from curvedp_studies.coverage.calibrate import calibrated, calibration, constants, loss_of, plan_of
from curvedp_studies.coverage.calibration import Calibrations
from curvedp_studies.coverage.cells import Cell, Score, grid, scored
from curvedp_studies.coverage.criteria import criteria
from curvedp_studies.coverage.document import document
from curvedp_studies.coverage.draws import Draws
from curvedp_studies.coverage.engines import simulate
from curvedp_studies.coverage.library import Library, study
from curvedp_studies.coverage.metric import _resolved, first_metric, second_metric
from curvedp_studies.coverage.noise import NoiseScore, noise_scored, ratios
from curvedp_studies.coverage.outcomes import Outcomes, half_width
from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.rivals import METHODS, FieldScore, field_scored
from curvedp_studies.coverage.rows import append_rows, read_rows
from curvedp_studies.coverage.synthetic import rare_levels, synthetic
from curvedp_studies.coverage.walking import Walk

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


def small_population() -> Population:
    """Two numbers and a category of three levels; d = 6, r = 5."""
    random = np.random.default_rng(5)
    level = random.choice(3, 20_000, p=(0.6, 0.3, 0.1))
    numbers = np.clip(random.standard_normal((20_000, 2)) / 3.0, -1.0, 1.0)
    X = np.column_stack([numbers, np.eye(3)[level] - 1.0 / 3.0, np.ones(20_000)])
    y = X @ np.array([0.4, -0.2, 0.2, -0.1, -0.1, 0.1]) + 0.1 * random.standard_t(4, 20_000)
    N = contrasts(6, [(2, 3, 4)])
    return Population.of("small", "squared", X, np.clip(y, -1.0, 1.0), math.sqrt(3.0 + 2.0 / 3.0), N)


@pytest.fixture(scope="module")
def population():
    return small_population()


@pytest.fixture(scope="module")
def plan(population):
    return plan_of(population, 1.0, "add_remove")


@pytest.mark.parametrize("loss", derivatives.LOSSES)
def test_derivatives_are_the_librarys_in_numpy_and_torch(loss):
    import torch

    random = np.random.default_rng(0)
    s, y = random.normal(0.0, 3.0, 200), random.choice([-1.0, 1.0], 200)
    ours = loss_of(loss)
    slope = derivatives.slope(loss, torch.tensor(s), torch.tensor(y), torch).numpy()
    second = derivatives.second(loss, torch.tensor(s), torch.tensor(y), torch).numpy()
    np.testing.assert_allclose(slope, ours.gradient(s[:, None], y)[:, 0], atol=1e-14)
    np.testing.assert_allclose(second, ours.hessian(s[:, None], y)[:, 0, 0], atol=1e-14)
    np.testing.assert_allclose(slope, derivatives.slope(loss, s, y, np), atol=1e-14)


@pytest.mark.parametrize("clipping", ["spread", "worst"])
def test_half_widths_are_the_librarys(clipping):
    random = np.random.default_rng(1)
    draw = lambda: random.uniform(0.0, 12.0, 30)  # noqa: E731
    told = Functionals(draw(), draw(), draw(), 1.0 + draw(), draw(), draw(), random.random(30) < 0.8)
    np.testing.assert_allclose(half_width(told, clipping), told.half_width(0.95, clipping), rtol=1e-6)


def test_a_population_fits_itself(population):
    from scipy.optimize import minimize

    assert population.blocks == ((2, 3, 4),)
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


def features(population, runs):
    """Numbers of each run that do not depend on the signs and the order of eigenvectors."""
    told = Outcomes.of(runs)
    breads = []
    for releases in runs:
        pulled = np.linalg.pinv(releases.basis)
        breads.append((pulled.T @ releases.bread.J @ pulled)[np.triu_indices(population.d)])
    columns = [told.estimate, told.se, told.noise, told.half, np.array(breads)]
    columns += [told.kappa[:, None], told.count[:, None], told.clip[:, None]]
    columns += [np.array([[r.tail.index, np.linalg.det(r.meat), r.resolved.sum()] for r in runs])]
    return np.hstack(columns)


def least_p(one, other):
    """The smallest p-value of two-sample Kolmogorov–Smirnov tests, times their number."""
    p = [stats.ks_2samp(a, b).pvalue for a, b in zip(one.T, other.T, strict=True)]
    return min(p) * len(p)


N_RECORDS, RUNS = 3000, 240


@pytest.fixture(scope="module")
def from_code(population, plan):
    return features(population, Library(population, plan).releases(N_RECORDS, RUNS, 1))


def test_both_engines_have_one_law(population, plan, from_code):
    batched = Batched(population, constants()).releases(calibration(plan), N_RECORDS, RUNS, 2)
    assert least_p(from_code, features(population, batched)) > 0.01


def test_planted_differences_are_caught(population, plan, from_code):
    public, shared = calibration(plan), constants()
    louder = replace(public, looks={**public.looks, "final": 2.0 * public.looks["final"]})
    coarser = replace(shared, bread_growth=2.0 * shared.bread_growth)
    for wrong, rules in ((louder, shared), (public, coarser)):
        batched = Batched(population, rules).releases(wrong, N_RECORDS, RUNS, 3)
        assert least_p(from_code, features(population, batched)) < 1e-6


@pytest.fixture(scope="module")
def walks_of_code(population, plan):
    """(pace of the rounds, features of the walk) at κ ≈ `plenty`: some runs are quick, some are not."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        finished = Rounds.finished

        def spy(rounds, theta):
            clip, estimate = finished(rounds, theta)
            found.append([rounds.spread, rounds.typical, clip.size, clip.kept, *estimate.theta[:, 0]])
            found[-1].append(rounds.pace.rounds)
            return clip, estimate

        patch.setattr(Rounds, "finished", spy)
        Library(population, plan).releases(at_the_border(plan), RUNS, 6)
    return np.array(found)


def at_the_border(plan):
    """The n at which κ is that from which rounds are quick."""
    return round(plan.walk.rule.plenty * plan.walk.unknowns / plan.walk.mu)


def simulated_walks(population, plan, rules, seed):
    public = calibration(plan)
    setting = Batched(population, rules).setting(public, at_the_border(plan), RUNS, seed)
    walk = Walk(setting, second_metric(setting, first_metric(setting)))
    w, clip = walk.walked()
    theta = np.einsum("bij,bi->bj", walk.metric.A.numpy(), w.numpy())
    paces = walk.later_stride().rounds + walk.first_stride().rounds
    columns = (walk.spread, walk.typical, clip.size, clip.kept)
    return np.column_stack([*(column.numpy() for column in columns), theta, paces.numpy()])


def test_both_walks_have_one_law_where_some_are_quick(population, plan, walks_of_code):
    """Both looks at lengths, the clip and its belief, where the walk ends, and how many rounds it took."""
    rule = plan.walk.rule
    simulated = simulated_walks(population, plan, constants(), 7)
    for walks in (walks_of_code, simulated):
        quick = np.mean(walks[:, -1] == rule.quick_rounds)
        assert 0.3 < quick < 0.7 and set(walks[:, -1]) == {rule.rounds, rule.quick_rounds}
    assert least_p(walks_of_code, simulated) > 0.01


def test_another_border_would_be_caught(population, plan, walks_of_code):
    shared = constants()
    other = replace(shared, rule={**shared.rule, "plenty": 101.5})
    assert least_p(walks_of_code, simulated_walks(population, plan, other, 8)) < 1e-6


@pytest.fixture
def silence(monkeypatch):
    """No noise in either engine, the same scales: what is computed must be the same, to rounding."""
    import torch

    monkeypatch.setattr(Grid, "add", lambda grid, value, random: value)
    monkeypatch.setattr(Grid, "add_symmetric", lambda grid, value, random: (value + value.T) / 2.0)
    monkeypatch.setattr(recentered, "noisy_curvature", lambda gram, sigma2, m, random: gram)
    nothing = lambda draws, *shape: torch.zeros(draws.B, *shape, dtype=torch.float64)  # noqa: E731
    mean = lambda draws, r, m: m * torch.eye(r, dtype=torch.float64).expand(draws.B, r, r)  # noqa: E731
    monkeypatch.setattr(Draws, "normal", nothing)
    monkeypatch.setattr(Draws, "wishart", mean)


def first_records(population, n, loss="squared"):
    y = population.y[:n]
    y = np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y
    return Population.of("first", loss, population.X[:n], y, population.x_norm, population.N)


SILENT = [(400, 1.0, "add_remove"), (1500, 1.0, "replace"), (1200, 3.0, "add_remove"), (3000, 1.0, "replace")]


@pytest.mark.parametrize("loss", derivatives.LOSSES)
@pytest.mark.parametrize(("n", "epsilon", "adjacency"), SILENT)
def test_without_noise_both_engines_compute_the_same(silence, population, loss, n, epsilon, adjacency):
    """κ from 19 to 660: both paces, either adjacency, clips that are chosen and clips that noise forbids."""
    table = first_records(population, n, loss)
    plan = plan_of(table, epsilon, adjacency)
    code = Library(table, plan).releases(None, 1, 0)
    batched = Batched(table, constants()).releases(calibration(plan), None, 1, 0)
    np.testing.assert_allclose(features(table, batched), features(table, code), rtol=1e-5, atol=1e-7)


WRONG = {
    "first_clip": 0.3,
    "travel": 1.0,
    "widest_clip": 5.0,
    "clipped": 2.0,
    "step": 0.45,
    "weight": 0.6,
    "floor": 0.3,
}


@pytest.mark.parametrize("name", WRONG)
def test_without_noise_a_wrong_constant_is_seen(silence, population, name):
    table = first_records(population, 1500)
    plan, shared = plan_of(table, 1.0, "add_remove"), constants()
    walks = []
    for rule in (shared.rule, {**shared.rule, name: WRONG[name]}):
        engine = Batched(table, replace(shared, rule=rule))
        walks.append(features(table, engine.releases(calibration(plan), None, 1, 0)))
    assert not np.allclose(*walks, rtol=1e-5, atol=1e-7)


def test_the_resolved_part_is_the_librarys():
    """Below the noise eigenvalues count together, whichever are below: none, some, all."""
    import torch

    random = np.random.default_rng(9)
    values = random.normal(0.0, 3.0, (200, 5))
    lifted = np.clip(values, 0.0, 6.0) + random.uniform(0.1, 1.0, (200, 1))
    norm = np.repeat([-9.0, 1.0, 3.0, 99.0], 50)
    ours = _resolved(*map(torch.as_tensor, (values, lifted, norm))).numpy()
    theirs = [geometry._resolved(v, w, s) for v, w, s in zip(values, lifted, norm, strict=True)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert len({*theirs} - {0.5, 5.0}) > 30


@pytest.mark.full
@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_both_engines_have_one_law_under_replace(population, loss):
    y = np.where(population.y > 0, 1.0, -1.0) if loss == "logistic" else population.y
    other = Population.of("other", loss, population.X, y, population.x_norm, population.N)
    plan = plan_of(other, 3.0, "replace")
    code = Library(other, plan).releases(2000, RUNS, 4)
    batched = Batched(other, constants()).releases(calibration(plan), 2000, RUNS, 5)
    assert least_p(features(other, code), features(other, batched)) > 0.01


def made_up(runs=1000, covered=0.9, se=0.5):
    """Outcomes whose intervals hold 0.3 with a known probability; the second coefficient is refused."""
    random = np.random.default_rng(7)
    estimate = 0.3 + se * random.standard_normal((runs, 2))
    half = np.full((runs, 2), stats.norm.isf((1.0 - covered) / 2.0) * se)
    half[:, 1] = np.nan
    told = np.column_stack([np.ones(runs, bool), np.zeros(runs, bool)])
    errors = np.full((runs, 2), se)
    flat = np.full(runs, 50.0)
    return Outcomes(estimate, errors, 0.6 * errors, half, 2.0 * half, told, flat, flat, flat)


def test_scores_of_known_intervals(population):
    truth = replace(population, X=np.ones((4, 2)), N=np.eye(2))
    truth.__dict__.update(theta=np.array([0.3, 0.3]), deviation=np.array([2.0, 2.0]))
    score = scored(Cell("small", 100, 1.0, "replace"), "code", truth, made_up())
    assert abs(score.coverage - 0.9) < 4 * math.sqrt(0.09 / 1000) and score.worst == score.coverage
    assert score.refused == 0.5 and score.counts and abs(score.noise - 0.6) < 1e-12
    assert abs(score.width - stats.norm.isf(0.05) * 0.5 / (1.96 * 0.2)) < 1e-3
    assert abs(score.width_worst - 2.0 * score.width) < 1e-9 and score.coverage_worst > 0.99
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


def test_cells_are_parsed_and_hopeless_ones_known(population):
    assert grid(["a"], "5000:1,1000:0.3:replace") == [
        Cell("a", 5000, 1.0, "add_remove"),
        Cell("a", 1000, 0.3, "replace"),
    ]
    assert len(grid(["a", "b"])) == 36
    with pytest.raises(ValueError, match="a cell is"):
        grid(["a"], "5000:1:neither")
    plan = calibration(plan_of(population, 0.3, "add_remove"))
    assert Cell("small", 100, 0.3, "add_remove").surely_refused(plan)
    assert not Cell("small", 20_000, 0.3, "add_remove").surely_refused(plan)


def test_the_library_engine_goes_on_where_it_stopped(tmp_path, population, monkeypatch):
    import curvedp_studies.coverage.library as library

    monkeypatch.setattr(library, "population", lambda name, data: population)
    cells, table = grid(["small"], "2000:1,100:0.3"), tmp_path / "scores.csv"
    first = study(cells, None, table, 3, workers=1)
    assert [score.runs for score in first] == [3, 0] and first[1].refused == 1.0
    monkeypatch.setattr(library, "fitted", lambda *arguments: pytest.fail("computed twice"))
    again = study(cells, None, table, 3, workers=1)
    assert [score.point for score in again] == [score.point for score in first]


def test_the_simulator_needs_numpy_scipy_and_torch_alone(tmp_path, population):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {BLOCKED!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    population.save(tmp_path)
    calibrated([population.r], [1.0], ["add_remove"]).save(tmp_path / "calibrations.json")
    command = [
        sys.executable,
        "-m",
        "curvedp_studies.coverage",
        "--engine",
        "batched",
        "--data",
        str(tmp_path),
    ]
    command += ["--calibrations", str(tmp_path / "calibrations.json"), "--out", str(tmp_path / "scores.csv")]
    command += ["--populations", "small", "--cells", "2000:1", "--runs", "8", "--workers", "2"]
    path = os.pathsep.join(map(str, (tmp_path / "site", ROOT / "src", ROOT / "studies")))
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    score = read_rows(tmp_path / "scores.csv", Score)[0]
    assert score.runs == 8 and score.population == "small" and "coverage" in done.stdout


def test_the_simulator_goes_on_where_it_stopped_and_stops_in_time(tmp_path, population, plan):
    population.save(tmp_path)
    plans = Calibrations(constants(), (calibration(plan),))
    plans.save(tmp_path / "c.json")
    assert Calibrations.load(tmp_path / "c.json") == plans
    cells, told = grid(["small"], "2000:1,1500:1"), []
    table = tmp_path / "scores.csv"
    simulate(cells, tmp_path, table, plans, 4, lambda *at: told.append(at), seconds=-1.0)
    assert not told and not table.exists()
    simulate(cells[:1], tmp_path, table, plans, 4, lambda *at: told.append(at))
    simulate(cells, tmp_path, table, plans, 4, lambda *at: told.append(at))
    assert [(done, score.n) for done, _, score in told] == [(1, 2000), (2, 1500)]
    with pytest.raises(ValueError, match="no calibration"):
        plans.of(population.r, 9.0, "replace")


def test_rare_levels_are_rare():
    X, _, blocks = rare_levels()
    assert sorted(int(X[:, block].sum(axis=0).min()) for block in blocks) == [2] * 8


@pytest.mark.parametrize("method", [name for name in METHODS if name != "inference=True"])
def test_rivals_make_intervals(method):
    drawn_from, cell = synthetic("gaussian-3"), Cell("gaussian-3", 5000, 3.0, "add_remove")
    score = field_scored(method, drawn_from, cell, METHODS[method](drawn_from, cell, 30))
    assert score.runs == 30 and 0.3 < score.coverage <= 1.0 and 0.2 < score.width < 20.0


def score_of(population="gaussian-10", n=20_000, epsilon=1.0, coverage=0.95, worst=0.93, **other):
    values = dict.fromkeys(("coverage_worst", "width_worst", "bias", "deviation", "noise"), 1.0)
    shared = {"adjacency": "add_remove", "engine": "batched", "runs": 400, "kappa": 90.0, "width": 1.2}
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
    hopeless = score_of("wine", coverage=0.5, kappa=20.0)
    assert all(criterion.met for criterion in criteria([*good, hopeless]))


def test_the_page_is_filled_from_tables(tmp_path):
    parts = ("criteria", "coverage", "noise", "field")
    page = tmp_path / "inference.md"
    page.write_text("".join(f"before\n<!-- {part} -->\nold\n<!-- end of {part} -->\n" for part in parts))
    append_rows(tmp_path / "s.csv", [score_of(), score_of("wine", coverage=0.91, adjacency="replace")])
    append_rows(
        tmp_path / "n.csv", [NoiseScore("bike", 9, 1.0, 200, 50.0, 4, 0.1, 1.0, 0.9, 1.0, 1.1, 0.5, 2.0)]
    )
    append_rows(
        tmp_path / "f.csv", [FieldScore("batch means", "heavy-10", 5000, 1.0, 200, 0.71, 0.6, 0.5, 0.0)]
    )
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
    import curvedp_studies.coverage.study as whole

    seen = {}

    def study(folder, data, engine, populations, cells, runs, progress, *, workers):
        seen.update(locals())
        return [folder / "coverage.csv"]

    monkeypatch.setattr(whole, "study", study)
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    app.command("coverage")(
        {entry.name: entry for entry in entry_points(group="curvedp.commands")}["coverage"].load()
    )
    done = CliRunner().invoke(
        app, ["--folder", str(tmp_path), "--engine", "batched", "--cells", "1000:1", "--runs", "7"]
    )
    assert done.exit_code == 0 and done.stdout.strip() == str(tmp_path / "coverage.csv"), done.output
    assert (seen["engine"], seen["cells"], seen["runs"], seen["data"]) == ("batched", "1000:1", 7, None)


def test_the_whole_study_writes_a_table_and_a_picture(tmp_path):
    from curvedp_studies.coverage.study import study as whole

    steps = []
    written = whole(
        tmp_path, None, "batched", "gaussian-3", "5000:3", 25, lambda *at: steps.append(at), workers=1
    )
    assert [path.name for path in written] == ["coverage.csv", "inference.png", "inference.svg"]
    assert steps == [(1, 1)] and all(path.exists() for path in written)


def test_the_page_of_the_documentation_has_its_marks():
    text = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    for part in ("criteria", "coverage", "noise", "field"):
        assert text.count(f"<!-- {part} -->") == 1 and text.count(f"<!-- end of {part} -->") == 1
