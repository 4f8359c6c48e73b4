"""A privacy budget in one file: charged before anything is computed, never overspent.

A charge is durable before `charge` returns: a crash, a `kill -9` or a power loss can lose budget, never
privacy. Any number of processes may charge one file at once. The file does not protect against an owner who
copies or edits it.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from curvedp.budget import (
    Amount,
    BasicFilter,
    Chargeable,
    Expense,
    Filter,
    Tally,
    ZCDPFilter,
    compose_plan,
    rho_of,
)
from curvedp.domain import Adjacency
from curvedp.errors import InvalidInput, LedgerRefused, LedgerUnreadable
from curvedp.privacy.guarantee import Guarantee

FilterName = Literal["basic", "zcdp"]
FILTERS: Mapping[str, type[BasicFilter] | type[ZCDPFilter]] = {"basic": BasicFilter, "zcdp": ZCDPFilter}

FORMAT = 1
APPLICATION_ID = 0x63764450  # "cvDP", in the header of the file
BUSY_SECONDS = 300.0  # how long to wait for other processes
LABEL_LENGTH = 200

_TABLES = """
CREATE TABLE budget (
    id INTEGER PRIMARY KEY CHECK (id = 1), created TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, adjacency TEXT NOT NULL, filter TEXT NOT NULL
);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, mechanism TEXT NOT NULL, theorem TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, rho TEXT, label TEXT NOT NULL
);
CREATE TRIGGER charges_stay BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER charges_stand BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER budget_stays BEFORE DELETE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
CREATE TRIGGER budget_stands BEFORE UPDATE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
"""


@dataclass(frozen=True)
class Charge:
    """One line of the history. `rho` is None where the mechanism is not known to be zCDP."""

    time: str
    mechanism: str
    theorem: str
    epsilon: float
    delta: float
    rho: float | None
    label: str


@dataclass(frozen=True)
class LedgerState:
    """A ledger at one instant. What is spent is rounded up, what remains is rounded down."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    filter: FilterName
    spent_epsilon: float
    spent_delta: float
    remaining_epsilon: float
    remaining_delta: float
    charges: int
    spent_rho: float | None = None
    remaining_rho: float | None = None


