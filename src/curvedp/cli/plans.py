"""`curvedp plan` and `audit`: what a release would cost and give, what the code proves. No data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import curvedp
from curvedp.cli import charging as o
from curvedp.cli.charging import Terms, says, sharing
from curvedp.cli.console import REFUTED, STOPPED, err, progress, say, show_table
from curvedp.errors import InvalidInput
from curvedp.lazy import studies
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.release.outputs import claimed

if TYPE_CHECKING:
    from curvedp.auditing.exam import Audit
    from curvedp.planning import Widths

RELEASES = {"check": 1.0, "bounds": 1.0, "describe": 2.0, "fit": 6.0, "search": 6.0, "score": 2.0}
PURE = {"bounds"}  # purely ε-private releases
LARGEST_WEIGHT = "Every record has the largest weight there: smaller weights leave less beside the noise."


@sharing("report", "force", "json", "quiet")
def plan(
    terms: Terms,
    rows: Annotated[int, "Rows you declare: a number that you expect, never counted."],
    delta: o.DeltaOption,
    epsilon: Annotated[float | None, "ε: one record shifts any odds by at most e^ε."] = None,
    score: Annotated[float | None, "Which ε for this R² or accuracy? In the place of --epsilon."] = None,
    schema: Annotated[
        Path | None, "Declared columns; counted as a fit encodes them. No data are read."
    ] = None,
    target: o.TargetOption = None,
    formula: o.FormulaOption = None,
    features: Annotated[
        int | None, "Columns after one-hot coding, target excluded; without a schema."
    ] = None,
    task: Annotated[o.Task | None, "What the target is; without a schema: regression."] = None,
    level_share: Annotated[
        list[float] | None, "Share of a level whose interval is asked for; may be repeated."
    ] = None,
    class_share: Annotated[
        list[float] | None, "Share of a class, where the target is one; may be repeated."
    ] = None,
    quantile: Annotated[
        float | None, "The share of targets that is to lie below the prediction: of a quantile regression."
    ] = None,
    half_width: Annotated[
        float | None, "How many rows for intervals this narrow? In residual deviations, or log-odds."
    ] = None,
    trials: Annotated[
        int | None, "Compare mechanisms, too, by so many fits each of a synthetic table. With --score: 20."
    ] = None,
    best: Annotated[
        float | None, "The R² or accuracy that you expect without privacy; else about 0.5 or 0.8."
    ] = None,
    adjacency: Annotated[o.Adjacency | None, "Neighbouring tables: both kinds by default."] = None,
    releases: Annotated[
        str | None,
        "A whole analysis within --epsilon, as check,bounds,fit,score or check:1,fit:6: which ε for "
        "each, and how much noise.",
    ] = None,
    ledger: Annotated[Path | None, "Budget: how many such releases it pays for. Nothing is charged."] = None,
) -> None:
    """How wide will intervals be, and how many rows would be enough? A formula: no data, nothing is spent.

    With --trials every mechanism is tried on a synthetic table of your shape: the median score and where
    eight of ten runs lie. With --score, the smallest ε of a grid at which the default mechanism reaches it.
    """
    if releases is not None:
        if epsilon is None or score is not None or terms.report is not None or ledger is not None:
            raise InvalidInput("with --releases pass --epsilon, and neither --score, --report nor --ledger")
        parts = divided(epsilon, delta, releases, adjacency or "replace")
        if terms.answers({"rows": rows, "epsilon": epsilon, "delta": delta, "releases": parts}):
            print_parts(parts, epsilon, delta, rows)
        return
    pays: int | None = None
    if ledger is not None and epsilon is not None:
        book = curvedp.Ledger(ledger)
        pays, left = book.how_many(epsilon, delta), book.state().left
    if (epsilon is None) == (score is None):
        raise InvalidInput("pass --epsilon to see what it gives, or --score to see which ε gives it")
    if trials is not None and trials < 1:
        raise InvalidInput("--trials is a number of fits, such as 20: leave it out for the formula alone")
    if score is not None and (level_share or class_share or half_width is not None or quantile is not None):
        raise InvalidInput("half-widths are for an --epsilon: leave --score out")
    if quantile is not None and trials is not None:
        raise InvalidInput("trials are scored by R² or accuracy, which are no quantile's: leave --trials out")
    with claimed({"--report": terms.report}, inputs={"the schema": schema}, force=terms.force) as files:
        with progress("trying mechanisms", total=None, show=terms.talks) as steps:
            from curvedp.planning import plan_page

            columns, kind = shape(schema, target, formula, features, task), task or "regression"
            kinds: tuple[o.Adjacency, ...] = ("replace", "add_remove") if adjacency is None else (adjacency,)
            if not isinstance(columns, int) and not columns.neighbours.count_is_public:
                kinds = kinds[::-1]  # that of the schema first
            wide: list[Widths] = []
            if epsilon is not None:
                budget = Budget(epsilon, delta)
                asked: dict[str, Any] = {"levels": level_share, "classes": class_share}
                asked |= {"half_width": half_width, "quantile": quantile}
                wide = [curvedp.plan(rows, columns, budget, one, kind, **asked) for one in kinds]
            shown, tried = as_document(wide) if wide else {}, None
            if trials is not None or score is not None:
                trying = studies("forecasts", "a trial on synthetic tables")
                sought = epsilon if score is None else score
                tried = (trying.compared if score is None else trying.reaching)(
                    sought, rows, columns, delta, kinds, kind, runs=trials, best=best, steps=steps, page=files
                )
                shown = tried.document(shown)
        for file in files.values():
            file.write(plan_page(wide) if tried is None else tried.page(wide))
    if terms.answers({**shown, **({} if pays is None else {"ledger_pays_for": pays})}):
        if wide:
            print_widths(wide)
        if tried is not None:
            tried.show()
        if not isinstance(columns, int):
            say_what_differs(columns)
        if tried is not None:
            say("Scores are of a synthetic table of this shape: use their order, not their digits.", "dim")
        if pays is not None:
            say(f"{ledger} pays for {pays:,} more at ε = {epsilon:g}, δ = {delta:g}. Left in it: {left}.")
        if terms.report is not None:
            say(f"Page written to {terms.report}.")


def divided(epsilon: float, delta: float, releases: str, adjacency: o.Adjacency) -> list[dict[str, Any]]:
    """The releases of an analysis, each with its (ε, δ) and the noise that it would put on a count of rows.

    That is `histogram_factor`/μ for Gaussian releases, the deviation of Laplace noise of ε for pure ones;
    beside it the same with the budget divided as Σε and Σδ.
    """
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

    found = []
    for name, part in parts.items():
        share = weights[name] / total
        told = {"release": name, "share": share, "epsilon": part.epsilon, "delta": part.delta}
        added_up = Budget(epsilon * weights[name] / total, delta * weights[name] / total)
        told |= {"noise_on_a_count": noise(part, name), "noise_if_epsilons_added_up": noise(added_up, name)}
        found.append(told)
    return found


def print_parts(parts: Sequence[dict[str, Any]], epsilon: float, delta: float, rows: int) -> None:
    """The releases of an analysis for people; every ε rounded down."""
    from curvedp.release.ledger.filters import floor

    numbers = ("share", "--epsilon", "--delta", "noise on a count", "of the rows", "if ε added up")
    lines = []
    for part in parts:
        noise, added_up = part["noise_on_a_count"], part["noise_if_epsilons_added_up"]
        paid = (f"{part['share']:.0%}", f"{floor(part['epsilon'], 4):g}", f"{part['delta']:g}")
        noises = (f"± {noise:,.0f} rows", f"{noise / rows:.2%}", f"± {added_up:,.0f} rows")
        lines.append((part["release"], *paid, *noises))
    title = f"All of it within ε = {epsilon:g}, δ = {delta:g}, which a ledger of that pays for"
    show_table(title, ("release", *numbers), lines, right=numbers)
    say(
        "Shares are of μ², whose sum a ledger keeps; bounds are purely ε-private. A fit puts the same noise "
        "on its sums, for numbers within their bounds.",
        style="dim",
    )


def shape(
    schema: Path | None, target: str | None, formula: str | None, features: int | None, task: o.Task | None
) -> curvedp.Schema | int:
    """What is declared of the columns: by a schema, or by their number."""
    if schema is None:
        if features is None or formula is not None or target is not None:
            raise InvalidInput("pass --features, or --schema, perhaps with --target or --formula")
        return features
    if features is not None or task is not None:
        raise InvalidInput("the schema says the columns and the target: leave --features and --task out")
    declared = curvedp.Schema.load(schema).with_model(target, formula)
    if not declared.has_target:
        raise InvalidInput("no target was chosen: name the column to predict with --target")
    return declared


def print_widths(found: Sequence[Widths]) -> None:
    """The expected intervals side by side for people."""
    first, budget = found[0], found[0].budget
    enough = "rows enough" if first.asked is None else f"rows for ± {first.asked:g}"
    headings = [text for one in found for text in (f"±, {one.adjacency}", f"{enough}, {one.adjacency}")]
    rows = []
    for same in zip(*(one.intervals for one in found), strict=True):
        cells = (text for item in same for text in (item.words, rows_or_more(item.rows_enough, 1e9)))
        rows.append((same[0].name, *cells))
    shape = f"{first.rows_declared:,} rows × {first.features} features"
    title = f"{shape}, ε = {budget.epsilon:g}, δ = {budget.delta:g}, {first.task}"
    show_table(title, ("95 % interval of", *headings), rows, right=headings)
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


def say_what_differs(schema: curvedp.Schema) -> None:
    """What the synthetic table has and the table of this schema may not have."""
    if schema.unit is not None:
        say(
            f"Rows are persons here, one row of each {schema.unit!r}: more rows of a person give better "
            "scores."
        )
    if schema.absorb is not None:
        say("Nothing is absorbed there: the less varies within persons, the less is left beside the noise.")
    if schema.weight is not None:
        say(LARGEST_WEIGHT)


def rows_or_more(rows: int | None, limit: float) -> str:
    return f"> {limit:.0e}" if rows is None else f"{rows:,}"


def as_document(wide: Sequence[Widths]) -> dict[str, Any]:
    """The expected intervals for machines."""
    first, adjacencies = wide[0], {}
    for one in wide:
        half_widths = [
            {"level_share": item.level, "class_share": item.class_share, "stated": not item.why}
            | {"why_not": item.why}
            | {key: getattr(item, key) for key in ("half_width", "multiple", "df", "rows_enough")}
            for item in one.intervals
        ]
        told = {"kappa": one.kappa, "verdict": one.sentence, "noise_dominates": one.tone == "bad"}
        adjacencies[one.adjacency] = {**told, "too_few_class_share": one.too_few, "half_widths": half_widths}
    asked: dict[str, Any] = {"rows": first.rows_declared, "features": first.features, "task": first.task}
    asked |= {"epsilon": first.budget.epsilon, "delta": first.budget.delta, "half_width_in": first.measure}
    return {**asked, "adjacencies": adjacencies}


COLOURS = {"held": "green", "refuted": "red"}


@sharing("report", "force", "json", "quiet")
def audit(
    terms: Terms,
    model: Annotated[Path | None, "The release behind this model file; its data are not needed."] = None,
    only: Annotated[str, "Of everything, what has this text in its name, such as: recentered"] = "",
    epsilon: o.EpsilonOption = 1.0,
    delta: o.DeltaOption = 1e-3,
    replays: Annotated[int, says("Of each release, at least.", min=1)] = 20,
    transcripts: Annotated[int, says("Where answers add up to no known law.", min=100)] = 1000,
    seed: Annotated[int, says("An audit is repeatable.", min=0)] = 0,
) -> None:
    """Replay releases on worst-case neighbouring tables, and check every premise of their proofs there.

    Without --model everything that the library releases, for both adjacencies, at the given ε and δ. No data
    are needed. Exit code 0: all held on the pairs tried. 1: a premise is refuted.
    """
    from curvedp import auditing

    options: dict[str, Any] = {"replays": replays, "transcripts": transcripts, "seed": seed}
    with claimed({"--report": terms.report}, inputs={"the model": model}, force=terms.force) as files:
        try:
            if model is None:
                found = _everything(Budget(epsilon, delta), only, options, show=terms.talks)
            else:
                found = [auditing.audit(model, **options)]
        except KeyboardInterrupt:
            err.print("Stopped: nothing is kept.", style="yellow")
            raise typer.Exit(STOPPED) from None
        for file in files.values():
            file.write(auditing.audit_page(found))
    if terms.answers([one.to_dict() for one in found] if model is None else found[0].to_dict()):
        print_audits(found)
    raise typer.Exit(REFUTED if any(one.problems for one in found) else 0)


def _everything(budget: Budget, only: str, options: dict[str, Any], show: bool) -> list[Audit]:
    from curvedp.auditing.cases import audit_everything, everything

    if not (wanted := [name for name in everything(budget) if only in name]):
        raise InvalidInput(f"nothing that is released has {only!r} in its name: leave --only out to see all")
    found = []
    with progress("replaying", total=len(wanted), show=show) as steps:
        for one in audit_everything(budget, only=only, **options):
            found.append(one)
            steps(description=one.name, advance=1)
    return found


def print_audits(found: list[Audit]) -> None:
    """One line for each, or one table of answers; then the verdict."""
    if len(found) == 1:
        _print_answers(found[0])
        return
    rows = [
        (
            one.name,
            "" if one.worst is None else f"{one.worst.worst:.3f}",
            f"{one.total:.3f}" if math.isfinite(one.total) else "",
            Text(one.verdict, style=f"bold {COLOURS[one.verdict]}"),
        )
        for one in found
    ]
    numbers = "worst answer/share", "total/allowed"
    show_table(f"{len(found)} releases", ("release", *numbers, ""), rows, right=numbers)
    for one in found:
        if one.problems:
            say(f"{one.name}: {one.sentence}", style="bold red")
    refuted = sum(bool(one.problems) for one in found)
    words = f"{refuted} of {len(found)} refuted" if refuted else f"All {len(found)} held on the pairs tried"
    say(words, style=f"bold {'red' if refuted else 'green'}")


def _print_answers(one: Audit) -> None:
    rows = [(a.name, f"{a.unit} = {a.share:.4g}", f"{a.worst:.3f}", a.pair) for a in one.answers]
    if math.isfinite(one.total):
        paid = f"ε = {one.epsilon:g}, δ = {one.delta:g}"
        rows.append(("all together", paid, f"{one.total:.3f}", one.total_pair))
    title = f"{one.name}, {one.theorem}: {one.replays} replays on {len(one.pairs)} pairs of tables"
    headings = ("answer", "paid for", "largest part found", "where")
    show_table(title, headings, rows, right=headings[2:3])
    for words in one.problems[1:]:
        say(words, style="red")
    for words in one.remarks:
        say(f"Note: {words}.", style="yellow")
    say(one.sentence, style=f"bold {COLOURS[one.verdict]}")
    if one.problems:
        say("Do not release with this.", style="bold red")
