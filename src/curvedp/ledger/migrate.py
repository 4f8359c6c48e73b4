"""Formats of ledger files: which are read, and how earlier ones become the present one."""

from __future__ import annotations

import sqlite3
from typing import Any

from curvedp.ledger import storage
from curvedp.ledger.filters import Tally
from curvedp.ledger.storage import APPLICATION_ID, FORMAT, Charge, Damaged, number


def format_of(connection: sqlite3.Connection) -> int | None:
    """The format of a ledger; None for a database that is none."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return None
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def from_format_2(connection: sqlite3.Connection) -> None:
    """Add the columns that format 2 lacked, all or nothing, once every charge, sum and page is verified.

    Nothing that was written is changed, its digests included: a head of that time remains one of the chain.
    """
    connection.execute("BEGIN IMMEDIATE")
    if format_of(connection) == FORMAT:  # somebody else was faster
        connection.execute("ROLLBACK")
        return
    connection.execute("ALTER TABLE budget ADD COLUMN nonce TEXT")
    connection.execute("ALTER TABLE charges ADD COLUMN charged_by TEXT")
    connection.execute("ALTER TABLE charges ADD COLUMN purpose TEXT")
    tally = Tally()
    for link in storage.walk(connection):
        tally = tally.plus(link.charge.epsilon, link.charge.delta, link.charge.rho)
    storage.require_totals(connection, tally)
    connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.execute("COMMIT")


def from_format_1(connection: sqlite3.Connection) -> None:
    """Rewrite the tables of 0.1 as a chain, all or nothing, with the same charges.

    Format 1 had neither digests nor totals: its pages, and ids that count from 1 to the last one ever given,
    are all that can be verified.
    """
    connection.execute("BEGIN IMMEDIATE")
    if format_of(connection) == FORMAT:  # somebody else was faster
        connection.execute("ROLLBACK")
        return
    storage.check_pages(connection)
    rows = connection.execute("SELECT id, created, epsilon, delta, adjacency, filter FROM budget").fetchall()
    count, newest = connection.execute("SELECT COUNT(*), COALESCE(MAX(id), 0) FROM charges").fetchone()
    given = connection.execute(
        "SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'charges'"
    ).fetchone()[0]
    if len(rows) != 1 or not count == newest == given:
        raise Damaged
    _, created, epsilon, delta, adjacency, filter_name = rows[0]
    terms = storage.make_terms(epsilon, delta, adjacency, None, filter_name)
    for trigger in ("charges_stay", "charges_stand", "budget_stays", "budget_stands"):
        connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    connection.execute("DROP TABLE budget")
    connection.execute("ALTER TABLE charges RENAME TO charges_1")
    last = storage.create_tables(connection, created, terms)
    old = connection.execute(
        "SELECT time, mechanism, theorem, epsilon, delta, rho, label FROM charges_1 ORDER BY id"
    )
    for row in old:
        last = storage.append(connection, last, _charge(*row))
    connection.execute("DROP TABLE charges_1")
    connection.execute("COMMIT")


def _charge(
    time: str, mechanism: str, theorem: str, epsilon: Any, delta: Any, rho: Any, label: str
) -> Charge:
    known = None if rho is None else number(rho)
    return Charge(time, mechanism, theorem, number(epsilon), number(delta), known, label)
