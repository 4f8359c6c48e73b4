"""Hostile names, files, terminals and moments: one line at most, nothing half done, nothing of the data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from curvedp.cli.console import visible
from curvedp.data.schema import Schema
from curvedp.errors import StoppedAfterCharge
from curvedp.release import modelfile
from curvedp.release.ledger import Ledger

Run = Callable[..., Result]

ODD_NAMES = ("[/x]", "weight [kg]", "[bold]b[/bold]", ":heart:", "a\x1b[31mb")
ODD_LEVELS = ("[red]", "x[/y]")


def fit_arguments(folder: Path, *more: object) -> tuple[object, ...]:
    return (
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--ledger", folder / "budget.db", "--out", folder / "model.json", *more),
    )


def refused(result: Result, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.output


@pytest.fixture
def odd(folder: Path) -> Path:
    """A table whose names and levels look like terminal markup."""
    columns = [
        f"[[column]]\nname = {json.dumps(name)}\nkind = 'numeric'\nbounds = [0, 1]\n" for name in ODD_NAMES
    ]
    level = f"[[column]]\nname = '[t]'\nkind = 'categorical'\nlevels = {json.dumps(list(ODD_LEVELS))}\n"
    (folder / "schema.toml").write_text("target = '[t]'\n" + "".join(columns) + level)
    header = ",".join((*ODD_NAMES, "[t]"))
    lines = [",".join(["0.5"] * len(ODD_NAMES) + [ODD_LEVELS[i % 2]]) for i in range(200)]
    (folder / "data.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run, odd: Path) -> None:
    result = run(*fit_arguments(odd))
    assert result.exit_code == 0, result.stderr
    for name in ODD_NAMES:
        assert visible(name) in result.stdout
    assert "coefficients of [t]" in result.stdout and "\x1b" not in result.output
    predicted = run("predict", odd / "model.json", odd / "data.csv")
    assert predicted.exit_code == 0 and predicted.stdout.splitlines()[0] == "[t]"
    assert set(predicted.stdout.splitlines()[1:]) <= set(ODD_LEVELS)
    refused(run(*fit_arguments(odd, "--force", "--target", "[/z]")), "'[/z]' is not a column")
    template = run("schema", odd / "data.csv", "--header")
    assert template.exit_code == 0 and '"weight [kg]" = ""' in template.stdout


def test_three_odd_classes_are_shown_as_they_are(run: Run, odd: Path) -> None:
    text = (odd / "schema.toml").read_text().replace('"x[/y]"]', '"x[/y]", "[/]"]')
    (odd / "schema.toml").write_text(text)
    result = run(*fit_arguments(odd, "--report", odd / "[r].html"))
    assert result.exit_code == 0, result.stderr
    assert all(level in result.stdout for level in (*ODD_LEVELS, "[/]")) and "[r].html" in result.stdout


def test_control_characters_are_spelled_out() -> None:
    assert visible("a\x1b[2Jb\u202ec\td") == "a\\x1b[2Jb\\u202ec\\td"
    assert visible("Größe ε ‖θ‖\nx") == "Größe ε ‖θ‖\nx"


# Outputs and inputs


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["plain", "force"])
@pytest.mark.parametrize("option", ["--out", "--report"])
@pytest.mark.parametrize("victim", ["budget.db", "data.csv", "schema.toml", "link", "budget.db-lock"])
def test_a_fit_never_writes_over_what_it_reads(
    run: Run, folder: Path, option: str, victim: str, force: tuple[str, ...]
) -> None:
    (folder / "link").symlink_to(folder / "budget.db")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    arguments = list(fit_arguments(folder, *force))
    if option == "--out":
        arguments[arguments.index("--out") + 1] = folder / victim
    else:
        arguments += ["--report", folder / victim]
    result = run(*arguments)
    assert result.exit_code == 2 and "is the same file as" in result.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_no_command_writes_over_what_it_reads(run: Run, folder: Path) -> None:
    assert run(*fit_arguments(folder, "--quiet")).exit_code == 0
    model, data, ledger = folder / "model.json", folder / "data.csv", folder / "budget.db"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for arguments, words in [
        (("predict", model, data, "--out", data, "--force"), "same file as the data"),
        (("predict", model, data, "--out", model, "--force"), "same file as the model"),
        (("predict", model, data, "--out", ledger, "--force"), "a budget is never overwritten"),
        (("schema", data, "--out", data, "--force"), "same file as the data"),
        (("audit", "--model", model, "--report", model, "--force"), "same file as the model"),
        (("audit", "--only", "check", "--report", data), "exists already"),
        (("predict", model, data, "--out", folder / "schema.toml"), "--force to overwrite it"),
        (
            ("plan", "--rows", 9, "--features", 1, "--epsilon", 1, "--delta", 1e-6, "--report", model),
            "--force to overwrite it",
        ),
    ]:
        refused(run(*arguments), words)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_report_that_cannot_be_written_is_refused_before_the_charge(run: Run, folder: Path) -> None:
    (folder / "report.html").write_text("old")
    refused(run(*fit_arguments(folder, "--report", folder / "report.html")), "--force to overwrite it")
    refused(run(*fit_arguments(folder, "--report", folder / "no" / "r.html")), "in a folder that exists")
    refused(run(*fit_arguments(folder, "--report", "/proc/r.html")), "cannot be written")
    assert Ledger(folder / "budget.db").state().charges == 0 and not (folder / "model.json").exists()


def test_a_disk_that_fills_up_after_the_charge_says_what_was_spent(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "report.html").write_text("old")
    move = os.replace

    def full(source: str, target: str) -> None:
        if Path(target).is_relative_to(folder):  # the compiler's cache lies elsewhere
            raise OSError(28, "No space left on device")
        move(source, target)

    monkeypatch.setattr("curvedp.release.outputs.os.replace", full)
    (folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    result = run(*fit_arguments(folder, "--report", folder / "report.html", "--force"))
    refused(result, "No space left on device")
    assert "ε = 1, δ = 1e-06 were charged before and are spent" in result.stderr
    assert (folder / "report.html").read_text() == "old" and not (folder / "model.json").exists()
    assert not list(folder.glob(".curvedp-*"))
    (kept,) = (folder / "tmp").iterdir()
    assert f"what was released is kept in {kept}" in result.stderr
    assert modelfile.load(kept).guarantee.epsilon == 1 and kept.stat().st_mode & 0o077 == 0


# Interruptions and what nobody expected


def test_an_unexpected_error_is_one_line_without_its_text(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError("secret-diagnosis")

    monkeypatch.setattr(Schema, "source", broken)
    result = run(*fit_arguments(folder))
    refused(result, "unexpected KeyError; nothing more was done")
    assert "secret-diagnosis" not in result.output
    assert Ledger(folder / "budget.db").state().charges == 0
    monkeypatch.setenv("CURVEDP_TRACEBACK", "1")
    assert isinstance(run(*fit_arguments(folder)).exception, KeyError)


def test_control_c_says_whether_the_budget_was_charged(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(error: BaseException) -> Callable[..., None]:
        def raising(*arguments: object, **options: object) -> None:
            raise error

        return raising

    monkeypatch.setattr(Schema, "source", stop(KeyboardInterrupt()))
    result = run(*fit_arguments(folder))
    assert result.exit_code == 130 and "stopped; nothing was charged" in result.stderr
    monkeypatch.setattr(Schema, "source", stop(StoppedAfterCharge("stopped; ε = 1 is spent")))
    result = run(*fit_arguments(folder))
    assert result.exit_code == 130 and "ε = 1 is spent" in result.stderr
    monkeypatch.undo()
    monkeypatch.setattr(modelfile.Release, "to_json", stop(KeyboardInterrupt()))
    result = run(*fit_arguments(folder))
    assert result.exit_code == 130 and "ε = 1, δ = 1e-06 were charged before and are spent" in result.stderr
    assert not (folder / "model.json").exists() and not list(folder.glob(".curvedp-*"))


# Files


@pytest.mark.parametrize(
    "toml",
    [
        "x = " + "[" * 5000 + "]" * 5000,
        "[[column]]\nname = 'a'\nkind = 'numeric'\nbounds = [0, 1" + "0" * 400 + "]\n",
        "[[column]]\nname = 'a'\nkind = 'numeric'\nbounds = [0, 1" + "0" * 5000 + "]\n",
        "[[column]]\nname = 'a'\nkind = 'numeric'\nbounds = [0, nan]\n",
        "[[column]]\nname = 1\n",
        "column = 3\n",
        "[column]\nname = 'a'\n",
        "record = 1979-05-27\n[[column]]\nname='a'\nkind='ignored'\n",
        "\x00",
    ],
    ids=range(9),
)
def test_hostile_schemas_are_one_line(run: Run, folder: Path, toml: str) -> None:
    (folder / "schema.toml").write_text(toml)
    refused(run(*fit_arguments(folder)), "Error: ")
    assert Ledger(folder / "budget.db").state().charges == 0


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '{"format": "curvedp-model"}', "\x00", "NaN"])
def test_hostile_model_files_are_one_line(run: Run, folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    refused(run("predict", folder / "model.json", folder / "data.csv"), "not a sound curvedp model file")
    refused(run("audit", "--model", folder / "model.json"), "not a sound curvedp model file")


def test_predicting_no_rows_gives_no_rows(run: Run, folder: Path) -> None:
    assert run(*fit_arguments(folder, "--quiet")).exit_code == 0
    (folder / "new.csv").write_text("age,sector\n")
    result = run("predict", folder / "model.json", folder / "new.csv", "--out", folder / "p.csv", "--quiet")
    assert result.exit_code == 0 and result.output == "" and (folder / "p.csv").read_text() == "wage\n"


def test_a_first_line_that_is_data_is_not_shown(run: Run, folder: Path) -> None:
    (folder / "data.csv").write_text("419273,secret-name\n42,b\n")
    result = run("schema", folder / "data.csv")
    refused(result, "pass --header")
    assert "419273" not in result.output and "secret-name" not in result.output


TOKEN = "tok3n"


@pytest.mark.parametrize("engine", ["memory", "dask"])
@pytest.mark.parametrize("bad", ["cells", "undeclared column", "unreadable"])
def test_nothing_of_the_data_leaves(run: Run, folder: Path, engine: str, bad: str) -> None:
    """A token in cells, headers, identifiers and labels appears in no output and in no file."""
    table = {
        "age": [f"{TOKEN}-1", "30", "", "1e999"] * 50,
        "sector": [f"{TOKEN}-2", "private", "public", f"[{TOKEN}]"] * 50,
        "note": [f"{TOKEN}-{i}" for i in range(200)],
        "wage": [f"{TOKEN}-4", "10", "nan", "20"] * 50,
    }
    if bad == "undeclared column":
        table[f"{TOKEN}-column"] = [TOKEN] * 200
    data = folder / ("table" if engine == "dask" else "table.csv")
    if engine == "dask":
        data.mkdir()
        pq.write_table(pa.table(table), data / "part.parquet", row_group_size=60)
        if bad == "unreadable":
            content = (data / "part.parquet").read_bytes()
            (data / "part.parquet").write_bytes(content[: len(content) // 2] + TOKEN.encode())
    else:
        lines = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
        if bad == "unreadable":
            lines[0] = f"age,sector,{TOKEN}-x,{TOKEN}-y"  # the target is missing
        data.write_text("\n".join(lines) + "\n")
    (folder / "data.csv").unlink()
    before = {path.name for path in folder.rglob("*")}
    arguments = list(fit_arguments(folder, "--engine", engine, "--report", folder / "report.html"))
    arguments[1] = data
    result = run(*arguments)
    assert result.exit_code == (2 if bad == "unreadable" else 0), result.output
    shown = [result.output, repr(result.exception)]
    if bad != "unreadable":
        shown.append(run("ledger", "show", folder / "budget.db", "--history", "--json").output)
        if engine == "memory":
            shown.append(run("predict", folder / "model.json", data).output)
    for path in folder.rglob("*"):
        if path.name not in before and path.is_file():
            shown.append(path.read_bytes().decode("utf-8", "replace"))
    assert not [text for text in shown if TOKEN in text]


# Terminals


def command(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "COLUMNS": "200", **options.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        [sys.executable, "-m", "curvedp", *map(str, arguments)],
        env=environment,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_a_terminal_without_greek_letters(folder: Path) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for arguments, code in (
        (("fit", "--help"), 0),
        (("ledger", "show", folder / "budget.db"), 0),
        (("ledger", "create", folder / "budget.db", "--epsilon", 1, "--delta", 1e-6), 2),
    ):
        done = command(*arguments, env=ascii_only, capture_output=True)
        assert done.returncode == code and b"Traceback" not in done.stderr, done.stderr
        assert done.stdout.isascii() and done.stderr.isascii()


def test_text_for_a_file_is_not_damaged_on_such_a_terminal(folder: Path) -> None:
    (folder / "data.csv").write_text("größe,b\n", encoding="utf-8")
    done = command("schema", folder / "data.csv", env={"PYTHONIOENCODING": "ascii"}, capture_output=True)
    assert done.returncode == 2 and b"pass --out FILE" in done.stderr and done.stdout == b""


def test_nobody_reads_the_output(folder: Path) -> None:
    (folder / "wide.csv").write_text(",".join(f"column_{i}" for i in range(20_000)) + "\n")
    read, write = os.pipe()
    os.close(read)
    done = command("schema", folder / "wide.csv", stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 141 and done.stderr == b""
    closed = command(
        "ledger", "show", folder / "budget.db", preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE
    )
    assert closed.returncode == 2 and closed.stderr.startswith(b"Error: stdout is closed")
    if Path("/dev/full").exists():
        with open("/dev/full", "wb") as full:
            done = command("ledger", "show", folder / "budget.db", stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"No space" in done.stderr


# Files that are none, and files that are not what they should be


@pytest.fixture
def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize("special", ["pipe", "/dev/zero"])
def test_pipes_and_devices_are_refused_wherever_a_file_is_read(
    run: Run, folder: Path, pipe: Path, special: str
) -> None:
    """Reading one would wait, or never end; a test that does so does not end either."""
    odd = pipe if special == "pipe" else Path(special)
    assert run(*fit_arguments(folder)).exit_code == 0
    data, schema, model = folder / "data.csv", folder / "schema.toml", folder / "model.json"
    budget, out = ("--epsilon", 1, "--delta", 1e-6), folder / "out"
    parts = ("--train-out", folder / "one", "--test-out", folder / "two")
    (folder / "stored").mkdir()
    (folder / "stored" / "1.parquet").symlink_to(odd)
    (folder / "odd.toml").write_text(
        f'target = "wage"\n[columns]\nage = [16, 80]\nwage = [0, 100]\nsector = {{levels_file = "{odd}"}}\n'
    )
    for arguments in (
        ("fit", odd, "--schema", schema, *budget, "--out", out),
        ("fit", data, "--schema", odd, *budget, "--out", out),
        ("fit", data, "--schema", folder / "odd.toml", *budget, "--out", out),
        ("fit", folder / "stored", "--schema", schema, *budget, "--out", out),
        ("fit", folder / "stored", "--schema", schema, *budget, "--out", out, "--engine", "dask"),
        ("check", odd, "--schema", schema, *budget),
        ("check", folder / "stored", "--schema", schema, *budget),
        ("describe", odd, "--schema", schema, *budget),
        ("bounds", odd, "--columns", "age", *budget),
        ("bounds", folder / "stored", "--columns", "age", *budget),
        ("search", odd, "--schema", schema, "--alphas", "1,2", *budget, "--out", out),
        ("score", model, odd, *budget),
        ("score", odd, data, *budget),
        ("predict", model, odd),
        ("predict", odd, data),
        ("path", odd, "--alphas", "1,2"),
        ("split", odd, *parts),
        ("split", data, *parts, "--schema", odd),
        ("split", data, *parts, "--unit", "note", "--key", odd),
        ("schema", odd),
        ("schema", odd, "--names", "a,b"),
        ("schema", data, "--dictionary", odd),
        ("schema", "--check", odd),
        ("schema", "--check", schema, "--table", odd),
        ("plan", "--schema", odd, "--rows", 100, *budget),
        ("report", odd, "--out", out),
        ("audit", "--model", odd),
    ):
        result = run(*arguments)
        assert result.exit_code == 2 and result.stderr.count("\n") == 1, (arguments, result.output)
        assert "no plain file" in result.stderr or "must be a plain file" in result.stderr, result.stderr
    result = run("ledger", "show", odd)
    assert result.exit_code == 2 and "no ledger" in result.stderr


SECRET = "secret-of-a-levels-file"


def levels(folder: Path, name: str) -> Path:
    path = folder / "levels.toml"
    path.write_text(
        f'target = "wage"\n[columns]\nage = [16, 80]\nwage = [0, 100]\nsector = {{levels_file = "{name}"}}\n'
    )
    return path


@pytest.mark.parametrize("way", ["above", "absolute", "link", "folder", "inside"])
def test_a_file_of_levels_lies_beside_its_schema(run: Run, folder: Path, way: str) -> None:
    home = folder / "declared"
    (home / "below").mkdir(parents=True)
    (folder / "outside.txt").write_text(f"{SECRET}\nb\n")
    (home / "below" / "l.txt").write_text("private\npublic\n")
    (home / "link.txt").symlink_to(folder / "outside.txt")
    name = {"above": "../outside.txt", "absolute": str(folder / "outside.txt"), "link": "link.txt"}.get(
        way, "below"
    )
    if way == "inside":
        name = "below/../below/l.txt"
    schema = levels(home, name)
    budget = ("--epsilon", 1, "--delta", 1e-6)
    for arguments in (
        ("fit", folder / "data.csv", "--schema", schema, *budget, "--out", folder / "o.json"),
        ("schema", "--check", schema),
    ):
        result = run(*arguments)
        if way == "inside":
            assert result.exit_code == 0, result.output
        else:
            assert (
                result.exit_code == 2 and "beside the schema" in result.output and SECRET not in result.output
            )


def test_a_file_of_levels_is_no_other_file_of_the_command(run: Run, folder: Path) -> None:
    budget = ("--epsilon", 1, "--delta", 1e-6)
    for name, other in (
        ("data.csv", "the data"),
        ("levels.toml", "the schema"),
        ("budget.db", "the ledger"),
        ("out.json", "--out"),
    ):
        schema = levels(folder, name)
        result = run(
            *("fit", folder / "data.csv", "--schema", schema, *budget, "--ledger", folder / "budget.db"),
            *("--out", folder / "out.json"),
        )
        refused(result, "is the same file as")
        assert other in result.stderr
        assert not Ledger(folder / "budget.db").history()
    hard = folder / "hard.txt"
    os.link(folder / "data.csv", hard)
    schema = levels(folder, "hard.txt")
    for verb in ("check", "describe"):
        refused(run(verb, folder / "data.csv", "--schema", schema, *budget), "is the same file as the data")
    refused(run("schema", "--check", schema, "--table", folder / "data.csv"), "is the same file as the table")


@pytest.mark.parametrize(
    "content", [f"{SECRET}\nb\n{SECRET}\n", f"{SECRET}\n", f"{SECRET}\n\xff", f"1\n01\n{SECRET}\n"]
)
def test_nothing_of_a_file_of_levels_is_in_an_error(run: Run, folder: Path, content: str) -> None:
    (folder / "l.txt").write_bytes(content.encode("latin-1"))
    schema = levels(folder, "l.txt")
    budget = ("--epsilon", 1, "--delta", 1e-6)
    result = run("fit", folder / "data.csv", "--schema", schema, *budget, "--out", folder / "o.json")
    assert result.exit_code == 2 and SECRET not in result.output
    assert SECRET not in run("schema", "--check", schema).output


@pytest.mark.parametrize("verb", ["split", "predict"])
def test_rows_of_a_closed_table_are_written_for_its_owner_alone(run: Run, folder: Path, verb: str) -> None:
    assert run(*fit_arguments(folder)).exit_code == 0
    os.chmod(folder / "data.csv", 0o600)
    one, two = folder / "one.csv", folder / "two.csv"
    one.write_text("an open file that was there")
    os.chmod(one, 0o666)
    arguments = {
        "split": ("split", folder / "data.csv", "--train-out", one, "--test-out", two, "--force"),
        "predict": (
            "predict",
            folder / "model.json",
            folder / "data.csv",
            "--id",
            "note",
            "--out",
            one,
            "--force",
        ),
    }[verb]
    assert run(*arguments).exit_code == 0
    for path in (one, two) if verb == "split" else (one,):
        assert path.stat().st_mode & 0o777 == 0o600


AMOUNTS = ("--epsilon", "1e308", "--delta", "1e-6")
VERBS = {
    "fit": lambda f: ("fit", f / "data.csv", "--schema", f / "schema.toml", "--out", f / "m.json"),
    "check": lambda f: ("check", f / "data.csv", "--schema", f / "schema.toml"),
    "describe": lambda f: ("describe", f / "data.csv", "--schema", f / "schema.toml"),
    "bounds": lambda f: ("bounds", f / "data.csv", "--columns", "age"),
    "score": lambda f: ("score", f / "model.json", f / "data.csv"),
    "plan": lambda f: ("plan", "--rows", "1000", "--features", "3"),
    "audit": lambda f: ("audit", "--only", "check"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_epsilon_beyond_reason_is_refused_in_one_line(run: Run, folder: Path, verb: str) -> None:
    if verb == "score":
        assert run(*fit_arguments(folder, "--quiet")).exit_code == 0
    charged = Ledger(folder / "budget.db").history()
    refused(run(*VERBS[verb](folder), *AMOUNTS), "epsilon must be a positive number up to 1e6")
    assert Ledger(folder / "budget.db").history() == charged


def test_bounds_of_a_generous_epsilon_are_refused(run: Run, folder: Path) -> None:
    table = ("bounds", folder / "data.csv", "--columns", "age")
    refused(run(*table, "--epsilon", "1e6", "--delta", "1e-6"), "at most 100")


def test_a_report_of_odd_text_and_of_odd_curves_is_a_page_or_one_line(run: Run, folder: Path) -> None:
    assert run(*fit_arguments(folder, "--quiet")).exit_code == 0
    document, model = json.loads((folder / "model.json").read_text()), folder / "odd.json"
    report = ("report", model, "--out", folder / "odd.html", "--force", "--quiet")
    for half in ("\ud800", "a\udfffb"):
        model.write_text(json.dumps({**document, "record": {**document["record"], "time": half}}))
        refused(run(*report), "surrogate")
    guarantee = document["guarantee"]
    for point in ([0, 0], [0, 1], [0.0, 1e-300], [1, 0], [3, 10**30], 5):
        model.write_text(json.dumps({**document, "guarantee": {**guarantee, "curve": [point]}}))
        result = run(*report)
        assert result.exit_code in (0, 2) and "unexpected" not in result.output, point
