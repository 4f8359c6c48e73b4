"""How the commands speak: one red line for an error, a progress bar for long work, JSON for machines.

Nothing that is printed is taken for terminal markup, and control characters are shown, not sent.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import typer
from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from curvedp.errors import PARAMETER, CurvedpError, InvalidInput, StoppedAfterCharge, heard
from curvedp.numbers import finite
from curvedp.numbers import plain as plain
from curvedp.release.outputs import visible as visible

# Newer releases of typer carry their own click; the public BadParameter leads to the root of either tree.
UsageProblem: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

REFUTED, REFUSED, STOPPED, PIPE_CLOSED = 1, 2, 130, 141
CLOSED = "stdout is closed, so that nothing could be shown"
TRACEBACK = "CURVEDP_TRACEBACK"
SCREENFUL = 40  # rows of a table, where a file has all of them
WIDE = 120  # a file or a pipe has no width: enough for every table, so that no header is broken there

_console = partial(Console, highlight=False, markup=False, emoji=False)
_watched = sys.stdout is not None and sys.stdout.isatty()
out, err = _console(width=None if _watched else WIDE), _console(stderr=True)
Steps = Callable[..., None]  # how work tells its progress


class Interrupted(Exception):
    """Ctrl-C, and what it cost if anything; a KeyboardInterrupt would be swallowed by typer."""


class ReaderGone(CurvedpError):
    """Nobody reads stdout any more, after a charge: the message says what it was and where the release is."""


class _Closed(io.TextIOBase):
    """In the place of a stdout that is closed: writing fails, so that nothing is taken for shown."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, CLOSED)


class Commands(TyperGroup):
    """A command group whose every failure is one red line on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as problem:
            raise Interrupted(str(problem) if isinstance(problem, StoppedAfterCharge) else "") from None

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        run = partial(super().main, args, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        _prepare_streams()
        with _stopped_by_signals() as stopped:
            return self._run(run, sys.argv[1:] if args is None else args, stopped)

    def _run(self, run: Callable[[], Any], words: Sequence[str], stopped: list[int]) -> NoReturn:
        """The command, and the process ends: what went wrong is one line and an exit code."""
        try:
            if isinstance(sys.stdout, _Closed) and not {"--quiet", "-q"}.intersection(words):
                raise InvalidInput(f"{CLOSED}: send it to a file or to {os.devnull}, or pass --quiet")
            code = run()
            sys.stdout.flush()
        except UsageProblem as problem:  # a wrong command line: the one line says where its help is
            context, message = getattr(problem, "ctx", None), problem.format_message()
            if type(problem).__name__ == "NoArgsIsHelpError":
                out.print(message)
                sys.exit(REFUSED)
            hint = f" (see: {context.command_path} --help)" if context is not None else ""
            sys.exit(_fail(message.replace("Value error, ", "").rstrip(".") + hint))
        except (Interrupted, typer.Abort, KeyboardInterrupt) as problem:
            _fail(str(problem) or "stopped; nothing was charged")
            sys.exit(128 + stopped[-1] if stopped else STOPPED)
        except (ReaderGone, BrokenPipeError) as problem:
            _silence()
            if isinstance(problem, ReaderGone):
                _fail(str(problem))
            sys.exit(PIPE_CLOSED)
        except SystemExit as problem:  # how typer and rich end when nobody reads: their 1 is "refuted" here
            sys.exit(PIPE_CLOSED if problem.code == 1 else problem.code)
        except Exception as problem:
            if os.environ.get(TRACEBACK) == "1" and not isinstance(problem, CurvedpError | OSError):
                raise
            _silence()
            sys.exit(_fail(in_words(problem)))
        sys.exit(code if isinstance(code, int) else 0)


def in_options(message: str) -> str:
    """The message with its `parameters` as options: --seed, --epsilon 2, --no-inference."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        word = "seed" if name == "random_state" else name.replace("_", "-")
        if value in ("True", "False"):
            return f"--{'no-' * (value == 'False')}{word}"
        return f"--{word}" if value is None else f"--{word} {value}"

    return PARAMETER.sub(option, message)


