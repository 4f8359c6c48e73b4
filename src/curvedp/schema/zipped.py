"""Files as bytes, those named .gz unpacked; a damaged one says so, and nothing of itself.

What a file is, its name says: the first bytes of a table without a header are a record's.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from curvedp.errors import DataError, refuse_special

PARQUET = (".parquet", ".pq")


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a table is stored as Parquet, as its name says: a folder, or a file named .parquet or .pq."""
    return Path(path).suffix.lower() in PARQUET or Path(path).is_dir()


class _Unpacked(gzip.GzipFile):
    def read(self, size: int | None = -1) -> bytes:
        return _sound(lambda: super(_Unpacked, self).read(size))

    def read1(self, size: int = -1) -> bytes:
        return _sound(lambda: super(_Unpacked, self).read1(size))


def open_bytes(path: str | os.PathLike[str]) -> BinaryIO:
    """The file as a stream of bytes, unpacked where its name ends in .gz; refused where it is no file."""
    refuse_special(path)
    if Path(path).suffix.lower() != ".gz":
        return open(path, "rb")
    return cast(BinaryIO, io.BufferedReader(_Unpacked(path, "rb")))


def _sound(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    raise DataError("the gzip file is damaged: make it again")  # outside of the handler: no context
