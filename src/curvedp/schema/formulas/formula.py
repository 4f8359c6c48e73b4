"""Formulas in R's notation, read by formulaic's parser: which terms there are, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.columns import is_text, shown
from curvedp.schema.formulas.terms import MOST_COLUMNS, NO_INTERCEPT
from curvedp.schema.formulas.text import canonical, quoted

LONGEST_FORMULA = 10_000
LARGEST_EXPONENT = 5
_AVAILABLE = "__formulaic_variables_available__"


@dataclass(frozen=True)
class Formula:
    """What is predicted, None where it is not said, and the terms; "0" among them: no constant."""

    target: str | None
    terms: tuple[str, ...]


def has_target(text: object) -> bool:
    """Whether something stands before ~."""
    return isinstance(text, str) and "~" in text and bool(text.partition("~")[0].strip())


def read_formula(text: Any, columns: Sequence[str]) -> Formula:
    """The target and the terms of "y ~ a + b:c"; a dot stands for all columns but the target."""
    if not (isinstance(text, str) and is_text(text) and len(text) <= LONGEST_FORMULA):
        raise InvalidInput('a formula must be text such as "wage ~ age + I(age**2)"')
    sides = _sides(text, columns)
    left, right = sides.get("lhs", []), sides.get("rhs", sides.get("root", []))
    targets = [_term(term) for term in left]
    if len(targets) > 1 or any(len(list(term.factors)) > 1 for term in left):
        raise InvalidInput(f"the formula {shown(text)} has several targets: write one before ~")
    terms = [_term(term) for term in sorted(right, key=lambda term: len(term.factors))]
    kept = tuple(term for term in terms if term != "1")
    return Formula(targets[0] if targets else None, kept if "1" in terms else (NO_INTERCEPT, *kept))


def _sides(text: str, columns: Sequence[str]) -> dict[str, list[Any]]:
    try:
        from formulaic.errors import FormulaParsingError
        from formulaic.parser import DefaultFormulaParser
    except ModuleNotFoundError:
        raise InvalidInput("a formula needs the package formulaic: pip install formulaic") from None
    parser = DefaultFormulaParser(feature_flags={"twosided"})
    reason = "check its brackets and quotes"
    try:
        refused = _too_much(parser.get_ast(text), len(columns))
        if not refused:  # the parser multiplies out
            found = parser.get_terms(text, context={_AVAILABLE: list(columns)})
            return {key: list(terms) for key, terms in found._structure.items()}
        reason = refused
    except FormulaParsingError as error:
        reason = str(error).splitlines()[0].rstrip(".")
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError):
        pass
    raise InvalidInput(f"the formula {shown(text)} cannot be read: {reason}")


def _too_much(tree: Any, columns: int) -> str:
    """Why the terms of a parsed formula are not multiplied out; "" where they can be.

    Their number, repeated ones included, is at most a + b for sums, ab + a + b for products, aⁿ for a**n.
    """
    nodes, waiting = [], [tree]
    while waiting:  # no recursion: a sum of a thousand terms is as deep
        node = waiting.pop()
        if hasattr(node, "operator"):
            nodes.append(node)
            waiting += node.args
    sizes: dict[int, int] = {}
    for node in reversed(nodes):
        sign, parts = node.operator.symbol, [sizes.get(id(part), 1) for part in node.args]
        size = columns if sign == "." else sum(parts)
        if sign in ("**", "^"):
            power = max(
                [int(str(leaf)[:9]) for leaf in _leaves(node.args[1]) if str(leaf).isdecimal()], default=1
            )
            if power > LARGEST_EXPONENT:
                return f"a power of terms is at most {LARGEST_EXPONENT}; for that of a number write I(x**2)"
            size = parts[0] ** power
        elif sign not in (".", "+", "-", "/", "~"):
            size += prod(parts)
        if size > MOST_COLUMNS:
            return (
                f"multiplied out it has more than {MOST_COLUMNS} terms; name the interactions that you need, "
                "such as a:b"
            )
        sizes[id(node)] = size
    return ""


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree.args for leaf in _leaves(part)] if hasattr(tree, "operator") else [tree]


def _term(term: Any) -> str:
    """The text of one of formulaic's terms."""
    factors = list(term.factors)
    kinds = [factor.eval_method.name for factor in factors]
    if kinds == ["LITERAL"] and factors[0].expr == "1":
        return "1"
    if "LITERAL" in kinds:
        raise InvalidInput(
            f"the term {shown(str(term))} has a number as a factor, which changes nothing: leave it out"
        )
    return canonical([quoted(f.expr) if f.eval_method.name == "LOOKUP" else f.expr for f in factors])
