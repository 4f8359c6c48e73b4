"""The text of formulas in R's notation, of terms and of factors: taken apart, parsed, written in one way."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from itertools import product
from keyword import iskeyword
from typing import Any

from curvedp.data.columns import is_text, shown
from curvedp.errors import InvalidInput

LONGEST_FORMULA, LONGEST_FACTOR = 10_000, 1000
LARGEST_EXPONENT, MOST_FACTORS, MOST_COLUMNS = 5, 20, 20_000
NO_INTERCEPT = "0"  # as a term: no constant
_TICKED = re.compile(r"`[^`]+`")
_PIECE = re.compile(r"""`[^`]*`|'[^']*'|"[^"]*"|.""", re.DOTALL)  # what no bracket or sign within counts of
_TOKEN = re.compile(r"\s*(`[^`]+`|[\w.]+|\*\*|%in%|[-+*/:^~(){])")
_NUMBER = re.compile("[0-9.]*[0-9][0-9.]*")
_DEEPER = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}


def quoted(name: str) -> str:
    """A column's name as it is written in a formula."""
    return name if name.isascii() and name.isidentifier() and not iskeyword(name) else f"`{name}`"


def parsed(text: str) -> ast.expr:
    """The expression that a text is, if it is one; a name that stood in backticks keeps them."""
    if len(text) > LONGEST_FACTOR:
        raise InvalidInput(
            f"an expression has more than {LONGEST_FACTOR} letters: declare parts as [[derived]]"
        )
    prefix = "ticked"
    while prefix in text:
        prefix += "_"
    pieces = _PIECE.findall(text)
    ticked = [piece for piece in dict.fromkeys(pieces) if _TICKED.fullmatch(piece)]
    stand_ins = {piece: f"{prefix}{i}_" for i, piece in enumerate(ticked)}
    plain = "".join({**stand_ins, "^": "**"}.get(piece, piece) for piece in pieces)  # ^ as R writes a power
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
        ast.unparse(tree)  # fails where it is nested too deeply
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidInput(
            f"{shown(text)} cannot be read as an expression: write one such as log1p(x); a name that is no "
            "plain word is in backticks"
        ) from None
    written = {stand_in: piece for piece, stand_in in stand_ins.items()}
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and value in written:
                setattr(node, field, written[value])
    return tree


def name_in(tree: ast.AST) -> str:
    """The column that a factor names; "" where it is more than a name."""
    return tree.id.strip("`") if isinstance(tree, ast.Name) else ""


def split(text: str) -> list[str]:
    """The factors of a term: what : separates, outside of brackets, backticks and quotes."""
    found, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += _DEEPER.get(piece, 0)
        if piece == ":" and depth == 0:
            found.append("")
        else:
            found[-1] += piece
    return found


def called(tree: ast.expr) -> str:
    """The name of the function that is called; np.log is log."""
    match tree:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name)):
            return name
    return ""


def constant(tree: ast.expr) -> float | None:
    """The number that is written there, with its sign."""
    sign = 1.0
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
        sign, tree = (-1.0 if isinstance(tree.op, ast.USub) else 1.0), tree.operand
    value = tree.value if isinstance(tree, ast.Constant) else None
    with suppress(OverflowError):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return sign * float(value)
    return None


def canonical(factors: Sequence[str]) -> str:
    """A term in the one way in which it is written."""
    return ":".join(ast.unparse(parsed(text)) for text in factors)


# The terms of a formula, each a product of factors: by the set of them, in the order first written.
Terms = dict[frozenset[str], tuple[str, ...]]


def _alone(factor: str) -> Terms:
    return {frozenset([factor]): (factor,)}


_CONSTANT, _ZERO = _alone("1"), _alone("0")


