"""Files that are written: never over an input, complete or not there, an earlier one intact until then.

A file is claimed before anything else happens: a draft of some size is written beside it, which proves that
the folder takes it and that the disk has room. The draft is filled anew, flushed to disk and moved onto the
target in one step.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import IO

from curvedp.errors import InvalidInput

_DATABASE = b"SQLite format 3\x00"  # how a ledger begins
ROOM = 1 << 18  # bytes that must fit on the disk: more than most pages and models have
_LEDGER_PARTS = ("", "-lock", "-journal", "-wal", "-shm")


@dataclass(frozen=True)
class Output:
    """A claimed file: `target` with links resolved, an empty `draft` beside it, permissions in `allowed`."""

    path: Path
    target: Path
    draft: Path
    allowed: int = 0o777

    def write(self, content: str | bytes) -> None:
        """The whole content, on disk, then in place of whatever was there."""
        with self.stream() as file:
            file.write(content.encode() if isinstance(content, str) else content)

    @contextmanager
    def stream(self) -> Iterator[IO[bytes]]:
        """A file to fill piece by piece; once it is complete, it takes the place of whatever was there."""
        try:
            with open(self.draft, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            own = (self.target if self.target.exists() else self.draft).stat().st_mode
            os.chmod(self.draft, stat.S_IMODE(own) & self.allowed)
            os.replace(self.draft, self.target)
        except BaseException as error:  # also a signal, or whoever fills it: no draft is left behind
            self.draft.unlink(missing_ok=True)
            if isinstance(error, OSError):
                words = f"cannot write {self.path} ({error.strerror}): nothing there was changed"
                raise InvalidInput(words) from None
            raise


@contextmanager
def claimed(
    wanted: Mapping[str, Path | None],
    *,
    inputs: Mapping[str, Path | None],
    force: bool,
    source: Path | None = None,
) -> Iterator[dict[str, Output]]:
    """The outputs by option, those that are wanted; whatever was not written in the end leaves no trace.

    Refused: a path that is an input or another output, an existing file without `force`, what cannot be
    written, and a schema whose file of levels is another input. `inputs` are described as in "the ledger".
    `source`: the table whose rows the outputs hold; their permissions are at most its own.
    """
    inputs = with_levels(inputs)
    asked = {option: path for option, path in wanted.items() if path is not None}
    _refuse_same(asked, inputs)
    for option, path in asked.items():
        if path.is_file() and not force:
            raise InvalidInput(f"{path} exists already: pass another {option}, or --force to overwrite it")
        if path.is_file() and _is_database(path):
            raise InvalidInput(f"{option} {path} is a ledger, and a budget is never overwritten")
    outputs: dict[str, Output] = {}
    with ExitStack() as drafts:
        for option, path in asked.items():
            outputs[option] = claim(path, option, source)
            drafts.callback(outputs[option].draft.unlink, missing_ok=True)
        yield outputs


def claim(path: Path, option: str = "the path", source: Path | None = None) -> Output:
    """The right to write `path`, proved by a draft beside it."""
    target = Path(os.path.realpath(path))
    if path.is_dir() or not target.parent.is_dir():
        raise InvalidInput(f"{option} {path} cannot be a file: name a file in a folder that exists")
    if target.exists() and not target.is_file():
        raise InvalidInput(f"{option} {path} is no plain file: choose another path")
    draft = target.with_name(f".curvedp-{secrets.token_hex(6)}.draft")
    begin, end = f"{option} {path} cannot be written", "choose another folder"
    if target.exists() and not os.access(target, os.W_OK):
        raise InvalidInput(f"{begin} (it is write-protected): {end}")
    try:
        permissions, group = _permissions(source)
        mode = (0o666 & permissions) | stat.S_IRUSR | stat.S_IWUSR
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            if group not in (None, os.fstat(file.fileno()).st_gid):  # the draft belongs to another
                permissions &= ~stat.S_IRWXG
                os.fchmod(file.fileno(), mode & ~stat.S_IRWXG)
            file.write(bytes(ROOM))
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInput(f"{begin} ({error.strerror}): {end}") from None
        raise
    return Output(path, target, draft, permissions)


def rescue(text: str) -> Path:
    """A file of its owner's for what cannot be written where it should be: in the first folder with room."""
    for folder in (tempfile.gettempdir, os.getcwd, Path.home):
        name = ""
        try:
            handle, name = tempfile.mkstemp(prefix="curvedp-", suffix=".json", dir=folder())
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            return Path(name)
        except BaseException as error:
            if name:
                Path(name).unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
    raise InvalidInput("no folder takes a file: make room on the disk")


def write_file(
    path: str | os.PathLike[str], content: str | bytes, *, ledger: str | os.PathLike[str] | None = None
) -> None:
    """One file, complete or not there, an earlier one replaced; refused where it is the ledger."""
    _refuse_same({"the path": Path(path)}, ledger_inputs(None if ledger is None else Path(ledger)))
    claim(Path(path)).write(content)


def visible(text: str) -> str:
    """The text with control characters, which could steer a terminal, spelled out."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text
    )


def ledger_inputs(ledger: Path | None) -> dict[str, Path]:
    """A ledger and the files that its database keeps beside it, as inputs."""
    if ledger is None:
        return {}
    real = os.path.realpath(ledger)
    return {f"the ledger{part and f' ({part} file)'}": Path(real + part) for part in _LEDGER_PARTS}


def _refuse_same(asked: Mapping[str, Path], inputs: Mapping[str, Path | None]) -> None:
    seen: list[tuple[str, Path]] = [(what, path) for what, path in inputs.items() if path is not None]
    for option, path in asked.items():
        for what, other in seen:
            if _same(path, other):
                raise InvalidInput(f"{option} {path} is the same file as {what}: choose another path")
        seen.append((option, path))


def with_levels(inputs: Mapping[str, Path | None]) -> dict[str, Path | None]:
    """The inputs, and the files of levels that the schema among them names; refused where one is an input."""
    if (schema := inputs.get("the schema")) is None:
        return dict(inputs)
    from curvedp.data.files import levels_files

    named = [path for path in levels_files(schema) if not path.is_dir()]
    for path in named:
        _refuse_same({"the file of levels": path}, inputs)
    return {**inputs, **{f"the file of levels {path.name}": path for path in named}}


def _permissions(source: Path | None) -> tuple[int, int | None]:
    """What may be done with a table, its folder and every file in it included, and its group; all if None."""
    if source is None or not source.exists():
        return 0o777, None
    about = [path.stat() for path in (source, *(source.rglob("*.parquet") if source.is_dir() else ()))]
    return reduce(and_, (each.st_mode for each in about), 0o777), about[0].st_gid


def _same(a: Path, b: Path) -> bool:
    """One file under two names, links resolved; or `a` inside the folder `b`."""
    first, second = Path(os.path.realpath(a)), Path(os.path.realpath(b))
    if first == second or (second.is_dir() and second in first.parents):
        return True
    return first.exists() and second.exists() and first.samefile(second)


def _is_database(path: Path) -> bool:
    """Asked by commands alone: closing a ledger's file drops the locks that this process has on it."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False
