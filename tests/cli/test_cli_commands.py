"""The commands as a user runs them, from a table to predictions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from curvedp.data import Schema
from curvedp.release import modelfile

Run = Callable[..., Result]
COMMANDS = ("demo", "plan", "schema", "fit", "predict", "ledger", "audit")


def fit(run: Run, folder: Path, *more: object) -> Result:
    return run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--ledger", folder / "budget.db", "--out", folder / "model.json", *more),
    )


def test_every_command_has_help_with_an_example(run: Run) -> None:
    overview = run("--help").stdout
    for command in COMMANDS:
        assert command in overview
        page = run(command, "create", "--help") if command == "ledger" else run(command, "--help")
        assert page.exit_code == 0
        assert f"Example: curvedp {command}" in " ".join(page.stdout.split())


def test_help_loads_no_numerical_library() -> None:
    code = (
        "import sys; from curvedp.cli import app\n"
        "try: app(['fit', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("wrong", "words", "loaded"),
    [
        (("--epsilon", "one"), "--epsilon", set()),
        (("--epsilon", "0"), "epsilon must be", set()),
        (("--schema", "none.toml"), "cannot read the schema none.toml", set()),
        (("--ledger", "budget.db"), "remains: ask for less", {"numpy", "scipy"}),
        (("--target", "wges"), "did you mean 'wage'", {"numpy", "scipy"}),
    ],
)
def test_a_refusal_loads_no_large_library(
    folder: Path, wrong: tuple[str, str], words: str, loaded: set[str]
) -> None:
    given = {"--schema": "schema.toml", "--epsilon": "9", "--delta": "1e-6", "--out": "m.json"}
    given |= dict([wrong])
    arguments = ["fit", "data.csv", *(word for pair in given.items() for word in pair)]
    code = (
        f"import sys; from curvedp.cli import app\ntry: app({arguments})\nexcept SystemExit: pass\n"
        "large = {'numpy', 'scipy', 'scipy.optimize', 'sklearn', 'numba', 'pandas'} & set(sys.modules)\n"
        "print(*sorted(large))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert words in done.stderr and set(done.stdout.split()) <= loaded, (done.stderr, done.stdout)


def test_fit_writes_a_model_that_predicts_and_charges_once(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--json", "--rows", 2000, "--report", folder / "report.html")
    assert result.exit_code == 0, result.stderr
    shown = json.loads(result.stdout)
    document = modelfile.load(folder / "model.json")
    assert shown["coefficients"] == document.coefficients.tolist()
    assert shown["features"] == ["age", "sector=private", "sector=public"]
    assert shown["guarantee"]["epsilon"] == 1 and shown["guarantee"]["adjacency"] == "replace"
    assert (shown["remaining_epsilon"], shown["remaining_delta"]) == (2.0, 9e-6)
    assert "rows" in shown["verdict"] or "%" in shown["verdict"]
    page = (folder / "report.html").read_text()
    assert repr(float(document.coefficients[0, 0])) in page
    assert "secret" not in page and "2,000 rows" in page

    state = json.loads(run("ledger", "show", folder / "budget.db", "--json", "--history").stdout)
    assert {k: state[k] for k in ("epsilon", "delta", "spent_epsilon", "remaining_epsilon", "charges")} == {
        "epsilon": 3.0,
        "delta": 1e-5,
        "spent_epsilon": 1.0,
        "remaining_epsilon": 2.0,
        "charges": 1,
    }
    assert str(folder) not in json.dumps(state["history"])

    values = json.loads(run("predict", folder / "model.json", folder / "data.csv", "--json").stdout)[
        "predictions"
    ]
    schema = Schema.load(folder / "schema.toml")
    X = schema.column_map().clip(schema.read(folder / "data.csv"))
    np.testing.assert_allclose(values, X @ document.coefficients[0] + document.intercept[0], rtol=1e-12)
    lines = run("predict", folder / "model.json", folder / "data.csv").stdout.splitlines()
    assert lines[0] == "wage" and [float(line) for line in lines[1:]] == values


def test_fit_of_a_category_is_logistic(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--target", "sector", "--json")
    assert result.exit_code == 0, result.stderr
    document = modelfile.load(folder / "model.json")
    assert document.estimator == "PrivateLogisticRegression" and document.classes == ("private", "public")
    lines = run("predict", folder / "model.json", folder / "data.csv").stdout.split()
    assert lines[0] == "sector" and set(lines[1:]) <= {"private", "public"}


def test_of_two_classes_it_is_said_which_one_coefficients_speak_for(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--target", "sector", "--report", folder / "report.html")
    assert "regression of sector: public against private" in " ".join(result.stdout.split())
    assert "A private model of sector: public against private" in (folder / "report.html").read_text()


def test_the_budget_runs_out(run: Run, folder: Path) -> None:
    for _ in range(3):
        assert fit(run, folder, "--force", "--quiet").exit_code == 0
    refused = fit(run, folder, "--force")
    assert refused.exit_code == 2 and "(0, 7e-06) remains" in refused.stderr


def test_quiet_says_nothing_and_seed_says_not_private(run: Run, folder: Path) -> None:
    assert fit(run, folder, "--quiet").output == ""
    loud = run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--seed", 3, "--out", folder / "seeded.json"),
    )
    assert loud.exit_code == 0 and "NOT private" in loud.stdout
    privacy = modelfile.load(folder / "seeded.json").guarantee
    assert privacy.private is False and 3 not in privacy.parameters.values()
    assert "random_state" not in (folder / "seeded.json").read_text()


def test_what_is_printed_does_not_depend_on_the_rows(run: Run, folder: Path) -> None:
    """Two adjacent tables, one seed: the output differs in the released coefficients alone."""
    (folder / "b").mkdir()
    text = (folder / "data.csv").read_text().splitlines()
    (folder / "b" / "data.csv").write_text("\n".join([*text[:-1], "garbage,,,1e999"]) + "\n")
    documents = []
    for data in (folder / "data.csv", folder / "b" / "data.csv"):
        result = run(
            *("fit", data, "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6, "--seed", 1),
            *("--rows", 1000, "--out", folder / "m.json", "--force", "--report", folder / "r.html", "--json"),
        )
        assert result.exit_code == 0, result.stderr
        documents.append(json.loads(result.stdout))
        assert result.stderr == ""
    a, b = documents
    assert a["coefficients"] != b["coefficients"]
    for document in documents:
        del document["coefficients"], document["intercept"], document["inference"]
    assert a == b


def test_schema_template_shows_names_only(run: Run, folder: Path) -> None:
    result = run("schema", folder / "data.csv")
    assert result.exit_code == 0
    for name in ("age", "sector", "note", "wage"):
        assert f'\n{name} = ""\n' in result.stdout
    assert "secret" not in result.stdout and 'public"' not in result.stdout.replace("public promises", "")
    written = run("schema", folder / "data.csv", "--out", folder / "new.toml", "--quiet")
    assert written.exit_code == 0 and written.output == ""
    assert (folder / "new.toml").read_text() == result.stdout


def test_python_m_curvedp() -> None:
    done = subprocess.run([sys.executable, "-m", "curvedp", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("curvedp 0.")


@pytest.mark.parametrize("arguments", [["--version"], ["ledger", "show", "nope.db"]])
def test_the_installed_script(arguments: list[str], tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("curvedp")
    start = time.perf_counter()
    done = subprocess.run(
        [script, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "300"},
    )
    elapsed = time.perf_counter() - start
    if arguments == ["--version"]:
        assert done.returncode == 0 and done.stdout.startswith("curvedp 0.")
        assert elapsed < 5.0
    else:
        assert done.returncode == 2 and done.stderr.count("\n") == 1
