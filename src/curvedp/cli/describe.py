"""`curvedp describe`: what the columns of a private table hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvedp.cli.console import emit_json, progress, say, show_table
from curvedp.cli.models import after_the_charge
from curvedp.cli.options import (
    DecimalOption,
    DelimiterOption,
    DeltaOption,
    EncodingOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    LedgerOption,
    QuietOption,
    SchemaOption,
    SeedOption,
    TableArgument,
)
from curvedp.cli.promises import say_what_is_left, warn_of_a_seed

if TYPE_CHECKING:
    from curvedp.ledger import LedgerState
    from curvedp.looks.description import Description


def describe(
    data: TableArgument,
    schema: SchemaOption,
    epsilon: EpsilonOption,
    delta: DeltaOption = 1e-6,
    ledger: LedgerOption = None,
    report: Annotated[
        Path | None, typer.Option("--report", "--html", help="Write an HTML page of it, with pictures.")
    ] = None,
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

    inputs = {"the data": data, "the schema": schema, **ledger_inputs(ledger)}
    with (
        claimed({"--report": report}, inputs=inputs, force=force) as files,
        progress("describing", total=None, show=not (json or quiet)),
    ):
        from curvedp import workflow
        from curvedp.ledger import Ledger
        from curvedp.looks.describe import describe as look
        from curvedp.looks.describe_page import describe_page
        from curvedp.looks.tallies import describable
        from curvedp.schema import Schema

        declared = Schema.load(schema).with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
        book = None if ledger is None else Ledger(ledger)
        folder = data.is_dir() or data.suffix == ".parquet"
        table = workflow.read(data, describable(declared), engine="dask") if folder else data
        found = look(
            table,
            declared,
            epsilon=epsilon,
            delta=delta,
            ledger=book,
            random_state=seed,
        )
        with after_the_charge(charged=book is not None):
            state = None if book is None else book.state()
            if "--report" in files:
                files["--report"].write(describe_page(found, data.name, state))
    if json:
        left = None if state is None else state.remaining_epsilon
        emit_json(
            {**found.to_dict(), "report": None if report is None else str(report), "remaining_epsilon": left}
        )
    elif not quiet:
        print_description(found, state)
        if report is not None:
            say(f"Page written to {report}.")


def print_description(found: Description, state: LedgerState | None) -> None:
    """A description for people."""
    from curvedp.looks.describe_text import listings, remarks, summary_line

    say(summary_line(found))
    warn_of_a_seed(found.privacy, "Describe")
    for listing in listings(found):
        show_table(listing.title, listing.headings, listing.rows, right=listing.right)
    for line in remarks(found):
        say(line, style="dim")
    say_what_is_left(state)
