"""`curvedp bounds`: private bounds for people without a codebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli.charging import after_the_charge, opened, require_outlet
from curvedp.cli.console import as_json, emit_json, plain, progress, say, show_table
from curvedp.cli.options import (
    Adjacency,
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
    SeedOption,
    SightOption,
    TableArgument,
)
from curvedp.cli.promises import say_promise, say_what_is_left, what_is_left
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.ledger import LedgerState
    from curvedp.looks.bounds import PrivateBounds, Share


def bounds(
    data: TableArgument,
    columns: Annotated[str, typer.Option("--columns", help="Columns, separated by commas.")],
    epsilon: EpsilonOption,
    delta: DeltaOption = 0.0,
    lower: Annotated[float, typer.Option("--lower", help="Level of the lower bound.")] = 0.005,
    upper: Annotated[float, typer.Option("--upper", help="Level of the upper bound.")] = 0.995,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Declared columns; the file to write bounds into, filled in or not."),
    ] = None,
    ledger: LedgerOption = None,
    by: ByOption = "",
    purpose: PurposeOption = "",
    adjacency: Annotated[
        Adjacency | None,
        typer.Option(
            "--adjacency", help="Neighbouring tables: by default what the schema says, or the ledger."
        ),
    ] = None,
    rows: SightOption = None,
    dry_run: DryRunOption = False,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Buy bounds: private lower and upper quantiles of columns whose range nobody knows, in one charge."""
    from curvedp.outputs import claimed, ledger_inputs

    require_outlet(quiet, "--schema", json, schema, dry_run)
    inputs = {"the data": data, **ledger_inputs(ledger)}
    with (
        opened(ledger, by, purpose) as book,
        claimed({"--schema": schema}, inputs=inputs, force=True) as files,
    ):
        from curvedp.budget import Budget
        from curvedp.looks.bounds import plan_bounds, release_bounds
        from curvedp.looks.numbers import number_columns
        from curvedp.neighbours import Neighbours
        from curvedp.schema import FileFormat
        from curvedp.schema.edits import (
            declared_adjacency,
            declared_file,
            declared_numerals,
            declared_unit,
            require_open,
            with_bounds,
        )
        from curvedp.schema.files import read_toml

        names = [name.strip() for name in columns.split(",")]
        text = None if schema is None else read_toml(schema)
        found_in = None if text is None else declared_adjacency(text)
        if adjacency is not None and found_in not in (None, adjacency):
            raise InvalidInput(f"the schema declares {found_in} neighbours: leave --adjacency out")
        kind = adjacency or found_in or ("replace" if book is None else book.state().adjacency)
        unit = None if text is None else declared_unit(text)
        plan = plan_bounds(
            names, Budget(epsilon, delta), lower=lower, upper=upper, neighbours=Neighbours(kind, unit)
        )
        if text is not None:
            for name in names:
                require_open(text, name, force=force)
            with_bounds(text, {name: _placeholder(name) for name in names})
        file = FileFormat() if text is None else declared_file(text)
        file = file.but(encoding=encoding, delimiter=delimiter, decimal=decimal)
        written = None if text is None else declared_numerals(text, names, file)
        source = number_columns(data, plan.layout, file=file, numerals=written)
        if plan.layout.neighbours.count_is_public and not (dry_run and rows is not None):
            rows = source.rows()
        outlook = plan.outlook(rows)
        if not (json or quiet):
            say(outlook)
        if dry_run:
            if json:
                emit_json({"outlook": outlook, "guarantee": plan.guarantee.to_dict()})
            return
        with progress("looking", total=None, show=not (json or quiet)):
            found = release_bounds(plan, source, ledger=book, random_state=seed)
        with after_the_charge(
            book, found.privacy, lambda: as_json(as_document(found, outlook, None))
        ) as paid:
            state = None if book is None else book.state()
            bought = {column.name: found.numeric(column.name) for column in found.columns}
            if text is not None and schema is not None and bought:
                files["--schema"].write(with_bounds(text, bought))
                paid.kept(schema)
            if json:
                emit_json(as_document(found, outlook, state))
            elif not quiet:
                print_bounds(found, state)
                if schema is not None and found.columns:
                    say(f"Written into {schema}.")


def print_bounds(found: PrivateBounds, state: LedgerState | None) -> None:
    """The bounds for people."""
    if found.columns:
        rows = [
            (c.name, plain(c.low), plain(c.high), shown_share(c.below), shown_share(c.above))
            for c in found.columns
        ]
        heads = ("column", "lower", "upper", "values below", "values above")
        show_table(f"Bounds at {found.lower:g} and {found.upper:g}", heads, rows, right=heads[1:])
        say("In brackets: where the share lies in 95 of 100 releases.", style="dim")
    for c in found.columns:
        if c.below.low > found.lower or c.above.low > 1.0 - found.upper:
            say(
                f"{c.name}: more values lie outside than were asked for, too few of a scale to be seen. They "
                "count as the nearer bound. Ask for more ε, or declare the bounds from a codebook.",
                style="yellow",
            )
    for name in found.hidden:
        say(
            f"{name}: no scale has enough values to be seen through the noise. Are they numbers with "
            "decimal points? Ask for more ε, or declare its bounds from a codebook.",
            style="yellow",
        )
    promise = found.privacy
    say_promise(promise, "Run")
    say_what_is_left(state)


def shown_share(share: Share) -> str:
    """0.4 % (0.1 … 0.9 %); without an estimate where the interval begins at 0."""
    if share.low == 0:
        return f"at most {plain(100 * share.high, 2)} %"
    value, low, high = (plain(100 * x, 2) for x in (share.value, share.low, share.high))
    return f"{value} % ({low} … {high} %)"


def as_document(found: PrivateBounds, outlook: str, state: LedgerState | None) -> dict[str, Any]:
    """The release for machines."""
    return {**found.to_dict(), "outlook": outlook, **what_is_left(state)}


def _placeholder(name: str) -> Any:
    """A declaration to try the edit of a schema with, before anything is charged."""
    from curvedp.schema import Numeric

    return Numeric(name, 0.0, 1.0, source="bought")
