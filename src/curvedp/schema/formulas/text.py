"""The text of terms and factors: taken apart, parsed, written in one way."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword

from curvedp.errors import InvalidInput
from curvedp.schema.columns import shown

LONGEST = 1000
_TICKED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Text:
    """A parsed factor; `ticked` are the names that stood in backticks, by what stands for them."""

    tree: ast.expr
    ticked: Mapping[str, str]

    def of(self, tree: ast.AST) -> str:
        """A part of it as it is written, in one way."""
        text = ast.unparse(tree)
        for stand_in, name in self.ticked.items():
            text = text.replace(stand_in, f"`{name}`")
        return text

    def name(self, tree: ast.Name) -> str:
        return self.ticked.get(tree.id, tree.id)


def quoted(name: str) -> str:
    """A column's name as it is written in a formula."""
    plain = name.isascii() and name.isidentifier() and not iskeyword(name)
    return name if plain else f"`{name}`"


def parsed(text: str) -> Text:
    """The expression that a text is, if it is one."""
    if len(text) > LONGEST:
        raise InvalidInput(f"an expression has more than {LONGEST} letters: declare parts as [[derived]]")
    ticked: dict[str, str] = {}
    prefix = "ticked"
    while prefix in text:
        prefix += "_"

    def stand_in(match: re.Match[str]) -> str:
        return ticked.setdefault(match[1], f"{prefix}{len(ticked)}_")

    plain = _TICKED.sub(stand_in, text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
        ast.unparse(tree)  # fails where it is nested too deeply
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None:
        raise InvalidInput(
            f"{shown(text)} is no expression: write one such as log1p(x); a name that is no plain word is in "
            "backticks"
        )
    return Text(tree, {one: name for name, one in ticked.items()})


def split(text: str) -> list[str]:
    """The factors of a term: what : separates, outside of brackets and backticks."""
    found, depth, ticked = [""], 0, False
    for letter in text:
        if letter == "`":
            ticked = not ticked
        elif not ticked:
            depth += (letter in "([{") - (letter in ")]}")
        if letter == ":" and depth == 0 and not ticked:
            found.append("")
        else:
            found[-1] += letter
    return found


def called(tree: ast.expr) -> str:
    """The name of the function that is called; np.log is log."""
    if not isinstance(tree, ast.Call):
        return ""
    function = tree.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr if function.value.id in ("np", "numpy") else ""
    return function.id if isinstance(function, ast.Name) else ""


def constant(tree: ast.expr) -> float | None:
    """The number that is written there, with its sign."""
    sign = 1.0
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
        sign, tree = (-1.0 if isinstance(tree.op, ast.USub) else 1.0), tree.operand
    value = tree.value if isinstance(tree, ast.Constant) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return sign * float(value)
        except OverflowError:
            return None
    return None


def canonical(factors: Sequence[str]) -> str:
    """A term in the one way in which it is written."""
    read = [parsed(text) for text in factors]
    return ":".join(text.of(text.tree) for text in read)
