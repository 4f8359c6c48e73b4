"""The page for R, run by R where it is installed (`make test-r`): its numbers are those that Python has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.docs.test_pages import BLOCK, DOCS, commands
from typer.testing import CliRunner

import curvedp
from curvedp.cli import app, workflow

NEEDED = "for (name in c('reticulate', 'tibble')) stopifnot(requireNamespace(name, quietly = TRUE))"
BROOM = ["term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high"]
TOLD = """
write.csv(tidy(fit), "tidy.csv", row.names = FALSE)
write.csv(confint(fit, level = 0.9), "confint.csv")
write.csv(data.frame(predicted = others$predicted), "predicted.csv", row.names = FALSE)
write.csv(data.frame(class = class(tidy(fit))), "class.csv", row.names = FALSE)
write.csv(coefficients, "again.csv", row.names = FALSE)
logit <- private_fit(married ~ age + educ, others, "married.toml", 1, 1e-6, "PrivateLogisticRegression")
write.csv(tidy(logit, exponentiate = TRUE), "odds.csv", row.names = FALSE)
invisible(logit$python$save("logit.json"))
"""


def r(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    place = {"RETICULATE_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    (folder / "page.R").write_text(code, "utf-8")
    return subprocess.run(
        ["Rscript", "--vanilla", "page.R"],
        cwd=folder,
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page has run: its commands here, its R in a process of R."""
    found = tmp_path_factory.mktemp("r")
    if shutil.which("Rscript") is None or r(NEEDED, found).returncode:
        pytest.skip("R with reticulate and tibble is not installed: make test-r does it")
    train, test = workflow._tables()
    (found / "people.csv").write_text(workflow.csv_text(train), "utf-8")
    (found / "others.csv").write_text(workflow.csv_text(test), "utf-8")
    (found / "schema.toml").write_text(workflow.SCHEMA.to_toml(), "utf-8")
    columns = [curvedp.Numeric("age", 16, 65), curvedp.Numeric("educ", 0, 20)]
    married = curvedp.Categorical("married", [0, 1])
    schema = curvedp.Schema([*columns, married], target="married")
    (found / "married.toml").write_text(schema.to_toml(), "utf-8")
    blocks = BLOCK.findall((DOCS / "howto" / "r.md").read_text("utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        for words in (words for kind, _, text in blocks if kind == "sh" for words in commands(text)):
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, (words, result.output)
    done = r("\n".join(text for kind, _, text in blocks if kind == "r") + TOLD, found)
    assert done.returncode == 0, done.stderr
    (found / "printed.txt").write_text(done.stdout, "utf-8")
    return found


def test_coefficients_are_a_tibble_with_the_numbers_of_python(folder: Path) -> None:
    model = curvedp.load(folder / "model.json")
    told, known = pd.read_csv(folder / "tidy.csv"), pd.DataFrame(model.summary().broom)
    assert list(told.columns) == BROOM and list(told.term) == list(known.term)
    assert "I(age ** 2)" in set(told.term)
    np.testing.assert_allclose(told[BROOM[1:]], known[BROOM[1:]], rtol=1e-13)
    assert "tbl_df" in set(pd.read_csv(folder / "class.csv")["class"])
    assert "# A tibble: 6 × 7" in (folder / "printed.txt").read_text("utf-8")


def test_confint_is_at_the_level_that_was_asked_for(folder: Path) -> None:
    model = curvedp.load(folder / "model.json")
    told = pd.read_csv(folder / "confint.csv", index_col=0)
    assert [float(re.sub("[X.]?%", "", name)) for name in told.columns] == [5.0, 95.0]
    np.testing.assert_allclose(told, model.conf_int(0.9, intercept=True), rtol=1e-13)


def test_predictions_are_those_of_python(folder: Path) -> None:
    model = curvedp.load(folder / "model.json")
    told = pd.read_csv(folder / "predicted.csv")["predicted"]
    np.testing.assert_allclose(told, model.predict(folder / "others.csv"), rtol=1e-13)


def test_a_logistic_fit_of_a_data_frame_has_odds_ratios(folder: Path) -> None:
    told = pd.read_csv(folder / "odds.csv")
    known = pd.DataFrame(curvedp.load(folder / "logit.json").summary(exp=True).broom)
    np.testing.assert_allclose(told[BROOM[1:]], known[BROOM[1:]], rtol=1e-13)


def test_the_ledger_paid_for_both_fits(folder: Path) -> None:
    history = curvedp.Ledger(folder / "budget.db").history()
    assert [charge.epsilon for charge in history] == [1.0, 1.0]
    receipt = json.loads((folder / "model.json").read_text("utf-8"))["record"]["receipt"]
    assert receipt["charge"] == 2  # the command line ran first here


def test_the_table_of_the_command_line_reads_as_it_is(folder: Path) -> None:
    model = curvedp.load(folder / "shell.json")
    told, known = pd.read_csv(folder / "again.csv"), pd.DataFrame(model.summary().broom)
    assert list(told.columns) == BROOM and list(told.term) == list(known.term)
    np.testing.assert_allclose(told[BROOM[1:]], known[BROOM[1:]], rtol=1e-13)
