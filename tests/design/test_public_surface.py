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
from curvedp.release import catalogue

# Rules of numpydoc that are about taste (capital letters, full stops, summaries on one line) stay out.
CHECKED = {"GL08", "PR01", "PR02", "PR04", "PR10", "RT03", "SS01", "SS03", "YD01", "EX01"}
USED_BY_USERS = [
    *(f"curvedp.analyses.estimators.{entry.class_name}" for entry in catalogue.ESTIMATORS.values()),
    "curvedp.analyses.estimators.PrivateLasso.fit",
    "curvedp.analyses.estimators.PrivateLasso.predict",
    "curvedp.analyses.estimators.PrivateLogisticRegression.predict_proba",
    "curvedp.privacy.budget.Budget",
    "curvedp.problems.domain.Domain",
    "curvedp.problems.Problem",
    "curvedp.data.Schema",
    "curvedp.data.files.Stated",
    "curvedp.release.record.ReleaseRecord",
    "curvedp.data.schema_template",
    "curvedp.data.templates.review",
    "curvedp.analyses.predictions.Wanted",
    "curvedp.release.ledger.Ledger",
    "curvedp.release.ledger.Ledger.charge",
    "curvedp.release.ledger.Ledger.verify",
    "curvedp.reports.filings.deployment",
    "curvedp.reports.filings.deployment_yaml",
    "curvedp.reports.filings.evaluation",
    "curvedp.reports.filings.nist_page",
    "curvedp.release.json_schema.model_schema",
    "curvedp.release.fit.private_fit",
    "curvedp.release.door.execute",
    "curvedp.plans.compose",
    "curvedp.analyses.inspection.inspect",
    "curvedp.analyses.estimators.base.load",
    "curvedp.release.fit.PrivateStatistics",
    "curvedp.release.fit.PrivateStatistics.release",
    "curvedp.privacy.guarantee.Guarantee",
    "curvedp.analyses.search.PrivateSearch",
    "curvedp.analyses.search.PrivateSearch.fit",
    "curvedp.analyses.estimators.PrivateRidge.refit",
    "curvedp.analyses.estimators.PrivateRidge.path",
    "curvedp.analyses.estimators.PrivateLinearRegression.conf_int",
    "curvedp.analyses.estimators.PrivateLinearRegression.predict_interval",
    "curvedp.analyses.estimators.PrivateLinearRegression.summary",
    "curvedp.analyses.estimators.PrivateLinearRegression.contrast",
    "curvedp.analyses.estimators.summary.Summary.as_text",
    "curvedp.analyses.estimators.summary.Summary.as_frame",
    "curvedp.analyses.explore.describe.describe",
    "curvedp.analyses.explore.description.Description",
    "curvedp.analyses.explore.GroupedDescription",
    "curvedp.analyses.explore.bounds.private_bounds",
    "curvedp.analyses.explore.bounds.PrivateBounds",
    "curvedp.analyses.explore.quantiles.private_quantiles",
    "curvedp.analyses.explore.check.check",
    "curvedp.analyses.explore.check.plan",
    "curvedp.analyses.explore.check.TableCheck",
    "curvedp.analyses.scores.private_scores",
    "curvedp.analyses.scores.private_scorer",
    "curvedp.analyses.scores.PrivateScores",
    "curvedp.analyses.scores.Score",
    "curvedp.analyses.split.dummy",
    "curvedp.auditing.audit",
    "curvedp.cli.workflow.report",
]
SOURCE = Path(curvedp.__file__).parent
EXEMPLIFIED = sorted(
    ".".join(("curvedp", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)
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


VERBS = ("dummy", "plan", "check", "bounds", "describe", "score", "audit", "report")


def test_the_verbs_of_the_command_line_are_functions_at_the_top() -> None:
    from curvedp.cli import app

    commands = {command.name for command in app.registered_commands}
    for name in VERBS:
        assert name in commands and inspect.isfunction(getattr(curvedp, name)), name
    import_module("curvedp.auditing.exam")  # no package has the name of a function
    assert inspect.isfunction(curvedp.audit)


def test_every_estimator_and_kind_of_column_is_at_the_top_and_all_names_resolve() -> None:
    from curvedp import data

    for entry in catalogue.ESTIMATORS.values():
        assert getattr(curvedp, entry.class_name) is entry.load()
    for name in ("Numeric", "Categorical", "Boolean", "Date", "Ignored", "Schema"):
        assert getattr(curvedp, name) is getattr(data, name)
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
def test_the_docstring_has_an_example(path: str) -> None:
    assert ">>> " in (inspect.getdoc(found(path)) or "")


@pytest.mark.parametrize("name", EXEMPLIFIED)
def test_the_examples_of_all_docstrings_run(name: str) -> None:
    tests = [test for test in doctest.DocTestFinder().find(import_module(name), name) if test.examples]
    runner = doctest.DocTestRunner()
    assert tests and not [test.name for test in tests if runner.run(test).failed]


@pytest.mark.parametrize("entry", catalogue.ESTIMATORS.values(), ids=lambda entry: entry.name)
def test_help_of_an_estimator_explains_every_parameter(entry: catalogue.EstimatorEntry) -> None:
    model = entry.load()
    text = inspect.getdoc(model) or ""
    for name in inspect.signature(model).parameters:
        assert f"{name} : " in text
    assert "privacy_ : Guarantee" in text


MODULES = (
    *("release/door", "release/fit", "release/catalogue", "release/ledger", "plans", "privacy/budget"),
    *("problems/__init__", "problems/domain", "data/schema", "data/targets"),
    *("analyses/inspection", "analyses/estimators", "mechanisms"),
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
