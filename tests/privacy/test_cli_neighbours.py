"""Every command that reads a table, on two tables that differ in one record: all but noisy values is alike.

Compared are exit codes, both streams, names and modes of files, charges, and how released numbers are called.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from curvedp.cli import app
from curvedp.data import delimited
from curvedp.errors import InvalidInput
from curvedp.release.ledger import Ledger

ROWS = 40
BUDGET = ("--epsilon", "3", "--delta", "1e-6")
# Records of a table without a header, and of one of persons, that once decided a refusal, or might.
OPENINGS = (
    b"PAR1", b"\x1f\x8b", b"PK\x03\x04", b"ARROW1", b"SQLite format 3\0", b"\x28\xb5\x2f\xfd", b"\0",
    b"\xef\xbb\xbf1", b"\xff\xfe1\0", b'"', b'"open', b"a", b"name", b"[red]1", b"\x1b[31m", b"=1+1", b"1;2",
    b"1\t2", b"\x0c", b"\xe2\x80\xa8", b"x" * 200_000, b'"' + b"x" * 200_000, b"nan", b"-inf", b"1e400",
)  # fmt: skip
IDENTIFIERS = (
    b"", b"NA", b"1.5", b"1e3", b"abc", b"9" * 23, b"18446744073709551615", b"0123", b"9007199254740993",
    b"\0", b"p\xff", b"12\xa0", b"\xc2\xa0x", b'"q"', b'"', b"true", b"-0", b"PAR1", b"\x1f\x8b",
    b"\xef\xbb\xbfz", b"x" * 200_000, b"=1", b"[red]", b"1;2",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A way to store a table: its file, the schema's first lines, and what one record may be replaced by."""

    name: str
    head: str
    write: Callable[[Path, Any], None]
    usual: Any
    others: tuple[Any, ...]
    verbs: tuple[str, ...] = ("fit", "check", "bounds", "describe", "score", "search", "predict")
    columns: str = '[columns]\na=[0,10]\nc=["u","v"]\ny=[0,10]\n'
    more: dict[str, tuple[str, ...]] = field(default_factory=dict)


def body(first: bytes) -> bytes:
    return (
        first
        + b"\n"
        + b"".join(b"%d,%s,%d\n" % (i % 10, b"uv"[i % 2 :][:1], i * 3 % 10) for i in range(1, ROWS))
    )


def without_header(path: Path, first: bytes) -> None:
    path.write_bytes(body(first))


def packed(path: Path, first: bytes) -> None:
    path.write_bytes(gzip.compress(body(first), mtime=0))


def with_header(path: Path, first: bytes) -> None:
    path.write_bytes(b"a,c,y\n" + body(first))


def one_column(path: Path, last: bytes) -> None:
    path.write_bytes(b"a\n" + b"".join(b"%d\n" % (i % 10) for i in range(ROWS)) + last + b"\n5\n")


def of_persons(path: Path, first: bytes) -> None:
    rows = (b"%d,%d,%d\n" % (2**53 + 1 + 2 * i, i % 10, i * 3 % 10) for i in range(1, ROWS))
    path.write_bytes(b"p,a,y\n" + first + b",1,3\n" + b"".join(rows))


