"""The JSON Schema of model files: it accepts what `save` writes, and asks for all that the reader does."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from tests.releases import RECEIPT, document

from curvedp import Ledger, PrivateLinearRegression, PrivateLogisticRegression, PrivateRidge, Schema
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.data import Boolean, Categorical, Date, FileFormat, Ignored, Numeric
from curvedp.data.files import Stated
from curvedp.errors import ModelFileError
from curvedp.release import catalogue
from curvedp.release.json_schema import model_schema
from curvedp.release.modelfile import Release

SCHEMA = model_schema()
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.uniform(-1, 1, (400, 2)), RANDOM.uniform(-1, 1, 400)
PEOPLE = {
    "age": RANDOM.integers(18, 90, 400).tolist(),
    "sex": RANDOM.choice(["f", "m"], 400).tolist(),
    "since": [f"20{year:02d}-03-01" for year in RANDOM.integers(10, 24, 400)],
    "union": RANDOM.choice(["yes", "no"], 400).tolist(),
    "id": [f"p{k % 150}" for k in range(400)],
    "w": RANDOM.uniform(0, 3, 400).tolist(),
    "days": RANDOM.uniform(1, 30, 400).tolist(),
    "wage": RANDOM.uniform(0, 50, 400).tolist(),
    "visits": RANDOM.integers(0, 5, 400).tolist(),
}
AGE, SEX = Numeric("age", 16, 100, source="codebook", missing="indicator"), Categorical("sex", ["f", "m"])
WAGE, VISITS = Numeric("wage", 0, 50, decimal=".", missing_codes=[-9]), Numeric("visits", 0, 20)


def of_estimator(name: str) -> Any:
    entry = catalogue.ESTIMATORS[name]
    if entry.task == "several":
        return entry.load()(bounds=(-1, 1), target_bounds=[(-1, 1), (-2, 2)], random_state=1).fit(
            X, np.column_stack([Y, -Y])
        )
    if entry.task == "regression":
        low = 0 if name == "poisson" else -1
        return entry.load()(bounds=(-1, 1), target_bounds=(low, 1), random_state=1).fit(X, Y)
    return entry.load()(bounds=(-1, 1), classes=["no", "yes"], random_state=1).fit(
        X, np.where(Y > 0, "yes", "no")
    )


def multinomial() -> Any:
    labels = np.digitize(Y, [-0.3, 0.3])
    return PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1, 2], random_state=1).fit(X, labels)


def kinds() -> Any:
    columns = [
        AGE,
        Categorical("sex", ["f", "m"], missing="level", source="codebook"),
        Date("since", "2010-01-01", "2024-12-31", parts=["days", "month"], missing="indicator"),
        Boolean("union", words=("no", "yes")),
        Ignored("id"),
        WAGE,
    ]
    schema = Schema(
        columns,
        target="wage",
        adjacency="add_remove",
        file=FileFormat("latin-1", ";", ","),
        release=Stated("a register", "a report", "everybody", 400),
    )
    return PrivateRidge(schema=schema, random_state=1).fit(PEOPLE)


def truths() -> Any:
    schema = Schema([AGE, Boolean("union")], target="union")
    return PrivateLogisticRegression(schema=schema, random_state=1).fit(PEOPLE)


def persons() -> Any:
    schema = Schema([AGE, SEX, Ignored("id"), WAGE], target="wage", unit="id")
    return PrivateRidge(schema=schema, random_state=1).fit(PEOPLE)


def weights() -> Any:
    schema = Schema([AGE, SEX, Numeric("w", 0, 3), WAGE], target="wage", weight="w")
    return PrivateRidge(schema=schema, random_state=1).fit(PEOPLE)


def exposures() -> Any:
    columns = [AGE, Numeric("days", 1, 30), VISITS]
    schema = Schema(columns, target="visits", exposure="days")
    return PrivatePoissonRegressor(schema=schema, max_rate=2.0, random_state=1).fit(PEOPLE)


def formula() -> Any:
    schema = Schema([AGE, SEX, WAGE]).with_formula("log1p(wage) ~ age + I(age**2) + C(sex):age")
    return PrivateRidge(schema=schema, random_state=1).fit(PEOPLE)


def inference() -> Any:
    return PrivateLinearRegression(
        bounds=(-1, 1), target_bounds=(-1, 1), inference=True, epsilon=10.0, random_state=1
    ).fit(X, X[:, 0])


def statistics() -> Any:
    return PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism="statistics", random_state=1).fit(
        X, Y
    )


def charged() -> Release:
    return document(stated=Stated("a register", "a report", "everybody", 400), receipt=RECEIPT)


KINDS: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        *(multinomial, kinds, truths, persons, weights, exposures, formula, inference, statistics),
        charged,
    )
}


@cache
def text_of(name: str) -> str:
    made = KINDS[name]() if name in KINDS else of_estimator(name)
    return (made if isinstance(made, Release) else Release.of(made)).to_json()


def content_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(text_of(name))
    return content


def is_valid(content: Any) -> bool:
    return bool(VALIDATOR.is_valid(content))


def is_read(content: Any) -> bool:
    try:
        Release.from_dict(content)
    except ModelFileError:
        return False
    return True


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", [*catalogue.ESTIMATORS, *KINDS])
def test_every_file_that_is_written_is_valid(name: str) -> None:
    VALIDATOR.validate(content_of(name))
    assert is_read(content_of(name))


def test_a_file_with_a_receipt_and_a_refit_is_valid(tmp_path: Any) -> None:
    Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    book = Ledger(tmp_path / "budget.db", by="Ada", purpose="a report")
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), ledger=book).fit(X, Y)
    for made in (model, model.refit(alpha=5.0)):
        path = tmp_path / "model.json"
        Release.of(made).save(path)
        content = json.loads(path.read_text("utf-8"))
        VALIDATOR.validate(content)
        assert content["record"]["receipt"]["by"] == "Ada"
    assert content["record"]["derived"]


RICH = ("charged", "kinds", "inference", "formula", "exposures", "multitask")


def objects(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every object in a document, the first of every list."""
    if isinstance(content, dict):
        yield path
        for key, value in content.items():
            yield from objects(value, (*path, key))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from objects(value, (*path, place))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        content = content[step]
    return content