def read_formula(
    text: Any, columns: Sequence[str], target: str | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """(what is predicted, the terms) of "y ~ a + b:c"; "0" among the terms: no constant. Nothing is predicted
    where nothing stands before ~. A dot stands for all columns but those that the target is computed from, or
    `target` where the formula names none."""
    if not (is_text(text) and len(text) <= LONGEST_FORMULA):
        raise InvalidInput('a formula must be text such as "wage ~ age + I(age**2)"')
    try:
        tokens = _tokens(text)
        tilde = tokens.index("~") if "~" in tokens else -1
        targets = list(_Side(tokens[: max(tilde, 0)], {}).terms({}).values()) if tilde > 0 else []
        if tilde > 0 and (len(targets) != 1 or len(targets[0]) != 1):
            raise InvalidInput("the formula has several targets, or none: write one before ~")
        nodes = list(ast.walk(parsed(targets[0][0]))) if targets else []
        functions = [node.func for node in nodes if isinstance(node, ast.Call)]
        used = {name_in(node) for node in nodes if node not in functions} if targets else {target}
        dot = _either(*(_alone(quoted(name)) for name in columns if name not in used))
        terms = _Side(tokens[tilde + 1 :], dot).terms(_CONSTANT)
    except _Unreadable as error:
        reason = str(error)
    except RecursionError:
        reason = "its brackets are nested too deeply"
    else:
        own = sorted((term for term in terms.values() if term != ("1",)), key=len)
        for term in own:
            if any(map(_NUMBER.fullmatch, term)):
                raise InvalidInput(
                    f"the term {shown(':'.join(term))} has a number as a factor, which changes nothing: "
                    "leave it out"
                )
        without = () if _CONSTANT.keys() <= terms.keys() else (NO_INTERCEPT,)
        return targets[0][0] if targets else None, (*without, *map(":".join, own))
    raise InvalidInput(f"the formula {shown(text)} cannot be read: {reason}")


class _Unreadable(Exception):
    """Why a formula cannot be read."""


def _tokens(text: str) -> list[str]:
    """Signs, and factors in the one way in which they are written."""
    found, place, text = [], 0, text.rstrip()
    while place < len(text):
        if (match := _TOKEN.match(text, place)) is None:
            raise _Unreadable(f"{shown(text[place:].lstrip()[:1])} is not understood there")
        token, place = match[1], match.end()
        is_word = token[0].isalnum() or token[0] in "_.`"
        if token == "{" or (is_word and text[place : place + 1] in ("(", "[")):
            start, place = match.start(1), _closed(text, place - (token == "{"))
            found.append(canonical([text[start + 1 : place - 1] if token == "{" else text[start:place]]))
        elif is_word and token != "." and not _NUMBER.fullmatch(token):
            found.append(quoted(token.strip("`")))
        else:
            found.append(token)
    return found


def _closed(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for piece in _PIECE.finditer(text, start):
        depth += _DEEPER.get(piece[0], 0)
        if depth == 0:
            return piece.end()
    raise _Unreadable("check its brackets and quotes")


def _either(*parts: Terms) -> Terms:
    """The terms of all, each as first written."""
    found: Terms = {}
    for key, term in (pair for part in parts for pair in part.items()):
        found.setdefault(key, term)
    return found


class _Side:
    """The tokens of one side of a formula, and what a dot stands for; read from left to right."""

    def __init__(self, tokens: Sequence[str], dot: Terms) -> None:
        self._waiting, self._dot, self._made = [*reversed(tokens)], dot, 0

    def terms(self, start: Terms) -> Terms:
        found = self._sum(start)
        if self._waiting:
            raise _Unreadable(f"a sign is missing before {shown(self._waiting[-1])}")
        return found

    def _next(self, *signs: str) -> str:
        """The next token if it is one of these signs, which is then read; "" otherwise."""
        return self._waiting.pop() if self._waiting and self._waiting[-1] in signs else ""

    def _sum(self, found: Terms) -> Terms:
        """found + a − b …; + 0 is − 1."""
        first = True
        while (sign := self._next("+", "-")) or (first and self._waiting and self._waiting[-1] != ")"):
            minus = sign == "-"
            while sign := self._next("+", "-"):
                minus ^= sign == "-"
            terms = self._product()
            if terms == _ZERO:
                terms, minus = _CONSTANT, not minus
            kept = {key: term for key, term in found.items() if not (minus and key in terms)}
            found, first = kept if minus else _either(found, terms), False
        return found

    def _product(self) -> Terms:
        """a*b is a + b + a:b; a/b is a + A:b, A the product of all terms of a; b %in% a is a/b."""
        found = self._interaction()
        while sign := self._next("*", "/", "%in%"):
            more = self._interaction()
            if sign == "*":
                found = _either(found, more, self._times(found, more))
            else:
                outer, inner = (found, more) if sign == "/" else (more, found)
                if not outer:
                    raise _Unreadable("nothing is left beside a sign")
                whole = tuple(factor for term in outer.values() for factor in term)
                found = _either(outer, self._times({frozenset(whole): whole}, inner))
        return found

    def _interaction(self) -> Terms:
        found = self._power()
        while self._next(":"):
            found = self._times(found, self._power())
        return found

    def _power(self) -> Terms:
        base = self._operand()
        while self._next("**", "^"):
            exponent = " + ".join(map(":".join, self._operand().values()))
            if not exponent.isdecimal() or not 1 <= int(exponent[:9]) <= LARGEST_EXPONENT:
                raise _Unreadable(
                    f"a power of terms is at most {LARGEST_EXPONENT}; for that of a number write I(x**2)"
                )
            base = reduce(self._times, [base] * int(exponent))
        return base

    def _operand(self) -> Terms:
        if self._next("("):
            found = self._sum({})
            if not self._next(")"):
                raise _Unreadable("check its brackets and quotes")
            return found
        if not self._waiting or self._waiting[-1] in (*"+-*/:^~()", "**", "%in%"):
            raise _Unreadable("something is missing beside a sign")
        token = self._waiting.pop()
        return self._dot if token == "." else _alone(token)

    def _times(self, left: Terms, right: Terms) -> Terms:
        """Every product of two terms; a factor counts once."""
        self._made += len(left) * len(right)
        if self._made > MOST_COLUMNS:
            raise _Unreadable(
                f"multiplied out it has more than {MOST_COLUMNS} terms; name the interactions that you need, "
                "such as a:b"
            )
        found: Terms = {}
        for a, b in product(left.values(), right.values()):
            if len(term := tuple(dict.fromkeys((*a, *b)))) > MOST_FACTORS:
                raise InvalidInput(f"a term has more than {MOST_FACTORS} factors: leave some out")
            found.setdefault(frozenset(term), term)
        return found
