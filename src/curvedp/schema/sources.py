"""Where declared bounds and levels come from, as a schema keeps it: one line of text for each column."""

from __future__ import annotations

NOT_STATED = "declared by the operator, source not stated"
SEEDED = "from a seeded run, NOT private"
_BOUGHT = ("bought: ", "private, ε")  # the second as schemas of version 0.2 have it


def bought(cost: str, day: str, charge: str) -> str:
    """The source of bounds that a private release of that cost gave; `charge` is its label in the ledger."""
    return f"bought: {cost}, {day}, {f'charge {charge}' if charge else 'not charged to a ledger'}"


def is_bought(source: str) -> bool:
    """Whether they were bought, by a release whose cost comes on top."""
    return source.startswith(_BOUGHT)
