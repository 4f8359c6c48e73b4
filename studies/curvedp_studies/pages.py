"""Numbers of a page of the documentation, put between its marks by a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from curvedp.errors import InvalidInput


def fill(page: Path, parts: Mapping[str, Sequence[str]]) -> Path:
    """Put the lines of every part between its marks <!-- name --> and <!-- end of name -->."""
    text = page.read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise InvalidInput(f"{page} must hold the marks {begin} and {end}")
        head, rest = text.split(begin, 1)
        text = "\n".join([head + begin, "", *lines, "", end]) + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")
    return page