@dataclass(frozen=True)
class _Budget:
    """The budget line of the file."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    filter_name: FilterName

    @property
    def filter(self) -> Filter:
        return FILTERS[self.filter_name](self.epsilon, self.delta)


class Ledger:
    """The budget kept in `path`. It holds the path alone, so copies, pickles and forks share the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self._transaction() as connection:
            if [row[0] for row in connection.execute("PRAGMA integrity_check")] != ["ok"]:
                raise sqlite3.DatabaseError
            _read_budget(connection)
            _read_charges(connection)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = "replace",
        filter: FilterName = "basic",
    ) -> Ledger:
        """A new ledger with a total (epsilon, delta); an existing file is never overwritten."""
        target = Path(path)
        _check_amount(epsilon, delta)
        if epsilon <= 0:
            raise InvalidInput(f"a budget needs epsilon > 0, got {epsilon!r}")
        if adjacency not in get_args(Adjacency):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {adjacency!r}')
        if filter not in FILTERS:
            raise InvalidInput(f'filter must be "basic" or "zcdp", got {filter!r}')
        FILTERS[filter](epsilon, delta)
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        except FileExistsError:
            raise LedgerRefused(
                f"{target} exists already and a budget is never overwritten: open it, or choose another name"
            ) from None
        except OSError as error:
            raise LedgerUnreadable(
                f"cannot create {target} ({error.strerror}): choose a folder that exists and can be written"
            ) from None
        try:
            with _connect(target) as connection:
                header = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT};"
                connection.executescript(f"BEGIN EXCLUSIVE; {header} {_TABLES}")
                connection.execute(
                    "INSERT INTO budget VALUES (1, ?, ?, ?, ?, ?)",
                    (_now(), repr(float(epsilon)), repr(float(delta)), adjacency, filter),
                )
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            target.unlink(missing_ok=True)
            raise LedgerUnreadable(f"cannot create {target} ({error}): choose a disk with room") from None
        return cls(target)

    def charge(self, guarantee: Chargeable, label: str = "") -> None:
        """Take the cost of `guarantee` from the budget, durably, or raise and take nothing."""
        if not guarantee.private:
            raise LedgerRefused(
                "a seeded or study run is not private, never charged: leave random_state or the ledger out"
            )
        _check_amount(guarantee.epsilon, guarantee.delta)
        if len(label) > LABEL_LENGTH or not label.isprintable():
            raise InvalidInput(f"label must be one printable line of at most {LABEL_LENGTH} characters")
        rho = rho_of(guarantee)
        with self._transaction(write=True) as connection:
            budget = _read_budget(connection)
            if guarantee.adjacency != budget.adjacency:
                raise LedgerRefused(
                    f"this ledger counts {budget.adjacency} neighbours and the release is for "
                    f"{guarantee.adjacency}: pass adjacency={budget.adjacency!r}, or use another ledger"
                )
            budget.filter.require_room(_read_tally(connection), guarantee)
            connection.execute(
                "INSERT INTO charges (time, mechanism, theorem, epsilon, delta, rho, label) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    _now(),
                    guarantee.mechanism,
                    guarantee.theorem,
                    repr(float(guarantee.epsilon)),
                    repr(float(guarantee.delta)),
                    None if rho is None else repr(rho),
                    label,
                ),
            )

    def charge_plan(self, guarantees: Sequence[Guarantee], *, delta: float, label: str = "") -> Expense:
        """Charge releases all fixed beforehand as one (`compose_plan`); returns what was charged."""
        expense = compose_plan(guarantees, delta=delta)
        self.charge(expense, label)
        return expense

    def state(self) -> LedgerState:
        """The total, what is spent and what remains, at one instant."""
        with self._transaction() as connection:
            budget, tally = _read_budget(connection), _read_tally(connection)
        spent, remaining = budget.filter.spent(tally), budget.filter.remaining(tally)
        return LedgerState(
            epsilon=budget.epsilon,
            delta=budget.delta,
            adjacency=budget.adjacency,
            filter=budget.filter_name,
            spent_epsilon=spent.epsilon,
            spent_delta=spent.delta,
            remaining_epsilon=remaining.epsilon,
            remaining_delta=remaining.delta,
            charges=tally.charges,
            spent_rho=spent.rho,
            remaining_rho=remaining.rho,
        )

    def spent(self) -> Amount:
        """What the charges so far amount to."""
        state = self.state()
        return Amount(state.spent_epsilon, state.spent_delta, state.spent_rho)

    def remaining(self) -> Amount:
        """What is left. Under the basic filter a release that costs exactly this much is accepted."""
        state = self.state()
        return Amount(state.remaining_epsilon, state.remaining_delta, state.remaining_rho)

    def history(self) -> list[Charge]:
        """Every charge in order: time (UTC), mechanism, theorem, (ε, δ), label."""
        with self._transaction() as connection:
            return _read_charges(connection)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction on the checked file, on disk when this returns; failures in plain words."""
        try:
            if not self.path.is_file():
                raise LedgerUnreadable(f"there is no ledger at {self.path}: create one, or check the path")
            if self.path.stat().st_size == 0:
                raise LedgerUnreadable(
                    f"{self.path} is empty: if its creation was interrupted, remove it and create it again"
                )
            with _connect(self.path) as connection:
                _check_format(connection, self.path)
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.OperationalError, OSError) as error:
            if "locked" in str(error):
                raise LedgerUnreadable(
                    f"{self.path} stayed locked for {BUSY_SECONDS:.0f} s: try again when others are done"
                ) from None
            raise LedgerUnreadable(
                f"cannot use {self.path} ({error}): the file and its folder must be readable and writable"
            ) from None
        except sqlite3.DatabaseError:
            raise LedgerUnreadable(
                f"{self.path} is damaged or not a ledger: check the path, or restore a backup and count "
                "every release made since as spent"
            ) from None


@contextmanager
def _connect(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to an existing file whose commits survive a power loss; closing rolls back the rest.

    EXTRA is FULL plus a sync of the folder after the journal is deleted: without it a power loss could
    bring the journal back and undo a charge whose release has already left.
    """
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA synchronous=EXTRA")
        yield connection
    finally:
        connection.close()


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise LedgerUnreadable(f"{path} is a database but not a ledger: check the path")
    if version > FORMAT:
        raise LedgerUnreadable(
            f"{path} has format {version} and this curvedp reads up to {FORMAT}: upgrade curvedp"
        )


def _read_budget(connection: sqlite3.Connection) -> _Budget:
    row = connection.execute("SELECT epsilon, delta, adjacency, filter FROM budget").fetchone()
    if row is None or row[2] not in get_args(Adjacency) or row[3] not in FILTERS:
        raise sqlite3.DatabaseError
    return _Budget(_number(row[0]), _number(row[1]), row[2], row[3])


def _read_tally(connection: sqlite3.Connection) -> Tally:
    groups = connection.execute("SELECT epsilon, delta, rho, COUNT(*) FROM charges GROUP BY 1, 2, 3")
    return Tally.of(
        (_number(e), _number(d), None if r is None else _number(r), count) for e, d, r, count in groups
    )


def _read_charges(connection: sqlite3.Connection) -> list[Charge]:
    rows = connection.execute(
        "SELECT time, mechanism, theorem, epsilon, delta, rho, label FROM charges ORDER BY id"
    )
    return [
        Charge(time, mechanism, theorem, _number(e), _number(d), None if r is None else _number(r), label)
        for time, mechanism, theorem, e, d, r, label in rows
    ]


def _number(text: object) -> float:
    """A stored number ≥ 0."""
    try:
        value = float(str(text))
    except ValueError:
        raise sqlite3.DatabaseError from None
    if not (math.isfinite(value) and value >= 0):
        raise sqlite3.DatabaseError
    return value


def _check_amount(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InvalidInput(f"epsilon must be a finite number ≥ 0, got {epsilon!r}")
    if not 0 <= delta < 1:
        raise InvalidInput(f"delta must lie in [0, 1), got {delta!r}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
