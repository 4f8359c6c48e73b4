"""`curvedp describe`: what the columns of a private table hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from curvedp.cli.charging import after_the_charge, opened, require_outlet
from curvedp.cli.console import as_json, emit_json, progress, say, show_table
from curvedp.cli.options import (
    ByOption,
    DecimalOption,
    DelimiterOption,
    DeltaOption,
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
    TableArgument,
)
from curvedp.cli.promises import say_what_is_left, warn_of_a_seed, what_is_left

if TYPE_CHECKING:
    from curvedp.ledger import LedgerState
    from curvedp.looks.description import Description


def describe(
    data: TableArgument,
    schema: SchemaOption,
    epsilon: EpsilonOption,
    delta: DeltaOption = 1e-6,
    ledger: LedgerOption = None,
    by: ByOption = "",
    purpose: PurposeOption = "",
    report: ReportOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Describe a table privately: counts, means, quartiles, histograms, levels, correlations; one charge."""
    from curvedp.outputs import claimed, ledger_inputs

    require_outlet(quiet, "--report", json, report)
    inputs = {"the data": data, "the schema": schema, **ledger_inputs(ledger)}
    with (
        opened(ledger, by, purpose) as book,
        claimed({"--report": report}, inputs=inputs, force=force) as files,
    ):
        with progress("describing", total=None, show=not (json or quiet)):
            from curvedp.looks.describe import describe as look
            from curvedp.looks.describe_page import describe_page
            from curvedp.record import keep_page
            from curvedp.schema import Schema

            declared = Schema.load(schema).with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
            found = look(data, declared, epsilon=epsilon, delta=delta, ledger=book, random_state=seed)
        with after_the_charge(book, found.privacy, lambda: as_json(found.to_dict())) as paid:
            state = None if book is None else book.state()
            for page in files.values():
                text = describe_page(found, data.name, state)
                page.write(text)
                paid.kept(page.path)
                keep_page(book, found.receipt, text)
            if json:
                where = {"report": None if report is None else str(report)}
                emit_json({**found.to_dict(), **where, **what_is_left(state)})
            elif not quiet:
                print_description(found, state, report)
                if report is not None:
                    say(f"Page written to {report}.")


def print_description(found: Description, state: LedgerState | None, file: Path | None = None) -> None:
    """A description for people; `file` is where all of it is."""
    from curvedp.looks.describe_text import listings, remarks, summary_line

    say(summary_line(found))
    warn_of_a_seed(found.privacy, "Describe")
    for listing in listings(found):
        show_table(listing.title, listing.headings, listing.rows, right=listing.right, file=file)
    for line in remarks(found):
        say(line, style="dim")
    say_what_is_left(state)
