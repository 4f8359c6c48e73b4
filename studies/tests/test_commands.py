"""`curvedp compare` and `curvedp reproduce` as the command line finds and runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import typer
from typer.testing import CliRunner

import curvedp_studies.reproduce
from curvedp.cli.console import Commands
from curvedp_studies import commands, peers

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
app.command("compare")(commands.compare)
app.command("reproduce")(commands.reproduce)


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def study(monkeypatch):
    """A study of ten parts that writes one file; `stop` says after how many it is interrupted."""

    class Study:
        stop: int | None = None

        def __call__(self, what, out, progress, workers):
            out.mkdir(parents=True, exist_ok=True)
            for done in range(11):
                progress(done, 10)
                if done == self.stop:
                    raise KeyboardInterrupt
            path = out / f"{what}.csv"
            path.write_text("done")
            return [path]

    made = Study()
    monkeypatch.setattr(curvedp_studies.reproduce, "reproduce", made)
    return made


def test_the_library_finds_the_commands_by_their_entry_points():
    found = {entry.name: entry.load() for entry in entry_points(group="curvedp.commands")}
    assert found["compare"] is commands.compare and found["reproduce"] is commands.reproduce


def test_importing_the_commands_loads_no_numerical_library():
    code = "import sys, curvedp_studies.commands; print({'numpy', 'scipy', 'numba'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
    assert shown.stdout.decode().strip() == "set()"


def test_files_are_listed_or_told_as_json_or_not_at_all(study, tmp_path):
    folder = tmp_path / "results"
    listed = run("reproduce", "figure1", "--folder", folder)
    assert listed.exit_code == 0 and listed.stdout.splitlines() == [str(folder / "figure1.csv")]
    told = run("reproduce", "tables", "--folder", folder, "--json")
    assert json.loads(told.stdout) == {"written": [str(folder / "tables.csv")]}
    assert run("reproduce", "tables", "--folder", folder, "--quiet").output == ""


def test_what_was_computed_before_ctrl_c_is_kept_and_said(study, tmp_path):
    study.stop = 3
    stopped = run("reproduce", "figure1", "--folder", tmp_path)
    assert stopped.exit_code == 130
    assert f"Stopped: 3 of 10 parts are kept in {tmp_path}; run the same command again" in stopped.output
    study.stop = 0
    assert "Stopped: nothing was computed yet.\n" in run("reproduce", "figure1", "--folder", tmp_path).output


def test_a_comparison_gets_its_lists(tmp_path, monkeypatch):
    seen = {}

    def compare(
        data, datasets, mechanisms, epsilons, seeds, out, progress, *, workers, scores, page, finished, known
    ):
        seen.update(locals())
        return [out / "scores.csv"]

    monkeypatch.setattr(peers, "compare", compare)
    done = run(
        "compare", "--data", tmp_path, "--folder", tmp_path / "out", "--datasets", "a,b", "--epsilon", "0.1,1"
    )
    assert done.exit_code == 0, done.output
    assert seen["datasets"] == ["a", "b"] and seen["mechanisms"] is None and seen["epsilons"] == [0.1, 1.0]
    assert seen["scores"] == () and seen["page"] is None and seen["seeds"] == 20 and not seen["finished"]
    done = run("compare", "--data", tmp_path, "--folder", tmp_path / "out", "--scores", "a.csv,b.csv")
    assert done.exit_code == 0 and seen["scores"] == ["a.csv", "b.csv"] and seen["epsilons"] is None
    done = run("compare", "--data", tmp_path, "--folder", tmp_path, "--page", tmp_path / "no.md")
    assert done.exit_code == 2 and "there is no page" in done.output
    done = run("compare", "--data", tmp_path, "--folder", tmp_path, "--known", tmp_path / "no.csv")
    assert done.exit_code == 2 and "there is no summary" in done.output
    missing = run("compare", "--data", tmp_path / "nowhere", "--folder", tmp_path)
    assert missing.exit_code == 2 and "there is no folder" in missing.output
    assert run("compare", "--data", tmp_path, "--folder", tmp_path, "--epsilon", "one").exit_code == 2
