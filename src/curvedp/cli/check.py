"""`curvedp check`: are the cells of a table what the schema declares?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from curvedp.cli.charging import after_the_charge, opened, require_outlet
from curvedp.cli.console import as_json, emit_json, progress, say, show_table
from curvedp.cli.options import (
    ByOption,
    DecimalOption,
    DelimiterOption,
    DeltaOption,
    DryRunOption,
    EncodingOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    LedgerOption,
    PurposeOption,
    QuietOption,
    ReportOption,
    SchemaOption,
    SeedOption,
    SightOption,
    TableArgument,
    TargetOption,
)
from curvedp.cli.promises import say_promise, say_what_is_left, what_is_left

if TYPE_CHECKING:
    from curvedp.ledger import LedgerState
    from curvedp.looks.checked import TableCheck


def check(
    data: TableArgument,
    schema: SchemaOption,
    epsilon: EpsilonOption,
    delta: DeltaOption = 1e-6,
    target: TargetOption = None,
    ledger: LedgerOption = None,
    by: ByOption = "",
    purpose: PurposeOption = "",
    rows: SightOption = None,
    dry_run: DryRunOption = False,
    report: ReportOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find columns that cannot be read, before they spoil a fit: noisy shares of bad cells, in one charge."""
    from curvedp.outputs import claimed, ledger_inputs

    require_outlet(quiet, "--report", json, report, dry_run)
    inputs = {"the data": data, "the schema": schema, **ledger_inputs(ledger)}
    with (
        opened(ledger, by, purpose) as book,
        claimed({"--report": report}, inputs=inputs, force=force) as files,
    ):
        from curvedp.budget import Budget
        from curvedp.looks import check as looks
        from curvedp.looks.cells import cells_of
        from curvedp.looks.check_page import check_page
        from curvedp.record import keep_page
        from curvedp.schema import Schema

        declared = Schema.load(schema).with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
        if target is not None:
            declared = declared.with_target(target)
        made = looks.plan(declared, Budget(epsilon, delta), rows=rows)
        cells = cells_of(declared, data)
        public = made.layout.neighbours.count_is_public and not (dry_run and rows is not None)
        expected = cells.rows if public else rows
        outlook = made.unknown if expected is None else made.outlook(expected)
        if not (json or quiet):
            say(outlook)
        if dry_run:
            if json:
                emit_json({"outlook": outlook, "guarantee": made.guarantee.to_dict()})
            return
        with progress("counting", total=None, show=not (json or quiet)):
            found = looks.look(made, cells, ledger=book, random_state=seed)
        with after_the_charge(
            book, found.privacy, lambda: as_json(as_document(found, outlook, None))
        ) as paid:
            state = None if book is None else book.state()
            for page in files.values():
                text = check_page(found, declared.record)
                page.write(text)
                paid.kept(page.path)
                keep_page(book, found.receipt, text)
            if json:
                emit_json(as_document(found, outlook, state))
            elif not quiet:
                print_check(found, state)
                if report is not None:
                    say(f"Page written to {report}.")


def print_check(found: TableCheck, state: LedgerState | None) -> None:
    """The verdicts for people."""
    rows = [
        (column.name, Text(column.verdict, style="yellow") if column.unusual else column.verdict)
        for column in found.columns
    ]
    show_table("Cells against the schema", ("column", "verdict"), rows)
    seen = [(column.name, share) for column in found.columns for share in column.shares if share.seen]
    if seen:
        show_table(
            "Shares that stand out of the noise",
            ("column", "cells", "share", "interval of its noise"),
            [(name, share.label, share.words, share.interval) for name, share in seen],
            right=("share", "interval of its noise"),
        )
    promise = found.privacy
    say(found.summary, style="dim")
    say_promise(promise, "Check")
    say_what_is_left(state)


def as_document(found: TableCheck, outlook: str, state: LedgerState | None) -> dict[str, Any]:
    """The check for machines."""
    return {**found.to_dict(), "outlook": outlook, **what_is_left(state)}
