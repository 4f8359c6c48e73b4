"""Every theorem that code cites has a section in docs/theory.md, and every section there is cited."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
CITING = ("src/curvedp", "studies/curvedp_studies")
IDS = re.compile(
    r"\(([A-Z]-\d+j?)\)|(Theorem (?:A|main|utility))|(Lemma W)|\"(discrete-gaussian)\"|(Peers|Filters)\b"
    r"|(Constants of the losses)|(Certificates)"
)
NUMBERED = re.compile(r"\bsection (\d+)")
HEADING = re.compile(r"(\([A-Z]-\d+j?\)) (\S.*)|([^:]+): (\S.*)")
ROW = re.compile(r"\| (\d+) \| \[([^]]+)\]\(#([\w-]+)\) \| ([^|]+) \| [^|]+ \|")


def headings() -> list[tuple[int, str, str]]:
    """Number of the part, id and title of every section, in their order."""
    found, part = [], 0
    for line in PAGE.splitlines():
        if match := re.match(r"# (\d+)\. ", line):
            part = int(match[1])
        elif line.startswith("## "):
            titled = HEADING.fullmatch(line[3:])
            assert titled, f"no title: {line}"
            found.append((part, titled[1] or titled[3], titled[2] or titled[4]))
    return found


def sections() -> dict[str, int]:
    """Id → number of the part that it stands in."""
    return {name: part for part, name, _ in headings()}


def citations() -> tuple[dict[str, set[str]], dict[int, set[str]]]:
    """Cited ids and section numbers → files."""
    names: dict[str, set[str]] = {}
    numbers: dict[int, set[str]] = {}
    for path in sorted(path for folder in CITING for path in (ROOT / folder).rglob("*.py")):
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


def test_the_index_has_every_section_in_its_order() -> None:
    rows = [match.groups() for match in map(ROW.fullmatch, PAGE.splitlines()) if match]
    listed = [(int(part), name, title.lower()) for part, name, _, title in rows]
    assert listed == [(part, name, title.lower()) for part, name, title in headings()]
    assert all(anchor == name.strip("()").lower().replace(" ", "-") for _, name, anchor, _ in rows)
    assert PAGE.index(ROW.search(PAGE)[0]) < PAGE.index("\n# 1. ")


def test_the_order_of_reading_names_what_is_there() -> None:
    order = PAGE[PAGE.index("*In which order to read.*") : PAGE.index("\n|")]
    known = sections()
    assert set(re.findall(r"\([A-Z]-\d+j?\)", order)) <= set(known)
    parts = re.findall(r"\b(\d+)\b", re.sub(r"\([^)]*\)", "", order))
    assert {int(part) for part in parts} <= set(known.values())


def test_the_required_theorems_are_there() -> None:
    required = {f"(P-{i})" for i in range(1, 10)} | {"(P-7j)", "(S-1)", "(S-2)", "Theorem A", "Theorem main"}
    required |= {"Theorem utility", "Lemma W", "discrete-gaussian", "Constants of the losses", "Certificates"}
    required |= {"Peers", "Filters", "(C-1)"}
    assert required <= set(sections())


def test_linked_pages_exist() -> None:
    for target in re.findall(r"\]\(([\w.-]+\.md)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
