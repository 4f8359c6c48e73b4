"""Modules stay small enough to be read at once, and compiled loops compute what is written."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "curvedp"
LENGTHS = {
    path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines())
    for path in SOURCE.rglob("*.py")
}


def test_no_module_is_longer_than_600_lines() -> None:
    assert not {name: lines for name, lines in LENGTHS.items() if lines > 600}


def test_the_house_does_not_grow() -> None:
    """What is added takes the place of something: lower these numbers when you can."""
    assert len(LENGTHS) <= 247
    assert sum(LENGTHS.values()) <= 43_200


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