# What is required by the sense of a file, not by its form: no schema can say so.
BY_SENSE = {
    ("schema", "target"),  # the target contradicts the columns without it
    ("schema", "terms"),
    ("schema", "derived"),
    ("schema", "weight"),
    ("schema", "exposure"),
}


ALWAYS_WRITTEN = {("schema", "record"), ("schema", "adjacency")}  # where a person writes a schema, defaults


@pytest.mark.parametrize("name", RICH)
def test_what_the_reader_requires_is_required_and_nothing_more(name: str) -> None:
    content = content_of(name)
    required = 0
    for path in objects(content):
        for key in at(content, path):
            mutated = copy.deepcopy(content)
            del at(mutated, path)[key]
            where = (*(step for step in path if isinstance(step, str)), key)
            if not is_read(mutated) and where not in BY_SENSE and _is_form(path, key):
                assert not is_valid(mutated), f"the reader requires {where}"
            if not is_valid(mutated) and where not in ALWAYS_WRITTEN:
                required += 1
                assert not is_read(mutated), f"the reader does not require {where}"
    assert required > 30


def _is_form(path: tuple[Any, ...], key: str) -> bool:
    """Whether a key is asked for by the form of a file: what an encoded column depends on is not."""
    return not (path[:2] == ("schema", "column") and key not in ("name", "kind", "bounds", "levels"))


@pytest.mark.parametrize("name", RICH)
def test_an_unknown_key_is_refused_wherever_it_is(name: str) -> None:
    content = content_of(name)
    for path in objects(content):
        mutated = copy.deepcopy(content)
        at(mutated, path)["surprise"] = 1
        assert not is_valid(mutated) and not is_read(mutated), path


@pytest.mark.parametrize("name", RICH)
def test_a_value_of_the_wrong_kind_is_refused(name: str) -> None:
    content, tried = content_of(name), 0
    for path in objects(content):
        for key, value in at(content, path).items():
            for other in ({"a": 1}, True if not isinstance(value, bool) else "true"):
                mutated = copy.deepcopy(content)
                at(mutated, path)[key] = other
                assert not is_valid(mutated), (*path, key)
                tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "other"),
        ("format_version", 3),
        ("format_version", "2"),
        ("estimator", "PrivateOracle"),
        ("coefficients", [1.0]),
        ("coefficients", [["1"]]),
        ("intercept", 1.0),
        ("named", 1),
        ("target", {"kind": "numeric", "low": 0}),
        ("target", {"kind": "else"}),
        ("noise", {"deviations": None, "reason": "nobody knows"}),
        ("noise", {"deviations": [[-1.0, 1.0]], "reason": ""}),
    ],
)
def test_mutated_files_are_refused(key: str, value: Any) -> None:
    mutated = content_of("ridge") | {key: value}
    assert not is_valid(mutated) and not is_read(mutated)


def test_every_parameter_of_every_estimator_is_described() -> None:
    known = SCHEMA["properties"]["settings"]["properties"]
    for entry in catalogue.ESTIMATORS.values():
        names = set(entry.load()._get_param_names()) - {"epsilon", "delta", "ledger", "random_state"}
        assert names <= set(known), entry.name
    assert all(part["description"] for part in known.values())
