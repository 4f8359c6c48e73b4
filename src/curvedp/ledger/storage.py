"""The tables of a ledger file, and the chain of hashes over them.

    digest₀ = H(the budget),   digestᵢ = H(digestᵢ₋₁, charge i and the exact totals up to it),
    head    = (n, digestₙ, H(n, digestₙ)).

Charges of format 2 said neither by whom nor why (both are NULL) and had digests of 128 bits, as its budgets,
which had no nonce. They keep them: so the chain goes on, and a head of that time is still one of its digests.
No charge can be taken for one of another format, since what is hashed has another length.

What was spent is read from the last charge alone, and only when budget, head, last charge and the digest of
the one before agree: so every transaction verifies all that decides about the budget, at a cost that does not
grow with the history. `recent` verifies the newest charges, `walk` the whole chain.
"""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from curvedp.ledger.filters import FILTERS, Filter, FilterName, Tally
from curvedp.neighbours import Adjacency, Neighbours

FORMAT = 3
APPLICATION_ID = 0x63764450  # "cvDP", in the header of the file

_TABLES = """
CREATE TABLE budget (
    id INTEGER PRIMARY KEY CHECK (id = 1), created TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
    adjacency TEXT NOT NULL, unit TEXT, filter TEXT NOT NULL, digest TEXT NOT NULL, nonce TEXT
);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, mechanism TEXT NOT NULL, theorem TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, rho TEXT, label TEXT NOT NULL,
    total_epsilon TEXT NOT NULL, total_delta TEXT NOT NULL, total_rho TEXT NOT NULL, digest TEXT NOT NULL,
    charged_by TEXT, purpose TEXT
);
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1), charges INTEGER NOT NULL, last TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TRIGGER charges_stay BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER charges_stand BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER budget_stays BEFORE DELETE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
CREATE TRIGGER budget_stands BEFORE UPDATE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
CREATE TRIGGER head_stays BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the head is final'); END;
CREATE TRIGGER head_grows BEFORE UPDATE ON head WHEN NEW.charges IS NOT OLD.charges + 1
BEGIN SELECT RAISE(ABORT, 'the head only grows'); END;
"""

_BUDGET = "created, epsilon, delta, adjacency, unit, filter, nonce, digest"
_CHARGE = (
    "id, time, mechanism, theorem, epsilon, delta, rho, label, total_epsilon, total_delta, total_rho, "
    "charged_by, purpose, digest"
)
_CHARGE_LENGTH_2 = 11  # of what format 2 hashed of a charge
_ID_LENGTH = 12
_NARROW, _WIDE = 16, 32  # bytes of a digest: against accidents, and against a writer who looks for collisions


class Damaged(Exception):
    """The file is not what a ledger wrote."""


@dataclass(frozen=True)
class BudgetTerms:
    """The budget line of the file: what was promised in all."""

    epsilon: float
    delta: float
    neighbours: Neighbours
    filter_name: FilterName

    @property
    def filter(self) -> Filter:
        return FILTERS[self.filter_name](self.epsilon, self.delta)


@dataclass(frozen=True)
class Charge:
    """One line of a ledger's history.

    Attributes
    ----------
    time : str
        When it was charged (UTC).
    mechanism, theorem : str
        What was run, and what proves its cost.
    epsilon, delta : float
        The cost.
    rho : float or None
        The same as zCDP; None where the mechanism is not known to be.
    label : str
        What the charge was for.
    by, purpose : str or None
        Who charged and why, as the operator said: "" where nothing was said, None where the ledger was of an
        earlier format that had no place for it.
    """

    time: str
    mechanism: str
    theorem: str
    epsilon: float
    delta: float
    rho: float | None
    label: str
    by: str | None = None
    purpose: str | None = None


@dataclass(frozen=True)
class Position:
    """A place in the chain: the digest and the exact totals after a charge."""

    digest: str
    tally: Tally


@dataclass(frozen=True)
class Origin:
    """The start of the chain: when the budget was created, and its digest."""

    created: str
    digest: str

    @property
    def ledger(self) -> str:
        """The id of the ledger."""
        return self.digest[:_ID_LENGTH]


