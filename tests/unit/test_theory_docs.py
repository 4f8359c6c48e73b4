"""Every theorem that code cites has a section in docs/theory.md, and every section there is cited."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
IDS = re.compile(
    r"\(([A-Z]-\d+j?)\)|(Theorem (?:A|main|utility))|(Lemma W)|\"(discrete-gaussian)\"|(Peers|Filters)\b"
    r"|(Constants of the losses)|(Certificates)"
)
NUMBERED = re.compile(r"\bsection (\d+)")


def sections() -> dict[str, int]:
    """Heading → number of the part that it stands in."""
    found, part = {}, 0
    for line in (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"# (\d+)\. ", line):
            part = int(match[1])
        elif line.startswith("## "):
            found[line[3:].strip()] = part
    return found


def citations() -> tuple[dict[str, set[str]], dict[int, set[str]]]:
    """Cited ids and section numbers → files."""
    names: dict[str, set[str]] = {}
    numbers: dict[int, set[str]] = {}
    for path in sorted((ROOT / "src" / "curvedp").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for match in IDS.finditer(text):
            cited = next(group for group in match.groups() if group)
            heading = f"({cited})" if re.match(r"[A-Z]-\d", cited) else cited
            names.setdefault(heading, set()).add(path.name)
        for match in NUMBERED.finditer(text):
            numbers.setdefault(int(match[1]), set()).add(path.name)
    return names, numbers


def test_every_cited_theorem_has_a_section() -> None:
    known = sections()
    names, numbers = citations()
    assert len(names) >= 18
    assert not {name: files for name, files in names.items() if name not in known}
    parts = set(known.values())
    assert not {number: files for number, files in numbers.items() if number not in parts}


def test_every_section_is_cited() -> None:
    names, numbers = citations()
    unused = [name for name, part in sections().items() if name not in names and part not in numbers]
    assert not unused


def test_the_required_theorems_are_there() -> None:
    required = {f"(P-{i})" for i in range(1, 10)} | {"(P-7j)", "(S-1)", "(S-2)", "Theorem A", "Theorem main"}
    required |= {"Theorem utility", "Lemma W", "discrete-gaussian", "Constants of the losses", "Certificates"}
    required |= {"Peers", "Filters", "(C-1)"}
    assert required <= set(sections())


def test_linked_pages_exist() -> None:
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([\w.-]+\.md)\)", text):
        assert (ROOT / "docs" / target).exists(), target
