"""`curvedp audit`: try to break a guarantee."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from curvedp.cli.console import (
    STOPPED,
    Steps,
    as_json,
    emit_json,
    err,
    progress,
    say,
    show_table,
    visible,
)
from curvedp.cli.options import (
    AccountingOption,
    Adjacency,
    AdjacencyOption,
    DeltaOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    LossName,
    MechanismOption,
    QuietOption,
    ReportOption,
)
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.audit import AuditReport
    from curvedp.audit.grid import Cell
    from curvedp.audit.releases import Release
    from curvedp.audit.report import Sees
    from curvedp.budget import Budget

VERDICTS: dict[str, tuple[int, str]] = {  # exit code, colour
    "held": (0, "green"),
    "refuted": (1, "red"),
    "inconclusive": (3, "yellow"),
}
SEES: tuple[Sees, ...] = ("everything released", "what leaves")
FULL_RESULTS = "audits.json"  # in the folder of a resumable --full


def audit(
    mechanism: MechanismOption = "recentered",
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-3,
    features: Annotated[
        int | None, typer.Option("--features", help="Columns of the attacked tables; 2 by default.")
    ] = None,
    loss: Annotated[LossName, typer.Option("--loss", help="Loss of the attacked model.")] = "squared",
    accounting: AccountingOption = "auto",
    adjacency: AdjacencyOption = "replace",
    model: Annotated[
        Path | None,
        typer.Option("--model", help="Take all of these from a model file; its data are not needed."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every mechanism, accounting and adjacency, several --features.")
    ] = False,
    fits: Annotated[
        int | None,
        typer.Option("--fits", help="Private fits to attack with (each); default: what the verdict needs."),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of all statements together.")] = 0.99,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="An audit is repeatable; it uses no private data.")
    ] = 0,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit", min=0.0, help="Stop after this many seconds (each), whatever was found."
        ),
    ] = 60.0,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", help="Keep what was found here and go on from it: a file; --full: a folder."
        ),
    ] = None,
    report: ReportOption = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write a picture of the same.")] = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Attack a guarantee on worst-case tables.

    Exit code 0: no attack beat the claim, and the attack had power. 1: an attack refuted the claim.
    3: inconclusive, nothing of weight was proved either way.
    """
    began = time.monotonic()
    if full and model is not None:
        raise InvalidInput("--full audits the whole library: leave --model out")
    if full and resume is not None and resume.exists() and not resume.is_dir():
        raise InvalidInput(f"--full keeps a file for each audit: pass a folder, and {resume} is a file")
    if features is not None and features < 1:
        raise InvalidInput(f"--features must be at least 1, got {features}")
    from curvedp.outputs import claimed

    inputs = {"the model": model, "--resume": resume}
    with claimed({"--report": report, "--png": png}, inputs=inputs, force=force) as files:
        with stoppable(resume, show=not (json or quiet)) as steps:
            from curvedp.budget import Budget

            budget = Budget(epsilon, delta)
            asked = Asked(fits, confidence, seed, time_limit, began)
            named: dict[str, AuditReport] = {}
            if full:
                named = audit_all(budget, features, asked, resume, steps, told=not quiet)
                found = [*named.values()]
            else:
                if model is not None:
                    cell = cell_of_model(model, features)
                else:
                    cell = cell_of_options(mechanism, accounting, budget, loss, adjacency, features or 2)
                found = [audit_one(cell, asked, resume, steps)]
        from curvedp.audit.pages import audit_page, audit_picture

        if "--report" in files:
            files["--report"].write(audit_page(found))
        if "--png" in files:
            files["--png"].write(audit_picture(found))
    if json:
        emit_json(documents(named) if full else found[0].to_dict())
    elif not quiet:
        if full:
            print_grid(named)
        else:
            print_audit(found[0], asked, resume)
    raise typer.Exit(worst_exit_code(found))


def worst_exit_code(found: list[AuditReport]) -> int:
    """1 where any claim is refuted, else 3 where any audit is inconclusive, else 0."""
    verdicts = {result.verdict for result in found}
    return next((VERDICTS[name][0] for name in ("refuted", "inconclusive") if name in verdicts), 0)


