"""What a schema file says of derived columns: a formula, or its terms, and [[derived]]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.columns import is_list, is_text
from curvedp.schema.formulas.derived import Derived
from curvedp.schema.formulas.terms import NO_INTERCEPT
from curvedp.schema.formulas.text import canonical, split

MOST_ENTRIES = 5000


def derivations(content: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `Schema` about derived columns, in content that nobody vouches for."""
    formula, terms, derived = content.get("formula"), content.get("terms"), content.get("derived", [])
    if formula is not None and terms is not None:
        raise InvalidInput("the schema has a formula and terms, which say the same: remove one")
    if formula is not None and not isinstance(formula, str):
        raise InvalidInput('formula must be text: write formula = "wage ~ age + I(age**2)"')
    if not isinstance(derived, list) or len(derived) > MOST_ENTRIES:
        raise InvalidInput(
            "derived must be a list of tables: write [[derived]] with a name and an expression"
        )
    return {"formula": formula, "terms": _terms(terms), "derived": tuple(map(_derived, derived))}


def _terms(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if (
        not is_list(given)
        or len(given) > MOST_ENTRIES
        or not all(isinstance(t, str) and is_text(t) for t in given)
    ):
        raise InvalidInput('terms must be a list of texts: write terms = ["age", "I(age ** 2)"]')
    return tuple(term if term == NO_INTERCEPT else canonical(split(term)) for term in given)


def _derived(entry: Any) -> Derived:
    if not isinstance(entry, Mapping) or set(entry) != {"name", "expression"}:
        raise InvalidInput('a [[derived]] has a name and an expression: write expression = "log1p(x)"')
    return Derived(entry["name"], entry["expression"])
