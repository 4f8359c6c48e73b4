"""The front: few names, each documented so that help() teaches a stranger to use it."""

from __future__ import annotations

import ast
import doctest
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from numpydoc.validate import validate

import curvedp
from curvedp import catalogue

# Rules of numpydoc that are about taste (capital letters, full stops, summaries on one line) stay out.
CHECKED = {"GL08", "PR01", "PR02", "PR04", "PR10", "RT03", "SS01", "SS03", "YD01", "EX01"}
USED_BY_USERS = [
    *(f"curvedp.estimators.{entry.class_name}" for entry in catalogue.ESTIMATORS.values()),
    "curvedp.estimators.PrivateLasso.fit",
    "curvedp.estimators.PrivateLasso.predict",
    "curvedp.estimators.PrivateLogisticRegression.predict_proba",
    "curvedp.budget.Budget",
    "curvedp.domain.Domain",
    "curvedp.problem.Problem",
    "curvedp.schema.Schema",
    "curvedp.schema.statements.Stated",
    "curvedp.record.ReleaseRecord",
    "curvedp.schema.schema_template",
    "curvedp.schema.review.review",
    "curvedp.predictions.Wanted",
    "curvedp.ledger.Ledger",
    "curvedp.ledger.Ledger.charge",
    "curvedp.ledger.Ledger.verify",
    "curvedp.filing.registry.deployment",
    "curvedp.filing.registry.deployment_yaml",
    "curvedp.filing.nist.evaluation",
    "curvedp.filing.nist.nist_page",
    "curvedp.modelfile.json_schema.model_schema",
    "curvedp.fit.private_fit",
    "curvedp.release.execute",
    "curvedp.plans.compose",
    "curvedp.inspection.inspect",
    "curvedp.estimators.base.load",
    "curvedp.private_statistics.PrivateStatistics",
    "curvedp.private_statistics.PrivateStatistics.release",
    "curvedp.privacy.guarantee.Guarantee",
    "curvedp.selection.PrivateSearch",
    "curvedp.selection.PrivateSearch.fit",
    "curvedp.estimators.PrivateRidge.refit",
    "curvedp.estimators.PrivateRidge.path",
    "curvedp.estimators.PrivateLinearRegression.conf_int",
    "curvedp.estimators.PrivateLinearRegression.predict_interval",
    "curvedp.estimators.PrivateLinearRegression.summary",
    "curvedp.estimators.PrivateLinearRegression.contrast",
    "curvedp.estimators.summary.Summary.as_text",
    "curvedp.estimators.summary.Summary.as_frame",
    "curvedp.looks.describe.describe",
    "curvedp.looks.description.Description",
    "curvedp.looks.bounds.private_bounds",
    "curvedp.looks.bounds.PrivateBounds",
    "curvedp.looks.quantiles.private_quantiles",
    "curvedp.looks.check.check",
    "curvedp.looks.check.plan",
    "curvedp.looks.check.TableCheck",
    "curvedp.scores.private_scores",
    "curvedp.scores.private_scorer",
    "curvedp.scores.PrivateScores",
    "curvedp.scores.Score",
    "curvedp.auditing.audit",
    "curvedp.workflow.report",
]
EXAMPLES = [name for name in USED_BY_USERS if name.count(".") == 2 and "compose" not in name]


def found(path: str) -> Any:
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise LookupError(path)


VERBS = ("plan", "check", "bounds", "describe", "score", "audit", "report")


def test_the_verbs_of_the_command_line_are_functions_at_the_top() -> None:
    from curvedp.cli import app

    commands = {command.name for command in app.registered_commands}
    for name in VERBS:
        assert name in commands and inspect.isfunction(getattr(curvedp, name)), name
    import_module("curvedp.auditing.exam")  # no package has the name of a function
    assert inspect.isfunction(curvedp.audit)


def test_every_estimator_and_kind_of_column_is_at_the_top_and_all_names_resolve() -> None:
    from curvedp import schema

    for entry in catalogue.ESTIMATORS.values():
        assert getattr(curvedp, entry.class_name) is entry.load()
    for name in ("Numeric", "Categorical", "Boolean", "Date", "Ignored", "Schema"):
        assert getattr(curvedp, name) is getattr(schema, name)
    assert set(curvedp.__all__) <= set(dir(curvedp))
    stub = Path(curvedp.__file__).with_suffix(".pyi").read_text("utf-8")
    listed = ast.literal_eval(stub[stub.index("__all__ = ") + len("__all__ = ") :])
    assert listed == curvedp.__all__
    for name in curvedp.__all__:
        assert getattr(curvedp, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = curvedp.nothing_like_it


def test_help_of_the_package_is_a_tour_of_its_names() -> None:
    text = inspect.getdoc(curvedp) or ""
    assert [name for name in curvedp.__all__ if name not in text] == []


@pytest.mark.parametrize("path", USED_BY_USERS)
def test_the_docstring_has_every_parameter(path: str) -> None:
    wanted = CHECKED - {"EX01"} if path not in EXAMPLES else CHECKED
    errors = [(code, text) for code, text in validate(path)["errors"] if code in wanted]
    assert not errors


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_examples_of_the_docstring_run(path: str) -> None:
    value = found(path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    tests = [test for test in finder.find(value, path, globs={}) if test.examples]
    assert tests, "no example"
    for test in tests:
        assert runner.run(test).failed == 0


@pytest.mark.parametrize("entry", catalogue.ESTIMATORS.values(), ids=lambda entry: entry.name)
def test_help_of_an_estimator_explains_every_parameter(entry: catalogue.EstimatorEntry) -> None:
    model = entry.load()
    text = inspect.getdoc(model) or ""
    for name in inspect.signature(model).parameters:
        assert f"{name} : " in text
    assert "privacy_ : Guarantee" in text


MODULES = (
    *(
        "fit",
        "release",
        "plans",
        "budget",
        "domain",
        "problem",
        "catalogue",
        "inspection",
        "private_statistics",
    ),
    *("ledger", "schema/schema", "schema/targets", "estimators", "mechanisms"),
)


def files_of(module: str) -> list[Path]:
    path = Path(curvedp.__file__).parent / module
    return [*path.rglob("*.py")] if path.is_dir() else [path.with_suffix(".py")]


def test_signatures_say_what_they_take() -> None:
    """Fewer than 40 `Any` on the public surface and in mechanisms; tables and columns have names."""
    files = [file for module in MODULES for file in files_of(module)]
    annotations = [
        annotation
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        for annotation in [*(a.annotation for a in (*node.args.args, *node.args.kwonlyargs)), node.returns]
        if annotation is not None
    ]
    names = [n for a in annotations for n in ast.walk(a) if isinstance(n, ast.Name)]
    assert len(annotations) > 300
    assert sum(name.id == "Any" for name in names) < 40


def test_the_package_runs_as_a_module() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "curvedp", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == f"curvedp {curvedp.__version__}"
