"""`curvedp check`, `bounds`, `describe` and `score`: charged looks at a table, and at a model on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli import charging as o
from curvedp.cli.charging import Order, Shown, Terms, charging, purchase, say_promise, warn_of_a_seed
from curvedp.cli.console import Steps, coloured, say, show_table
from curvedp.errors import InvalidInput
from curvedp.numbers import plain

if TYPE_CHECKING:
    from curvedp.analyses.explore.bounds import PrivateBounds
    from curvedp.analyses.explore.check import TableCheck
    from curvedp.analyses.explore.description import Description
    from curvedp.analyses.explore.groups import GroupedDescription
    from curvedp.analyses.explore.noisy import Estimate
    from curvedp.analyses.scores.door import PrivateScores
    from curvedp.analyses.scores.means import Score
    from curvedp.release.ledger.file import Ledger
    from curvedp.release.ledger.storage import LedgerState


def _looked(terms: Terms, found: Any, say: Callable[[], None], page: Callable[[], str]) -> Shown:
    """A look at a table, or a model on it, with its page."""
    written = "" if terms.report is None else f"Page written to {terms.report}."
    return Shown(found.to_dict(), say, {"--report": page}, written, page_of=found.receipt)


@charging()
def check(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 1e-6,
    target: o.TargetOption = None,
    rows: o.SightOption = None,
    dry_run: o.DryRunOption = False,
) -> None:
    """Find columns that cannot be read, before they spoil a fit: noisy shares of bad cells, in one charge."""

    def plan(book: Ledger | None, steps: Steps) -> Order:
        declared = terms.declared(schema, target)
        from curvedp.analyses.explore import check as looks
        from curvedp.analyses.explore.check import cells_of
        from curvedp.privacy.budget import Budget

        made = looks.plan(declared, Budget(epsilon, delta), rows=rows)
        cells = cells_of(declared, data)
        public = made.layout.neighbours.count_is_public and not (dry_run and rows is not None)
        expected = cells.rows if public else rows
        return Order(
            lambda: looks.look(made, cells, ledger=book, random_state=terms.seed),
            outlook=made.unknown if expected is None else made.outlook(expected),
            promise=made.guarantee,
        )

    def show(found: TableCheck, state: LedgerState | None) -> Shown:
        from curvedp.analyses.explore.describe import check_page

        def page() -> str:
            return check_page(found, terms.declared(schema, target).protects)

        return _looked(terms, found, lambda: print_check(found), page)

    inputs = {"the data": data, "the schema": schema}
    purchase(terms, (epsilon, delta), plan, show, inputs=inputs, doing="counting", dry_run=dry_run)


def print_check(found: TableCheck) -> None:
    rows = [
        (column.name, coloured(column.verdict, "yellow") if column.unusual else column.verdict)
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
    say(found.summary, style="dim")
    say_promise(found.privacy, "Check")


@charging(without=("report",))
def bounds(
    terms: Terms,
    data: o.TableArgument,
    columns: Annotated[str, typer.Option("--columns", help="Columns, separated by commas.")],
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 0.0,
    lower: Annotated[float, typer.Option("--lower", help="Level of the lower bound.")] = 0.005,
    upper: Annotated[float, typer.Option("--upper", help="Level of the upper bound.")] = 0.995,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Declared columns; the file to write bounds into, filled in or not."),
    ] = None,
    adjacency: Annotated[
        o.Adjacency | None,
        typer.Option(
            "--adjacency", help="Neighbouring tables: by default what the schema says, or the ledger."
        ),
    ] = None,
    rows: o.SightOption = None,
    dry_run: o.DryRunOption = False,
) -> None:
    """Buy bounds: private lower and upper quantiles of columns whose range nobody knows, in one charge."""
    names = o.listed(columns)
    text: str | None = None

    def plan(book: Ledger | None, steps: Steps) -> Order:
        nonlocal text
        from curvedp.analyses.explore.bounds import plan_bounds, release_bounds
        from curvedp.analyses.explore.tallies import number_columns
        from curvedp.data import templates
        from curvedp.data.columns import Numeric
        from curvedp.data.delimited import FileFormat
        from curvedp.data.files import parse_toml, read_toml
        from curvedp.privacy.budget import Budget, Neighbours

        text = None if schema is None else read_toml(schema)
        found_in = None if text is None else templates.declared_adjacency(text)
        if adjacency is not None and found_in not in (None, adjacency):
            raise InvalidInput(f"the schema declares {found_in} neighbours: leave --adjacency out")
        charged = None if book is None else book.state()
        kind = adjacency or found_in or ("replace" if charged is None else charged.adjacency)
        unit, per_person = (None if charged is None else charged.unit), "all"
        if text is not None:
            unit, per_person = templates.declared_unit(text), parse_toml(text).get("rows_per_person", "all")
        levels: dict[str, Any] = {"lower": lower, "upper": upper, "rows_per_person": per_person}
        made = plan_bounds(names, Budget(epsilon, delta), neighbours=Neighbours(kind, unit), **levels)
        if text is not None:
            for name in names:
                templates.require_open(text, name, force=terms.force)
            tried = {name: Numeric(name, 0.0, 1.0, source="bought") for name in names}
            templates.with_bounds(text, tried)  # refused before the charge, where it cannot be edited
        file = (FileFormat() if text is None else templates.declared_file(text)).but(**terms.file)
        written = None if text is None else templates.declared_numerals(text, names, file)
        source = number_columns(data, made.layout, file=file, numerals=written)
        counted = made.layout.neighbours.count_is_public and not (dry_run and rows is not None)
        return Order(
            lambda: release_bounds(made, source, ledger=book, random_state=terms.seed),
            outlook=made.outlook(source.rows if counted else rows),
            promise=made.guarantee,
        )

    def show(found: PrivateBounds, state: LedgerState | None) -> Shown:
        from curvedp.data.templates import with_bounds

        bought = {column.name: found.numeric(column.name) for column in found.columns}
        files = {} if text is None or not bought else {"--schema": lambda: with_bounds(text, bought)}
        written = f"Written into {schema}." if files else ""
        return Shown(found.to_dict(), lambda: print_bounds(found), files, written)

    purchase(
        terms,
        (epsilon, delta),
        plan,
        show,
        inputs={"the data": data},
        outputs={"--schema": schema},
        overwrite=True,
        doing="looking",
        dry_run=dry_run,
    )


def print_bounds(found: PrivateBounds) -> None:
    from curvedp.analyses.explore.noisy import ONCE

    if found.columns:
        rows = [
            (c.name, plain(c.low), plain(c.high), shown_share(c.below), shown_share(c.above))
            for c in found.columns
        ]
        them = "values" if found.privacy.neighbours.unit is None else "persons"
        heads = ("column", "lower", "upper", f"{them} below", f"{them} above")
        show_table(f"Bounds at {found.lower:g} and {found.upper:g}", heads, rows, right=heads[1:])
        say("In brackets: where the share lies in 95 of 100 releases.", style="dim")
        if them == "persons":
            say(ONCE, style="dim")
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
    say_promise(found.privacy, "Run")


def shown_share(share: Estimate) -> str:
    """0.4 % (0.1 … 0.9 %); without an estimate where the interval begins at 0."""
    if share.low == 0:
        return f"at most {plain(100 * share.high, 2)} %"
    value, low, high = (plain(100 * x, 2) for x in (share.value, share.low, share.high))
    return f"{value} % ({low} … {high} %)"


@charging(without=("by",))
def describe(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 1e-6,
    by: Annotated[
        str | None, typer.Option("--by", help="Tables by group: declared categories, separated by commas.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Columns, separated by commas: only these, with less noise."),
    ] = None,
    rows_up_to: Annotated[
        int | None,
        typer.Option("--rows-up-to", help="Tell of rows beside persons, of so many of each person."),
    ] = None,
    quartiles: Annotated[bool, typer.Option("--quartiles", help="With --by: those of groups, too.")] = False,
    office: Annotated[
        str,
        typer.Option("--office", help="Who releases, which other commands call --by; the ledger keeps it."),
    ] = "",
) -> None:
    """Describe a table privately: counts, means, quartiles, histograms, levels, or groups; one charge."""
    terms = replace(terms, by=office)
    asked: dict[str, Any] = {"by": by and o.listed(by), "columns": columns and o.listed(columns)}
    asked |= {"epsilon": epsilon, "delta": delta, "rows_up_to": rows_up_to, "quartiles": quartiles}

    def plan(book: Ledger | None, steps: Steps) -> Order:
        declared = terms.declared(schema)
        from curvedp.analyses.explore import describe as look

        return Order(lambda: look(data, declared, ledger=book, random_state=terms.seed, **asked))

    def show(found: Description | GroupedDescription, state: LedgerState | None) -> Shown:
        from curvedp.analyses.explore.describe import describe_page

        shown = _looked(
            terms,
            found,
            lambda: print_description(found, terms.report),
            lambda: describe_page(found, data.name, state),
        )
        where = None if terms.report is None else str(terms.report)
        return replace(shown, document={**shown.document, "report": where})

    inputs = {"the data": data, "the schema": schema}
    purchase(terms, (epsilon, delta), plan, show, inputs=inputs, doing="describing")


def print_description(found: Description | GroupedDescription, file: Path | None = None) -> None:
    """A description for people; `file` is where all of it is."""
    from curvedp.analyses.explore.describe import listings, remarks, summary_line

    say(summary_line(found))
    warn_of_a_seed(found.privacy, "Describe")
    for listing in listings(found):
        show_table(listing.title, listing.headings, listing.rows, right=listing.right, file=file)
    for line in remarks(found):
        say(line, style="dim")


# `curvedp score`: how good a released model is on private rows.


@charging()
def score(
    terms: Terms,
    model: o.ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="The sensitive table: CSV or Parquet, with the columns and the target."
        ),
    ],
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 1e-6,
    group: Annotated[
        str | None, typer.Option("--group", help="Compare the levels of this column, for fairness.")
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", help="With --group: its levels, separated by commas, if the schema declares none."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", help="Rows you declare, or persons: too few for this ε are refused beforehand."
        ),
    ] = None,
) -> None:
    """Score a model on private rows: R², AUC and more, with intervals for noise and chance, in one charge."""
    if levels is not None and group is None:
        raise InvalidInput("--levels says what --group may find: pass --group, too")

    def plan(book: Ledger | None, steps: Steps) -> Order:
        from curvedp.analyses.scores.door import private_scores
        from curvedp.data.columns import Categorical
        from curvedp.release import modelfile

        document = modelfile.load(model).with_file(**terms.file)
        if any(terms.by == column.name for column in document.schema.columns):
            raise InvalidInput(
                f"--by says who releases: to compare the levels of {terms.by!r} pass --group {terms.by}"
            )
        fitted = document.to_estimator()
        told: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rows": rows, "random_state": terms.seed}
        by = group if group is None or levels is None else Categorical(group, tuple(o.listed(levels)))
        return Order(lambda: private_scores(fitted, data, ledger=book, by=by, **told))

    def show(found: PrivateScores, state: LedgerState | None) -> Shown:
        from curvedp.analyses.scores.door import scores_page
        from curvedp.release import modelfile

        schema = modelfile.load(model).schema
        target = schema.target or "the target"
        return _looked(
            terms,
            found,
            lambda: print_scores(found, target),
            lambda: scores_page(found, target, schema.protects, state),
        )

    inputs = {"the model": model, "the data": data}
    purchase(terms, (epsilon, delta), plan, show, inputs=inputs, doing="scoring")


def print_scores(scores: PrivateScores, target: str) -> None:
    from curvedp.analyses.scores.door import NAMES, SHORT, fairness, headline

    them = scores.privacy.neighbours.counted
    show_table(
        f"Private scores of {target}, on about {scores.overall.count.value:,.0f} {them}",
        ("score", "value", "95 % interval"),
        [(NAMES[name], _value(one), _interval(one)) for name, one in headline(scores.overall)],
        right=("value", "95 % interval"),
    )
    if scores.overall.confusion:
        labels = scores.layout.classes
        show_table(
            "True class by predicted class, noisy counts",
            ("true class", *(f"predicted {label}" for label in labels)),
            [
                (label, *(f"{count:,.0f}" for count in row))
                for label, row in zip(labels, scores.overall.confusion, strict=True)
            ],
            right=tuple(f"predicted {label}" for label in labels),
        )
    compared = fairness(scores)
    if compared:
        names = [SHORT.get(name, name) for name, _ in compared[0][1]]
        show_table(
            f"By {scores.layout.by}",
            ("level", *names),
            [(level, *(f"{_value(s)} ({_interval(s)})" for _, s in found)) for level, found in compared],
            right=names,
        )
    if scores.privacy.neighbours.unit is not None:
        say("Every person counts once: of k rows each counts for the k-th part.", style="dim")
    say("Intervals cover the noise and the chance of the sample; the ε is for all scores.", style="dim")
    say_promise(scores.privacy, "Score")


def _value(score: Score) -> str:
    return plain(score.value, 3) if score.is_known else "cannot be said"


def _interval(score: Score) -> str:
    return f"{plain(score.low, 3)} to {plain(score.high, 3)}" if score.is_known else "too much noise"
