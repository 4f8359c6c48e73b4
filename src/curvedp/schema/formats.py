"""How a text file is written: encoding, delimiter, decimal sign. Declared, not guessed."""

from __future__ import annotations

import codecs
import sys
from dataclasses import dataclass, replace
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.columns import DeclaredTable
from curvedp.schema.numerals import check_decimal

UTF8 = "utf-8"
_ALL_BYTES = bytes(range(256))
_ASCII = _ALL_BYTES[:128].decode("ascii")
_BUILT_IN = ("iso8859-1", "ascii")


@dataclass(frozen=True)
class FileFormat(DeclaredTable):
    """How the CSV files of a schema are written.

    Parameters
    ----------
    encoding : str, default="utf-8"
        UTF-8, or an encoding with one byte for each character, such as latin-1 or cp1252. In others, one
        record could change how those after it are read.
    delimiter : str, default=","
        What separates the cells of a line.
    decimal : {".", ","}, default="."
        The decimal sign of numeric columns that declare none. Where it is the delimiter, too, numbers must
        stand in quotes.
    names : sequence of str, optional
        The columns, in their order, where the first line does not name them: it is a record then.

    Examples
    --------
    >>> from curvedp.schema import FileFormat
    >>> FileFormat(delimiter=";", decimal=",")
    FileFormat(encoding='utf-8', delimiter=';', decimal=',', names=())
    """

    encoding: str = UTF8
    delimiter: str = ","
    decimal: str = "."
    names: tuple[str, ...] = ()
    heading = "file"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _names(self.names))
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        check_delimiter(self.delimiter)
        check_decimal(self.decimal, "the file")

    def but(
        self, *, encoding: str | None = None, delimiter: str | None = None, decimal: str | None = None
    ) -> FileFormat:
        """The same, with what is given in the place of what it says."""
        given: dict[str, Any] = {"encoding": encoding, "delimiter": delimiter, "decimal": decimal}
        return replace(self, **{key: value for key, value in given.items() if value is not None})


def check_delimiter(delimiter: Any) -> None:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"':
        raise InvalidInput(f"delimiter must be one character, got {delimiter!r}"[:120])


def _names(names: Any) -> tuple[str, ...]:
    told = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    if not told or len(set(names)) < len(names):
        raise InvalidInput('names must be different texts, one for each column: write names = ["a", "b"]')
    return tuple(names)


def _encoding(name: Any) -> str:
    """The name as Python spells it, of an encoding in which no byte changes what another stands for."""
    try:
        codec = codecs.lookup(name)
        text = _ALL_BYTES.decode(codec.name, "replace")
    except Exception:
        known, single = "", False
    else:
        # A table of 256 characters (that of latin-1 is not written out), the first half of them ASCII: others
        # remember what came before.
        table = getattr(sys.modules.get(codec.incrementaldecoder.__module__), "decoding_table", None)
        known = codec.name
        single = (known in _BUILT_IN or table is not None) and text[:128] == _ASCII
    if known == UTF8 or single:
        return known
    raise InvalidInput(
        "the encoding must be utf-8, or one with a byte for each character, such as latin-1 or cp1252: save "
        "the file as UTF-8"
    )


PLAIN = FileFormat()
