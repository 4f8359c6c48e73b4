"""Commands that charge: outputs are proved before, nothing is lost after, Ctrl-C says what it cost."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from curvedp import modelfile
from curvedp.ledger import Ledger
from curvedp.outputs import ROOM

Run = Callable[..., Result]
CHARGING = ("fit", "search", "check", "describe", "bounds", "score")


@pytest.fixture
def priced(folder: Path, run: Run) -> Path:
    """The folder with a model to score."""
    done = run(*command(folder, "fit"), "--quiet", "--out", folder / "fitted.json")
    assert done.exit_code == 0, done.stderr
    return folder


def command(folder: Path, name: str) -> list[object]:
    """A command that is right but for its outputs."""
    data, schema = folder / "data.csv", ("--schema", folder / "schema.toml")
    budget = ("--epsilon", 0.5, "--delta", 1e-6)
    return {
        "fit": ["fit", data, *schema, *budget],
        "search": ["search", data, *schema, *budget, "--alphas", "1,10"],
        "check": ["check", data, *schema, *budget],
        "describe": ["describe", data, *schema, *budget],
        "bounds": ["bounds", data, "--columns", "age", "--epsilon", 0.5],
        "score": ["score", folder / "fitted.json", data, *budget],
    }[name]


def outlets(name: str) -> tuple[str, ...]:
    return {"fit": ("--out", "--report"), "search": ("--out", "--report"), "bounds": ("--schema",)}.get(
        name, ("--report",)
    )


def written(folder: Path, name: str, **changes: object) -> list[object]:
    """Its outputs, some of them elsewhere."""
    if name == "bounds":
        places: dict[str, object] = {"--schema": folder / "open.toml"}
        (folder / "open.toml").write_text('[[column]]\nname = "age"\nkind = "numeric"\nbounds = []\n')
    else:
        places = {option: folder / f"{name}{option}" for option in outlets(name)}
    places |= {f"--{option}": path for option, path in changes.items()}
    return [item for pair in places.items() for item in pair]


@pytest.mark.parametrize("name", CHARGING)
@pytest.mark.parametrize("wrong", ["no folder", "a folder", "exists", "no permission", "no room"])
def test_an_output_that_cannot_be_written_costs_nothing(
    run: Run, priced: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: str
) -> None:
    for option in outlets(name):
        place = priced / "place"
        if wrong == "no folder":
            place = priced / "none" / "file"
        elif wrong == "a folder":
            place.mkdir(exist_ok=True)
        elif wrong == "exists":
            place.write_text("precious")
        elif wrong == "no permission":
            place = Path("/proc/curvedp.file")
        else:
            monkeypatch.setattr("curvedp.outputs.os.fsync", full_disk)
        if name == "bounds" and wrong == "exists":
            pytest.skip("a schema is there to be written into")
        changed = {option.removeprefix("--"): place}
        result = run(
            *command(priced, name), *written(priced, name, **changed), "--ledger", priced / "budget.db"
        )
        assert result.exit_code == 2 and result.stdout == "", result.output
        refused = outlets(name)[0] if wrong == "no room" else option
        assert refused in result.stderr and result.stderr.count("\n") == 1
        assert not list(priced.glob(".curvedp-*"))
    assert Ledger(priced / "budget.db").state().charges == 0


def full_disk(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_without_room_is_noticed_before_the_charge(folder: Path) -> None:
    """A real limit on the size of files, in a real process."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM // 2, ROOM // 2))

    done = subprocess.run(
        [sys.executable, "-m", "curvedp", *map(str, command(folder, "fit")), "--out", "m.json"]
        + ["--ledger", "budget.db"],
        cwd=folder,
        preexec_fn=limited,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "--out m.json cannot be written" in done.stderr, done.stderr
    assert Ledger(folder / "budget.db").state().charges == 0


@pytest.mark.parametrize("name", CHARGING)
def test_a_release_that_cannot_be_written_is_kept_elsewhere(
    run: Run, priced: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (priced / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(priced / "tmp"))

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("curvedp.outputs.os.replace", full)
    result = run(*command(priced, name), *written(priced, name), "--ledger", priced / "budget.db")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "No space left on device" in result.stderr and "charged before and are spent" in result.stderr
    (kept,) = (priced / "tmp").iterdir()
    assert str(kept) in result.stderr
    if name in ("fit", "search"):
        assert modelfile.load(kept).privacy.epsilon == 0.5
    else:
        assert json.loads(kept.read_text())
    assert Ledger(priced / "budget.db").state().charges == 1


def test_a_model_that_is_written_already_is_not_kept_twice(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> str:
        raise KeyError("secret")

    monkeypatch.setattr("curvedp.workflow.release_report", broken)
    (folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    result = run(*command(folder, "fit"), *written(folder, "fit"), "--ledger", folder / "budget.db")
    assert result.exit_code == 2 and f"what was released is in {folder / 'fit--out'}" in result.stderr
    assert modelfile.load(folder / "fit--out").privacy.epsilon == 0.5
    assert not list((folder / "tmp").iterdir()) and "secret" not in result.output


def test_a_full_stdout_does_not_lose_what_was_paid_for(priced: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (priced / "tmp").mkdir()
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "curvedp", *map(str, command(priced, "check"))]
            + ["--ledger", "budget.db", "--json"],
            cwd=priced,
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(priced / "tmp")},
            text=True,
        )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    (kept,) = (priced / "tmp").iterdir()
    assert str(kept) in done.stderr and json.loads(kept.read_text())["verdicts"]


@pytest.mark.parametrize("name", ["check", "describe", "bounds", "score"])
def test_a_release_that_nobody_would_see_is_refused(run: Run, priced: Path, name: str) -> None:
    result = run(*command(priced, name), "--ledger", priced / "budget.db", "--quiet")
    assert result.exit_code == 2 and "--quiet prints nothing" in result.stderr
    assert Ledger(priced / "budget.db").state().charges == 0


@pytest.mark.parametrize("name", CHARGING)
def test_the_ledger_keeps_who_and_why(run: Run, priced: Path, name: str) -> None:
    who = ("--by", "statistics office", "--purpose", "wage report")
    result = run(*command(priced, name), *written(priced, name), "--ledger", priced / "budget.db", *who)
    assert result.exit_code == 0, result.stderr
    (charge,) = Ledger(priced / "budget.db").history()
    assert (charge.by, charge.purpose) == ("statistics office", "wage report")
    lost = run(*command(priced, name), *written(priced, name), "--force", *who)
    assert lost.exit_code == 2 and "pass --ledger, too" in lost.stderr


def test_by_is_not_the_column_to_compare(run: Run, priced: Path) -> None:
    result = run(*command(priced, "score"), "--by", "sector", "--ledger", priced / "budget.db")
    assert result.exit_code == 2 and "pass --group sector" in result.stderr
    assert Ledger(priced / "budget.db").state().charges == 0


SLOW = """
import sys, time
from curvedp.mechanisms import walk
from curvedp.rows import base

def slow(most):
    print("walking", file=sys.stderr, flush=True)
    time.sleep(60)

walk.advance = slow
from curvedp.cli import main
sys.argv[0] = "curvedp"
main()
"""
SLOW_WRITING = """
import sys, time
from curvedp import modelfile
of = modelfile.ModelDocument.of
calls = []

def slow(model):
    calls.append(model)
    if len(calls) == 1:
        print("walking", file=sys.stderr, flush=True)
        time.sleep(60)
    return of(model)

modelfile.ModelDocument.of = slow
from curvedp.cli import main
sys.argv[0] = "curvedp"
main()
"""


def interrupted(folder: Path, code: str, *arguments: object) -> tuple[int, list[str]]:
    """A real process that gets a real SIGINT once it says that it walks; its exit code and other lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "walking\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == ""
    return process.returncode, err.splitlines()


@pytest.mark.parametrize("name", ["fit", "search"])
def test_control_c_in_a_fit_says_what_was_charged(folder: Path, name: str) -> None:
    arguments = [*command(folder, name), "--out", "m.json", "--ledger", "budget.db"]
    code, lines = interrupted(folder, SLOW, *arguments)
    assert code == 130
    assert lines == ["Error: stopped; ε = 0.5, δ = 1e-06 were charged before and are spent"]
    assert Ledger(folder / "budget.db").state().charges == 1
    assert not (folder / "m.json").exists() and not list(folder.glob(".curvedp-*"))


def test_control_c_between_the_charge_and_the_file_keeps_the_model(folder: Path) -> None:
    arguments = [*command(folder, "fit"), "--out", "m.json", "--ledger", "budget.db"]
    code, (line,) = interrupted(folder, SLOW_WRITING, *arguments)
    assert code == 130 and line.startswith("Error: stopped; ε = 0.5, δ = 1e-06 were charged before")
    kept = line.rpartition("kept in ")[2]
    assert modelfile.load(Path(kept)).privacy.epsilon == 0.5
    assert not (folder / "m.json").exists()


def test_control_c_anywhere_after_the_charge_asks_the_ledger(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no code of ours waits for it: in the estimator, once the release is made."""
    from curvedp.estimators.base import PrivateLinearModel

    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateLinearModel, "_keep_estimate", stop)
    arguments = [*command(folder, "fit"), "--out", folder / "m.json"]
    result = run(*arguments, "--ledger", folder / "budget.db")
    assert result.exit_code == 130
    assert result.stderr == "Error: stopped; ε = 0.5, δ = 1e-06 were charged before and are spent\n"
    monkeypatch.setattr("curvedp.workflow.read", stop)
    result = run(*arguments, "--ledger", folder / "budget.db")
    assert result.exit_code == 130 and result.stderr == "Error: stopped; nothing was charged\n"