def folder(path: Path, column: pa.Array) -> None:
    """Two files; what one record holds decided the type of a column of the second."""
    path.mkdir()
    half = ROWS // 2
    kinds, target = pa.array(["u", "v"] * (half // 2)), pa.array([float(i % 7) for i in range(half)])
    usual = pa.table({"a": [float(i % 10) for i in range(half)], "c": kinds, "y": target})
    pq.write_table(usual, path / "1.parquet")
    pq.write_table(pa.table({"a": column, "c": kinds, "y": target}), path / "2.parquet")


HALF = [float(i % 10) for i in range(ROWS // 2)]
STORED = (
    pa.array(["SECRET", *(str(value) for value in HALF[1:])]),
    pa.array([int(value) for value in HALF]),
    pa.nulls(len(HALF)),
    pa.array([value > 5 for value in HALF]),
    pa.array(["x", *map(str, HALF[1:])]).dictionary_encode(),
    pa.array([b"\xff", *(str(value).encode() for value in HALF[1:])]),
)
WITHOUT_HEADER = 'target="y"\n[file]\nnames=["a","c","y"]\n'
PLACES = (
    Place(
        "n.csv",
        WITHOUT_HEADER,
        without_header,
        b"1,u,3",
        tuple(opening + b",u,3" for opening in OPENINGS) + (b"PAR1", b",,", b",,,,,,,,", b"a,c,y"),
        ("fit", "check", "bounds", "describe", "score", "search", "predict", "split", "schema", "review"),
    ),
    Place(
        "n.csv.gz",
        WITHOUT_HEADER,
        packed,
        b"1,u,3",
        tuple(opening + b",u,3" for opening in OPENINGS[:10]),
        ("fit", "check", "predict", "split"),
    ),
    Place(
        "t.csv",
        'target="y"\nadjacency="add_remove"\n',
        with_header,
        b"1,u,3",
        tuple(opening + b",u,3" for opening in OPENINGS) + (b"", b"a,c,y"),
        ("fit", "check", "bounds", "describe", "score", "search", "predict", "split", "schema", "review"),
    ),
    Place(
        "one.csv",
        "",
        one_column,
        b"5",
        (b"", b'""', b" ", b"\0", b"NA", b"1,2", b'"', b"PAR1"),
        ("check", "bounds", "describe", "split"),
        "[columns]\na=[0,10]\n",
    ),
    Place(
        "p.csv",
        'target="y"\nunit="p"\nadjacency="add_remove"\n',
        of_persons,
        b"9007199254740995",
        IDENTIFIERS,
        ("fit", "split", "key", "predict", "review"),
        "[columns]\na=[0,10]\ny=[0,10]\n",
        {"predict": ("--id", "p"), "fit": ("--mechanism", "gradient")},
    ),
    Place(
        "stored",
        'target="y"\n',
        folder,
        pa.array(HALF),
        STORED,
        ("fit", "dask", "check", "bounds", "describe", "score", "search", "predict"),
    ),
)


def command(verb: str, place: Place) -> list[str]:
    charged, data = (*BUDGET, "--ledger", "b.db", "--json"), place.name
    schema = ("--schema", "s.toml")
    parts = ("--train-out", "one.part", "--test-out", "two.part", "--json")
    mechanism = () if verb in place.more else ("--mechanism", "statistics")
    listed = ("--names", "a,c,y") if "names" in place.head else ()
    words = {
        "fit": ("fit", data, *schema, *charged, "--out", "o.json", *mechanism),
        "dask": ("fit", data, *schema, *charged, "--out", "o.json", "--engine", "dask", *mechanism),
        "check": ("check", data, *schema, *charged),
        "bounds": ("bounds", data, "--columns", "a", "--schema", "open.toml", *charged),
        "describe": ("describe", data, *schema, *charged, "--report", "d.html"),
        "score": ("score", "m.json", data, *charged),
        "search": ("search", data, *schema, "--alphas", "1,10", *charged, "--out", "o.json"),
        "predict": ("predict", "m.json", data, "--out", "predicted.csv", "--json"),
        "split": ("split", data, *schema, *parts),
        "key": ("split", data, *schema, *parts, "--key", "secret.key"),
        "schema": ("schema", data, *listed),
        "review": ("schema", "--check", "s.toml", "--table", data),
    }
    return [*words[verb], *place.more.get(verb, ())]


def called(value: Any, public: bool = False) -> Any:
    """What is public of a released page: what things are called, and the promise; no number with noise."""
    if isinstance(value, dict):
        shown = ("guarantee", "outlook", "features", "model", "report", "train", "test", "predictions")
        return {name: called(part, public or name in shown) for name, part in value.items()}
    return value if public else isinstance(value, list)


class Bench:
    """A folder in which commands are run, always under the same names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models: dict[str, bytes] = {}
        self.usual: dict[tuple[str, str], dict[str, Any]] = {}
        for place in PLACES:
            adjacency = "add_remove" if "add_remove" in place.head else "replace"
            unit = "p" if "unit" in place.head else None
            ledger = folder / f"{place.name}.db"
            Ledger.create(ledger, epsilon=100.0, delta=1e-3, adjacency=adjacency, unit=unit)
            if "fit" in place.verbs:
                fitted = self.observed(place, "fit", place.usual)
                assert fitted["code"] == 0, fitted
                self.models[place.name] = (folder / "work" / "o.json").read_bytes()

    def observed(self, place: Place, verb: str, table: Any) -> dict[str, Any]:
        """Everything that leaves a command, but for the noise."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        place.write(work / place.name, table)
        for path in (work / place.name, *work.rglob("*.parquet")):
            os.chmod(path, 0o700 if path.is_dir() else 0o600)
        (work / "s.toml").write_text(place.head + place.columns)
        (work / "open.toml").write_text(place.head + place.columns.replace("a=[0,10]", 'a="numeric"'))
        (work / "secret.key").write_text("00" * 32 + "\n")
        (work / "m.json").write_bytes(self.models.get(place.name, b""))
        shutil.copy(self.folder / f"{place.name}.db", work / "b.db")
        home = Path.cwd()
        os.chdir(work)
        try:
            result = CliRunner(env={"COLUMNS": "200"}).invoke(app, command(verb, place))
            shown = result.stdout
            if result.exit_code == 0 and verb not in ("schema", "review"):
                shown = called(json.loads(result.stdout))
            return {
                "code": result.exit_code,
                "stdout": shown,
                "stderr": ODD.sub("", result.stderr) if verb == "predict" else result.stderr,
                "files": {str(p): stat.S_IMODE(p.stat().st_mode) for p in sorted(Path().rglob("*"))},
                "charges": [
                    (c.mechanism, c.theorem, c.epsilon, c.delta, c.mu) for c in Ledger("b.db").history()
                ],
                "rows": ROWS_LEFT[verb](place) if verb in ROWS_LEFT and result.exit_code == 0 else None,
            }
        finally:
            os.chdir(home)

    def differs(self, place: Place, verb: str, other: Any) -> bool:
        before = self.usual.get((place.name, verb))
        if before is None:
            before = self.usual[place.name, verb] = self.observed(place, verb, place.usual)
            assert before["code"] == 0 and before["stderr"] == "", before
        return self.observed(place, verb, other) != before


# What the operator of new rows is told of them, on stderr alone (threat-model.md, "Bad values").
ODD = re.compile(r"\APredicted by the schema's rule for such cells: .*\n\Z")


def predicted(place: Place) -> Any:
    """The predictions of all rows but the one that is replaced: each is a function of its row."""
    lines = Path("predicted.csv").read_bytes().split(b"\n")
    return len(lines) if place.name == "stored" else lines[-ROWS:]


def parts(place: Place) -> list[list[bytes]]:
    """The records of both parts of a split by person, but the one that is replaced."""
    return [
        [line for line in Path(name).read_bytes().split(b"\n") if not line.endswith(b",1,3")]
        for name in ("one.part", "two.part")
    ]


ROWS_LEFT = {"predict": predicted, "key": parts}
ALL = [
    (place, verb, position)
    for place in PLACES
    for verb in place.verbs
    for position in range(len(place.others))
]


def check_pairs(bench: Bench, chosen: Sequence[tuple[Place, str, int]]) -> None:
    found = [
        f"{verb} {place.name} {str(place.others[position])[:40]}"
        for place, verb, position in chosen
        if bench.differs(place, verb, place.others[position])
    ]
    assert not found, f"{len(found)} of {len(chosen)} pairs differ: {found}"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def test_no_record_decides_what_a_command_says_or_leaves(bench: Bench) -> None:
    check_pairs(bench, ALL[::29])


@pytest.mark.full
def test_no_record_decides_it_in_any_pair(bench: Bench) -> None:
    assert len(ALL) >= 400
    check_pairs(bench, ALL)


def test_a_record_that_decides_is_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that looks at how a file begins, and one for which an empty line is never a record."""
    place, opening = PLACES[0], OPENINGS[0] + b",u,3"
    usual = delimited.csv_lines

    def sniffing(path: Path, *options: Any) -> Iterator[bytes]:
        if Path(path).read_bytes().startswith(OPENINGS[0]):
            raise InvalidInput("a Parquet file")
        return usual(path, *options)

    def skipping(path: Path, *options: Any) -> Iterator[bytes]:
        return (line for line in usual(path, *options) if line != b"\n")

    monkeypatch.setattr(delimited, "csv_lines", sniffing)
    assert bench.differs(place, "check", opening)
    monkeypatch.setattr(delimited, "csv_lines", skipping)
    assert bench.differs(PLACES[3], "bounds", b"")
    monkeypatch.setattr(delimited, "csv_lines", usual)
    assert not bench.differs(place, "check", opening) and not bench.differs(PLACES[3], "bounds", b"")
