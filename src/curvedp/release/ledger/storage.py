"""The tables of a ledger file, and the chain of hashes over them.

    digest₀ = H(the budget),   digestᵢ = H(digestᵢ₋₁, entry i and the exact totals after it),
    head    = (n, digestₙ, H(n, digestₙ)).

An entry is a charge, or what is kept of the release that followed one: the hash of the released document,
or of its page. Every charge has a nonce, so that two copies of one file that are charged alike have different
heads. No entry says how long a release took: what is kept of it has no time of its own.

What was spent is read from the last entry alone, and only when budget, head, last entry and the digest of
the one before agree.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import blake2b, sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, get_args

from curvedp.numbers import finite
from curvedp.privacy.budget import Adjacency, Neighbours
from curvedp.privacy.gaussian import Cost, together
from curvedp.release.ledger.filters import FILTERS, Filter, FilterName, Tally, floor

FORMAT = 4
APPLICATION_ID = 0x63764450  # "cvDP", in the header of the file

_TABLES = """
CREATE TABLE budget (
    id INTEGER PRIMARY KEY CHECK (id = 1), created TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
    adjacency TEXT NOT NULL, unit TEXT, filter TEXT NOT NULL, digest TEXT NOT NULL, nonce TEXT NOT NULL
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, charge INTEGER NOT NULL, content TEXT NOT NULL,
    totals TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (charge, kind)
);
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1), entries INTEGER NOT NULL, last TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is final'); END;
CREATE TRIGGER entries_stand BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is final'); END;
CREATE TRIGGER budget_stays BEFORE DELETE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
CREATE TRIGGER budget_stands BEFORE UPDATE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
CREATE TRIGGER head_stays BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the head is final'); END;
CREATE TRIGGER head_grows BEFORE UPDATE ON head WHEN NEW.entries IS NOT OLD.entries + 1
BEGIN SELECT RAISE(ABORT, 'the head only grows'); END;
"""

_BUDGET = "created, epsilon, delta, adjacency, unit, filter, nonce, digest"
_ENTRY = "id, kind, charge, content, totals, digest"
_ID_LENGTH = 12
_DIGEST_BYTES = 32  # against a writer who looks for collisions
_FIELD_DIGITS = 16  # of a field's hash: it names what differs, the whole one decides

nonce = partial(token_hex, 16)  # fresh random digits from the operating system


class Damaged(Exception):
    """The file is not what a ledger wrote."""


@dataclass(frozen=True)
class Position:
    """A place in the chain: the budget that it is of, the digest and exact totals after so many entries."""

    filter: Filter
    neighbours: Neighbours
    created: str = ""
    ledger: str = ""  # its id
    digest: str = ""
    tally: Tally = field(default_factory=Tally)
    entries: int = 0


@dataclass(frozen=True)
class Charge:
    """One line of a ledger's history: what was run when (UTC), and what proves its cost.

    The release states (`epsilon`, `delta`) and was charged (`mu`, `charged_epsilon`, `charged_delta`), (μ, e,
    d), of which the filter adds up Σμ², Σe and Σd. `by` and `purpose`: who charged and why, as the operator
    said. By the `nonce`, random digits, two charges that are alike have different heads.
    """

    time: str
    mechanism: str
    theorem: str
    epsilon: float
    delta: float
    mu: float
    charged_epsilon: float
    charged_delta: float
    label: str
    by: str = ""
    purpose: str = ""
    nonce: str = ""

    @property
    def cost(self) -> Cost:
        """(μ, e, d)."""
        return Cost(self.mu, self.charged_epsilon, self.charged_delta)


@dataclass(frozen=True)
class Kept:
    """What is kept of a release: the hash of its document, or of the page that shows it.

    `charge` is the number of the charge that paid for it. `fields` has, by field of the document, the
    beginning of its own hash, so that one that differs can be named.
    """

    charge: int
    kind: Literal["document", "page"]
    sha256: str
    fields: Mapping[str, str] = field(default_factory=dict)


Entry = Charge | Kept


@dataclass(frozen=True)
class Receipt:
    """Where in which ledger a release was charged.

    Attributes
    ----------
    ledger : str
        The id of the ledger: the beginning of the hash of its first record, the budget.
    charge : int
        The number of the charge, counted from 1.
    head : str
        The hash of the whole history up to and with this charge. `curvedp ledger verify LEDGER HEAD` shows
        later that nothing up to here was rewritten.
    time : str
        When it was charged (UTC).
    by, purpose : str
        Who charged and why, as the operator said; "" where nothing was said.
    """

    ledger: str
    charge: int
    head: str
    time: str
    by: str = ""
    purpose: str = ""


@dataclass(frozen=True)
class Fingerprint:
    """The hash of a document, and of each of its fields.

    A field is a key of the document or, where a mapping stands there, a key of that: "coefficients",
    "guarantee.epsilon". `sha256` is H(every field's place and hash), so of everything that the document says;
    `fields` has by field the first digits of its own hash.
    """

    sha256: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Fingerprint:
        """Of plain values, as they stand in a JSON file; the order of keys and white space do not matter."""
        places: list[tuple[tuple[str, ...], Any]] = []
        for key, value in document.items():
            inner = isinstance(value, Mapping) and value
            places += [((key, below), part) for below, part in value.items()] if inner else [((key,), value)]
        hashes = {place: hashed(_canonical(value)) for place, value in sorted(places, key=lambda at: at[0])}
        return cls(
            hashed(_canonical([[*map(list, hashes)], [*hashes.values()]])),
            {".".join(place): found[:_FIELD_DIGITS] for place, found in hashes.items()},
        )


def hashed(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(value: Any) -> str:
    """One text for one value: sorted keys, no white space, every number as Python writes it."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


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


def create(connection: sqlite3.Connection, budget: Position) -> None:
    """The tables of a new ledger, in one transaction."""
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    for statement in _TABLES.split(";\n"):  # one by one: `executescript` would commit first
        connection.execute(statement)
    rule, between = budget.filter, budget.neighbours
    row = (now(), repr(rule.epsilon), repr(rule.delta), between.adjacency, between.unit, rule.name, nonce())
    digest = _hash("budget", *row)
    connection.execute(
        f"INSERT INTO budget (id, {_BUDGET}) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, digest)
    )
    connection.execute("INSERT INTO head VALUES (1, 0, ?, ?)", (digest, _hash("head", 0, digest)))
    connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.execute("COMMIT")


def start(connection: sqlite3.Connection) -> Position:
    """The budget, verified."""
    rows = connection.execute(f"SELECT id, {_BUDGET} FROM budget").fetchall()
    if len(rows) != 1 or rows[0][0] != 1 or _hash("budget", *rows[0][1:-1]) != rows[0][-1]:
        raise Damaged
    _, created, epsilon, delta, adjacency, unit, filter_name, _, digest = rows[0]
    if adjacency not in get_args(Adjacency) or filter_name not in FILTERS:
        raise Damaged
    rule = Filter(filter_name, number(epsilon), number(delta))
    return Position(rule, Neighbours(adjacency, unit), str(created), str(digest)[:_ID_LENGTH], str(digest))


def walk(connection: sqlite3.Connection) -> Iterator[tuple[Entry, str, Receipt]]:
    """All entries in order, the whole chain verified once the last one is taken.

    With each, the digest of the history up to it, and the receipt of the newest charge there.
    """
    budget = start(connection)
    count, digest, charges = 0, budget.digest, 0
    receipt = Receipt(budget.ledger, 0, digest, budget.created)
    for row in connection.execute(f"SELECT {_ENTRY} FROM entries ORDER BY id"):
        count, digest = _next(count, digest, row)
        if isinstance(entry := _entry(row), Charge):
            charges += 1
            receipt = Receipt(budget.ledger, charges, digest, entry.time, entry.by, entry.purpose)
        if (row[2] != charges) if isinstance(entry, Charge) else not 1 <= row[2] <= charges:
            raise Damaged  # charges count from 1, and only what was charged is kept
        yield entry, digest, receipt
    _require_end(connection, count, digest)


def append(connection: sqlite3.Connection, last: Position, entry: Entry) -> Position:
    """Write `entry` after `last` and move the head."""
    if isinstance(entry, Charge):
        kind, tally = "charge", last.tally.plus(entry.cost)
        number = tally.charges
    else:
        kind, tally, number = entry.kind, last.tally, entry.charge
    totals = {part.name: str(getattr(tally, part.name)) for part in fields(tally)}
    content = json.dumps(asdict(entry), allow_nan=False)
    row = (last.entries + 1, kind, number, content, json.dumps(totals))
    digest = _hash(last.digest, *row)
    places = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT INTO entries ({_ENTRY}) VALUES ({places})", (*row, digest))
    connection.execute(
        "UPDATE head SET entries = ?, last = ?, digest = ? WHERE id = 1",
        (row[0], digest, _hash("head", row[0], digest)),
    )
    return replace(last, digest=digest, tally=tally, entries=row[0])


def position(connection: sqlite3.Connection, newest: int = 1) -> Position:
    """The end of the chain, verified against budget, head and the digest before the newest entries."""
    query = f"SELECT {_ENTRY} FROM entries ORDER BY id DESC LIMIT ?"
    rows = connection.execute(query, (newest + 1,)).fetchall()[::-1]
    budget = start(connection)
    count, digest = 0, budget.digest
    if len(rows) > newest:  # what comes before the oldest of them is not read: the next one vouches for it
        (count, *_, digest), *rows = rows
    for row in rows:
        count, digest = _next(count, digest, row)
    _require_end(connection, count, digest)
    return replace(budget, digest=digest, tally=_totals(rows[-1]) if rows else Tally(), entries=count)


def _next(count: int, digest: str, row: tuple[Any, ...]) -> tuple[int, str]:
    """Where the chain is after one more entry, whose digest must follow from the last."""
    if row[0] != count + 1 or _hash(digest, *row[:-1]) != row[-1]:
        raise Damaged
    return row[0], row[-1]


def _require_end(connection: sqlite3.Connection, count: int, digest: str) -> None:
    """Verify that the chain ends where the head says."""
    rows = connection.execute("SELECT id, entries, last, digest FROM head").fetchall()
    if rows != [(1, count, digest, _hash("head", count, digest))]:
        raise Damaged


def _entry(row: tuple[Any, ...]) -> Entry:
    _, kind, charge, text, *_ = row
    try:
        content = json.loads(text)
        if kind == "charge":
            made: Entry = Charge(**content)
            _ = [number(value) for value in content.values() if isinstance(value, int | float)]
        else:
            made = Kept(**content)
            if (made.charge, made.kind) != (charge, kind):
                raise Damaged
    except (ValueError, TypeError):
        raise Damaged from None
    return made


def _totals(row: tuple[Any, ...]) -> Tally:
    try:
        found: dict[str, Any] = {name: Fraction(text) for name, text in json.loads(row[4]).items()}
        return Tally(**{**found, "charges": int(found["charges"])})
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        raise Damaged from None


def number(text: object) -> float:
    """A stored number ≥ 0."""
    try:
        value = float(str(text))
    except ValueError:
        raise Damaged from None
    if not (math.isfinite(value) and value >= 0):
        raise Damaged
    return value


def _hash(*parts: object) -> str:
    """A hash of texts, whole numbers and None, each in its place."""
    try:
        text = json.dumps(parts)
    except TypeError:
        raise Damaged from None
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def now() -> str:
    """This second in UTC. Of a release, taken before it begins: it tells nothing of how long it took."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# What a ledger shows of itself: its state at one instant, and what charges of one kind cost together.

HEAD = re.compile("[0-9a-f]{64}")
USUAL, USUAL_DELTA = (1.0, 0.25), 1e-6  # the releases by which people measure what is left


@dataclass(frozen=True)
class LedgerState:
    """A ledger at one instant. What is spent is rounded up, what remains is rounded down.

    `epsilon` and `delta` are the total; `spent_epsilon` and `spent_delta` what all charges cost together,
    stated as one release; the remaining ones are those of one more release that would be granted. `spent` has
    the sums (√Σμ², Σe, Σd) of what was charged: their δ(ε) is `spent.delta_at`. `left` says in words what is
    left. `unit` is the column that says whose row it is; None: every row is a unit of its own. `digest` is
    the head, the hash of the whole history: written down elsewhere, it shows later whether the history up to
    here was rewritten (`Ledger.verify`). `ledger` is the id of the ledger.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    filter: FilterName
    spent_epsilon: float
    spent_delta: float
    remaining_epsilon: float
    remaining_delta: float
    charges: int
    spent: Cost = field(default_factory=Cost)
    left: str = ""
    unit: str | None = None
    digest: str = ""
    ledger: str = ""


@dataclass(frozen=True)
class Verified:
    """What a whole, sound history amounts to; `head` is the hash of all charges.

    `found` is the newest charge of the history whose head was asked for (charge 0 is the new ledger), None
    where none was.
    """

    ledger: str
    charges: int
    head: str
    found: Receipt | None = None

    @property
    def after(self) -> int | None:
        """How many charges came after the one that was asked for."""
        return None if self.found is None else self.charges - self.found.charge


@dataclass(frozen=True)
class OnRecord:
    """A charge, what was given for it, and what is kept of the release that it paid for, if anything."""

    receipt: Receipt
    charge: Charge
    document: Kept | None = None
    page: Kept | None = None


@dataclass(frozen=True)
class Subtotal:
    """What the charges with one label and one mechanism cost together, rounded up: the sums of the ε and δ
    that they state, and √Σμ² of what they were charged (0 under the basic filter)."""

    label: str
    mechanism: str
    charges: int
    epsilon: float
    delta: float
    mu: float


def subtotals(charges: list[Charge]) -> list[Subtotal]:
    """The sums of the charges that share a label and a mechanism."""
    groups: dict[tuple[str, str], list[Charge]] = {}
    for charge in charges:
        groups.setdefault((charge.label, charge.mechanism), []).append(charge)
    found = []
    for key, group in groups.items():
        stated = together(Cost(0.0, charge.epsilon, charge.delta) for charge in group)
        mu = together(charge.cost for charge in group).mu
        found.append(Subtotal(*key, len(group), stated.epsilon, stated.delta, mu))
    return found


@lru_cache(maxsize=64)
def left_in_words(rule: Filter, tally: Tally) -> str:
    """How many more releases fit, of the kinds that people ask for."""
    asked = min(USUAL_DELTA, rule.delta)
    counts = [(rule.how_many(tally, epsilon, asked), epsilon) for epsilon in USUAL if epsilon <= rule.epsilon]
    if not counts:
        counts = [(rule.how_many(tally, rule.epsilon, asked), rule.epsilon)]
    if counts[-1][0] == 0:
        largest = floor(rule.largest_epsilon(tally, asked))
        return f"no more than one release at ε = {largest:g}, δ = {asked:g}" if largest > 0 else "nothing"
    (first, epsilon), *others = [(count, epsilon) for count, epsilon in counts if count > 0]
    also = "".join(f", or {count:,} at ε = {smaller:g}" for count, smaller in others)
    return f"about {first:,} more release{'s' * (first > 1)} at ε = {epsilon:g}{also}, δ = {asked:g}"
