"""Studies that may be interrupted: every number is a row of a CSV file and is computed once.

A study is a list of tasks. A task owns some points (the keys of its rows) and is computed as a whole, on
one of several processes; what an earlier run finished is read back from the file.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_type_hints

from threadpoolctl import threadpool_limits

from curvedp.rows.passes import available_threads
from curvedp_studies.workers import held_back, worker_pool

Progress = Callable[[int, int], None]


class Row(Protocol):
    """A dataclass of strings, integers and floats; `point` says which number of the study it is."""

    @property
    def point(self) -> Hashable: ...


AnyRow = TypeVar("AnyRow", bound=Row)
Task = TypeVar("Task")


def seed_of(*key: object) -> int:
    """A seed in [0, 2⁶³) that follows from the key alone: subsets of a study keep their random numbers."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def complete(
    table: Path,
    row_type: type[AnyRow],
    tasks: Sequence[Task],
    points: Callable[[Task], Sequence[Hashable]],
    compute: Callable[[Task], Sequence[AnyRow]],
    *,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[AnyRow]:
    """The rows of all tasks, in order, also in `table`; those of unfinished tasks are computed and appended.

    Other rows of the table stay, behind them. `progress(done, total)` counts tasks; `workers` processes share
    them (default: one per core).
    """
    table.parent.mkdir(parents=True, exist_ok=True)
    wanted = {point for task in tasks for point in points(task)}
    known = {row.point: row for row in read_rows(table, row_type)}
    done = {point: row for point, row in known.items() if point in wanted}
    others = [row for point, row in known.items() if point not in wanted]
    missing = [task for task in tasks if not all(point in done for point in points(task))]
    write_rows(table, row_type, known.values())
    finished = len(tasks) - len(missing)
    if progress:
        progress(finished, len(tasks))
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for rows in _compute_all(compute, missing, workers or available_threads()):
            done.update((row.point, row) for row in rows)
            writer.writerows(_cells(row) for row in rows)
            file.flush()
            finished += 1
            if progress:
                progress(finished, len(tasks))
    ordered = [done[point] for task in tasks for point in points(task)]
    write_rows(table, row_type, [*ordered, *others])
    return ordered


def read_rows(table: Path, row_type: type[AnyRow]) -> list[AnyRow]:
    """The rows of an earlier run; a line cut off by an interruption is dropped, a foreign file ignored."""
    if not table.exists():
        return []
    names = [field.name for field in fields(_dataclass(row_type))]
    hints = get_type_hints(row_type)
    parsers = [_PARSERS.get(hints[name], str) for name in names]
    text = table.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    header, *lines = list(csv.reader(whole.splitlines())) or [[]]
    if header != names:
        return []
    return [
        row_type(*(parse(cell) for parse, cell in zip(parsers, line, strict=True)))
        for line in lines
        if len(line) == len(names)
    ]


def write_rows(table: Path, row_type: type[AnyRow], rows: Iterable[AnyRow]) -> None:
    """The whole table, replaced in one step."""
    draft = table.with_suffix(".csv.part")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(_dataclass(row_type)))
        writer.writerows(_cells(row) for row in rows)
    draft.replace(table)


_PARSERS: dict[type, Callable[[str], Any]] = {int: int, float: float}


def _dataclass(row_type: type[AnyRow]) -> Any:
    return row_type


def _cells(row: Any) -> tuple[Any, ...]:
    return astuple(row)


def _compute_all(
    compute: Callable[[Task], Sequence[AnyRow]], tasks: Sequence[Task], workers: int
) -> Iterator[Sequence[AnyRow]]:
    """compute(task) of every task, as they finish; BLAS stays on one thread in each process."""
    if workers == 1 or len(tasks) < 2:
        with threadpool_limits(1):
            yield from map(compute, tasks)
        return
    with worker_pool(min(workers, len(tasks)), _one_thread) as pool:
        with held_back():
            futures = [pool.submit(compute, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()


def _one_thread() -> None:
    threadpool_limits(1)
