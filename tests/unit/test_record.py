"""The record of a release: what it keeps of every kind of release, what it warns of from public numbers."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from scipy.stats import norm
from tests.catalogue import ADJACENCIES

import curvedp
from curvedp import Budget, PrivateLinearRegression, PrivateLogisticRegression, PrivateRidge, check
from curvedp.analyses.estimators import PrivateMultiTaskRidge, PrivatePoissonRegressor
from curvedp.analyses.search import PrivateSearch
from curvedp.cli.workflow import release_report, release_warnings
from curvedp.data import (
    Boolean,
    Categorical,
    ClassTarget,
    CountTarget,
    Date,
    Ignored,
    Numeric,
    NumericTarget,
    Schema,
)
from curvedp.data.files import BY_KIND, SEEDED, Stated
from curvedp.data.targets import SeveralTargets
from curvedp.errors import InvalidInput, ModelFileError, PrivacyWarning
from curvedp.numbers import rounded_up, shown
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameters, PrivacyCurve, Promise
from curvedp.privacy.profiles import PointProfile, PureProfile, TabledProfile
from curvedp.release.ledger import Ledger
from curvedp.release.ledger.storage import Receipt
from curvedp.release.modelfile import Release
from curvedp.release.record import ReleaseRecord
from curvedp.reports.report import (
    FOLLOWS,
    LOG_ODDS,
    Caution,
    Coefficient,
    DeclaredColumn,
    ideal_share,
    record_warnings,
    unchecked,
)

STATED = Stated("register, 2024", "wage report", "the model: everybody", 4000)
COLUMNS = (
    Numeric("age", 16, 80, source="codebook, p. 1"),
    Categorical("job", ["a", "b"], source="codebook, p. 2"),
    Date("since", "2000-01-01", "2020-12-31", source="law"),
    Boolean("union"),
    Numeric("w", 0, 3, source="codebook, p. 3"),
    Numeric("wage", 0, 100, source="codebook, p. 4"),
)
RANDOM = np.random.default_rng(0)
N = 400
TABLE = {
    "age": RANDOM.uniform(16, 80, N),
    "job": RANDOM.choice(["a", "b"], N),
    "since": [f"20{year:02d}-05-01" for year in RANDOM.integers(0, 20, N)],
    "union": RANDOM.choice(["yes", "no"], N),
    "w": RANDOM.uniform(0, 3, N),
    "wage": RANDOM.uniform(0, 100, N),
    "person": RANDOM.integers(0, 60, N),
    "days": RANDOM.uniform(1, 30, N),
    "count": RANDOM.poisson(3, N),
}


def schema(**changes: object) -> Schema:
    return Schema(**({"columns": COLUMNS, "target": "wage", "release": STATED} | changes))  # type: ignore[arg-type]


def promise(epsilon: float = 1.0, delta: float = 1e-6, **changes: object) -> Guarantee:
    values = {
        "budget": Budget(epsilon, delta),
        "neighbours": Neighbours(),
        "mechanism": "m",
        "accounting": "a",
        "theorem": "t",
        "parameters": Parameters(),
        "profile": PointProfile(epsilon, delta),
    }
    return Guarantee(**(values | changes))  # type: ignore[arg-type]


FILED = ReleaseRecord("2024-01-01T00:00:00+00:00", receipt=Receipt("a", 1, "b", "2024-01-01T00:00:00+00:00"))
SOURCED = DeclaredColumn("age", "feature", 0.0, 1.0, source="codebook", is_feature=True)


def warned(
    guarantee: Guarantee | None = None,
    coefficients: tuple[Coefficient, ...] = (),
    columns: tuple[DeclaredColumn, ...] = (SOURCED,),
    target: object = NumericTarget(0, 10),
    record: ReleaseRecord = FILED,
    rows: int | None = None,
) -> tuple[Caution, ...]:
    record = replace(record, stated=Stated(rows=rows))
    return record_warnings(guarantee or promise(), coefficients, columns, target, record)  # type: ignore[arg-type]


# What a record keeps.


def releases() -> dict[str, object]:
    numbers = np.column_stack([TABLE["age"], TABLE["w"]])
    counts = (Numeric("age", 16, 80), Numeric("days", 1, 31), Numeric("count", 0, 20))
    return {
        "regression": lambda **k: PrivateRidge(schema=schema(), **k).fit(TABLE),
        "classes": lambda **k: PrivateLogisticRegression(
            schema=Schema((COLUMNS[0], Categorical("job", ["a", "b", "c"])), target="job", release=STATED),
            **k,
        ).fit(TABLE),
        "weights": lambda **k: PrivateRidge(schema=schema(weight="w"), **k).fit(TABLE),
        "persons": lambda **k: PrivateRidge(schema=schema(unit="person"), **k).fit(TABLE),
        "formula": lambda **k: PrivateRidge(
            schema=schema(), formula="log1p(wage) ~ age + I(age**2) + job", **k
        ).fit(TABLE),
        "counts": lambda **k: PrivatePoissonRegressor(
            schema=Schema(counts, target="count", exposure="days", release=STATED), **k
        ).fit(TABLE),
        "intervals": lambda **k: PrivateLinearRegression(schema=schema(), inference=True, **k).fit(TABLE),
        "statistics": lambda **k: PrivateRidge(schema=schema(), mechanism="statistics", **k).fit(TABLE),
        "plain arrays": lambda **k: PrivateRidge(
            bounds=[(16, 80), (0, 3)], target_bounds=(0, 100), weight_max=2.0, **k
        ).fit(numbers, TABLE["wage"], TABLE["w"]),
        "several targets": lambda **k: PrivateMultiTaskRidge(
            bounds=[(16, 80), (0, 3)], target_bounds=[(0, 100), (0, 3)], **k
        ).fit(numbers, np.column_stack([TABLE["wage"], TABLE["w"]])),
    }


@pytest.mark.parametrize("name", releases())
def test_every_kind_of_release_has_a_record_a_file_and_the_same_page_later(name, tmp_path):
    unit = "person" if name == "persons" else None
    book = Ledger.create(tmp_path / "budget.db", epsilon=5, delta=1e-3, unit=unit)
    book = Ledger(tmp_path / "budget.db", by="office", purpose="annual")
    model = releases()[name](ledger=book)
    record, state = model.record_, book.state()
    assert model.receipt_ is record.receipt is not None
    assert (record.receipt.charge, book.verify(record.receipt.head).found) == (1, record.receipt)
    assert record.time == record.receipt.time == book.history()[0].time
    assert set(record.versions) == {"curvedp", "Python", "numpy", "scipy", "scikit-learn"}
    stated = name not in ("plain arrays", "several targets")
    assert record.stated == (STATED if stated else Stated())
    assert record.purpose == ("wage report" if stated else "annual")
    page = release_report(model, state)
    model.save(tmp_path / "model.json")
    again = curvedp.load(tmp_path / "model.json")
    assert again.record_ == record and again.receipt_ == record.receipt
    assert release_report(again, state) == page
    assert record.receipt.head in page and "office" in page
    tuned = " ".join(record.tuned)
    assert ("noisy looks" in tuned) == (name not in ("statistics",))
    assert ("how much of a person" in tuned) == (name == "persons")
    text = (tmp_path / "model.json").read_text()
    assert str(tmp_path) not in text and str(tmp_path) not in page


def test_what_is_declared_beside_a_table_is_in_the_page():
    page = release_report(releases()["plain arrays"]())
    told = page[page.index('id="bounds"') : page.index('id="protected"')]
    for words in (
        "passed beside the table",
        ">target<",
        ">weight<",
        'data-value="2.0"',
        'data-value="100.0"',
    ):
        assert words in told


def test_a_search_and_a_refit_say_so():
    X = RANDOM.uniform(-1, 1, (3000, 2))
    ridge = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1))
    search = PrivateSearch(ridge, {"alpha": [0.1, 10.0]}, epsilon=2.0).fit(X, X[:, 0] / 2)
    assert "Take any one record" in search._repr_html_()
    record = search.best_estimator_.record_
    assert record.tuned[0] == "Within this ε, by a private comparison: one of 2 settings of alpha."
    model = ridge.set_params(epsilon=5.0).fit(X, X[:, 0] / 2)
    refitted = model.refit(alpha=2.0, columns=["x0"], trust=1e9)
    assert model.record_.derived == ()
    assert refitted.record_.derived == (
        "Refitted from this release at no further cost, with alpha = 2 and the columns x0 alone.",
    )
    assert refitted.record_.time == model.record_.time
    assert "Refitted from this release" in release_report(refitted)


def test_bought_bounds_are_what_was_tuned_on_top():
    bought = "bought: ε = 0.1, 2024-12-31, charge bounds 1a"
    columns = (Numeric("age", 16, 80, source=bought), COLUMNS[-1])
    model = PrivateRidge(schema=Schema(columns, target="wage")).fit(TABLE)
    assert f"On top of this ε: the bounds of age ({bought})." in model.record_.tuned


@pytest.mark.parametrize(
    "change",
    [
        {"time": 3},
        {"time": "x" * 2000},
        {"versions": []},
        {"versions": {"numpy": 2}},
        {"tuned": "words"},
        {"tuned": [3]},
        {"derived": None},
        {"receipt": {}},
        {"receipt": {**vars(FILED.receipt), "charge": True}},
        {"receipt": {**vars(FILED.receipt), "more": ""}},
        {"more": 1},
    ],
    ids=str,
)
def test_records_that_nobody_wrote_are_refused(change):
    content = Release.of(PrivateRidge(schema=schema()).fit(TABLE)).to_dict()
    assert Release.from_dict(content).record.stated == STATED
    content["record"] = {**content["record"], **change}
    with pytest.raises(ModelFileError):
        Release.from_dict(content)


@pytest.mark.parametrize("curve", [[[0.0]], [["a", 1]], [[-1.0, 0.5]], [[0.0, 2.0]], [0.5], [[True, 0.1]]])
def test_curves_that_no_guarantee_has_are_refused(curve):
    content = Release.of(PrivateRidge(schema=schema()).fit(TABLE)).to_dict()
    content["guarantee"]["curve"] = curve
    with pytest.raises(ModelFileError, match="curve"):
        Release.from_dict(content)


@pytest.mark.parametrize(
    "release",
    [
        {"table": 3},
        {"purpose": "a\nb"},
        {"audience": "x" * 301},
        {"rows": 0},
        {"rows": 2.5},
        {"rows": True},
        {"who": "me"},
        3,
    ],
)
def test_a_release_section_is_short_lines(release):
    with pytest.raises(InvalidInput, match="release"):
        Schema.from_dict({**schema().to_dict(), "release": release})
    assert Schema.from_toml(schema().to_toml()) == schema()
    assert "release" not in schema(release=Stated()).to_toml()


# The curve in a file.


def test_points_of_a_curve_bound_it_everywhere():
    """The Gaussian curve at μ = 1 lies on its points and below what they imply between them."""

    def exact(epsilon: float) -> float:
        return float(norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon))

    points = tuple((e, exact(e)) for e in np.linspace(0, 3, 7).tolist())
    table = TabledProfile(points)
    assert all(table.delta_at(e) == d for e, d in points)
    for epsilon in np.linspace(0, 4, 41).tolist():
        assert table.delta_at(epsilon) >= exact(epsilon) - 1e-12
        assert table.delta_at(epsilon) <= PointProfile(*points[0]).delta_at(epsilon) + 1e-12


# Words of the promise.


def test_the_notebook_shows_the_promise_and_folds_the_parameters():
    model = PrivateRidge(schema=schema()).fit(TABLE)
    html = model._repr_html_()
    assert Promise(model.privacy_).conclusion.replace("'", "&#x27;") in html and "cases of 100" in html
    shown_part = html[html.rindex("<div><p><strong>") :].partition("<details>")[0]
    assert "(ε, δ) = (1, 10⁻⁶)" in shown_part and "one record replaced" in shown_part
    assert "mu_" not in html and "histogram" not in shown_part


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("unit", [None, "pid"])
def test_words_follow_who_is_protected(adjacency, unit):
    words = Promise(promise(neighbours=Neighbours(adjacency, unit)))
    who = "record" if unit is None else "person"
    assert f"Take any one {who}" in words.conclusion and f"detect the {who}" in words.test
    assert ("is the same, and public" in words.neighbours) == (adjacency == "replace")
    assert ("'pid'" in words.neighbours) == (unit is not None)
    other = f"any other {who}" if adjacency == "replace" else "left out"
    assert other in words.conclusion


@pytest.mark.parametrize(
    ("epsilon", "delta", "has", "not_has"),
    [
        (0.5, 1e-6, ["nearly the same", "e^ε = 1.65,"], ["very little", "once in"]),
        (1.0, 0.0, ["nearly the same", "without exception"], ["failure"]),
        (5.0, 1e-6, ["at most e^ε = 149 times"], ["nearly the same", "very little"]),
        (0.5, 0.01, ["e^ε = 1.65 times", "once in 100 releases"], ["nearly the same"]),
        (50.0, 0.1, ["very little", "e^ε = 5.19 × 10²¹", "once in 10 releases"], ["nearly the same"]),
        (12.0, 1e-6, ["very little", "e^ε = 163,000"], ["nearly the same", "once in"]),
        (2000.0, 0.9, ["more than 10³⁰⁰", "more often than not"], ["nearly the same"]),
    ],
)
def test_words_say_no_more_than_the_numbers(epsilon, delta, has, not_has):
    profile = PureProfile(epsilon) if delta == 0 else PointProfile(epsilon, delta)
    words = Promise(promise(epsilon, delta, profile=profile))
    assert words.is_weak == (epsilon > 10 or delta >= 1e-3)
    for text in has:
        assert text in words.conclusion, words.conclusion
    for text in not_has:
        assert text not in words.conclusion
    assert 5.0 <= words.detected <= 100.0


def test_bounds_are_rounded_up_never_down():
    for value in np.exp(np.random.default_rng(1).uniform(-3, 60, 300)).tolist():
        assert value <= rounded_up(value) * (1 + 1e-15) <= 1.011 * value
    assert shown(0.1, 15) == "0.1" and shown(1.23456789e-6, 15) == "1.23456789 × 10⁻⁶" and shown(0.0) == "0"


def test_the_curve_of_a_point_ends_where_it_is_flat():
    curve = PrivacyCurve.of(promise())
    assert curve.epsilons[-1] == pytest.approx(1.0) and curve.deltas[-1] == 1e-6
    assert PrivacyCurve.of(promise(50.0, 0.1)).deltas[0] == 1.0


# Warnings.


def test_a_sound_release_has_none():
    assert warned(rows=5000, coefficients=(Coefficient("age", 10.0, 1.0),)) == ()


def test_what_is_red_is_red_and_comes_first():
    found = warned(promise(50.0, 0.1), columns=(DeclaredColumn("x", "feature", 0.0, 1.0),))
    assert [caution.level for caution in found] == ["red", "red", "amber"]
    assert "5.19 × 10²¹" in found[0].text and "100.0 cases" in found[0].text
    assert warned(promise(10.0)) == () and warned(promise(10.1))[0].level == "red"
    (seeded,) = warned(promise(private=False))
    assert seeded.level == "red" and "Not a private release" in seeded.text


@pytest.mark.parametrize(
    ("delta", "rows", "words"),
    [
        (1e-6, None, None),
        (1e-6, 1_000_000, None),
        (1.01e-6, 1_000_000, "1/1,000,000"),
        (1e-4, 20_000, "1/20,000"),
        (9e-4, None, None),
        (1e-3, None, "is large"),
        (1e-3, 500, "is large"),
        (1e-2, 500, "1/500"),
    ],
)
def test_a_delta_is_compared_with_declared_rows(delta, rows, words):
    found = [c for c in warned(promise(1.0, delta), rows=rows) if "δ" in c.text]
    assert [c.level for c in found] == ([] if words is None else ["red"])
    assert words is None or words in found[0].text


@pytest.mark.parametrize(
    ("target", "limit"),
    [
        (NumericTarget(0, 10), 10.0),
        (ClassTarget(["a", "b"]), LOG_ODDS),
        (CountTarget(20), math.log(20)),
        (SeveralTargets((NumericTarget(0, 3), NumericTarget(0, 8))), 3.0),
    ],
    ids=["number", "classes", "counts", "several"],
)
def test_an_effect_is_compared_with_what_the_target_can_do(target, limit):
    for width in (1.0, 50.0):
        inside = (Coefficient("age", -0.999 * limit / width, width), Coefficient("(intercept)", 1e9))
        assert warned(coefficients=inside, target=target) == ()
        beyond = (Coefficient("age", -1.001 * limit / width, width),)
        (found,) = warned(coefficients=beyond, target=target)
        assert found.level == "amber" and "coefficients of age" in found.text


def test_a_quarter_of_intervals_without_an_answer_is_said():
    told, hidden = (0.0, 1.0), (math.nan, math.nan)
    for unresolved, words in ((0, ()), (1, ()), (2, ("2 of 8 coefficients are not resolved",))):
        intervals = [hidden] * unresolved + [told] * (8 - unresolved)
        found = warned(coefficients=tuple(Coefficient("age", 0.1, 1.0, interval=i) for i in intervals))
        assert len(found) == len(words) and all(w in c.text for w, c in zip(words, found, strict=True))
    assert warned(coefficients=(Coefficient("age", 0.1, 1.0),) * 8) == ()  # none was asked for


def test_the_limit_of_classes_is_from_one_in_a_thousand_to_the_rest():
    assert 1 / (1 + math.exp(LOG_ODDS / 2)) == pytest.approx(0.001)


def test_each_of_several_targets_has_its_own_range():
    target = SeveralTargets((NumericTarget(0, 3), NumericTarget(0, 8)))
    ones = [Coefficient("age", 5.0, 1.0, str(place + 1), place=place) for place in (0, 1)]
    (found,) = warned(coefficients=tuple(ones), target=target)
    assert "age · 1" in found.text and "age · 2" not in found.text


def test_sources_are_asked_for():
    silent = tuple(DeclaredColumn(f"c{i}", "feature", 0.0, 1.0) for i in range(9))
    (found,) = warned(columns=silent)
    assert found.level == "amber" and "c0, c1, c2, c3, c4, c5 and 3 more" in found.text
    assert warned(columns=(DeclaredColumn("u", "feature", 0.0, 1.0, source=BY_KIND),)) == ()
    assert warned(columns=(DeclaredColumn("d", "feature", 0.0, 1.0, source=FOLLOWS),)) == ()
    (found,) = warned(columns=(DeclaredColumn("a", "feature", 0.0, 1.0, source="bought: ε = 1, 2024-12-31"),))
    assert found.level == "amber" and "come on top" in found.text
    (found,) = warned(columns=(DeclaredColumn("a", "feature", 0.0, 1.0, source=SEEDED),))
    assert found.level == "red" and "seeded" in found.text


def levels(count: int) -> DeclaredColumn:
    texts = tuple(f"L{i}" for i in range(count))
    return DeclaredColumn("town", "feature", levels=texts, source="census", is_feature=True)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_noise_of_levels_is_that_of_an_ideal_mechanism(adjacency):
    """The least noise that (ε, δ) allows a sum, over rows/levels records: by the classical curve itself."""
    g = promise(neighbours=Neighbours(adjacency))
    share = ideal_share(100, 20_000, g)
    deviation = share / 2 * (20_000 / 100) * 2  # of a sum of targets in [−1, 1], whose range is 2
    mu = (2 if adjacency == "replace" else 1) / deviation
    delta = norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)
    assert delta == pytest.approx(1e-6, rel=1e-3)
    pure = promise(2.0, 0.0, profile=PureProfile(2.0), neighbours=Neighbours(adjacency))
    scale = (2 if adjacency == "replace" else 1) / 2.0
    assert ideal_share(10, 1000, pure) == pytest.approx(math.sqrt(2) * scale * 10 / 1000)


def test_too_many_levels_are_warned_of():
    rows = 2000
    count = next(k for k in range(2, 2000) if ideal_share(k, rows, promise()) >= 0.25)
    assert 20 < count < 200
    assert warned(columns=(levels(count - 1),), rows=rows) == ()
    (found,) = warned(columns=(levels(count),), rows=rows)
    assert found.level == "amber" and f"{count} levels" in found.text and "25 %" in found.text
    assert warned(columns=(levels(99),)) == ()
    (found,) = warned(columns=(levels(100),))
    assert "Declare the number of records" in found.text
    unused = DeclaredColumn("town", "not used", levels=levels(500).levels, source="census")
    assert warned(columns=(unused,), rows=rows) == ()


def test_released_deviations_go_before_the_formula():
    column, target = levels(3), NumericTarget(0, 10)
    for noise, count in ((1.24, 0), (1.26, 1)):  # two deviations of 1.25 are a quarter of the range
        own = tuple(Coefficient(f"town=L{i}", 0.0, 1.0, noise=noise) for i in range(3))
        found = warned(coefficients=own, columns=(column,), target=target, rows=3)
        assert len(found) == count
        assert all("as the released numbers tell" in caution.text for caution in found)


def test_no_ledger_is_said():
    (found,) = warned(record=ReleaseRecord("2024-01-01T00:00:00+00:00"))
    assert "No ledger was charged" in found.text


def test_warnings_of_a_model_are_those_of_its_file(tmp_path):
    model = PrivateRidge(schema=schema(), epsilon=50.0, delta=0.1).fit(TABLE)
    found = release_warnings(model)
    assert [c.level for c in found][:2] == ["red", "red"] and "1/4,000" in found[1].text
    model.save(tmp_path / "m.json")
    assert release_warnings(curvedp.load(tmp_path / "m.json")) == found


def test_reports_list_what_is_ignored_and_ask_about_an_identifier():
    columns = (*COLUMNS, Ignored("patient_id"), Ignored("note"))
    table = {**TABLE, "patient_id": [f"P{i % 60}" for i in range(N)]}
    for unit in (None, "patient_id"):
        made = Schema(columns, target="wage", unit=unit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            model = PrivateRidge(schema=made).fit(table)
        page = unescape(release_report(model))
        assert "Ignored, and so no feature: patient_id, note" in page
        assert ("; patient_id says whose row it is." in page) == (unit is not None)
        asked = [
            c for c in release_warnings(model) if c.text.startswith("No unit is named, and 'patient_id'")
        ]
        assert [(c.level, c.printed) for c in asked] == ([("amber", True)] if unit is None else [])
        assert ('write unit = "patient_id"' in page) == (unit is None)
    assert "Ignored, and so" not in release_report(PrivateRidge(schema=schema()).fit(TABLE))


def test_a_ledger_without_a_check_is_said(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    model = PrivateRidge(schema=schema(), ledger=ledger).fit(TABLE)
    (found,) = unchecked(ledger.history())
    assert found.level == "amber" and found.text in curvedp.report(model, ledger=ledger)
    check(schema(), TABLE, epsilon=0.5, ledger=ledger)
    assert unchecked(ledger.history()) == [] and found.text not in curvedp.report(model, ledger=ledger)
