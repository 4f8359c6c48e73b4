"""Tables of times, and how a time is taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import fill


@dataclass
class Table:
    """A title, a line of explanation, and rows of cells."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def markdown(self) -> str:
        widths = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
            for row in [self.header, *self.rows]
        ]
        rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
        note = fill(self.note, 116, break_long_words=False, break_on_hyphens=False)
        return "\n".join([f"## {self.title}", "", note, "", lines[0], rule, *lines[1:], ""])


def best_time(
    function: Callable[[], object],
    budget: float = 1.0,
    least: int = 3,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Seconds of the fastest of at least `least` runs and about `budget` seconds; a first run is dropped.

    Processor time by default, which a busy machine disturbs least; pass time.perf_counter for what runs on
    several threads.
    """
    function()
    times: list[float] = []
    while len(times) < least or sum(times) < budget:
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


def times_faster(other: float, own: float) -> str:
    return f"{other / own:.3g}×"
