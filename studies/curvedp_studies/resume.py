"""Studies that may be interrupted: every number is a row of a CSV file and is computed once.

A study is a list of tasks. A task owns some points (the keys of its rows); its parts, or the whole, are
computed by several processes; what an earlier run finished is read back from the file.
"""

from __future__ import annotations

import csv
import hashlib
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_type_hints

from threadpoolctl import threadpool_limits

from curvedp.data.rows.blocked import available_threads
from curvedp_studies.workers import held_back, worker_pool

Progress = Callable[[int, int], None]


class Row(Protocol):
    """A dataclass of strings, integers and floats; `point` says which number of the study it is."""

    @property
    def point(self) -> Hashable: ...


AnyRow = TypeVar("AnyRow", bound=Row)
Task = TypeVar("Task")
Part = TypeVar("Part")
Result = TypeVar("Result")


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
    return complete_in_parts(
        table,
        row_type,
        tasks,
        points,
        lambda task: [task],
        compute,
        lambda task, computed: computed[0],
        progress=progress,
        workers=workers,
    )


def complete_in_parts(
    table: Path,
    row_type: type[AnyRow],
    tasks: Sequence[Task],
    points: Callable[[Task], Sequence[Hashable]],
    parts: Callable[[Task], Sequence[Part]],
    compute: Callable[[Part], Result],
    joined: Callable[[Task, Sequence[Result]], Sequence[AnyRow]],
    *,
    progress: Progress | None = None,
    workers: int | None = None,
    seconds: float = math.inf,
) -> list[AnyRow]:
    """As `complete`, where the rows of a task are `joined` from what was computed of its parts.

    Parts are what processes share: one task alone uses all of them. Once `seconds` are over no further part
    is begun, and the rows are those of the tasks that are finished.
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
    shares = [list(parts(task)) for task in missing]
    places = [(task, part) for task, share in enumerate(shares) for part in range(len(share))]
    computed: list[dict[int, Result]] = [{} for _ in missing]
    work = [part for share in shares for part in share]
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for index, result in _compute_all(compute, work, workers or available_threads(), seconds):
            task, part = places[index]
            computed[task][part] = result
            if len(computed[task]) < len(shares[task]):
                continue
            rows = joined(missing[task], [computed[task][part] for part in range(len(shares[task]))])
            computed[task] = {}
            done.update((row.point, row) for row in rows)
            writer.writerows(_cells(row) for row in rows)
            file.flush()
            finished += 1
            if progress:
                progress(finished, len(tasks))
    ordered = [done[point] for task in tasks for point in points(task) if point in done]
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
    compute: Callable[[Part], Result], parts: Sequence[Part], workers: int, seconds: float
) -> Iterator[tuple[int, Result]]:
    """(index, compute(part)) of every part, as they finish; BLAS stays on one thread in each process.

    None is begun after so many seconds.
    """
    last = time.monotonic() + seconds
    if workers == 1 or len(parts) < 2:
        with threadpool_limits(1):
            for index, part in enumerate(parts):
                if time.monotonic() > last:
                    return
                yield index, compute(part)
        return
    with worker_pool(min(workers, len(parts)), _one_thread) as pool:
        with held_back():
            futures = {pool.submit(compute, part): index for index, part in enumerate(parts)}
        for future in as_completed(futures):
            yield futures[future], future.result()
            if time.monotonic() > last:
                return


def _one_thread() -> None:
    threadpool_limits(1)
