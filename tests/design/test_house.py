"""The house stays small: how much there is of it, and how much of it one fit walks through."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from curvedp import Categorical, Ledger, Numeric, PrivateLinearRegression, Schema
from curvedp.cli import main

SOURCE = Path(__file__).parents[2] / "src" / "curvedp"
LENGTHS = {
    path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines())
    for path in SOURCE.rglob("*.py")
}


def test_no_module_is_longer_than_600_lines() -> None:
    assert not {name: lines for name, lines in LENGTHS.items() if lines > 600}


def test_the_house_does_not_grow() -> None:
    """What is added takes the place of something: lower these numbers when you can."""
    assert len(LENGTHS) <= 126
    assert sum(LENGTHS.values()) <= 36_000


def walked(work: Callable[[], Any]) -> tuple[set[str], set[str]]:
    """The modules whose functions run during `work`, and the types of what these functions hold; own ones."""
    modules: set[str] = set()
    types: set[str] = set()

    def look(frame: FrameType, event: str, result: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event not in ("call", "return") or module.partition(".")[0] != "curvedp":
            return
        modules.add(module)
        for value in (*frame.f_locals.values(), result):
            kind = type(value)
            if kind.__module__.partition(".")[0] == "curvedp":
                types.add(f"{kind.__module__}.{kind.__qualname__}")

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return modules, types


@pytest.fixture
def people() -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": random.uniform(18, 90, 2000),
            "job": random.choice(["a", "b"], 2000),
            "wage": random.random(2000),
        }
    )


SCHEMA = Schema(
    [Numeric("age", 18, 90), Categorical("job", ["a", "b"]), Numeric("wage", 0, 1)], target="wage"
)


def test_a_fit_of_a_frame_walks_through_few_rooms(people: pd.DataFrame) -> None:
    def fit() -> None:
        PrivateLinearRegression(schema=SCHEMA, epsilon=1.0, delta=1e-6).fit(people)

    fit()  # warm: what is imported or compiled once
    modules, types = walked(fit)
    assert len(modules) <= 45, sorted(modules)
    assert len(types) <= 60, sorted(types)


def test_a_fit_of_a_file_with_its_report_walks_through_few_rooms(
    people: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    people.to_csv("people.csv", index=False)
    Path("schema.toml").write_text(SCHEMA.to_toml(), "utf-8")
    Ledger.create("budget.db", epsilon=10, delta=1e-4)
    line = "curvedp fit people.csv --schema schema.toml --epsilon 1 --delta 1e-6 --ledger budget.db"

    def fit(name: str) -> None:
        monkeypatch.setattr(sys, "argv", [*line.split(), "--out", f"{name}.json", "--report", f"{name}.html"])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code

    fit("first")
    modules, _ = walked(lambda: fit("second"))
    assert len(modules) <= 66, sorted(modules)


def reassociated(source: str) -> list[ast.FunctionDef]:
    """The functions that the compiler may reassociate: by a decorator, or by a name that was given to one."""
    tree = ast.parse(source)
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and "reassoc" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("reassoc" in (text := ast.unparse(d)) or text in names for d in node.decorator_list)
    ]


def divides_or_clips(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Div | ast.FloorDiv | ast.Pow)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("min", "max", "np.clip", "np.divide"))
        for node in ast.walk(function)
    )


def test_no_loop_over_records_that_clips_or_divides_is_reassociated() -> None:
    """w·(c/s) would be compiled as (w·c)/s, and overflow."""
    kernels = list(SOURCE.rglob("*.py"))
    found = {
        f"{path.name}: {function.name}": divides_or_clips(function)
        for path in kernels
        for function in reassociated(path.read_text("utf-8"))
    }
    assert len(found) >= 5 and not any(found.values()), found


def test_a_planted_clip_is_noticed() -> None:
    source = '_fast = njit(fastmath={"reassoc"})\n@_fast\ndef f(w, c, s):\n    return w * (c / s)\n'
    assert [divides_or_clips(function) for function in reassociated(source)] == [True]
