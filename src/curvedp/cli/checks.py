"""`curvedp audit`: does the code do what its theorems assume?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from curvedp.cli import charging as o
from curvedp.cli.console import REFUTED, STOPPED, emit_json, err, progress, say, show_table
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.auditing.exam import Audit

COLOURS = {"held": "green", "refuted": "red"}


def audit(
    model: Annotated[
        Path | None,
        typer.Option("--model", help="The release behind this model file; its data are not needed."),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", help="Of everything, what has this text in its name, such as: recentered")
    ] = "",
    epsilon: o.EpsilonOption = 1.0,
    delta: o.DeltaOption = 1e-3,
    replays: Annotated[int, typer.Option("--replays", min=1, help="Of each release, at least.")] = 20,
    transcripts: Annotated[
        int, typer.Option("--transcripts", min=100, help="Where answers add up to no known law.")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="An audit is repeatable.")] = 0,
    report: o.ReportOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Replay releases on worst-case neighbouring tables, and check every premise of their proofs there.

    Without --model everything that the library releases, for both adjacencies, at the given ε and δ. No data
    are needed. Exit code 0: all held on the pairs tried. 1: a premise is refuted.
    """
    from curvedp import auditing
    from curvedp.release.outputs import claimed

    options: dict[str, Any] = {"replays": replays, "transcripts": transcripts, "seed": seed}
    with claimed({"--report": report}, inputs={"the model": model}, force=force) as files:
        try:
            found = (
                _everything(epsilon, delta, only, options, show=not (json or quiet))
                if model is None
                else [auditing.audit(model, **options)]
            )
        except KeyboardInterrupt:
            err.print("Stopped: nothing is kept.", style="yellow")
            raise typer.Exit(STOPPED) from None
        if "--report" in files:
            files["--report"].write(auditing.audit_page(found))
    if json:
        emit_json([one.to_dict() for one in found] if model is None else found[0].to_dict())
    elif not quiet:
        print_audits(found)
    raise typer.Exit(REFUTED if any(one.problems for one in found) else 0)


def _everything(epsilon: float, delta: float, only: str, options: dict[str, Any], show: bool) -> list[Audit]:
    from curvedp.auditing.cases import audit_everything, everything
    from curvedp.privacy.budget import Budget

    budget = Budget(epsilon, delta)
    wanted = [name for name in everything(budget) if only in name]
    if not wanted:
        raise InvalidInput(f"nothing that is released has {only!r} in its name: leave --only out to see all")
    found = []
    with progress("replaying", total=len(wanted), show=show) as steps:
        for one in audit_everything(budget, only=only, **options):
            found.append(one)
            steps.begin(one.name)
            steps.done()
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
        rows.append(
            ("all together", f"ε = {one.epsilon:g}, δ = {one.delta:g}", f"{one.total:.3f}", one.total_pair)
        )
    title = f"{one.name}, {one.theorem}: {one.replays} replays on {len(one.pairs)} pairs of tables"
    show_table(
        title, ("answer", "paid for", "largest part found", "where"), rows, right=("largest part found",)
    )
    for words in one.problems[1:]:
        say(words, style="red")
    for words in one.remarks:
        say(f"Note: {words}.", style="yellow")
    say(one.sentence, style=f"bold {COLOURS[one.verdict]}")
    if one.problems:
        say("Do not release with this.", style="bold red")
