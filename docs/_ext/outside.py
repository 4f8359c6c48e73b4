"""Links of pages to files of the repository that are no pages of the site.

`../benchmarks/scale.md` is a page of the site under another name; `../examples` is named, not linked.
"""

from __future__ import annotations

import posixpath
import re

from sphinx.application import Sphinx

PAGES = {
    "benchmarks/results.md": "evidence/speed.md",
    "benchmarks/scale.md": "evidence/scale.md",
}
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def inside(text: str, folder: str) -> str:
    """The page with links that stay in the site; `folder` is where it lies below docs/."""

    def replaced(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return match[0]
        if path in PAGES:
            return f"[{words}]({posixpath.relpath(PAGES[path], folder or '.')}{anchor})"
        return words if words.startswith("`") else f"`{path}`"

    return LINK.sub(replaced, text)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = inside(source[0], posixpath.dirname(name))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
