"""`curvedp check`, `bounds`, `describe` and `score`: charged looks at a table, and at a model on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

import curvedp
from curvedp.cli import charging as o
from curvedp.cli.charging import Order, Shown, Terms, purchase, say_promise, sharing
from curvedp.cli.console import Steps, say, show_table, visible
from curvedp.errors import InvalidInput
from curvedp.numbers import plain
from curvedp.privacy.budget import Budget, Neighbours

if TYPE_CHECKING:
    from curvedp.analyses.explore.bounds import PrivateBounds
    from curvedp.analyses.explore.check import TableCheck
    from curvedp.analyses.explore.describe import Described
    from curvedp.analyses.explore.noisy import Estimate
    from curvedp.analyses.scores.door import PrivateScores
    from curvedp.analyses.scores.means import Score
    from curvedp.release.ledger.storage import LedgerState


def _look(made: Any, release: Callable[[], Any], there: int, declared: int | None, dry_run: bool) -> Order:
    """A planned look. What it will see is said of the rows that are `there`, where their number is public."""
    counted = made.layout.neighbours.count_is_public and not (dry_run and declared is not None)
    return Order(release, outlook=made.outlook(there if counted else declared), promise=made.guarantee)


def _looked(terms: Terms, found: Any, say: Callable[[], None], page: Callable[[], str], **more: Any) -> Shown:
    """A look at a table, or a model on it, in words and by its page; `more` is for machines."""
    written = "" if terms.report is None else f"Page written to {terms.report}."
    return Shown({**found.to_dict(), **more}, say, {"--report": page}, written, page_of=found.receipt)


@sharing()
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

    def plan(book: curvedp.Ledger | None, steps: Steps) -> Order:
        declared = terms.declared(schema, target)
        from curvedp.analyses.explore import check as looks

        made = looks.plan(declared, Budget(epsilon, delta), rows=rows)
        cells = looks.cells_of(declared, data)
        release = partial(looks.look, made, cells, ledger=book, random_state=terms.seed)
        return _look(made, release, cells.rows, rows, dry_run)

    def show(found: TableCheck, state: LedgerState | None) -> Shown:
        from curvedp.analyses.explore.describe import check_page

        def page() -> str:
            return check_page(found, terms.declared(schema, target).protects)

        return _looked(terms, found, partial(print_check, found), page)

    purchase(terms, (epsilon, delta), plan, show, data, schema, doing="counting", dry_run=dry_run)


def print_check(found: TableCheck) -> None:
    rows = [
        (column.name, Text(visible(column.verdict), "yellow") if column.unusual else column.verdict)
        for column in found.columns
    ]
    show_table("Cells against the schema", ("column", "verdict"), rows)
    seen = [(c.name, s.label, s.words, s.interval) for c in found.columns for s in c.shares if s.seen]
    if seen:
        heads = ("column", "cells", "share", "interval of its noise")
        show_table("Shares that stand out of the noise", heads, seen, right=heads[2:])
    say(found.summary, style="dim")
    say_promise(found.privacy, "Check")


@sharing(without=("report",))
def bounds(
    terms: Terms,
    data: o.TableArgument,
    columns: Annotated[str, "Columns, separated by commas."],
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 0.0,
    lower: Annotated[float, "Level of the lower bound."] = 0.005,
    upper: Annotated[float, "Level of the upper bound."] = 0.995,
    schema: Annotated[
        Path | None, "Declared columns; the file to write bounds into, filled in or not."
    ] = None,
    adjacency: Annotated[
        o.Adjacency | None, "Neighbouring tables: by default what the schema says, or the ledger."
    ] = None,
    rows: o.SightOption = None,
    dry_run: o.DryRunOption = False,
) -> None:
    """Buy bounds: private lower and upper quantiles of columns whose range nobody knows, in one charge."""
    names = o.listed(columns)
    text: str | None = None

    def plan(book: curvedp.Ledger | None, steps: Steps) -> Order:
        nonlocal text
        from curvedp.analyses.explore.bounds import plan_bounds, release_bounds
        from curvedp.analyses.explore.tallies import number_columns
        from curvedp.data import templates
        from curvedp.data.files import ADJACENCY, parse_toml, read_toml

        text = None if schema is None else read_toml(schema)
        declared = {} if text is None else {"adjacency": ADJACENCY, **parse_toml(text)}
        found_in = declared.get("adjacency")
        if adjacency is not None and found_in not in (None, adjacency):
            raise InvalidInput(f"the schema declares {found_in} neighbours: leave --adjacency out")
        charged = None if book is None else book.state()
        kind = adjacency or found_in or ("replace" if charged is None else charged.adjacency)
        unit, per_person = (None if charged is None else charged.unit), "all"
        if text is not None:
            unit, per_person = declared.get("unit"), declared.get("rows_per_person", "all")
        levels: dict[str, Any] = {"lower": lower, "upper": upper, "rows_per_person": per_person}
        made = plan_bounds(names, Budget(epsilon, delta), neighbours=Neighbours(kind, unit), **levels)
        if text is not None:
            for name in names:
                templates.require_open(text, name, force=terms.force)
            tried = {name: curvedp.Numeric(name, 0.0, 1.0, source="bought") for name in names}
            templates.with_bounds(text, tried)  # refused before the charge, where it cannot be edited
        file = templates.declared_file(text or "").but(**terms.file)
        written = None if text is None else templates.declared_numerals(text, names, file)
        source = number_columns(data, made.layout, file=file, numerals=written)
        release = partial(release_bounds, made, source, ledger=book, random_state=terms.seed)
        return _look(made, release, source.rows, rows, dry_run)

    def show(found: PrivateBounds, state: LedgerState | None) -> Shown:
        from curvedp.data.templates import with_bounds

        bought = {column.name: found.numeric(column.name) for column in found.columns}
        files = {} if text is None or not bought else {"--schema": lambda: with_bounds(text, bought)}
        written = f"Written into {schema}." if files else ""
        return Shown(found.to_dict(), lambda: print_bounds(found), files, written)

    told: dict[str, Any] = {"outputs": {"--schema": schema}, "overwrite": True, "dry_run": dry_run}
    purchase(terms, (epsilon, delta), plan, show, data, doing="looking", **told)


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


@sharing(without=("by",))
def describe(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 1e-6,
    by: Annotated[str | None, "Tables by group: declared categories, separated by commas."] = None,
    columns: Annotated[str | None, "Columns, separated by commas: only these, with less noise."] = None,
    rows_up_to: Annotated[int | None, "Tell of rows beside persons, of so many of each person."] = None,
    quartiles: Annotated[bool, "With --by: those of groups, too."] = False,
    office: Annotated[str, "Who releases, which other commands call --by; the ledger keeps it."] = "",
) -> None:
    """Describe a table privately: counts, means, quartiles, histograms, levels, or groups; one charge."""
    terms = replace(terms, by=office)
    asked: dict[str, Any] = {"by": by and o.listed(by), "columns": columns and o.listed(columns)}
    asked |= {"epsilon": epsilon, "delta": delta, "rows_up_to": rows_up_to, "quartiles": quartiles}

    def plan(book: curvedp.Ledger | None, steps: Steps) -> Order:
        told = {"ledger": book, "random_state": terms.seed, **asked}
        return Order(partial(curvedp.describe, data, terms.declared(schema), **told))

    def show(found: Described, state: LedgerState | None) -> Shown:
        from curvedp.analyses.explore.describe import describe_page, listings, remarks, summary_line

        def print_description() -> None:
            say(summary_line(found))
            o.warn_of_a_seed(found.privacy, "Describe")
            for one in listings(found):
                show_table(one.title, one.headings, one.rows, right=one.right, file=terms.report)
            for line in remarks(found):
                say(line, style="dim")

        page = partial(describe_page, found, data.name, state)
        return _looked(terms, found, print_description, page, report=terms.report)

    purchase(terms, (epsilon, delta), plan, show, data, schema, doing="describing")


# `curvedp score`: how good a released model is on private rows.


@sharing()
def score(
    terms: Terms,
    model: o.ModelArgument,
    data: Annotated[Path, "DATA", "The sensitive table: CSV or Parquet, with the columns and the target."],
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 1e-6,
    group: Annotated[str | None, "Compare the levels of this column, for fairness."] = None,
    levels: Annotated[
        str | None, "With --group: its levels, separated by commas, if the schema declares none."
    ] = None,
    rows: Annotated[
        int | None, "Rows you declare, or persons: too few for this ε are refused beforehand."
    ] = None,
) -> None:
    """Score a model on private rows: R², AUC and more, with intervals for noise and chance, in one charge."""
    if levels is not None and group is None:
        raise InvalidInput("--levels says what --group may find: pass --group, too")

    fitted: Any = None

    def plan(book: curvedp.Ledger | None, steps: Steps) -> Order:
        nonlocal fitted
        from curvedp.release import modelfile

        fitted = modelfile.load(model).with_file(**terms.file).to_estimator()
        if any(terms.by == column.name for column in fitted.schema_.columns):
            raise InvalidInput(
                f"--by says who releases: to compare the levels of {terms.by!r} pass --group {terms.by}"
            )
        told: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rows": rows, "random_state": terms.seed}
        by = group if group is None or levels is None else curvedp.Categorical(group, tuple(o.listed(levels)))
        return Order(lambda: curvedp.score(fitted, data, ledger=book, by=by, **told))

    def show(found: PrivateScores, state: LedgerState | None) -> Shown:
        from curvedp.analyses.scores.door import scores_page

        target = fitted.schema_.target or "the target"
        page = partial(scores_page, found, target, fitted.schema_.protects, state)
        return _looked(terms, found, partial(print_scores, found, target), page)

    purchase(terms, (epsilon, delta), plan, show, data, model=model, doing="scoring")


def print_scores(scores: PrivateScores, target: str) -> None:
    from curvedp.analyses.scores.door import NAMES, fairness, headline

    them = scores.privacy.neighbours.counted
    heads = ("score", "value", "95 % interval")
    rows = [(NAMES[name][1], *_told(one)) for name, one in headline(scores.overall)]
    title = f"Private scores of {target}, on about {scores.overall.count.value:,.0f} {them}"
    show_table(title, heads, rows, right=heads[1:])
    if scores.overall.confusion:
        predicted = [f"predicted {label}" for label in scores.layout.classes]
        table = zip(scores.layout.classes, scores.overall.confusion, strict=True)
        counts = [(label, *(f"{count:,.0f}" for count in row)) for label, row in table]
        title = "True class by predicted class, noisy counts"
        show_table(title, ("true class", *predicted), counts, right=predicted)
    if compared := fairness(scores):
        names = [NAMES.get(name, (name,))[0] for name, _ in compared[0][1]]
        levels = [(level, *("{} ({})".format(*_told(s)) for _, s in found)) for level, found in compared]
        show_table(f"By {scores.layout.by}", ("level", *names), levels, right=names)
    if scores.privacy.neighbours.unit is not None:
        say("Every person counts once: of k rows each counts for the k-th part.", style="dim")
    say("Intervals cover the noise and the chance of the sample; the ε is for all scores.", style="dim")
    say_promise(scores.privacy, "Score")


def _told(score: Score) -> tuple[str, str]:
    """Its value and its interval."""
    if not score.is_known:
        return "cannot be said", "too much noise"
    return plain(score.value, 3), f"{plain(score.low, 3)} to {plain(score.high, 3)}"