@dataclass(frozen=True)
class Link:
    """A charge and the digest of the history up to it."""

    charge: Charge
    digest: str


@contextmanager
def connect(path: Path, seconds: float) -> Iterator[sqlite3.Connection]:
    """A connection to an existing file whose commits survive a power loss; closing rolls back the rest.

    EXTRA is FULL plus a sync of the folder after the journal is deleted: without it a power loss could
    bring the journal back and undo a charge whose release has already left.
    """
    address = f"{path.as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=seconds, isolation_level=None)
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")  # damage meets a digest
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA synchronous=EXTRA")
        yield connection
    finally:
        connection.close()


def create(connection: sqlite3.Connection, terms: BudgetTerms) -> None:
    """The tables of a new ledger, in one transaction."""
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    create_tables(connection, now(), terms)
    connection.execute("COMMIT")


def create_tables(connection: sqlite3.Connection, created: str, terms: BudgetTerms) -> Position:
    for statement in _statements(_TABLES):
        connection.execute(statement)
    neighbours = terms.neighbours
    row = (
        *(created, repr(float(terms.epsilon)), repr(float(terms.delta))),
        *(neighbours.adjacency, neighbours.unit, terms.filter_name, secrets.token_hex(8)),
    )
    digest = _budget_digest(row)
    connection.execute(
        f"INSERT INTO budget (id, {_BUDGET}) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, digest)
    )
    connection.execute("INSERT INTO head VALUES (1, 0, ?, ?)", (digest, _hash("head", 0, digest)))
    connection.execute(f"PRAGMA user_version={FORMAT}")
    return Position(digest, Tally())


def _statements(script: str) -> Iterator[str]:
    """One by one: `executescript` would commit first."""
    statement = ""
    for line in script.splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def read_terms(connection: sqlite3.Connection) -> BudgetTerms:
    """The budget, verified."""
    _, epsilon, delta, adjacency, unit, filter_name, *_ = _budget(connection)
    return make_terms(epsilon, delta, adjacency, unit, filter_name)


def _budget(connection: sqlite3.Connection) -> tuple[Any, ...]:
    rows = connection.execute(f"SELECT id, {_BUDGET} FROM budget").fetchall()
    if len(rows) != 1 or rows[0][0] != 1 or _budget_digest(rows[0][1:-1]) != rows[0][-1]:
        raise Damaged
    row: tuple[Any, ...] = rows[0][1:]
    return row


def _budget_digest(row: tuple[Any, ...]) -> str:
    *known, nonce = row
    return _hash("budget", *known) if nonce is None else _hash("budget", *row, size=_WIDE)


def read_origin(connection: sqlite3.Connection) -> Origin:
    """The start of the chain, verified."""
    created, *_, digest = _budget(connection)
    return Origin(str(created), str(digest))


def make_terms(
    epsilon: object, delta: object, adjacency: Any, unit: str | None, filter_name: Any
) -> BudgetTerms:
    if adjacency not in get_args(Adjacency) or filter_name not in FILTERS:
        raise Damaged
    return BudgetTerms(number(epsilon), number(delta), Neighbours(adjacency, unit), filter_name)


def position(connection: sqlite3.Connection) -> Position:
    """The end of the chain, verified against the budget, the head and the digest before."""
    return _walk_newest(connection, 1)


def recent(connection: sqlite3.Connection, count: int = 1000) -> None:
    """Verify the newest charges."""
    _walk_newest(connection, count)


def walk(connection: sqlite3.Connection) -> Iterator[Link]:
    """All charges in order, the whole chain verified once the last one is taken."""
    count, digest, newest = 0, read_origin(connection).digest, None
    for row in connection.execute(f"SELECT {_CHARGE} FROM charges ORDER BY id"):
        count, digest = _next(count, digest, row)
        charge = _charge(row)
        if charge.by is None and newest is not None and newest.by is not None:
            raise Damaged  # an earlier format never comes after a later one
        newest = charge
        yield Link(charge, digest)
    _require_end(connection, count, digest)


