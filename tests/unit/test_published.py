"""What people publish: ratios, references, events, effects; every place speaks for the same event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.formula.api as smf
from scipy.special import expit
from sklearn.metrics import get_scorer
from tests.releases import plain_model

from curvedp import (
    Boolean,
    Categorical,
    Numeric,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
    Schema,
    load,
    report,
    score,
)
from curvedp.analyses.estimators import summary
from curvedp.analyses.predictions import Predictor, Wanted
from curvedp.data import ClassTarget
from curvedp.data.formulas.derived import Term
from curvedp.data.targets import target_of
from curvedp.data.templates import review
from curvedp.errors import InvalidInput, ModelFileError
from curvedp.release.modelfile import Release

RANDOM, N = np.random.default_rng(11), 20_000
TABLE = pd.DataFrame(
    {
        "age": RANDOM.uniform(20, 80, N),
        "sex": RANDOM.choice(["Female", "Male", "Other"], N, p=[0.5, 0.4, 0.1]),
    }
)
MARGIN = -1 + 0.03 * (TABLE.age - 50) + 0.6 * (TABLE.sex == "Female")
CASES = RANDOM.random(N) < expit(MARGIN)
SEX = Categorical("sex", ["Female", "Male", "Other"], reference="Male")
pytestmark = pytest.mark.filterwarnings("ignore::curvedp.errors.PrivacyWarning")
EXACT = {"epsilon": 1e6, "delta": 1e-6, "random_state": 0}


def fitted(words: tuple[str, str], levels: list[str], **more: Any) -> tuple[Any, pd.DataFrame]:
    """A model of `words` (no case, case), declared as `levels`."""
    table = TABLE.assign(status=np.where(CASES, words[1], words[0]))
    schema = Schema([Numeric("age", 20, 80), SEX, Categorical("status", levels, **more)], target="status")
    return PrivateLogisticRegression(schema=schema, **EXACT).fit(table), table


@pytest.fixture(scope="module")
def model() -> Any:
    return fitted(("control", "case"), ["control", "case"])[0]


@pytest.fixture(scope="module")
def oracle() -> Any:
    table = TABLE.assign(y=CASES.astype(int))
    return smf.logit('y ~ age + C(sex, Treatment("Male"))', table).fit(disp=0)


def in_order(frame: Any) -> np.ndarray:
    """Of Intercept, Female, Other, age: as curvedp has them."""
    return np.asarray(frame)[[3, 1, 2, 0]]


@pytest.mark.parametrize(
    ("levels", "more", "event"),
    [
        (["control", "case"], {}, "case"),
        (["case", "control"], {}, "control"),
        (["case", "control"], {"event": "case"}, "case"),
        (["control", "case"], {"event": "control"}, "control"),
    ],
)
def test_file_coefficients_and_answers_speak_for_the_event(
    levels: list[str], more: dict[str, str], event: str, tmp_path: Path
) -> None:
    model, table = fitted(("control", "case"), levels, **more)
    other = next(level for level in levels if level != event)
    sign = 1.0 if event == "case" else -1.0  # more years, more cases
    assert model.event_ == event and model.classes_.tolist() == ["case", "control"]
    assert np.sign(model.coef_[0, 0]) == sign == np.sign(model.summary().rows[0].coefficient)
    assert (model.conf_int()[0] * sign > 0).all() and f"status: {event} against {other}" in str(
        model.summary()
    )

    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    assert content["target"] == {"kind": "classes", "classes": levels, "event": event}
    assert np.sign(content["coefficients"][0][0]) == sign
    again = load(tmp_path / "model.json")
    assert f"A private model of status: {event} against {other}" in report(again)

    probability = again.predict_proba(table)
    X = again.schema_.read(table)
    own = probability[:, again.classes_.tolist().index(event)]
    np.testing.assert_allclose(own, expit(X @ again.coef_[0] + again.intercept_[0]), rtol=1e-9)
    np.testing.assert_allclose(again.decision_function(table), np.log(probability[:, 1] / probability[:, 0]))
    assert (again.predict(table) == again.classes_[probability.argmax(axis=1)]).all()
    np.testing.assert_allclose(again.predict_log_proba(table), np.log(probability))
    np.testing.assert_allclose(plain_model(again.release_).predict_proba(X), probability)
    low, high = again.predict_interval(table[:50]).T
    assert ((low < own[:50]) & (own[:50] < high)).all()

    (likely,) = Predictor(again.release_, Wanted(proba=True, threshold=0.3)).chunks(table[:99])
    assert likely.probabilities is not None and (likely.probabilities == probability[:99]).all()
    assert (likely.values == np.where(own[:99] >= 0.3, event, other)).all()
    auc, loss = (get_scorer(name)(again, table, table.status) for name in ("roc_auc", "neg_log_loss"))
    assert auc > 0.6 and loss > -0.65
    private = score(again, table, epsilon=10.0, delta=1e-6, random_state=1)
    assert private.layout.classes == (other, event)
    assert abs(private["auc"].value - auc) < 0.02 and abs(private["log_loss"].value + loss) < 0.02


def test_two_orders_are_two_signs_of_one_model() -> None:
    first, table = fitted(("control", "case"), ["control", "case"])
    second, _ = fitted(("control", "case"), ["case", "control"])
    np.testing.assert_allclose(first.coef_, -second.coef_, atol=1e-4)
    np.testing.assert_allclose(first.predict_proba(table), second.predict_proba(table), atol=1e-4)
    ratios, others = (m.tidy(exp=True, reference={}).estimate for m in (first, second))
    np.testing.assert_allclose(ratios, 1 / others, rtol=1e-3)


def test_without_a_schema_the_last_text_or_the_larger_number_is_the_event() -> None:
    assert ClassTarget(["b", "a"]).event == "a" and ClassTarget(["a", "b"]).event == "b"
    assert ClassTarget([1, 0]).event == 1 and ClassTarget([True, False]).event is True
    assert ClassTarget(["a", "b", "c"]).event is None
    assert ClassTarget(["a", "b"], event="a").encode(["a", "b"]).tolist() == [1, -1]
    for classes, event in ((["a", "b"], "c"), (["a", "b", "c"], "a"), (["a", "b"], [1])):
        with pytest.raises(InvalidInput, match="event"):
            ClassTarget(classes, event=event)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="one of its levels"):
        Categorical("status", ["a", "b"], event="c")
    with pytest.raises(InvalidInput, match="one of two levels"):
        Categorical("status", ["a", "b", "c"], event="c")


def test_a_file_without_an_event_speaks_for_the_last_of_the_sorted_labels(model: Any) -> None:
    """As files of version 0.2 do; one whose schema declares another event than it names is refused."""
    content = model.release_.to_dict()
    del content["target"]["event"]
    assert Release.from_dict(content).to_estimator().event_ == "control"
    content = fitted(("control", "case"), ["control", "case"], event="case")[0].release_.to_dict()
    content["target"]["event"] = "control"
    with pytest.raises(ModelFileError, match="contradicts its schema"):
        Release.from_dict(content)


def test_ratios_are_those_of_statsmodels(model: Any, oracle: Any) -> None:
    """At ε = 10⁶ privacy noise is 10⁻⁴ of a standard error, the rest is the robust covariance."""
    table = model.tidy(exp=True)
    assert table.columns.tolist() == [
        *("term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high")
    ]
    assert table.term.tolist() == ["age", "sex=Female vs Male", "sex=Other vs Male", "(intercept)"]
    np.testing.assert_allclose(table.estimate, np.exp(in_order(oracle.params)), rtol=1e-3)
    ends = np.exp(in_order(oracle.conf_int()))
    np.testing.assert_allclose(table[["conf.low", "conf.high"]], ends, rtol=0.004)
    np.testing.assert_allclose(table["std.error"], in_order(oracle.bse), rtol=0.03)
    np.testing.assert_allclose(table.statistic, in_order(oracle.tvalues), rtol=0.03, atol=0.02)
    linear = model.tidy()
    for column in ("estimate", "conf.low", "conf.high"):
        np.testing.assert_allclose(table[column], np.exp(linear[column]), rtol=1e-12)
    for column in ("std.error", "statistic", "p.value"):
        np.testing.assert_allclose(table[column], linear[column], rtol=1e-12)
    text = str(model.summary(exp=True))
    assert "odds ratio" in text and "e^coefficient" in text and "sex=Female vs Male" in text
    glance = model.glance()
    assert glance["nobs"][0] == N and glance["df.residual"][0] == oracle.df_resid


def test_effects_are_those_of_statsmodels_at_the_mean_and_elsewhere(model: Any, oracle: Any) -> None:
    found = model.marginal_effects()
    expected = oracle.get_margeff(at="mean").summary_frame().iloc[[2, 0, 1]]
    np.testing.assert_allclose(found.estimate, expected["dy/dx"], rtol=2e-3)
    np.testing.assert_allclose(found["std.error"], expected["Std. Err."], rtol=0.03)
    at = {"age": 70, "sex": "Female"}
    found = model.marginal_effects(at=at)
    p = oracle.predict(pd.DataFrame({k: [v] for k, v in at.items()})).iloc[0]
    beta, x = oracle.params.to_numpy(), np.array([1.0, 1.0, 0.0, 70.0])
    jacobian = p * (1 - p) * (np.eye(4) + (1 - 2 * p) * np.outer(beta, x))
    errors = np.sqrt(np.diag(jacobian @ oracle.cov_params().to_numpy() @ jacobian.T))
    np.testing.assert_allclose(found.estimate, (p * (1 - p) * beta)[[3, 1, 2]], rtol=2e-3)
    np.testing.assert_allclose(found["std.error"], errors[[3, 1, 2]], rtol=0.03)
    linear = PrivateLinearRegression(bounds=(20, 80), target_bounds=(0, 2), **EXACT)
    linear.fit(TABLE[["age"]], CASES)
    np.testing.assert_allclose(linear.marginal_effects().estimate, linear.tidy().estimate[:1])


def test_references_are_declared_asked_for_or_left_out(model: Any) -> None:
    mean = model.tidy(reference={})
    np.testing.assert_allclose(mean.estimate[:-1], model.coef_[0])
    ends = model.conf_int(intercept=True, as_frame=True)
    assert ends.term.tolist() == mean.term.tolist() == [*model.schema_.feature_names, "(intercept)"]
    np.testing.assert_array_equal(ends["conf.low"], mean["conf.low"])
    other = model.tidy(reference={"sex": "Other"})
    row = model.contrast({"sex=Female": 1, "sex=Other": -1})
    assert other.term[1] == "sex=Female vs Other"
    assert (row.coefficient, row.low, row.se) == pytest.approx(
        (other.estimate[1], other["conf.low"][1], other["std.error"][1])
    )
    for wrong in ({"sex": "male"}, {"age": "Male"}, {"status": "case"}):
        with pytest.raises(InvalidInput, match="reference"):
            model.tidy(reference=wrong)
    with pytest.raises(InvalidInput, match="one of its levels"):
        Categorical("sex", ["f", "m"], reference="F")
    bare = PrivateLogisticRegression(schema=model.schema_, fit_intercept=False, random_state=0)
    bare.fit(TABLE.assign(status=np.where(CASES, "case", "control")))
    assert bare.tidy().term.tolist() == list(bare.schema_.feature_names) and "vs Male" not in report(bare)


def test_a_formula_names_a_reference() -> None:
    columns = [Numeric("age", 20, 80), Categorical("sex", ["Female", "Male"]), Boolean("ill")]
    schema = Schema(columns, target="ill")
    for text in ('Treatment("Male")', 'Treatment(reference="Male")', "contrast=Treatment('Male')"):
        own = schema.with_formula(f"ill ~ age + C(sex, {text})")
        assert own.feature_names == ("age", "sex=Female", "sex=Male")
        fit = PrivateLogisticRegression(schema=own, random_state=0).fit(
            {"age": [3], "sex": ["x"], "ill": [1]}
        )
        assert fit.tidy().term.tolist() == ["age", "sex=Female vs Male", "(intercept)"]
        assert Schema.from_toml(own.to_toml()) == own
        crossed = schema.with_formula(f"ill ~ age + sex + C(sex, {text}):age")
        assert crossed.feature_names[-1] == "sex=Female:age"
        read = crossed.read({"age": [30, 40], "sex": ["Female", "Male"]})
        assert read[:, -1].tolist() == [30, 0] and isinstance(crossed.encoding.blocks[-1], Term)
    assert schema.with_formula("ill ~ age + sex + sex:age").feature_names[-1] == "sex=Male:age"
    for wrong in ("Sum", "Treatment", 'Treatment("x")', 'Treatment("Male", "Female")', "Treatment(age)"):
        with pytest.raises(InvalidInput, match=r"Treatment|one of its levels"):
            schema.with_formula(f"ill ~ C(sex, {wrong})")
    with pytest.raises(InvalidInput, match="levels that a column declares"):
        schema.with_formula('ill ~ C(cut(age, breaks=[40]), Treatment("x"))')


def test_models_without_ratios_refuse_and_those_without_intervals_have_them() -> None:
    X, y = TABLE[["age"]][:3000], CASES[:3000]
    linear = PrivateRidge(bounds=(20, 80), target_bounds=(0, 2), random_state=0).fit(X, y)
    svc = PrivateLinearSVC(bounds=(20, 80), classes=[False, True], random_state=0).fit(X, y)
    three = PrivateLogisticRegression(bounds=(20, 80), classes=[0, 1, 2], random_state=0).fit(X, y)
    for model in (linear, svc):
        with pytest.raises(InvalidInput, match="ratios are for"):
            model.summary(exp=True)
    counts = PrivatePoissonRegressor(
        bounds=(20, 80), target_bounds=(0, 5), inference=False, random_state=0
    ).fit(X, y)
    found = counts.summary(exp=True)
    assert found.headings[1] == "rate ratio" and found.rows[0].coefficient == np.exp(counts.coef_[0])
    assert np.isnan(found.tidy()["std.error"]).all()
    assert three.tidy().term.tolist() == [f"{k}: {name}" for k in (1, 2) for name in ("age", "(intercept)")]


def test_frames_are_of_polars_where_there_is_no_pandas(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "find_spec", lambda name: None if name == "pandas" else True)
    assert isinstance(model.tidy(), pl.DataFrame) and model.glance()["nobs"][0] == N
    monkeypatch.setattr(summary, "find_spec", lambda name: None)
    assert model.tidy()["term"][0] == "age"


def test_the_page_has_ratios_against_references(model: Any) -> None:
    page = report(model)
    assert "Odds ratios with their 95 % intervals" in page and '<th class="number">odds ratio</th>' in page
    assert 'data-name="sex=Female vs Male"' in page and 'data-name="sex=Male"' not in page
    ratio = float(model.tidy(exp=True).estimate[1])
    assert f'data-label="odds ratio" data-value="{ratio:.10f}'[:44] in page
    linear = PrivateLinearRegression(bounds=(20, 80), target_bounds=(0, 2), **EXACT)
    assert "odds ratio" not in report(linear.fit(TABLE[["age"]], CASES))


LINEAR_ODDS = "linear probability model: declare it boolean for odds"


def test_a_number_from_0_to_1_is_said_to_be_a_linear_model() -> None:
    columns = 'target = "died"\n[columns]\nage = [20, 80]\n'
    (said,) = review(columns + "died = [0, 1]\n").warnings
    assert said.startswith("The target died is declared as a number from 0 to 1") and LINEAR_ODDS in said
    assert (
        not review(columns + "died = [0, 2]\n").warnings and not review(columns + 'died = "boolean"').warnings
    )
    table = TABLE[["age"]].assign(died=CASES.astype(int))
    for cls in (PrivateLinearRegression, PrivateRidge):
        model = cls(schema=Schema.from_toml(columns + "died = [0, 1]"), random_state=0).fit(table)
        assert LINEAR_ODDS in " ".join(model.summary().notes) and LINEAR_ODDS in report(model)
    model = PrivateLinearRegression(schema=Schema.from_toml(columns + "died = [0, 2]")).fit(table)
    assert LINEAR_ODDS not in " ".join(model.summary().notes) and LINEAR_ODDS not in report(model)


def test_levels_that_are_numbers_come_back_as_numbers(tmp_path: Path) -> None:
    """By what is declared: the type of y may have been inferred from all rows."""
    schema = Schema([Numeric("age", 20, 80), Categorical("died", ["0", "1"])], target="died")
    X, y = TABLE[["age"]], CASES.astype(int)
    for passed in ((X, y), (X.assign(died=pd.array(y, "Int64")), None), (X.assign(died=y.astype(str)), None)):
        model = PrivateLogisticRegression(schema=schema, **EXACT).fit(*passed)
        assert model.classes_.tolist() == [0, 1] and model.predict(X).dtype.kind == "i" and model.event_ == 1
    assert model.score(X, y) > 0.6
    model.save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").predict(X).dtype.kind == "i"
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    content["target"] = {"kind": "classes", "classes": ["0", "1"]}  # as version 0.2 wrote it
    assert set(Release.from_dict(content).to_estimator().predict(X)) <= {"0", "1"}
    for levels, labels in (
        (["1", "0"], [0, 1]),
        (["-1", "0.5", "2"], [-1, 0.5, 2]),
        (["01", "02"], ["01", "02"]),
        (["1", "yes"], ["1", "yes"]),
        (["false", "true"], ["false", "true"]),
    ):
        assert target_of(Categorical("y", levels)).labels.tolist() == labels
    assert target_of(Categorical("y", ["1", "0"])).event == 0
    merged = Categorical("died", {"no": ["0"], "yes": ["1"]})
    model = PrivateLogisticRegression(schema=Schema([Numeric("age", 20, 80), merged], target="died"), **EXACT)
    assert set(model.fit(X, y).predict(X)) == {"no", "yes"}
