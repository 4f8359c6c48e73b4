"""How the commands speak: one red line for an error, a progress bar for long work, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from typer.core import TyperGroup

from curvedp.errors import CurvedpError

# Newer releases of typer carry their own click; the public BadParameter leads to the root of either tree.
UsageProblem: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

# A file or a pipe has no width: wide enough for every table, so that no header is broken there.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)


class Commands(TyperGroup):
    """A command group whose every failure is one red line on stderr and exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            code = run()
        except UsageProblem as problem:
            sys.exit(_usage(problem))
        except CurvedpError as problem:
            sys.exit(_fail(str(problem)))
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            sys.exit(_fail(f"{where}{problem.strerror or 'cannot be read or written'}"))
        except (typer.Abort, KeyboardInterrupt):
            sys.exit(_fail("stopped"))
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    line = " ".join(message.split())
    err.print(f"Error: {line}", style="bold red", markup=False, soft_wrap=True)
    return 2


def _usage(problem: Any) -> int:
    """A wrong command line: the one line says where its help is."""
    context = getattr(problem, "ctx", None)
    message = problem.format_message().replace("Value error, ", "")
    if type(problem).__name__ == "NoArgsIsHelpError":
        out.print(message, markup=False)
        return 2
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    return _fail(f"{message.rstrip('.')}{hint}")


@dataclass(frozen=True)
class Steps:
    """A progress bar over a number of steps that is public before the work starts."""

    bar: Progress
    task: Any

    def begin(self, description: str) -> None:
        self.bar.update(self.task, description=description)

    def total(self, total: int) -> None:
        self.bar.update(self.task, total=total)

    def at(self, done: int, total: int) -> None:
        """So many of a total that became known on the way."""
        self.bar.update(self.task, completed=done, total=total)

    def done(self, count: int = 1) -> None:
        self.bar.advance(self.task, count)


@contextmanager
def progress(description: str, total: int | None, show: bool = True) -> Iterator[Steps]:
    """A bar on stderr, so that stdout stays clean; none when `show` is False or nobody is watching."""
    columns = (
        SpinnerColumn(),
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not (show and err.is_terminal)) as bar:
        yield Steps(bar, bar.add_task(description, total=total))


def emit_json(document: Any) -> None:
    """One JSON document on stdout; infinities and NaN become null."""
    sys.stdout.write(json.dumps(_jsonable(document), indent=2, allow_nan=False) + "\n")


def plain(value: float, digits: int = 4) -> str:
    """`value` to a few digits, without an exponent where it can do without."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    return value
