"""`curvedp plan`: what a release will cost and give, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli import charging as o
from curvedp.cli.console import emit_json, in_options, progress, say, show_table
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.data.schema import Schema
    from curvedp.planning.intervals import Widths
    from curvedp.planning.run import Forecast, Reached

RELEASES = {"check": 1.0, "bounds": 1.0, "describe": 2.0, "fit": 6.0, "search": 6.0, "score": 2.0}
PURE = {"bounds"}  # purely ε-private releases
DIGITS = "Scores are of a synthetic table of this shape: use their order, not their digits."


def plan(
    rows: Annotated[
        int, typer.Option("--rows", help="Rows you declare: a number that you expect, never counted.")
    ],
    delta: o.DeltaOption,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="ε: one record shifts any odds by at most e^ε.")
    ] = None,
    score: Annotated[
        float | None,
        typer.Option("--score", help="Which ε for this R² or accuracy? In the place of --epsilon."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Declared columns; counted as a fit encodes them. No data are read."),
    ] = None,
    target: o.TargetOption = None,
    formula: o.FormulaOption = None,
    features: Annotated[
        int | None,
        typer.Option("--features", help="Columns after one-hot coding, target excluded; without a schema."),
    ] = None,
    task: Annotated[
        o.Task | None, typer.Option("--task", help="What the target is; without a schema: regression.")
    ] = None,
    level_share: Annotated[
        list[float] | None,
        typer.Option("--level-share", help="Share of a level whose interval is asked for; may be repeated."),
    ] = None,
    class_share: Annotated[
        list[float] | None,
        typer.Option("--class-share", help="Share of a class, where the target is one; may be repeated."),
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(
            "--half-width",
            help="How many rows for intervals this narrow? In residual deviations, or log-odds.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            help="Compare mechanisms, too, by so many fits each of a synthetic table. With --score: 20.",
        ),
    ] = None,
    best: Annotated[
        float | None,
        typer.Option(
            "--best", help="The R² or accuracy that you expect without privacy; else about 0.5 or 0.8."
        ),
    ] = None,
    adjacency: Annotated[
        o.Adjacency | None, typer.Option("--adjacency", help="Neighbouring tables: both kinds by default.")
    ] = None,
    releases: Annotated[
        str | None,
        typer.Option(
            "--releases",
            help="A whole analysis within --epsilon, as check,bounds,fit,score or check:1,fit:6: which ε for "
            "each, and how much noise.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="Budget: how many such releases it pays for. Nothing is charged."),
    ] = None,
    report: o.ReportOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """How wide will intervals be, and how many rows would be enough? A formula: no data, nothing is spent.

    With --trials every mechanism is tried on a synthetic table of your shape: the median score and where
    eight of ten runs lie. With --score, the smallest ε of a grid at which the default mechanism reaches it.
    """
    from curvedp.release.outputs import claimed

    if releases is not None:
        if epsilon is None or score is not None or report is not None or ledger is not None:
            raise InvalidInput("with --releases pass --epsilon, and neither --score, --report nor --ledger")
        parts = divided(epsilon, delta, releases, adjacency or "replace")
        if json:
            emit_json({"rows": rows, "epsilon": epsilon, "delta": delta, "releases": parts})
        elif not quiet:
            print_parts(parts, epsilon, delta, rows)
        return
    pays = None if ledger is None or epsilon is None else paid_for(ledger, epsilon, delta)
    if (epsilon is None) == (score is None):
        raise InvalidInput("pass --epsilon to see what it gives, or --score to see which ε gives it")
    if trials is not None and trials < 1:
        raise InvalidInput("--trials is a number of fits, such as 20: leave it out for the formula alone")
    if score is not None and (level_share or class_share or half_width is not None):
        raise InvalidInput("half-widths are for an --epsilon: leave --score out")
    with claimed({"--report": report}, inputs={"the schema": schema}, force=force) as files:
        with progress("trying mechanisms", total=None, show=not (json or quiet)) as steps:
            from curvedp import planning as tried
            from curvedp.privacy.budget import Budget

            columns = shape(schema, target, formula, features, task)
            kinds: tuple[o.Adjacency, ...] = ("replace", "add_remove") if adjacency is None else (adjacency,)
            if not isinstance(columns, int) and not columns.neighbours.count_is_public:
                kinds = kinds[::-1]  # that of the schema first
            on_step, kind, runs = (lambda name: steps.done()), task or "regression", trials or tried.RUNS
            if score is not None:
                options: dict[str, Any] = {"best": best, "runs": runs, "on_step": on_step}
                answers = [tried.reach(score, rows, columns, delta, one, kind, **options) for one in kinds]
                shown = reached_document(answers)
            else:
                assert epsilon is not None
                budget = Budget(epsilon, delta)
                asked: dict[str, Any] = {
                    "levels": level_share,
                    "classes": class_share,
                    "half_width": half_width,
                }
                wide = [tried.widths(rows, columns, budget, one, kind, **asked) for one in kinds]
                found: list[Forecast] = []
                if trials is not None:
                    steps.total(len(kinds) * len(tried.CANDIDATES))
                    curve = [epsilon * factor for factor in tried.CURVE] if files else ()
                    options = {"best": best, "epsilons": curve, "runs": runs, "on_step": on_step}
                    fresh = (tried.forecast(rows, columns, budget, one, kind, **options) for one in kinds)
                    found = [one.told(in_options) for one in fresh]
                shown = as_document(wide, found)
        if files:
            from curvedp.planning.run import plan_page, reached_page

            page = reached_page(*answers) if score is not None else plan_page(wide, found)
            for file in files.values():
                file.write(page)
    if json:
        emit_json({**shown, **({} if pays is None else {"ledger_pays_for": pays[0]})})
    elif not quiet:
        if score is not None:
            print_reached(answers)
        else:
            print_widths(wide)
            print_forecasts(found)
        if not isinstance(columns, int):
            say_what_differs(columns)
        if score is not None or found:
            say(DIGITS, style="dim")
        if pays is not None:
            say(pays[1])
        if report is not None:
            say(f"Page written to {report}.")


def paid_for(path: Path, epsilon: float, delta: float) -> tuple[int, str]:
    """How many more releases at (ε, δ) a ledger pays for, and the sentence that says so."""
    from curvedp.release.ledger.file import Ledger

    book = Ledger(path)
    count, left = book.how_many(epsilon, delta), book.state().left
    return count, f"{path} pays for {count:,} more at ε = {epsilon:g}, δ = {delta:g}. Left in it: {left}."


def divided(epsilon: float, delta: float, releases: str, adjacency: o.Adjacency) -> list[dict[str, Any]]:
    """The releases of an analysis, each with its (ε, δ) and the noise that it would put on a count of rows.

    That is `histogram_factor`/μ for Gaussian releases, the deviation of Laplace noise of ε for pure ones;
    beside it the same with the budget divided as Σε and Σδ.
    """
    from curvedp.privacy.budget import Budget, Neighbours
    from curvedp.privacy.gaussian import calibrate_mu

    weights: dict[str, float] = {}
    for item in releases.split(","):
        name, colon, weight = (text.strip() for text in item.partition(":"))
        try:
            share = float(weight) if colon else RELEASES.get(name, 0.0)
        except ValueError:
            share = 0.0
        if name not in RELEASES or name in weights or not 0 < share < math.inf:
            raise InvalidInput(
                f"--releases lists {', '.join(RELEASES)}, each once and perhaps with a weight, as fit:6; got "
                f"{item!r}"
            )
        weights[name] = share
    budget, factor = Budget(epsilon, delta), Neighbours(adjacency)
    pure = PURE & weights.keys() if len(weights) > 1 else set()
    parts, total = budget.split(pure=pure, **weights), sum(weights.values())

    def noise(part: Budget, name: str) -> float:
        if part.delta == 0 or name in PURE:
            return math.sqrt(2) * factor.moves / part.epsilon
        return factor.histogram_factor / calibrate_mu(part.epsilon, part.delta)

    return [
        {
            "release": name,
            "share": weights[name] / total,
            "epsilon": part.epsilon,
            "delta": part.delta,
            "noise_on_a_count": noise(part, name),
            "noise_if_epsilons_added_up": noise(
                Budget(epsilon * weights[name] / total, delta * weights[name] / total), name
            ),
        }
        for name, part in parts.items()
    ]


def print_parts(parts: Sequence[dict[str, Any]], epsilon: float, delta: float, rows: int) -> None:
    """The releases of an analysis for people; every ε rounded down."""
    from curvedp.release.ledger.filters import floor

    numbers = ("share", "--epsilon", "--delta", "noise on a count", "of the rows", "if ε added up")
    show_table(
        f"All of it within ε = {epsilon:g}, δ = {delta:g}, which a ledger of that pays for",
        ("release", *numbers),
        [
            (
                *(part["release"], f"{part['share']:.0%}"),
                *(
                    f"{floor(part['epsilon'], 4):g}",
                    f"{part['delta']:g}",
                    f"± {part['noise_on_a_count']:,.0f} rows",
                ),
                f"{part['noise_on_a_count'] / rows:.2%}",
                f"± {part['noise_if_epsilons_added_up']:,.0f} rows",
            )
            for part in parts
        ],
        right=numbers,
    )
    say(
        "Shares are of μ², whose sum a ledger keeps; bounds are purely ε-private. A fit puts the same noise "
        "on its sums, for numbers within their bounds.",
        style="dim",
    )


def shape(
    schema: Path | None, target: str | None, formula: str | None, features: int | None, task: o.Task | None
) -> Schema | int:
    """What is declared of the columns: by a schema, or by their number."""
    if schema is None:
        if features is None or formula is not None or target is not None:
            raise InvalidInput("pass --features, or --schema, perhaps with --target or --formula")
        return features
    from curvedp.data.schema import Schema

    if features is not None or task is not None:
        raise InvalidInput("the schema says the columns and the target: leave --features and --task out")
    declared = Schema.load(schema).with_model(target, formula)
    if not declared.has_target:
        raise InvalidInput("no target was chosen: name the column to predict with --target")
    return declared


def print_widths(found: Sequence[Widths]) -> None:
    """The expected intervals side by side for people."""
    first, budget = found[0], found[0].budget
    enough = "rows enough" if first.asked is None else f"rows for ± {first.asked:g}"
    headings = [text for one in found for text in (f"±, {one.adjacency}", f"{enough}, {one.adjacency}")]
    if first.intervals:
        show_table(
            f"{first.rows_declared:,} rows × {first.features} features, ε = {budget.epsilon:g}, "
            f"δ = {budget.delta:g}, {first.task}",
            ("95 % interval of", *headings),
            [
                (
                    same[0].name,
                    *(text for item in same for text in (item.words, rows_or_more(item.rows_enough, 1e9))),
                )
                for same in zip(*(one.intervals for one in found), strict=True)
            ],
            right=headings,
        )
        say(
            f"In {first.measure}: of a number for one deviation of it, of a level against the weighted mean. "
            "In brackets: as a multiple of the interval without privacy.",
            style="dim",
        )
        for one in found:
            for item in one.intervals[1:]:
                if item.why:
                    say(f"{one.adjacency}: {item.name} is not stated: {item.why}.", style="dim")
    for one in found:
        colour = {"good": "green", "warn": "yellow", "bad": "red"}[one.tone]
        say(f"{one.adjacency}: {one.sentence} {one.class_sentence}".rstrip(), style=f"bold {colour}")


def print_forecasts(found: Sequence[Forecast]) -> None:
    """The forecasts side by side for people."""
    if not found:
        return
    first = found[0]
    ranked = [row.label for row in first.rows]
    ranked += [row.label for one in found for row in one.rows if row.label not in ranked]
    by_label = [{row.label: row for row in one.rows} for one in found]
    headings = [
        heading
        for one in found
        for heading in (
            f"{first.score_name}, {one.adjacency}",
            f"rows needed, {one.adjacency}",
        )
    ]
    lines = []
    for label in dict.fromkeys(ranked):
        cells = [label]
        for one, rows in zip(found, by_label, strict=True):
            row = rows.get(label)
            said = row and [
                f"{one.place(row)} · {row.scores.words}",
                rows_or_more(row.rows_needed, one.rows_limit),
            ]
            cells += said or ["", ""]
        lines.append(cells)
    for label, value in (
        ("no privacy", first.nonprivate_score),
        ("constant answer", first.constant_score),
    ):
        lines.append([label, *([f"{value:.3f}", ""] * len(found))])
    show_table(
        f"Mechanisms on a synthetic table, {first.runs} fits each",
        ("mechanism", *headings),
        lines,
        right=headings,
    )
    say(
        f"In brackets: where eight of ten runs lie, of {first.runs} simulated ones. “=”: a tie, scores that "
        "differ by less than that.",
        style="dim",
    )
    for label, reason in first.refused:
        say(f"{label}: {reason}", style="dim")
    for one in found:
        colour = {"good": "green", "warn": "yellow", "bad": "red"}[one.verdict.tone]
        say(f"{one.adjacency}: {one.verdict.sentence}", style=f"bold {colour}")


def print_reached(found: Sequence[Reached]) -> None:
    """Which ε, for people."""
    first = found[0]
    epsilons = sorted({epsilon for one in found for epsilon, _ in one.tried})
    by_epsilon = [dict(one.tried) for one in found]
    headings = [f"{first.score_name}, {one.adjacency}" for one in found]
    if epsilons:
        show_table(
            f"{first.rows_declared:,} rows × {first.features} features, δ = {first.delta:g}, "
            f"{first.mechanism}",
            ("ε", *headings),
            [
                (f"{e:g}", *(spreads[e].words if e in spreads else "" for spreads in by_epsilon))
                for e in epsilons
            ],
            right=("ε", *headings),
        )
        say(f"In brackets: where eight of ten runs lie, of {first.runs} simulated ones.", style="dim")
    for one in found:
        colour = "yellow" if one.epsilon is None else "green"
        say(f"{one.adjacency}: {one.sentence}", style=f"bold {colour}")


def say_what_differs(schema: Schema) -> None:
    """What the synthetic table has and the table of this schema may not have."""
    if schema.unit is not None:
        say(
            f"Rows are persons here, one row of each {schema.unit!r}: more rows of a person give better "
            "scores."
        )
    if schema.weight is not None:
        say("Every record has the largest weight there: smaller weights leave less beside the noise.")


def rows_or_more(rows: int | None, limit: float) -> str:
    return f"> {limit:.0e}" if rows is None else f"{rows:,}"


def as_document(wide: Sequence[Widths], found: Sequence[Forecast]) -> dict[str, Any]:
    """The expected intervals and, where mechanisms were tried, the forecasts for machines."""
    first = wide[0]
    document: dict[str, Any] = {
        "rows": first.rows_declared,
        "features": first.features,
        "task": first.task,
        "epsilon": first.budget.epsilon,
        "delta": first.budget.delta,
        "half_width_in": first.measure,
    }
    if found:
        document |= {
            "score": found[0].score_name,
            "nonprivate_score": found[0].nonprivate_score,
            "constant_score": found[0].constant_score,
            "runs": found[0].runs,
        }
    parts = {one.adjacency: of_widths(one) for one in wide}
    for one in found:
        parts[one.adjacency] |= of_adjacency(one)
    return document | {"adjacencies": parts}


def of_widths(found: Widths) -> dict[str, Any]:
    return {
        "kappa": found.kappa,
        "verdict": found.sentence,
        "noise_dominates": found.tone == "bad",
        "no_intervals": found.reason,
        "too_few_class_share": found.too_few,
        "half_widths": [
            {
                "level_share": item.level,
                "class_share": item.class_share,
                "stated": not item.why,
                "why_not": item.why,
                "half_width": item.half_width,
                "multiple": item.multiple,
                "df": item.df,
                "rows_enough": item.rows_enough,
            }
            for item in found.intervals
        ],
    }


def of_adjacency(found: Forecast) -> dict[str, Any]:
    return {
        "verdict": found.verdict.sentence,
        "noise_dominates": found.verdict.tone == "bad",
        "mechanisms": [
            {
                "mechanism": row.mechanism,
                "accounting": row.accounting,
                "rank": row.rank,
                "theorem": row.guarantee.theorem,
                "expected_score": row.score,
                "eight_of_ten_runs": [row.scores.low, row.scores.high],
                "rows_needed": row.rows_needed,
                "utility_bound": row.utility_bound,
                "parameters": dict(row.guarantee.parameters),
                "score_by_epsilon": dict(zip(map(str, found.epsilons), row.scores_by_epsilon, strict=True)),
            }
            for row in found.rows
        ],
        "refused": [{"mechanism": label, "reason": reason} for label, reason in found.refused],
    }


def reached_document(found: Sequence[Reached]) -> dict[str, Any]:
    """Which ε, for machines."""
    first = found[0]
    return {
        "rows": first.rows_declared,
        "features": first.features,
        "delta": first.delta,
        "mechanism": first.mechanism,
        "score": first.score_name,
        "asked": first.score,
        "nonprivate_score": first.nonprivate_score,
        "runs": first.runs,
        "adjacencies": {
            one.adjacency: {
                "epsilon": one.epsilon,
                "epsilon_of_nine_in_ten": one.sure_epsilon,
                "sentence": one.sentence,
                "tried": [
                    {
                        "epsilon": epsilon,
                        "expected_score": spread.median,
                        "eight_of_ten_runs": [spread.low, spread.high],
                    }
                    for epsilon, spread in one.tried
                ],
            }
            for one in found
        },
    }
