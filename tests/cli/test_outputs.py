"""Files that commands write: never over an input, complete or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from curvedp.errors import InvalidInput
from curvedp.release import outputs
from curvedp.release.ledger import Ledger
from curvedp.release.outputs import claimed, ledger_inputs, write_file


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_claimed_file_appears_complete_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with claimed({"--out": path, "--report": None}, inputs={}, force=False) as files:
        assert list(files) == ["--out"] and not path.exists()
        files["--out"].write("new ε")
    assert path.read_text(encoding="utf-8") == "new ε" and names(tmp_path) == ["page.html"]


def test_a_claim_that_is_never_written_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with (
        pytest.raises(RuntimeError),
        claimed({"--out": path, "--report": tmp_path / "b"}, inputs={}, force=True),
    ):
        raise RuntimeError
    assert path.read_text() == "old" and names(tmp_path) == ["page.html"]


@pytest.mark.parametrize("link", ["itself", "symbolic", "hard", "relative"])
def test_an_output_that_is_an_input_is_refused(tmp_path: Path, link: str) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a,b\n1,2\n")
    other = {"itself": data, "relative": tmp_path / "x" / ".." / "data.csv"}.get(link, tmp_path / "other.csv")
    (tmp_path / "x").mkdir()
    if link == "symbolic":
        other.symlink_to(data)
    elif link == "hard":
        os.link(data, other)
    with (
        pytest.raises(InvalidInput, match="is the same file as the data"),
        claimed({"--out": other}, inputs={"the data": data}, force=True),
    ):
        pass
    assert data.read_text() == "a,b\n1,2\n"


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    a = tmp_path / "a"
    link = tmp_path / "link"
    link.symlink_to(a)  # a does not exist yet
    with (
        pytest.raises(InvalidInput, match=r"--report .* is the same file as --out"),
        claimed({"--out": a, "--report": link}, inputs={}, force=True),
    ):
        pass


def test_an_output_inside_a_folder_of_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with (
        pytest.raises(InvalidInput, match="same file as the data"),
        claimed({"--out": tmp_path / "data" / "m"}, inputs={"the data": tmp_path / "data"}, force=True),
    ):
        pass


def test_no_ledger_is_overwritten_whether_it_was_named_or_not(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    Ledger.create(path, epsilon=1.0, delta=1e-6)
    for inputs in ({}, ledger_inputs(path)):
        with (
            pytest.raises(InvalidInput, match="ledger"),
            claimed({"--out": path}, inputs=inputs, force=True),
        ):
            pass
    with (
        pytest.raises(InvalidInput, match="ledger"),
        claimed({"--out": Path(f"{path}-lock")}, inputs=ledger_inputs(path), force=True),
    ):
        pass
    with pytest.raises(InvalidInput, match="ledger"):
        write_file(path, "x", ledger=path)
    assert Ledger(path).state().charges == 0


def test_an_existing_file_needs_force_and_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with (
        pytest.raises(InvalidInput, match="exists already: pass another --out, or --force"),
        claimed({"--out": link}, inputs={}, force=False),
    ):
        pass
    with claimed({"--out": link}, inputs={}, force=True) as files:
        files["--out"].write(b"new")
    assert link.is_symlink() and real.read_bytes() == b"new" and real.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_written_is_refused_before_anything(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "x", Path("/dev/null"), Path("/proc/x")):
        with (
            pytest.raises(InvalidInput, match="--out"),
            claimed({"--out": path}, inputs={}, force=True),
        ):
            pass
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(InvalidInput, match="No space left on device"),
        claimed({"--out": path}, inputs={}, force=True) as files,
    ):
        files["--out"].write("new")
    assert path.read_text() == "old" and names(tmp_path) == ["page.html"]


@pytest.mark.parametrize(
    ("mode", "expected"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644), (0o400, 0o400)]
)
def test_what_holds_rows_is_as_closed_as_their_table(tmp_path: Path, mode: int, expected: int) -> None:
    data, old = tmp_path / "data.csv", tmp_path / "old.csv"
    data.write_text("a\n1\n")
    old.write_text("old")
    os.chmod(data, mode)
    os.chmod(old, 0o666)
    umask = os.umask(0o022)
    try:
        for path in (tmp_path / "new.csv", old):
            with claimed({"--out": path}, inputs={}, force=True, source=data) as files:
                draft = next(tmp_path.glob(".curvedp-*.draft"))
                assert stat.S_IMODE(draft.stat().st_mode) & 0o077 & ~mode == 0  # also while it is written
                files["--out"].write("rows")
            assert stat.S_IMODE(path.stat().st_mode) == expected
        with claimed({"--out": tmp_path / "page.html"}, inputs={}, force=True) as files:
            files["--out"].write("a release")
        assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o644
    finally:
        os.umask(umask)


def test_a_folder_is_as_closed_as_its_most_closed_file(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir(mode=0o755)
    for name, mode in (("1.parquet", 0o644), ("2.parquet", 0o600)):
        (folder / name).write_bytes(b"")
        os.chmod(folder / name, mode)
    with claimed({"--out": tmp_path / "o.csv"}, inputs={}, force=True, source=folder) as files:
        files["--out"].write("rows")
    assert stat.S_IMODE((tmp_path / "o.csv").stat().st_mode) == 0o600


def test_rows_for_another_group_are_not_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a\n1\n")
    os.chmod(data, 0o640)
    monkeypatch.setattr(outputs, "_permissions", lambda source: (0o640, data.stat().st_gid + 1))
    with claimed({"--out": tmp_path / "o.csv"}, inputs={}, force=True, source=data) as files:
        files["--out"].write("rows")
    assert stat.S_IMODE((tmp_path / "o.csv").stat().st_mode) == 0o600
