"""No passage of more than 12 lines stands in the library twice; imports and signatures aside.

Lines are compared without indentation, blank lines and comments. Docstrings count: what is said twice is
changed once.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "curvedp"
ALLOWED = 12
Lines = list[tuple[int, str]]


def aside(tree: ast.Module) -> set[int]:
    """The lines of import statements and of signatures, from `def` to its colon."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= set(range(node.lineno, max(node.lineno + 1, node.body[0].lineno)))
    return found


def compared(source: str) -> Lines:
    """(number, text) of the lines that count, without indentation and comments."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    left_out = aside(ast.parse(source))
    return [
        (number, " ".join(line.split()))
        for number, line in enumerate(lines, start=1)
        if line.strip() and number not in left_out
    ]


def repeated(sources: dict[str, str], allowed: int = ALLOWED) -> list[str]:
    """'a.py:10-24 = b.py:40-54', for every pair of longest passages with more than `allowed` equal lines."""
    lines = {name: compared(source) for name, source in sources.items()}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, own in lines.items():
        for start in range(len(own) - allowed):
            places[tuple(text for _, text in own[start : start + allowed + 1])].append((name, start))
    pairs = {
        (first, second)
        for same in places.values()
        for at, first in enumerate(same)
        for second in same[at + 1 :]
    }
    found = []
    for (a, i), (b, j) in sorted(pairs):
        if ((a, i - 1), (b, j - 1)) in pairs:
            continue
        length = allowed + 1
        while ((a, i + length - allowed), (b, j + length - allowed)) in pairs:
            length += 1
        spans = [f"{n}:{lines[n][at][0]}-{lines[n][at + length - 1][0]}" for n, at in ((a, i), (b, j))]
        found.append(" = ".join(spans))
    return found


def library() -> dict[str, str]:
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))
    }


def test_no_passage_stands_twice() -> None:
    assert not repeated(library())


def passage(lines: int) -> str:
    return "\n".join(f"    value = value * {line}  # step {line}" for line in range(lines))


def test_a_planted_passage_is_noticed() -> None:
    here = f"import math\n\n\ndef one(value):\n{passage(ALLOWED + 1)}\n    return value\n"
    there = f"class Other:\n    def two(self, value):\n{passage(ALLOWED + 1).replace('    ', '        ')}\n\n"
    assert repeated({"a.py": here, "b.py": there}) == ["a.py:5-17 = b.py:3-15"]
    assert repeated({"a.py": here + "\n\n" + here}) == ["a.py:5-18 = a.py:25-38"]


def test_what_stands_aside_and_what_is_short_enough() -> None:
    signature = "def f(\n" + "".join(f"    a{i}: int,\n" for i in range(20)) + ") -> None:\n    {body}\n"
    imports = "from a import (\n" + "".join(f"    b{i},\n" for i in range(20)) + ")\n"
    one, two = (imports + signature.replace("{body}", body) for body in ("return None", "raise ValueError"))
    assert not repeated({"a.py": one, "b.py": two})
    short = f"def f(value):\n{passage(ALLOWED)}\n"
    assert not repeated({"a.py": short + "    return value\n", "b.py": short + "    return -value\n"})
    assert repeated({"a.py": short + "    return value\n", "b.py": short + "    return value\n"})
