"""Two parts of a table that are stable under neighbours: a coin per record, or per person (T-2)."""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from curvedp.errors import InvalidInput, refuse_special, shielded
from curvedp.schema.delimited import csv_lines, record_cells
from curvedp.schema.formats import PLAIN, FileFormat
from curvedp.schema.headers import names_in_header
from curvedp.schema.identifiers import identifier

KEY_BYTES = 32


@dataclass(frozen=True)
class Coins:
    """Heads with probability `share`, the same coin again for the same text; unknown without the key."""

    key: bytes
    share: float

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise InvalidInput(
                f"the share of the second part must lie strictly between 0 and 1, got {self.share!r}"
            )
        if len(self.key) != KEY_BYTES:
            raise InvalidInput(f"a key of a split has {KEY_BYTES} bytes")

    def heads(self, text: str) -> bool:
        """The keyed hash of the text, as a number in [0, 1), lies below `share`."""
        digest = hmac.digest(self.key, text.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:8], "big") < self.share * 2.0**64


def split_csv(
    path: str | os.PathLike[str],
    share: float,
    *,
    unit: str | None = None,
    key: bytes | None = None,
    file: FileFormat = PLAIN,
    header: bool | None = None,
) -> tuple[bytes, bytes]:
    """The records of a CSV file in two parts, each with the header; a record goes to the second with `share`.

    With `unit`, all records of one person, as a fit tells persons apart, go the same way (U-1); so do all of
    nobody. Nothing is said of how many there are: that number is private where neighbours differ by one
    record. A file whose format has names has no header.
    Refused, since a record would go to both parts: a first line that looks like data where `header` is None.
    """
    if key is not None and unit is None:
        raise InvalidInput("a key is for a column that says whose row it is: pass unit, too, or no key")
    names = file.names or names_in_header(path, file=file, header=header)
    if unit is not None and unit not in names:
        raise InvalidInput(f"the table has no column {unit!r}: pass one that its first line names")
    coins = Coins(secrets.token_bytes(KEY_BYTES) if key is None else key, share)
    column = None if unit is None else names.index(unit)
    return shielded(lambda: _parts(path, coins, column, file), _unreadable)


def _parts(
    path: str | os.PathLike[str], coins: Coins, column: int | None, file: FileFormat
) -> tuple[bytes, bytes]:
    lines = csv_lines(path, file=file)  # bytes that are no text stay as they are
    header = next(lines)
    parts: tuple[list[bytes], list[bytes]] = ([header], [header])
    for number, line in enumerate(lines):
        text = str(number) if column is None else _whose(line, column, file)
        parts[coins.heads(text)].append(line)
    return b"".join(parts[0]), b"".join(parts[1])


def _whose(line: bytes, column: int, file: FileFormat) -> str:
    """The name of a record's person, "" of nobody."""
    return identifier(record_cells(line, file, file.delimiter, column + 1)[column]) or ""


def kept_key(path: Path) -> bytes:
    """The key in a file, made there where it does not exist; only its owner may read it."""
    refuse_special(path)
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        try:
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(key.hex() + "\n")
        except OSError as error:
            raise InvalidInput(f"the key {path} cannot be written ({error.strerror})") from None
        return key
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(f"the key {path} cannot be read: pass a file that curvedp split made") from None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidInput(f"{path} holds no key: pass a file that curvedp split made, or a new path")
    return key


def _unreadable(kind: str) -> str:
    return f"the table could not be read to the end ({kind})"
