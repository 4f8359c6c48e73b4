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

from curvedp.release import modelfile
from curvedp.release.ledger import Ledger
from curvedp.release.outputs import ROOM

Run = Callable[..., Result]
CHARGING = ("fit", "search", "check", "describe", "bounds", "score")


@pytest.fixture(scope="module")
def fitted() -> dict[str, bytes]:
    """The text of a model file, once there is one."""
    return {}


@pytest.fixture
def priced(folder: Path, run: Run, fitted: dict[str, bytes]) -> Path:
    """The folder with a model to score."""
    place = folder / "fitted.json"
    if not fitted:
        done = run(*command(folder, "fit"), "--quiet", "--out", place)
        assert done.exit_code == 0, done.stderr
        fitted["model"] = place.read_bytes()
    place.write_bytes(fitted["model"])
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


WRONG = ("no folder", "a folder", "exists", "no permission", "no room")


@pytest.mark.parametrize(
    ("name", "wrong"),
    # bounds writes into a schema that is there
    [(name, wrong) for name in CHARGING for wrong in WRONG if (name, wrong) != ("bounds", "exists")],
)
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
            monkeypatch.setattr("curvedp.release.outputs.os.fsync", full_disk)
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
    move = os.replace

    def full(source: str, target: str) -> None:
        if Path(target).is_relative_to(priced):  # the compiler's cache lies elsewhere
            raise OSError(28, "No space left on device")
        move(source, target)

    monkeypatch.setattr("curvedp.release.outputs.os.replace", full)
    result = run(*command(priced, name), *written(priced, name), "--ledger", priced / "budget.db")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "No space left on device" in result.stderr and "charged before and are spent" in result.stderr
    (kept,) = (priced / "tmp").iterdir()
    assert str(kept) in result.stderr
    if name in ("fit", "search"):
        assert modelfile.load(kept).guarantee.epsilon == 0.5
    else:
        assert json.loads(kept.read_text())
    assert Ledger(priced / "budget.db").state().charges == 1


