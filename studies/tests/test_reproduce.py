import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest

from curvedp_studies import figure2, learning, tables
from curvedp_studies.experiment import CONFIGURATIONS
from curvedp_studies.figure2 import RiskCurve
from curvedp_studies.reproduce import reproduce
from curvedp_studies.resume import complete, complete_in_parts, read_rows, seed_of, write_rows

TINY = figure2.Grid(
    configurations=CONFIGURATIONS[:1],
    kappas=(0.1, 10.0, 1000.0),
    runs=3,
    other_readings=("clip",),
    sparse=1,
    learning=learning.Grid(readings=("norm",), sizes=(500,), kappas=(1.0,), growing=(500, 1000), runs=1),
)


@pytest.fixture
def tiny(monkeypatch):
    for module in (figure2, tables):
        monkeypatch.setattr(module, "Grid", lambda: TINY)


def test_tables_hold_the_papers_numbers_beside_ours(tiny, tmp_path):
    written = reproduce("tables", tmp_path, workers=1)
    assert [path.name for path in written] == ["tables.md", "tables.csv"]
    text = written[0].read_text(encoding="utf-8")
    assert (
        "| LOP-Clip-1e4 | 95.69 / " in text and "solver accuracy" in text and "another data scaling" in text
    )
    with written[1].open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 4 * 5
    first = lines[0]
    assert (
        first["mechanism"] == "LOP" and first["statistic"] == "Avg Std" and float(first["paper"]) == 47229.6
    )
    rows = read_rows(tmp_path / "figure2.csv", figure2.Row)
    risks = {}
    for row in rows:
        if row.solver == "exact" and row.reading == "norm" and row.mechanism == "LOP":
            risks.setdefault(row.kappa, []).append(row.risk)
    expected = np.mean([np.std(values) for values in risks.values()])
    assert float(first["exact"]) == pytest.approx(expected, rel=1e-12)


def test_paper_numbers_are_consistent():
    """SE = Std/√10 in every line that was copied."""
    for table in tables.PAPER.values():
        assert list(table) == [mechanism.name for mechanism in tables.MECHANISMS]
        for line in table.values():
            assert line.avg_se == pytest.approx(line.avg_std / np.sqrt(10), rel=1e-5)
            assert line.max_se == pytest.approx(line.max_std / np.sqrt(10), rel=1e-5)


def test_spread_of_a_standard_deviation():
    """The predicted spreads of Avg Std and Max Std, against many repetitions of ten Gaussian runs."""
    rng = np.random.default_rng(0)
    scale = np.geomspace(1, 1000, 12)
    found = [
        tables.statistics(RiskCurve(scale, 100 + scale * rng.standard_normal((10, 12))), 0.0)
        for _ in range(2000)
    ]
    avg = np.array([line.avg_std for line in found])
    assert np.mean([line.avg_spread for line in found]) == pytest.approx(avg.std() / avg.mean(), rel=0.1)
    assert found[0].max_spread == pytest.approx(1 / np.sqrt(18))


def test_figure2_writes_both_pages(tiny, tmp_path):
    written = reproduce("figure2", tmp_path, workers=1)
    names = {"figure2.csv", "figure2.png", "figure2.svg", "summary.md"}
    names |= {"figure2_learning.csv", "figure2_learning.png", "figure2_learning.svg"}
    assert {path.name for path in written} == names
    assert all((tmp_path / name).stat().st_size > 0 for name in names)


@dataclass(frozen=True)
class Number:
    task: int
    index: int
    value: float
    note: str = "plain"

    @property
    def point(self):
        return self.task, self.index


def pairs(task):
    return [(task, 0), (task, 1)]


def test_only_unfinished_tasks_are_computed(tmp_path):
    computed = []

    def compute(task):
        computed.append(task)
        return [Number(task, index, task / 3 + index) for index in range(2)]

    table = tmp_path / "new folder" / "numbers.csv"
    rows = complete(table, Number, [0, 1, 2], pairs, compute, workers=1)
    assert computed == [0, 1, 2] and [row.point for row in rows] == [p for t in (0, 1, 2) for p in pairs(t)]
    lines = table.read_bytes().splitlines(keepends=True)
    # One task whole, one of which the second row was cut within its last cell, one never begun.
    table.write_bytes(b"".join(lines[:4]) + lines[4][:-4])
    computed.clear()
    assert complete(table, Number, [0, 1, 2, 3], pairs, compute, workers=1)[:6] == rows
    assert computed == [1, 2, 3]
    # A smaller study puts its own rows first and keeps the others; a file of another kind is replaced.
    assert len(complete(table, Number, [2], pairs, compute, workers=1)) == 2
    kept = read_rows(table, Number)
    assert kept[:2] == rows[4:] and [row.point for row in kept[2:]] == [
        p for t in (0, 1, 3) for p in pairs(t)
    ]
    table.write_text("something,else\n1,2\n", encoding="utf-8")
    assert complete(table, Number, [0], pairs, compute, workers=1) == rows[:2]
    assert read_rows(table, Number) == rows[:2]


def slower_first(part):
    task, index = part
    time.sleep(0.05 * (3 - index))
    return [10 * task + index]


def in_parts(table, tasks, **options):
    return complete_in_parts(
        table,
        Number,
        tasks,
        lambda task: [(task, 0)],
        lambda task: [(task, index) for index in range(3)],
        slower_first,
        lambda task, found: [
            Number(task, 0, found[-1][0], str([number for part in found for number in part]))
        ],
        **options,
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_are_joined_in_their_order_and_stop_in_time(tmp_path, workers):
    table = tmp_path / "numbers.csv"
    assert in_parts(table, [1, 2], workers=workers, seconds=0.0) == []
    rows = in_parts(table, [1, 2], workers=workers)
    assert [row.note for row in rows] == ["[10, 11, 12]", "[20, 21, 22]"]
    assert read_rows(table, Number) == rows
    assert len(in_parts(table, [1, 2, 3], workers=workers, seconds=0.0)) == 2


SLOW = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from curvedp_studies.resume import complete

@dataclass(frozen=True)
class Number:
    point: int

def compute(task):
    time.sleep(0.05 if task < 4 else 60)
    return [Number(task)]

def show(done, total):
    print(done, flush=True)

complete(Path(sys.argv[1]), Number, range(8), lambda task: [task], compute, progress=show, workers=2)
"""


def test_ctrl_c_keeps_what_was_computed(tmp_path):
    """Sent to the whole group, as a terminal does: nobody goes on, and no worker shows a traceback."""
    table = tmp_path / "numbers.csv"
    command = [sys.executable, "-c", SLOW, str(table)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        assert any(line == "4\n" for line in process.stdout)
        os.killpg(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=30)
    assert process.returncode != 0 and shown.count("Traceback") == 1 and "KeyboardInterrupt" in shown
    assert sorted(table.read_text().split()) == ["0", "1", "2", "3", "point"]


def test_rows_survive_the_file_to_the_last_bit(tmp_path):
    rows = [Number(1, 2, 0.1 + 0.2, 'a "quoted", note'), Number(-3, 0, 1e-300), Number(0, 0, float("inf"))]
    write_rows(tmp_path / "rows.csv", Number, rows)
    assert read_rows(tmp_path / "rows.csv", Number) == rows
    assert read_rows(tmp_path / "missing.csv", Number) == []


def test_seeds_follow_from_the_key():
    assert seed_of("a", 1) == seed_of("a", 1) != seed_of("a", 2)
    assert 0 <= seed_of() < 2**63