def require_totals(connection: sqlite3.Connection, tally: Tally) -> None:
    """Verify the stored totals against charges that were added up anew, and every page of the file."""
    if position(connection).tally != tally:
        raise Damaged
    check_pages(connection)


def check_pages(connection: sqlite3.Connection) -> None:
    if [row[0] for row in connection.execute("PRAGMA integrity_check")] != ["ok"]:
        raise Damaged


def append(connection: sqlite3.Connection, last: Position, charge: Charge) -> Position:
    """Write `charge` after `last` and move the head."""
    tally = last.tally.plus(charge.epsilon, charge.delta, charge.rho)
    row = (
        *(tally.charges, charge.time, charge.mechanism, charge.theorem),
        *(repr(charge.epsilon), repr(charge.delta), None if charge.rho is None else repr(charge.rho)),
        *(charge.label, str(tally.epsilon), str(tally.delta), str(tally.rho), charge.by, charge.purpose),
    )
    digest = _charge_digest(last.digest, row)
    places = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT INTO charges ({_CHARGE}) VALUES ({places})", (*row, digest))
    connection.execute(
        "UPDATE head SET charges = ?, last = ?, digest = ? WHERE id = 1",
        (tally.charges, digest, _hash("head", tally.charges, digest)),
    )
    return Position(digest, tally)


def _walk_newest(connection: sqlite3.Connection, newest: int) -> Position:
    rows = connection.execute(
        f"SELECT {_CHARGE} FROM charges ORDER BY id DESC LIMIT ?", (newest + 1,)
    ).fetchall()[::-1]
    count, digest = 0, read_origin(connection).digest
    if len(rows) > newest:  # what comes before the oldest of them is not read: the next one vouches for it
        (count, *_, digest), *rows = rows
    for row in rows:
        count, digest = _next(count, digest, row)
    _require_end(connection, count, digest)
    return Position(digest, _totals(rows[-1]) if rows else Tally())


def _next(count: int, digest: str, row: tuple[Any, ...]) -> tuple[int, str]:
    """Where the chain is after one more charge, whose digest must follow from the last."""
    if row[0] != count + 1 or _charge_digest(digest, row[:-1]) != row[-1]:
        raise Damaged
    return row[0], row[-1]


def _charge_digest(before: str, row: tuple[Any, ...]) -> str:
    *_, by, purpose = row
    if by is None and purpose is None:
        return _hash(before, *row[:_CHARGE_LENGTH_2])
    return _hash(before, *row, size=_WIDE)


def _require_end(connection: sqlite3.Connection, count: int, digest: str) -> None:
    """Verify that the chain ends where the head says."""
    rows = connection.execute("SELECT id, charges, last, digest FROM head").fetchall()
    if rows != [(1, count, digest, _hash("head", count, digest))]:
        raise Damaged


def _charge(row: tuple[Any, ...]) -> Charge:
    _, time, mechanism, theorem, epsilon, delta, rho, label, _, _, _, by, purpose, _ = row
    known = None if rho is None else number(rho)
    return Charge(time, mechanism, theorem, number(epsilon), number(delta), known, label, by, purpose)


def _totals(row: tuple[Any, ...]) -> Tally:
    try:
        epsilon, delta, rho = (Fraction(text) for text in row[8:11])
    except (ValueError, TypeError, ZeroDivisionError):
        raise Damaged from None
    return Tally(epsilon, delta, rho, row[0])


def number(text: object) -> float:
    """A stored number ≥ 0."""
    try:
        value = float(str(text))
    except ValueError:
        raise Damaged from None
    if not (math.isfinite(value) and value >= 0):
        raise Damaged
    return value


def _hash(*parts: object, size: int = _NARROW) -> str:
    """A hash of texts, whole numbers and None, each in its place."""
    try:
        text = json.dumps(parts)
    except TypeError:
        raise Damaged from None
    return blake2b(text.encode(), digest_size=size).hexdigest()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
