"""Files as bytes, those compressed by gzip unpacked; a damaged one says so, and nothing of itself."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO, cast

from curvedp.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


class _Unpacked(gzip.GzipFile):
    def read(self, size: int | None = -1) -> bytes:
        return _sound(lambda: super(_Unpacked, self).read(size))

    def read1(self, size: int = -1) -> bytes:
        return _sound(lambda: super(_Unpacked, self).read1(size))


def open_bytes(path: str | os.PathLike[str]) -> BinaryIO:
    """The file as a stream of bytes, unpacked where it begins as gzip does."""
    file = open(path, "rb")  # noqa: SIM115
    opening = file.read(len(GZIP_MAGIC))
    file.seek(0)
    if opening != GZIP_MAGIC:
        return file
    file.close()
    return cast(BinaryIO, io.BufferedReader(_Unpacked(path, "rb")))


def _sound(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    raise DataError("the gzip file is damaged: make it again")  # outside of the handler: no context