def test_a_model_that_is_written_already_is_not_kept_twice(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> str:
        raise KeyError("secret")

    monkeypatch.setattr("curvedp.cli.workflow.release_report", broken)
    (folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    result = run(*command(folder, "fit"), *written(folder, "fit"), "--ledger", folder / "budget.db")
    assert result.exit_code == 2 and f"what was released is in {folder / 'fit--out'}" in result.stderr
    assert modelfile.load(folder / "fit--out").guarantee.epsilon == 0.5
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
    say = "--office" if name == "describe" else "--by"  # by names groups there
    who = (say, "statistics office", "--purpose", "wage report")
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
from curvedp.data.rows import base

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
from curvedp.release import modelfile
to_json = modelfile.Release.to_json
calls = []

def slow(release):
    calls.append(release)
    if len(calls) == 1:
        print("walking", file=sys.stderr, flush=True)
        time.sleep(60)
    return to_json(release)

modelfile.Release.to_json = slow
from curvedp.cli import main
sys.argv[0] = "curvedp"
main()
"""


def interrupted(
    folder: Path, code: str, *arguments: object, by: int = signal.SIGINT, times: int = 1
) -> tuple[int, list[str]]:
    """A real process that gets a real signal once it says that it walks; its exit code and other lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=lambda: signal.signal(by, signal.SIG_DFL),  # what starts the tests may ignore it
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "walking\n"
    time.sleep(0.2)
    for _ in range(times):
        process.send_signal(by)
    out, err = process.communicate(timeout=60)
    assert out == ""
    return process.returncode, err.splitlines()


@pytest.mark.parametrize("name", ["fit", pytest.param("search", marks=pytest.mark.full)])
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
    assert modelfile.load(Path(kept)).guarantee.epsilon == 0.5
    assert not (folder / "m.json").exists()


def test_control_c_anywhere_after_the_charge_asks_the_ledger(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no code of ours waits for it: in the estimator, once the release is made."""
    from curvedp.analyses.estimators.base import PrivateLinearModel

    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateLinearModel, "_keep_estimate", stop)
    arguments = [*command(folder, "fit"), "--out", folder / "m.json"]
    result = run(*arguments, "--ledger", folder / "budget.db")
    assert result.exit_code == 130
    assert result.stderr == "Error: stopped; ε = 0.5, δ = 1e-06 were charged before and are spent\n"
    monkeypatch.setattr("curvedp.data.schema.Schema.source", stop)
    result = run(*arguments, "--ledger", folder / "budget.db")
    assert result.exit_code == 130 and result.stderr == "Error: stopped; nothing was charged\n"


@pytest.mark.parametrize(
    ("by", "code", "times"),
    [(signal.SIGTERM, 143, 3), pytest.param(signal.SIGHUP, 129, 1, marks=pytest.mark.full)],
)
def test_a_signal_stops_as_control_c_does(folder: Path, by: int, code: int, times: int) -> None:
    """Also where it comes again and again, while drafts are being removed."""
    arguments = [*command(folder, "fit"), "--out", "m.json", "--report", "r.html", "--ledger", "budget.db"]
    found, lines = interrupted(folder, SLOW, *arguments, by=by, times=times)
    assert found == code
    assert lines == ["Error: stopped; ε = 0.5, δ = 1e-06 were charged before and are spent"]
    assert Ledger(folder / "budget.db").state().charges == 1
    assert not (folder / "m.json").exists() and not list(folder.glob(".curvedp-*"))


@pytest.mark.full
def test_sigterm_between_the_charge_and_the_file_keeps_the_model(folder: Path) -> None:
    arguments = [*command(folder, "fit"), "--out", "m.json", "--ledger", "budget.db"]
    code, (line,) = interrupted(folder, SLOW_WRITING, *arguments, by=signal.SIGTERM)
    assert code == 143 and line.startswith("Error: stopped; ε = 0.5, δ = 1e-06 were charged before")
    assert modelfile.load(Path(line.rpartition("kept in ")[2])).guarantee.epsilon == 0.5
    assert not list(folder.glob(".curvedp-*"))


SLOW_READING = """
import sys, time
from curvedp.data.schema import Schema

def slow(*arguments, **options):
    print("walking", file=sys.stderr, flush=True)
    time.sleep(60)

Schema.source = slow
from curvedp.cli import main
sys.argv[0] = "curvedp"
main()
"""


def test_sigterm_before_the_charge_says_that_nothing_was_charged(folder: Path) -> None:
    arguments = [*command(folder, "fit"), "--out", "m.json", "--ledger", "budget.db"]
    found, lines = interrupted(folder, SLOW_READING, *arguments, by=signal.SIGTERM)
    assert found == 143 and lines == ["Error: stopped; nothing was charged"]
    assert not list(folder.glob(".curvedp-*")) and Ledger(folder / "budget.db").state().charges == 0


def test_signals_are_as_they_were_after_a_command(run: Run, folder: Path) -> None:
    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in heard]
    run("ledger", "show", folder / "budget.db")
    assert [signal.getsignal(number) for number in heard] == before


def test_what_is_ignored_stays_so_while_a_command_runs_and_what_is_not_is_heard(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, heard = Ledger.state, []

    def looking(ledger: Ledger) -> object:
        heard.append([signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)])
        return state(ledger)

    monkeypatch.setattr(Ledger, "state", looking)
    before = [signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGTERM, signal.SIG_DFL)]
    try:
        run("ledger", "show", folder / "budget.db")
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert heard[0][0] is signal.SIG_IGN and callable(heard[0][1])


@pytest.mark.full
def test_a_signal_that_is_ignored_stays_ignored(folder: Path) -> None:
    """As under nohup."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.replace("sleep(60)", "sleep(0.05)")]
        + [*map(str, command(folder, "fit")), "--out", "m.json", "--quiet"],
        cwd=folder,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stderr is not None and process.stderr.readline() == b"walking\n"
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0 and (folder / "m.json").exists()


def unread(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A real process whose stdout is a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    (folder / "tmp").mkdir(exist_ok=True)
    try:
        return subprocess.run(
            [sys.executable, "-m", "curvedp", *map(str, arguments)],
            cwd=folder,
            stdout=write,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            text=True,
        )
    finally:
        os.close(write)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("fit", ()), ("check", ("--json",)), ("check", ())),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("describe", ()), ("search", ("--json",)), ("score", ()), ("bounds", ("--json",)))
        ),
    ],
)
def test_what_nobody_reads_is_on_disk_and_said_to_be(priced: Path, name: str, shape: tuple[str, ...]) -> None:
    files = written(priced, name) if name in ("fit", "search") else []
    done = unread(priced, *command(priced, name), *files, *shape, "--ledger", "budget.db")
    assert done.returncode == 141, done.stderr
    if (name, shape) == ("check", ()):  # it says what it will see before it charges, and stops there
        assert done.stderr == "" and Ledger(priced / "budget.db").state().charges == 0
        return
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: nobody reads stdout any more; ε = 0.5")
    if files:
        assert f"what was released is in {priced / f'{name}--out'}" in line
        assert modelfile.load(priced / f"{name}--out").guarantee.epsilon == 0.5
        assert not list((priced / "tmp").iterdir())
    else:
        (kept,) = (priced / "tmp").iterdir()
        assert str(kept) in line and json.loads(kept.read_text())
    assert not list(priced.glob(".curvedp-*"))


