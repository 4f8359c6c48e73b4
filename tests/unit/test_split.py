"""A split by coins: one record, or one person, changes one part only (T-2)."""

from __future__ import annotations

import gzip
import stat

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from curvedp.analyses import split as module
from curvedp.analyses.split import Coins, kept_key, split
from curvedp.data import FileFormat, Numeric, Schema
from curvedp.data.delimited import csv_rows
from curvedp.data.source import read_persons
from curvedp.errors import InvalidInput

KEY = bytes(range(32))


def records(part: bytes) -> list[str]:
    return part.decode().splitlines()[1:]


def written(tmp_path, rows: list[str], header: str = "id,v") -> object:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_every_record_is_in_one_part_in_order(tmp_path) -> None:
    rows = [f"{i},{i * i}" for i in range(500)]
    first, second = split(written(tmp_path, rows), 0.3)
    assert first.startswith(b"id,v\n") and second.startswith(b"id,v\n")
    assert sorted(records(first) + records(second)) == sorted(rows)
    for part in (records(first), records(second)):
        assert part == [row for row in rows if row in set(part)]


def test_coins_are_fair_independent_and_fresh(tmp_path) -> None:
    path = written(tmp_path, [f"{i},0" for i in range(4000)])
    sides = []
    for _ in range(2):
        second = set(records(split(path, 0.2)[1]))
        sides.append(np.array([f"{i},0" in second for i in range(4000)]))
    assert all(abs(side.mean() - 0.2) < 5 * np.sqrt(0.16 / 4000) for side in sides)
    assert abs(np.corrcoef(*sides)[0, 1]) < 5 / np.sqrt(4000)
    runs = np.corrcoef(sides[0][1:], sides[0][:-1])[0, 1]
    assert abs(runs) < 5 / np.sqrt(4000)


@pytest.mark.parametrize("change", ["add", "remove"])
def test_with_a_key_one_person_changes_one_part_only(tmp_path, change: str) -> None:
    rows = [f"p{i % 40},{i}" for i in range(200)]
    other = (
        [*rows[:7], "new,1", *rows[7:], "new,2"] if change == "add" else [r for r in rows if "p3," not in r]
    )
    parts = [split(written(tmp_path, t), 0.5, unit="id", key=KEY) for t in (rows, other)]
    changed = [parts[0][side] != parts[1][side] for side in (0, 1)]
    assert changed.count(True) == 1
    for left, right in zip(*parts, strict=True):
        differing = set(records(left)) ^ set(records(right))
        assert len({row.split(",")[0] for row in differing}) <= 1


def test_a_shuffle_would_move_others(tmp_path) -> None:
    """What the coins avoid: with one row fewer, a seeded shuffle of n rows changes both parts throughout."""
    from sklearn.model_selection import train_test_split

    rows = list(range(200))
    one = {*train_test_split(rows, test_size=0.2, random_state=0)[1]}
    two = {*train_test_split(rows[1:], test_size=0.2, random_state=0)[1]}
    assert len(one ^ two) > 10


def test_replacing_a_record_at_its_place_keeps_all_coins(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module.secrets, "token_bytes", lambda n: KEY)
    rows = [f"{i},a" for i in range(50)]
    other = [*rows[:20], "replaced,z", *rows[21:]]
    parts = [split(written(tmp_path, table), 0.5) for table in (rows, other)]
    assert [parts[0][side] != parts[1][side] for side in (0, 1)].count(True) == 1
    assert len(records(parts[0][0])) == len(records(parts[1][0]))


def test_all_records_of_a_person_go_the_same_way(tmp_path) -> None:
    rows = [f'"p{i % 30}",{i}' if i % 2 else f" p{i % 30} ,{i}" for i in range(300)]
    first, second = split(written(tmp_path, rows), 0.5, unit="id", key=KEY)

    def people(part):
        return {row.split(",")[0].strip('" ') for row in records(part)}

    assert people(first) and people(second) and not people(first) & people(second)


def test_malformed_lines_stay_one_record_each(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfid,v\n1,"open\n\n2,\xff\xfe\n\r\n3\n,,,,\nlast,1')
    first, second = split(path, 0.5, unit="id", key=KEY)
    found = first.split(b"\n")[1:-1] + second.split(b"\n")[1:-1]
    assert sorted(found) == sorted([b'1,"open', b"2,\xff\xfe", b"3", b",,,,", b"last,1"])


def test_refusals(tmp_path) -> None:
    path = written(tmp_path, ["1,2"])
    with pytest.raises(InvalidInput, match="strictly between 0 and 1"):
        split(path, 1.0)
    with pytest.raises(InvalidInput, match="no column 'person'"):
        split(path, 0.2, unit="person")
    with pytest.raises(InvalidInput, match="pass unit"):
        split(path, 0.2, key=KEY)
    with pytest.raises(InvalidInput, match="32 bytes"):
        Coins(b"short", 0.5)
    with pytest.raises(InvalidInput, match="check the path"):
        split(tmp_path / "none.csv", 0.2)


def test_a_key_is_kept_for_its_owner(tmp_path) -> None:
    path = tmp_path / "split.key"
    key = kept_key(path)
    assert kept_key(path) == key and len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("no key\n")
    with pytest.raises(InvalidInput, match="holds no key"):
        kept_key(path)
    path.write_bytes(b"\xff\xff")
    with pytest.raises(InvalidInput, match="cannot be read"):
        kept_key(path)
    with pytest.raises(InvalidInput, match="cannot be written"):
        kept_key(tmp_path / "no" / "folder")


def test_a_compressed_file_is_unpacked_first(tmp_path) -> None:
    rows = [f"{i},{i * i}" for i in range(50)]
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(written(tmp_path, rows).read_bytes()))
    first, second = split(path, 0.5)
    assert sorted(records(first) + records(second)) == sorted(rows)


