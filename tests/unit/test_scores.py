"""Private scores: what they converge to is scikit-learn's; what is refused is refused before the charge."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from curvedp import Ledger, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from curvedp.analyses.explore.noisy import Noisy, Part, Releases, Split, exact_sum, sum_sensitivity
from curvedp.analyses.scores import private_scores, score_plan
from curvedp.analyses.scores.means import (
    Mean,
    Ranking,
    Score,
    Tail,
    Window,
    at_levels,
    cell,
    distribution,
    equal_mass,
    find_tail,
    octaves,
)
from curvedp.analyses.scores.plans import findings
from curvedp.analyses.scores.source import ScoreLayout, layout_of, margins_of, read_scored
from curvedp.data import Categorical, Ignored, Numeric, Schema
from curvedp.errors import CurvedpError, InvalidInput
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.randomness import generator
from sklearn import metrics

CLEAR = 300.0  # an ε at which noise is far below what is compared
COLUMNS = [
    Numeric("a", -1, 1),
    Numeric("b", -1, 1),
    Categorical("sex", ["f", "m"]),
    Ignored("note"),
]


def table(n: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    a, b = random.uniform(-1, 1, (2, n))
    sex = random.choice(["f", "m"], n)
    margin = 2.5 * a - 1.5 * b + 0.8 * (sex == "m") - 0.3
    y = 3.0 * a - b + random.laplace(0, 0.5, n)
    return pd.DataFrame(
        {
            "a": a,
            "b": b,
            "sex": sex,
            "note": random.choice(["x", "y", "z"], n),
            "wage": np.clip(y, -8, 8),
            "hired": np.where(random.random(n) < 1 / (1 + np.exp(-margin)), "yes", "no"),
            "grade": np.array(["one", "two", "three"])[np.digitize(margin + random.normal(0, 1, n), [-1, 1])],
        }
    )


def schema(target: str, adjacency: str = "add_remove") -> Schema:
    last = {
        "wage": Numeric("wage", -8, 8),
        "hired": Categorical("hired", ["no", "yes"]),
        "grade": Categorical("grade", ["one", "two", "three"]),
    }
    return Schema([*COLUMNS, last[target]], target=target, adjacency=adjacency)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def models() -> dict[str, object]:
    train = table(4000, seed=9)
    return {
        "wage": PrivateRidge(schema=schema("wage"), epsilon=5.0).fit(train),
        "hired": PrivateLogisticRegression(schema=schema("hired"), epsilon=5.0).fit(train),
        "grade": PrivateLogisticRegression(schema=schema("grade"), epsilon=8.0).fit(train),
        "svc": PrivateLinearSVC(schema=schema("hired"), epsilon=5.0, alpha=10.0).fit(train),
    }


def scored(model, rows, by=None, epsilon=CLEAR, seed=0, **options):
    return private_scores(model, rows, epsilon=epsilon, delta=1e-6, by=by, random_state=seed, **options)


def test_a_clear_regression_is_what_scikit_learn_says(models):
    rows = table(20_000)
    predicted = models["wage"].predict(rows)
    found = scored(models["wage"], rows, by="sex")
    for group, mine in [("", slice(None)), *(((s), (rows.sex == s).to_numpy()) for s in ("f", "m"))]:
        y, p = rows.wage.to_numpy()[mine], predicted[mine]
        scores = found.levels[group] if group else found.overall
        assert scores["r2"].value == pytest.approx(metrics.r2_score(y, p), abs=0.004)
        assert scores["rmse"].value == pytest.approx(math.sqrt(metrics.mean_squared_error(y, p)), rel=0.01)
        assert scores["mae"].value == pytest.approx(metrics.mean_absolute_error(y, p), rel=0.005)
        assert scores.count.value == pytest.approx(len(y), rel=1e-3)
    residuals = found.overall.curves["residuals"]
    exact = np.quantile(rows.wage - predicted, residuals.x)
    np.testing.assert_allclose(residuals.y, exact, atol=0.06)
    curve = found.overall.curves["calibration"]
    assert len(curve.x) == 10 and np.all(np.diff(curve.x) > 0)
    assert np.max(np.abs(np.array(curve.y) - np.array(curve.x))) < 0.3  # a ridge is calibrated


def test_scores_are_printed_a_line_each(models):
    found = scored(models["wage"], table(4000), by="sex")
    lines = str(found).splitlines()
    assert f"r2 {found['r2']}" in [" ".join(line.split()) for line in lines]
    assert len(lines) == len(found.overall.scores) * (1 + len(found.levels))
    assert "<pre>" in found._repr_html_() and "ε" in found._repr_html_()


def test_a_clear_classifier_is_what_scikit_learn_says(models):
    rows, model = table(20_000), models["hired"]
    found = scored(model, rows, by="sex")
    for group, mine in [("", slice(None)), *((s, (rows.sex == s).to_numpy()) for s in ("f", "m"))]:
        part = rows[mine] if group else rows
        y, p = (part.hired == "yes").to_numpy(), model.predict_proba(part)[:, 1]
        scores = found.levels[group] if group else found.overall
        assert scores["auc"].value == pytest.approx(metrics.roc_auc_score(y, p), abs=0.001)
        assert scores["brier"].value == pytest.approx(metrics.brier_score_loss(y, p), abs=0.001)
        assert scores["log_loss"].value == pytest.approx(metrics.log_loss(y, p), abs=0.003)
        exact = metrics.confusion_matrix(part.hired, model.predict(part), labels=["no", "yes"])
        np.testing.assert_allclose(scores.confusion, exact, atol=3)
        assert scores["accuracy"].value == pytest.approx(np.trace(exact) / exact.sum(), abs=1e-3)
        assert scores["recall of yes"].value == pytest.approx(exact[1, 1] / exact[1].sum(), abs=2e-3)
        assert scores["precision of yes"].value == pytest.approx(exact[1, 1] / exact[:, 1].sum(), abs=2e-3)
        assert scores["predicted yes"].value == pytest.approx(exact[:, 1].sum() / exact.sum(), abs=2e-3)
    y, p = rows.hired == "yes", model.predict_proba(rows)[:, 1]
    false, true, _ = metrics.roc_curve(y, p)
    roc = found.overall.curves["roc"]
    exact = np.interp(roc.x, false, true)
    np.testing.assert_allclose(roc.y, exact, atol=0.02)  # lines through 17 points
    assert (roc.x[0], roc.y[0], roc.x[-1], roc.y[-1]) == (0, 0, 1, 1)
    assert np.all(np.less_equal(roc.low[1:], exact[1:])) and np.all(np.less_equal(exact, roc.high))
    precision, recall, _ = metrics.precision_recall_curve(y, p)
    curve = found.overall.curves["precision recall"]
    exact = np.interp(curve.x, recall[::-1], precision[::-1])
    np.testing.assert_allclose(curve.y[10:], exact[10:], atol=0.02)
    assert np.all(np.less_equal(curve.low, exact)) and np.all(np.less_equal(exact, curve.high))
    calibration = found.overall.curves["calibration"]
    edges = np.quantile(p, np.linspace(0, 1, 17))
    means = [p[cell(p, edges) == i].mean() for i in range(16)]
    shares = [y[cell(p, edges) == i].mean() for i in range(16)]
    np.testing.assert_allclose(calibration.x, means, atol=0.02)
    np.testing.assert_allclose(calibration.y, shares, atol=0.05)


def test_several_classes_are_scored_one_against_the_rest(models):
    rows, model = table(20_000), models["grade"]
    found = scored(model, rows)
    p = model.predict_proba(rows)
    labels = list(model.classes_)
    exact = metrics.roc_auc_score(rows.grade, p, multi_class="ovr", labels=labels)
    assert found["auc"].value == pytest.approx(exact, abs=0.002)
    for k, label in enumerate(labels):
        one = metrics.roc_auc_score(rows.grade == label, p[:, k])
        assert found[f"auc of {label}"].value == pytest.approx(one, abs=0.003)
    assert found["log_loss"].value == pytest.approx(metrics.log_loss(rows.grade, p, labels=labels), abs=0.01)
    truth = (rows.grade.to_numpy()[:, None] == np.array(labels)).astype(float)
    assert found["brier"].value == pytest.approx(np.mean(np.sum((p - truth) ** 2, axis=1)), abs=0.002)
    exact_counts = metrics.confusion_matrix(rows.grade, model.predict(rows), labels=labels)
    np.testing.assert_allclose(found.overall.confusion, exact_counts, atol=4)


def test_a_machine_without_probabilities_has_no_losses(models):
    rows = table(20_000)
    found = scored(models["svc"], rows)
    exact = metrics.roc_auc_score(rows.hired == "yes", models["svc"].decision_function(rows))
    assert found["auc"].value == pytest.approx(exact, abs=0.001)
    assert "brier" not in found.overall.scores and "calibration" not in found.overall.curves


def test_margins_are_the_models_own_and_depend_on_no_other_record(models):
    rows, model = table(5000), models["grade"]
    matrix, of = model.columns_.clip(model.schema_.read(rows)), (model.coef_, model.intercept_)
    whole = margins_of(*of, matrix)
    np.testing.assert_allclose(whole, model.decision_function(rows), rtol=1e-12, atol=1e-12)
    assert np.array_equal(whole[1:], margins_of(*of, matrix[1:]))


def test_a_record_without_a_usable_target_contributes_nothing(models):
    rows = table(3000)
    more = pd.concat([rows, rows.head(500).assign(hired="maybe", wage=np.nan)], ignore_index=True)
    for name in ("hired", "wage"):
        first, second = scored(models[name], rows, epsilon=1.0), scored(models[name], more, epsilon=1.0)
        assert first.to_dict() == second.to_dict()


def test_a_file_is_scored_as_the_frame_is(models, tmp_path):
    rows = table(2000)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    models["hired"].save(tmp_path / "model.json")
    first = scored(models["hired"], rows, by="sex", epsilon=1.0)
    second = scored(tmp_path / "model.json", tmp_path / "rows.csv", by="sex", epsilon=1.0)
    assert first.to_dict() == second.to_dict()


def test_levels_of_a_column_that_the_schema_ignores_are_declared(models):
    found = scored(models["hired"], table(20_000), by=Categorical("note", ["x", "y"]))
    assert set(found.levels) == {"x", "y"}
    together = sum(group.count.value for group in found.levels.values())
    assert together == pytest.approx(found.overall.count.value * 2 / 3, rel=0.05)  # z is no declared level


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budget.db", epsilon=10.0, delta=0.1, adjacency="add_remove")


REFUSED = {
    "a column of another name": (lambda m, t: (m["hired"], t, {"by": "six"}), "is not a column"),
    "the target": (lambda m, t: (m["hired"], t, {"by": "hired"}), "is the target"),
    "a number": (lambda m, t: (m["hired"], t, {"by": "a"}), "is a number"),
    "a column that is not read": (lambda m, t: (m["hired"], t, {"by": "note"}), "is not read"),
    "a table of another schema": (lambda m, t: (m["hired"], t.drop(columns="a"), {}), "no column 'a'"),
    "a table without the target": (lambda m, t: (m["wage"], t.drop(columns="wage"), {}), "no column 'wage'"),
    "too many columns": (lambda m, t: (m["wage"], np.zeros((9, 7)), {"y": [1.0] * 9}), "is expecting 3"),
    "a y of another length": (lambda m, t: (m["wage"], t, {"y": [1.0]}), "one entry per row"),
    "fewer rows than the noise": (lambda m, t: (m["hired"], t, {"rows": 30}), "drowns"),
    "no epsilon": (lambda m, t: (m["wage"], t, {"epsilon": 0.0}), "epsilon"),
    "a model of another library": (lambda m, t: (object(), t, {}), "models of curvedp"),
    "a seed with a ledger": (lambda m, t: (m["wage"], t, {"random_state": 1}), "seed"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_be_known_is_refused_before_the_charge(case, models, ledger):
    build, words = REFUSED[case]
    model, rows, options = build(models, table(500))
    options = {"epsilon": 1.0, "delta": 1e-6, **options}
    with pytest.raises(CurvedpError, match=words):
        private_scores(model, rows, ledger=ledger, **options)
    assert not ledger.history()


def test_few_rows_are_refused_where_their_number_is_public():
    model = PrivateLogisticRegression(schema=schema("hired", "replace"), epsilon=5.0).fit(table(3000))
    with pytest.raises(InvalidInput, match="drowns"):
        private_scores(model, table(40), epsilon=1.0, delta=1e-6)


def test_a_score_is_charged_once(models, ledger):
    found = private_scores(models["hired"], table(3000), epsilon=1.0, delta=1e-6, ledger=ledger, by="sex")
    assert found.privacy.private and found.privacy.epsilon == 1.0
    assert [entry.epsilon for entry in ledger.history()] == [1.0]


@pytest.mark.parametrize("rows", [0, 1, 2, 30])
@pytest.mark.parametrize("name", ["wage", "hired", "grade", "svc"])
def test_any_number_of_rows_is_released_from(name, rows, models):
    """Whatever the noise gives: finite numbers or 'cannot be said', never an error after the charge."""
    for seed in range(4):
        found = scored(models[name], table(rows), by="sex", epsilon=0.3, seed=seed)
        for group in (found.overall, *found.levels.values()):
            for score in group.scores.values():
                assert not score.is_known or score.low <= score.value <= score.high
        str(found["accuracy" if "accuracy" in found.overall.scores else "r2"])


def test_parts_have_fixed_shares_of_one_shift(models):
    for name in models:
        for by in (None, "sex"):
            plan = score_plan(layout_of(models[name], by), Budget(1.0, 1e-6))
            spent = math.fsum(plan.split.shift(part) ** 2 for part in plan.split.parts)
            assert 0.9999 <= spent / plan.split.profile.mu**2 <= 1.0
            assert plan.guarantee.delta_at(1.0) <= 1e-6
    split = Split.of({"x": Part(1, 3.0), "y": Part(1, 1.0)}, Budget(1.0, 1e-6))
    assert split.shift("x") == pytest.approx(math.sqrt(3.0) * split.shift("y"))


@pytest.mark.parametrize("name", ["wage", "hired", "grade", "svc"])
@pytest.mark.parametrize("rows", [0, 1, 400])
def test_whatever_the_records_are_the_parts_are_those_of_the_plan(name, rows, models):
    """The plan was made without any: what is asked for, with how many numbers, may not depend on them."""
    records = read_scored(models[name], table(rows), by="sex")
    plan = score_plan(records.layout, Budget(1.0, 1e-6))
    releases = Releases(records.layout.neighbours, plan.split, generator(0))
    findings(records, releases)
    assert releases.parts == plan.split.parts
    with pytest.raises(AssertionError, match="released twice"):
        findings(records, releases)


def test_sensitivities_of_sums_by_trying_all_records():
    """Values in [−1, 3], three sums: the farthest neighbours, found by enumeration."""
    records = [np.zeros(3), *(np.eye(3)[i] * v for i in range(3) for v in (-1.0, 3.0, 1.0))]
    for adjacency in ("add_remove", "replace"):
        neighbours = Neighbours(adjacency)  # type: ignore[arg-type]
        others = records if neighbours.count_is_public else [np.zeros(3)]
        worst = max(np.linalg.norm(x - y) for x in records for y in others)
        claimed = sum_sensitivity(neighbours, -1.0, 3.0, several=True)
        assert worst <= claimed <= 1.07 * worst  # √2·3 stands for √(3² + 3²)


def test_one_step_repairs_a_poor_start():
    """With F₀ and F₁ of coarse, wrong cells the two means still give AUC, but for a product of errors."""
    random = np.random.default_rng(1)
    z = np.concatenate([random.normal(0, 1, 6000), random.normal(1, 1, 4000)])
    positive = np.arange(10_000) >= 6000
    edges = np.array([-36.0, -1.5, -0.7, -0.1, 0.4, 0.9, 1.5, 2.2, 36.0])
    counts = [np.histogram(z[positive == side], edges)[0] * 1.0 for side in (False, True)]
    wrong = counts[0] + np.repeat([150.0, -150.0], 4)  # 600 of 6000 taken from above to below
    ranking = Ranking(edges, wrong, counts[1], 1.0)
    exact = metrics.roc_auc_score(positive, z)
    losses = ranking.losses(z, positive)
    means = [
        Mean(w, Noisy(float(w.scaled(losses[positive == side]).sum()), 0.0))
        for w, side in zip(ranking.windows(), (False, True), strict=True)
    ]
    sizes = Noisy(6000.0, 0.0), Noisy(4000.0, 0.0)
    found = ranking.auc((means[0], means[1]), sizes)
    assert abs(1.0 - ranking.start - exact) > 0.015  # the cells alone are off
    assert abs(found.value - exact) < 0.003


def test_tails():
    random = np.random.default_rng(0)
    for law, scale in ((random.exponential(0.1, 200_000), 0.1), (random.exponential(0.01, 200_000), 0.01)):
        edges = octaves(6.0, 20)
        counts = np.bincount(cell(law, edges), minlength=20).astype(float)
        tail = find_tail(edges[1:], counts, 20.0, 1.0)
        beyond = law[law > tail.clip]
        assert 100 < len(beyond) < 1000  # what 20·√k·4 records hide
        assert tail.scale == pytest.approx(scale, rel=0.2)
        assert tail.mean_square == pytest.approx(np.mean(beyond**2), rel=0.1)
        assert np.mean(tail.squares(law)) == pytest.approx(np.mean(law**2), rel=0.01)
    assert find_tail(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 5.0, 2.0) == Tail(2.0, 0.0)


def test_distribution_and_quantiles_of_noisy_counts():
    counts = np.array([10.0, -3.0, 5.0, 8.0])
    F = distribution(counts)
    assert F[0] == 0 and F[-1] == 1 and np.all(np.diff(F) >= 0)
    edges = np.linspace(0, 1, 33)
    z = np.random.default_rng(0).beta(2, 5, 100_000)
    found = at_levels(edges, np.histogram(z, edges)[0].astype(float), equal_mass(4))
    np.testing.assert_allclose(found[1:-1], np.quantile(z, [0.25, 0.5, 0.75]), atol=0.01)


def test_sums_and_means():
    values = np.random.default_rng(0).normal(size=1000)
    assert exact_sum(values) == pytest.approx(math.fsum(values), abs=1e-12)
    assert exact_sum(np.empty(0)) == 0.0
    window = Window(0.0, 2.0, 0.5)
    v = np.abs(values)
    scaled = window.scaled(v)
    sums = Noisy(float(scaled.sum()), 9.0), Noisy(float((scaled**2).sum()), 0.0)
    mean = Mean(window, *sums).of(Noisy(1000.0, 25.0))
    clipped = np.clip(v, 0, 2)
    assert mean.value == pytest.approx(clipped.mean())
    assert mean.sampling == pytest.approx(clipped.var() / 1000)
    drift = (clipped.mean() - 0.5) / 1.5
    assert mean.noise == pytest.approx((1.5 / 1000) ** 2 * (9.0 + drift**2 * 25.0))


def test_a_score_says_what_it_knows():
    assert str(Score(0.5, 0.4, 0.6)) == "0.5 (0.4 to 0.6)"
    assert "cannot be said" in str(Score.unknown())
    assert Score.of(Noisy(1.2, 0.01), 0.0, 1.0).value == 1.0


def test_the_layout_is_public(models):
    first, second = (read_scored(models["wage"], table(n), by="sex").layout for n in (10, 500))
    assert first == second == layout_of(models["wage"], "sex") and isinstance(hash(first), int)
    assert isinstance(first, ScoreLayout)
    plan = score_plan(first, Budget(1.0, 1e-6))
    released = plan.release(read_scored(models["wage"], table(500), by="sex"), generator(0))
    assert released[1].keys() == {"f", "m"}