@dataclass(frozen=True)
class Asked:
    """What the options say of every audit."""

    fits: int | None
    confidence: float
    seed: int
    time_limit: float
    began: float

    def options(self, *, whole: bool) -> dict[str, Any]:
        """For `audit_cell`; `whole`: the limit is that of the whole command, what it did so far included."""
        spent = time.monotonic() - self.began if whole else 0.0
        return {
            "fits": self.fits,
            "confidence": self.confidence,
            "seed": self.seed,
            "time_limit": max(0.0, self.time_limit - spent),
        }


@dataclass
class Watched:
    """The progress bar, and how many fits it was told of."""

    bar: Steps
    fits: int = 0
    audits: int = 0

    def at(self, done: int, total: int) -> None:
        self.fits = done
        self.bar.at(done, total)


@contextmanager
def stoppable(resume: Path | None, show: bool) -> Iterator[Watched]:
    """A progress bar; and on Ctrl-C one line that says what is kept, and exit code 130."""
    watched: Watched | None = None
    try:
        with progress("attacking", total=None, show=show) as bar:
            watched = Watched(bar)
            yield watched
    except KeyboardInterrupt:
        err.print(visible(_kept(resume, watched)), style="yellow", soft_wrap=True)
        raise typer.Exit(STOPPED) from None


def _kept(resume: Path | None, watched: Watched | None) -> str:
    """What is left of an audit that was stopped."""
    if resume is None:
        return "Stopped: nothing is kept. With --resume FILE the same command could go on."
    fits, audits = (0, 0) if watched is None else (watched.fits, watched.audits)
    if not fits and not audits:
        return f"Stopped: no fit was made; what {resume} held is unchanged."
    whole = f"{audits} whole audits and " if audits else ""
    return (
        f"Stopped: {whole}counts of {fits:,} fits are kept in {resume}; run the same command again to go on."
    )


def audit_one(cell: Cell, asked: Asked, resume: Path | None, steps: Watched) -> AuditReport:
    """The audit of what the options or the model name."""
    from curvedp.audit.grid import audit_cell

    steps.bar.begin(f"attacking {cell.name}")
    return audit_cell(cell, progress=steps.at, resume_path=resume, **asked.options(whole=True))


def audit_all(
    budget: Budget, features: int | None, asked: Asked, folder: Path | None, steps: Watched, told: bool
) -> dict[str, AuditReport]:
    """Every cell of the grid, one after the other; with a folder, results are there after each of them."""
    from curvedp.audit.grid import audit_grid, cells, everything
    from curvedp.outputs import write_file

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    grid: list[Cell | Release]
    grid = everything(budget) if features is None else [*cells(budget, (features,))]
    found: dict[str, AuditReport] = {}

    def begun() -> Iterator[Cell | Release]:
        for number, cell in enumerate(grid, 1):
            steps.fits = 0
            steps.bar.begin(f"{number}/{len(grid)} {cell.name}")
            yield cell

    for cell, result in audit_grid(begun(), folder, progress=steps.at, **asked.options(whole=False)):
        found[cell.name] = result
        steps.audits = len(found)
        if folder is not None:
            write_file(folder / FULL_RESULTS, as_json(documents(found)))
        if told:
            told_of = f"{grid.index(cell) + 1}/{len(grid)} {cell.name}: {result.verdict}"
            line = f"{told_of}, {result.share:.2f} of the claim, {result.fits:,} fits, {result.seconds:.0f} s"
            err.print(visible(line), style=VERDICTS[result.verdict][1], soft_wrap=True)
    return found


def cell_of_options(
    mechanism: str,
    accounting: str | None,
    budget: Budget,
    loss: str,
    adjacency: Adjacency,
    features: int,
    unit: str | None = None,
) -> Cell:
    """What the options ask to attack."""
    from curvedp import catalogue
    from curvedp.audit.grid import Cell
    from curvedp.domain import Domain
    from curvedp.problem import Problem

    problem = Problem(catalogue.LOSSES[loss].load(), domain=Domain(adjacency=adjacency, unit=unit))
    return Cell(catalogue.mechanism(mechanism, accounting=accounting), budget, problem, features)