def closed(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A real process without a stdout, as after `>&-`."""
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "curvedp", *map(str, arguments)],
        cwd=folder,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: os.close(1),
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        text=True,
    )


@pytest.mark.parametrize("name", [pytest.param("fit", marks=pytest.mark.full), "describe"])
def test_a_closed_stdout_is_refused_before_the_charge(priced: Path, name: str) -> None:
    done = closed(priced, *command(priced, name), *written(priced, name), "--ledger", "budget.db")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"Error: stdout is closed, so that nothing could be shown: send it to a file or to {os.devnull}, or "
        "pass --quiet"
    ]
    assert Ledger(priced / "budget.db").state().charges == 0 and not list(priced.glob(".curvedp-*"))


@pytest.mark.full
def test_without_a_stdout_a_quiet_fit_writes_its_file(folder: Path) -> None:
    quiet = closed(folder, *command(folder, "fit"), "--out", "m.json", "--ledger", "budget.db", "--quiet")
    assert quiet.returncode == 0 and quiet.stderr == ""
    assert modelfile.load(folder / "m.json").guarantee.epsilon == 0.5


def test_without_a_stdout_json_is_not_lost(folder: Path) -> None:
    loud = ("--ledger", "budget.db", "--quiet", "--json")
    done = closed(folder, *command(folder, "check"), *loud)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "stdout is closed" in done.stderr
    (kept,) = (folder / "tmp").iterdir()
    assert str(kept) in done.stderr and json.loads(kept.read_text())
    assert Ledger(folder / "budget.db").verify() is not None


@pytest.mark.parametrize("where", ["fsync", "replace", "body"])
def test_no_draft_is_left_whatever_stops_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Of a file that is written by itself, without the list of a command's outputs."""
    from curvedp.release import outputs

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "model.json"
    target.write_text("before")
    if where == "body":
        with pytest.raises(KeyboardInterrupt), outputs.claim(target).stream():
            raise KeyboardInterrupt
    else:
        monkeypatch.setattr(f"curvedp.release.outputs.os.{where}", stop)
        with pytest.raises(KeyboardInterrupt):
            outputs.write_file(target, "after")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"] and target.read_text() == "before"


def test_long_lists_are_cut_to_a_screenful_and_name_the_file(run: Run, tmp_path: Path) -> None:
    levels = [f"v{k}" for k in range(300)]
    (tmp_path / "data.csv").write_text(
        "g,y\n" + "".join(f"{levels[k % 300]},{k % 7 / 7}\n" for k in range(3000)), encoding="utf-8"
    )
    quoted = ", ".join(f'"{level}"' for level in levels)
    (tmp_path / "schema.toml").write_text(
        f'target = "y"\n[[column]]\nname = "g"\nkind = "categorical"\nlevels = [{quoted}]\n'
        '[[column]]\nname = "y"\nkind = "numeric"\nbounds = [0, 1]\n'
    )
    out = tmp_path / "m.json"
    asked = (
        "fit",
        tmp_path / "data.csv",
        "--schema",
        tmp_path / "schema.toml",
        "--epsilon",
        1,
        "--delta",
        1e-6,
    )
    for more in ((), ("--no-inference",)):
        result = run(*asked, "--out", out, "--force", *more)
        assert result.exit_code == 0, result.stderr
        lines = result.stdout.splitlines()
        assert len(lines) < 70 and f"The 20 that stand out most; {out} has all 301." in lines
        assert f"Model written to {out}." in lines
    assert len(modelfile.load(out).coefficients.ravel()) == 300
    short = run(*asked, "--out", out, "--force", "--json")
    assert len(json.loads(short.stdout)["coefficients"][0]) == 300