def in_words(problem: Exception) -> str:
    """What went wrong, in the words of the command line; nothing of an error that nobody expected."""
    if isinstance(problem, CurvedpError):
        return in_options(str(problem))
    if isinstance(problem, OSError):
        where = f"{problem.filename}: " if problem.filename else ""
        return f"{where}{problem.strerror or 'cannot be read or written'}"
    return (
        f"unexpected {type(problem).__name__}; nothing more was done. Please report it; {TRACEBACK}=1 shows "
        "where (that text may hold values of your data)"
    )


@contextmanager
def _stopped_by_signals() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP stop a command as Ctrl-C does; the list holds the one that came.

    Further ones are not heard, so that drafts are removed and the line is said.
    """
    came: list[int] = []
    names = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        names = []
    taken = [number for number in names if signal.getsignal(number) is signal.SIG_DFL]

    def stop(number: int, frame: object) -> None:
        came.append(number)
        for each in taken:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in taken:
        signal.signal(number, stop)
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _prepare_streams() -> None:
    """A closed stdout fails when it is written to, a closed stderr swallows; a missing letter is ?."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (low := os.open(os.devnull, os.O_RDWR)) <= 2:  # or a file that is opened next would be stdout
            pass
        os.close(low)
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            swallows = name == "stderr"
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8") if swallows else _Closed())  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _silence() -> None:
    """Nobody reads stdout any more: what is still buffered must not fail again when Python ends."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    with suppress(OSError):  # where nobody reads stderr, the exit code says it
        err.print(f"Error: {visible(' '.join(message.split()))}", style="bold red", soft_wrap=True)
    return REFUSED


def say(text: str, style: str | None = None) -> None:
    """A line on stdout, as it is."""
    out.print(visible(text), style=style, soft_wrap=True)


def show_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    file: Path | None = None,
) -> None:
    """A table on stdout; the columns named in `right` are set flush right.

    Where a file has all of it, a table of more than a screenful is cut, and its last line names the file.
    """
    rows = list(rows)
    more = len(rows) - SCREENFUL if file is not None else 0
    table = Table(title=Text(visible(title)), title_justify="left")
    for heading in headings:
        side: Literal["left", "right"] = "right" if heading in right else "left"
        table.add_column(Text(visible(heading)), justify=side, overflow="fold")
    for row in rows[:SCREENFUL] if more > 1 else rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    out.print(table)
    if more > 1:
        say(f"… and {more:,} more: {file} has all of them.")


@contextmanager
def progress(description: str, total: int | None, show: bool = True) -> Iterator[Steps]:
    """A bar on stderr, so that stdout stays clean; none when `show` is False or nobody is watching.

    Its steps are told by `advance`, `total`, `completed` or `description`, as `Progress.update` of rich takes
    them; their number must be public before the work starts.
    """
    text = bars.TextColumn("{task.description}", style="progress.description", markup=False)
    ends = bars.MofNCompleteColumn(), bars.TimeElapsedColumn()
    bar = bars.Progress(bars.SpinnerColumn(), text, bars.BarColumn(), *ends, console=err, transient=True)
    steps = partial(bar.update, bar.add_task(description, total=total))
    if not (show and err.is_terminal):
        yield steps  # never started: with some releases of rich a disabled bar prints an empty line
        return
    rounds = bar.add_task("round, of at most", visible=False)
    with bar, heard(lambda most: bar.update(rounds, advance=1, total=most, visible=True)):
        yield steps


def refute(reason: str, document: dict[str, Any], json: bool) -> NoReturn:
    """It is not so: the document or one red line says why, and exit code 1."""
    if json:
        emit_json(document)
    else:
        _fail(reason)
    raise typer.Exit(REFUTED)


def emit_text(text: str) -> None:
    """Text for a file, on stdout; refused where stdout cannot hold one of its letters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            "the terminal's encoding lacks a letter of this text: pass --out FILE, or set PYTHONUTF8=1"
        ) from None
    sys.stdout.write(text)


def emit_json(document: Any) -> None:
    sys.stdout.write(as_json(document))


def as_json(document: Any) -> str:
    """The text of a document, in which a path is a text; infinities and NaN become null."""
    return json.dumps(finite(document), indent=2, allow_nan=False, default=os.fspath) + "\n"