def cell_of_model(path: Path, features: int | None) -> Cell:
    """The settings of a released model, its number of columns included."""
    from curvedp import catalogue, modelfile

    document = modelfile.load(path)
    promise = document.privacy
    if document.classes is not None and len(document.classes) > 2:
        raise InvalidInput("the audit covers one output: pass a model of a number or of two classes")
    entry = catalogue.MECHANISMS.get(promise.mechanism)
    if entry is None and document.inference is None:
        raise InvalidInput(
            f"the audit has no attack on {promise.mechanism!r} of this model: audit what it is made of with "
            f"--mechanism recentered --epsilon {promise.epsilon:g} --delta {promise.delta:g}, or everything "
            "with --full"
        )
    cell = cell_of_options(
        promise.mechanism if entry is not None else "recentered",
        promise.accounting if entry is not None and promise.accounting in entry.accountings else None,
        promise.budget,
        catalogue.estimator_of(document.estimator).loss_name,
        promise.adjacency,
        features or len(document.schema.feature_names) + 1,
        promise.neighbours.unit,
    )
    if document.inference is None:
        return cell
    from curvedp.mechanisms.inference import RecenteredInference

    return replace(cell, mechanism=RecenteredInference())


def documents(found: Mapping[str, AuditReport]) -> list[dict[str, Any]]:
    """The audits of a grid for JSON, each with the name of its cell."""
    return [{"cell": name} | result.to_dict() for name, result in found.items()]


def print_grid(found: Mapping[str, AuditReport]) -> None:
    """One line per audit, and which ended in which way."""
    show_table(
        f"{len(found)} audits",
        ("attacked", "fits", "proved/claimed", "θ alone", ""),
        [
            (
                name,
                f"{result.fits:,}",
                f"{result.share:.2f}",
                _share(result.proved_of("what leaves"), result.epsilon),
                Text(result.verdict, style=f"bold {VERDICTS[result.verdict][1]}"),
            )
            for name, result in found.items()
        ],
        right=("fits", "proved/claimed", "θ alone"),
    )
    for verdict, (_, colour) in VERDICTS.items():
        named = [name for name, result in found.items() if result.verdict == verdict]
        if named:
            listed = "" if verdict == "held" else ": " + "; ".join(named)
            say(f"{len(named)} of {len(found)} {verdict}{listed}", style=f"bold {colour}")


def _share(proved: float | None, claimed: float) -> str:
    return "" if proved is None else f"{proved / claimed:.2f}"


def print_audit(found: AuditReport, asked: Asked, resume: Path | None) -> None:
    """Claimed against attacked."""
    rows = [
        (f"ε at δ = {found.delta:g}, from {sees}", f"{found.epsilon:g}", f"{proved:.4g}")
        for sees in SEES
        if (proved := found.proved_of(sees)) is not None
    ]
    rows.append((f"δ at ε = {found.epsilon:g}", f"{found.delta:g}", f"{found.delta_lower:.3g}"))
    show_table(
        f"{found.mechanism} ({found.accounting}), {found.adjacency}, {found.loss} loss, "
        f"d = {found.features}: {found.fits:,} fits, {found.pairs_tried} pairs",
        ("", "claimed at most", "attacks prove at least"),
        rows,
        right=("claimed at most", "attacks prove at least"),
    )
    if found.attacks:
        best = found.attacks[0]
        say(f"Best attack: {best.pair}, {best.direction}, by {best.score}.")
    say(f"Confidence of all statements together: {100 * found.confidence:g} %.", style="dim")
    if asked.fits is None and found.complete:
        say(
            "So many fits show nearly all that the best attack can show; --fits asks for others.", style="dim"
        )
    if not found.complete:
        kept = "" if resume is None else f"; the same command goes on from {resume}"
        say(
            f"Stopped by --time-limit {asked.time_limit:g} after {found.seconds:.0f} s{kept}.", style="yellow"
        )
    say(found.sentence, style=f"bold {VERDICTS[found.verdict][1]}")
    if found.verdict == "refuted":
        say("Do not release with this mechanism.", style="bold red")
