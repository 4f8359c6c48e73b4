"""What a command says is in its own words: options and names of models, never parameters of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from curvedp import PrivateRidge
from curvedp.cli.console import in_options
from curvedp.errors import InvalidInput
from curvedp.release.ledger import Ledger

Run = Callable[..., Result]
NAMES = {
    "SmartNoise",
    "add_remove",
    "lop_clip",
    "elastic_net",
    "missing_codes",
    "levels_file",
    "rows_per_person",
    "month_number",
}
PYTHON = re.compile(
    r"random_state|fit_intercept|\w+_\w+|\b[a-z]\w*=(?!=)|\b[A-Z][a-z]+[A-Z]\w*|\b(?:None|True|False)\b|"
    r"\b[A-Z]\w*\(|\bX\b|data frame|in Python|curvedp\.\w"
)


def python_words(text: str) -> list[str]:
    """What only a programmer would understand; names of files and columns, in quotes, may be anything."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+|\S+\.(?:csv|toml|json|db|html|parquet)\b", "", text)
    return [word for word in PYTHON.findall(bare) if word not in NAMES]


LEAVING = re.compile(
    r"(leave|leaving|drop|take) `?unit`? out|without `?unit`? (only|if|where)|leave out `?unit`?"
)
ELSEWHERE = ("data/rows/__init__.py", "postprocess/noise.py")  # refusals that go with what is refused there