def test_a_first_line_that_is_a_record_is_in_one_part(tmp_path) -> None:
    rows = [f"Anna {i};{i}" for i in range(50)]
    path = written(tmp_path, rows[1:], rows[0])
    with pytest.raises(InvalidInput, match="looks like data") as caught:
        split(path, 0.5, file=FileFormat(delimiter=";"))
    assert "Anna" not in str(caught.value)
    file = FileFormat(delimiter=";", names=("name", "v"))
    first, second = split(path, 0.5, unit="name", file=file)
    assert sorted((first + second).decode().splitlines()) == sorted(rows)


def persons(path, file: FileFormat) -> list[int]:
    schema = Schema((Numeric("v", 0, 1),), unit="id", file=file)
    return read_persons(schema.source(path), len, "id")[1].tolist()


def marked(part: bytes) -> set[int]:
    """The positions of the records of a part, by what stands in their last cell."""
    return {int(line.rsplit(b",", 1)[1]) for line in part.split(b"\n") if line and not line.endswith(b"v")}


SPACE = (
    b"",
    b" ",
    b"\t",
    b"\0",
    b"\xa0",
    b"\x85",
    b"\xc2\xa0",
    b"\xe3\x80\x80",
    b"\x0b\x1c",
    b"\xef\xbb\xbf",
)
STEMS = (
    b"12",
    b"012",
    b"12.0",
    b"+12",
    b"-0",
    b"0",
    b"p",
    b"P",
    b"\xff",
    b"\xfe",
    b"\x81",
    b"\x8d",
    b"true",
    b"1",
)
ENDS = (b"", b'"', b"NA", b"\xe2\x82", b"x" * 200_000)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(*map(st.sampled_from, (SPACE, STEMS, ENDS, SPACE)), st.booleans()), min_size=2, max_size=8
    ),
    st.sampled_from(["utf-8", "latin-1", "cp1252"]),
    st.booleans(),
    st.binary(min_size=32, max_size=32),
)
def test_a_split_by_person_is_by_the_persons_of_the_schema(tmp_path, drawn, encoding, header, key) -> None:
    cells = [b'"%s"' % b"".join(parts) if quoted else b"".join(parts) for *parts, quoted in drawn]
    file = FileFormat(encoding, names=() if header else ("id", "v"))
    path = tmp_path / "ids.csv"
    lines = [b"%s,%d\n" % (cell, i) for i, cell in enumerate(cells)]
    path.write_bytes((b"id,v\n" if header else b"") + b"".join(lines))
    whose = persons(path, file)
    first, second = map(marked, split(path, 0.5, unit="id", key=key, file=file, header=header or None))
    assert first | second == set(range(len(cells))) and not first & second
    assert not {whose[i] for i in first} & {whose[i] for i in second}


@pytest.mark.parametrize(
    ("encoding", "ids"),
    [
        ("latin-1", (b"12", b"12\xa0")),
        ("latin-1", (b"12", b"\x8512")),
        ("cp1252", (b"12", b"12\xa0")),
        ("utf-8", (b"12", b"12\0")),
        ("utf-8", (b"a\xff", b"a\xfe")),
        ("cp1252", (b"a\x81", b"a\x8d")),
        ("utf-8", (b"12", b"012")),
    ],
)
def test_one_person_is_never_taken_apart(tmp_path, encoding: str, ids) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,v\n" + b"".join(b"%s,%d\n" % (cell, i) for i, cell in enumerate(ids)))
    file = FileFormat(encoding)
    assert persons(path, file) == [0, 0]
    for _ in range(40):
        first, second = split(path, 0.5, unit="id", file=file)
        assert {first.count(b"\n"), second.count(b"\n")} == {1, 3}


def test_a_missing_cell_of_a_single_column_goes_to_one_part(tmp_path) -> None:
    path = written(tmp_path, ["1", "", "2", "", ""], header="v")
    assert csv_rows(path) == 5
    first, second = split(path, 0.5)
    assert first.count(b"\n") + second.count(b"\n") == 5 + 2
    bare = FileFormat(names=("v",))
    path.write_bytes(b"\n1\n\n")
    first, second = split(path, 0.5, file=bare)
    assert csv_rows(path, file=bare) == first.count(b"\n") + second.count(b"\n") == 3