def sentences(source: str) -> list[str]:
    """Every text in a module, parts that stand side by side joined; what is filled in is {}."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values))
    return found


def test_no_sentence_suggests_to_leave_the_unit_out() -> None:
    source = Path(__file__).parents[2] / "src" / "curvedp"
    texts = {
        path.relative_to(source).as_posix(): list(filter(LEAVING.search, sentences(path.read_text("utf-8"))))
        for path in source.rglob("*.py")
    }
    assert len(texts) > 100
    assert {name: found for name, found in texts.items() if found and name not in ELSEWHERE} == {}


@pytest.mark.parametrize(
    "planted",
    [
        'raise NotCovered(f"{what}: bring it to one, or leave " "unit out if a row is what is protected")',
        'REASON = "intervals are of rows: fit without unit " "only where everybody has one row"',
    ],
)
def test_a_planted_suggestion_is_found(planted: str) -> None:
    assert any(map(LEAVING.search, sentences(planted)))


@pytest.fixture
def place(folder: Path, run: Run) -> Path:
    """Beside the table: a model of a number, one with intervals, one of two classes, and other schemas."""
    fit = ("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6)
    for name, more in (
        ("wage.json", ("--model", "ridge", "--alpha", 1)),
        ("linear.json", ("--no-inference",)),
        ("sure.json", ()),
        ("sector.json", ("--target", "sector")),
    ):
        done = run(*fit, "--out", folder / name, "--quiet", *more)
        assert done.exit_code == 0, done.stderr
    text = (folder / "schema.toml").read_text()
    (folder / "counts.toml").write_text(
        text.replace('target = "wage"', 'target = "wage"\nexposure = "age"', 1)
    )
    three = text.replace('["private", "public"]', '["private", "public", "none"]')
    (folder / "three.toml").write_text(three.replace('target = "wage"', 'target = "sector"'))
    (folder / "unit.toml").write_text(text.replace('target = "wage"', 'target = "wage"\nunit = "note"'))
    Ledger.create(folder / "basic.db", epsilon=0.5, delta=1e-5, filter="basic")
    Ledger.create(folder / "small.db", epsilon=0.01, delta=1e-9)
    (folder / "bare.csv").write_text("41,private,x,20\n42,public,y,30\n")
    (folder / "semicolons.csv").write_text("age;sector;note;wage\n41;private;x;20\n")
    (folder / "text.json").write_text("{}")
    return folder


FIT = "fit data.csv --schema schema.toml --epsilon 1 --delta 1e-6 --out m.json"
WRONG = [
    f"{FIT} --seed 1 --ledger budget.db",
    f"{FIT} --mechanism lop",
    f"{FIT} --mechanism output",
    f"{FIT} --mechanism lop --model logistic --target sector --alpha -1",
    f"{FIT} --mechanism statistics --model huber",
    f"{FIT} --mechanism recentered --accounting paper",
    f"{FIT} --mechanism qop --accounting paper --epsilon 2",
    f"{FIT} --mechanism statistics --radius 2",
    f"{FIT} --mechanism qop --radius -1",
    f"{FIT} --alpha 1",
    f"{FIT} --max-rate 3",
    f"{FIT} --model poisson --max-rate 1000",
    f"{FIT} --model poisson --rows 100",
    f"{FIT} --model svc",
    f"{FIT} --model logistic",
    f"{FIT} --x-norm -1",
    f"{FIT} --x-norm nan",
    f"{FIT} --scheduler tcp://localhost:1",
    f"{FIT} --engine dask",
    f"{FIT} --delimiter ;;",
    f"{FIT} --decimal x",
    f"{FIT} --encoding none-such",
    f"{FIT} --formula wage",
    f"{FIT} --formula wage~scale(age)",
    f"{FIT} --formula wage~ages",
    f"{FIT} --target age --formula wage~age",
    f"{FIT} --ledger basic.db",
    f"{FIT} --ledger small.db",
    f"{FIT} --ledger none.db",
    f"{FIT} --by me",
    f"{FIT} --epsilon 0",
    f"{FIT} --delta 0",
    f"{FIT} --delta 1e-300",
    FIT.replace("schema.toml", "counts.toml"),
    FIT.replace("schema.toml", "three.toml") + " --mechanism qop --accounting directional",
    FIT.replace("schema.toml", "three.toml") + " --mechanism lop",
    FIT.replace("schema.toml", "unit.toml") + " --mechanism qop",
    FIT.replace("data.csv", "bare.csv"),
    FIT.replace("data.csv", "semicolons.csv"),
    FIT.replace("data.csv", "data.parquet"),
    FIT.replace("fit", "search") + " --alphas 1,x",
    FIT.replace("fit", "search") + " --alphas -1,1",
    FIT.replace("fit", "search") + " --alphas 1,2 --model linear",
    FIT.replace("fit", "search") + " --alphas 1,2 --seed 1 --ledger budget.db",
    "schema bare.csv",
    "schema semicolons.csv",
    "schema none.csv",
    "schema data.csv --names a,b --header",
    "schema --check schema.toml --out x.toml",
    "check data.csv --schema schema.toml --epsilon 0.0001",
    "check data.csv --schema schema.toml --epsilon 1 --delta 0",
    "check data.csv --schema schema.toml --epsilon 1 --rows 0",
    "describe data.csv --schema schema.toml --epsilon 0.5 --delta 0",
    "describe data.csv --schema schema.toml --epsilon 0.0001",
    "bounds data.csv --columns age --epsilon 0.1 --lower 2",
    "bounds data.csv --columns age,age --epsilon 0.1",
    "bounds data.csv --columns none --epsilon 0.1",
    "bounds data.csv --columns age --epsilon 0",
    "bounds data.csv --columns age --epsilon 1 --schema schema.toml --adjacency add_remove",
    "bounds data.csv --columns age --epsilon 1 --schema schema.toml",
    "predict wage.json bare.csv",
    "predict wage.json data.csv --proba",
    "predict wage.json data.csv --threshold 0.5",
    "predict sector.json data.csv --threshold 2",
    "predict wage.json data.csv --out none/p.csv",
    "predict text.json data.csv",
    "score wage.json data.csv --epsilon 0.1 --delta 0",
    "score wage.json data.csv --epsilon 0.1 --rows 3",
    "score wage.json data.csv --epsilon 0.1 --group age",
    "score wage.json data.csv --epsilon 0.1 --group none",
    "score wage.json data.csv --epsilon 0.1 --group wage",
    "score wage.json data.csv --epsilon 0.1 --seed 1 --ledger budget.db",
    "refit wage.json --alpha 1e9 --out r.json",
    "refit wage.json --alpha -1 --out r.json",
    "refit wage.json --columns none --out r.json",
    "refit linear.json --alpha 2 --out r.json",
    "refit sure.json --columns age --out r.json",
    "refit sector.json --alpha 2 --out r.json",
    "path linear.json --alphas 1,2",
    "path sure.json --alphas 1,2",
    "split data.csv --test 2 --train-out a.csv --test-out b.csv",
    "split data.csv --key k --train-out a.csv --test-out b.csv",
    "split data.csv --unit none --train-out a.csv --test-out b.csv",
    "plan --rows 100 --features 3 --epsilon 1 --delta 0",
    "plan --rows 100 --features 3 --epsilon 1 --score 1 --delta 1e-6",
    "plan --rows 100 --features 3 --score 0.4 --best 2 --delta 1e-6",
    "plan --rows 100 --schema counts.toml --epsilon 1 --delta 1e-6",
    "plan --rows 100 --schema schema.toml --features 3 --epsilon 1 --delta 1e-6",
    "ledger create other.db --epsilon 1 --delta 1",
    "ledger create other.db --epsilon -1 --delta 0",
]


def test_wrong_command_lines_are_answered_in_options(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    spoken = {}
    for line in WRONG:
        result = run(*line.split())
        assert result.exit_code == 2, (line, result.output)
        assert result.stdout == "" and result.stderr.count("\n") == 1, (line, result.output)
        found = python_words(result.stderr)
        if found:
            spoken[line] = (result.stderr, found)
    assert spoken == {}
    assert len(WRONG) >= 90
    for book in ("budget.db", "basic.db", "small.db"):
        assert Ledger(place / book).state().charges == 0


def test_what_right_commands_print_is_in_words_too(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for line in (
        f"{FIT} --seed 1 --rows 100",
        f"{FIT} --no-inference --force",
        f"{FIT} --model poisson --force",
        f"{FIT} --model ridge --force",
        f"{FIT} --model huber --alpha 1 --force",
        f"{FIT} --mechanism qop --force",
        FIT.replace("schema.toml", "three.toml") + " --force",
        FIT.replace("schema.toml", "unit.toml") + " --force",
        FIT.replace("fit", "search").replace("schema.toml", "unit.toml") + " --alphas 1,2 --force",
        "check data.csv --schema schema.toml --epsilon 1",
        "describe data.csv --schema schema.toml --epsilon 1",
        "bounds data.csv --columns age --epsilon 1",
        "score sector.json data.csv --epsilon 1",
        "refit wage.json --alpha 1.1 --out r.json",
        "path wage.json --alphas 1,1.1",
        "plan --rows 100 --features 2 --epsilon 1 --delta 1e-6 --adjacency replace",
        *(f"{command} --help" for command in ("fit", "search", "score", "plan", "schema", "split")),
    ):
        result = run(*line.split())
        assert result.exit_code == 0, (line, result.output)
        shown = re.sub(r"True class|C\(region\)|I\(age\*\*2\)|sector=", "", result.stdout)
        assert python_words(shown) == [], line


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("leave `random_state` or the ledger out", "leave --seed or the ledger out"),
        ("pass `epsilon=0.3` or `delta=1e-6`", "pass --epsilon 0.3 or --delta 1e-6"),
        ("pass `accounting=spectral`", "pass --accounting spectral"),
        ("pass `header=False` and `names`", "pass --no-header and --names"),
        ("pass `delimiter=';'`", "pass --delimiter ';'"),
        ("`max_rate` must lie above 0", "--max-rate must lie above 0"),
        ("column 'epsilon=2' of 'random_state'", "column 'epsilon=2' of 'random_state'"),
        ("as `curvedp ledger show` prints it", "as `curvedp ledger show` prints it"),
    ],
)
def test_words(message: str, words: str) -> None:
    assert in_options(message) == words


def test_an_error_knows_the_parameters_that_it_speaks_of() -> None:
    with pytest.raises(InvalidInput) as caught:
        PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), x_norm=-1).fit(np.zeros((1, 1)), [0.0])
    assert caught.value.parameters == ("x_norm",)


def test_messages_that_name_a_parameter_mark_it() -> None:
    """Of every message in the source: a parameter, unless it is an English word without a value."""
    source = Path(__file__).parents[2] / "src" / "curvedp"
    told = re.compile(
        r"\b(?:random_state|x_norm|max_rate)\b|\b(?:epsilon|delta|alpha|delimiter|trust|filter)="
    )
    seen = 0
    for path in source.rglob("*.py"):
        if path.parts[-2] in ("cli", "peers", "auditing") or "solvers" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                texts = [n.value for n in ast.walk(node.exc) if isinstance(n, ast.Constant)]
                text = "".join(t for t in texts if isinstance(t, str))
                seen += bool(told.search(text))
                assert not told.search(re.sub(r"`[^`]*`", "", text)), (path.name, text)
    assert seen >= 8
