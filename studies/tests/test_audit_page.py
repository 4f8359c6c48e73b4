"""The tables of docs/audit.md from audits, and the page in the repository from its own numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curvedp.audit import Attack, AuditReport
from curvedp.errors import InvalidInput
from curvedp_studies.audit_page import Audited, document, main, read_audits, tables
from curvedp_studies.resume import read_rows

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


def told(share: float, **others: object) -> dict[str, object]:
    attacks = (
        Attack("pair", "D against D'", "likelihood ratio", 900, 0.4, 0.1, share, 0.0, "everything released"),
        Attack("pair", "D against D'", "projection 1", 900, 0.4, 0.1, share / 2, 0.0),
    )
    report = AuditReport(
        "qop",
        "directional",
        "(P-6)",
        "replace",
        "squared",
        2,
        1.0,
        1e-3,
        0.99,
        2_400_000,
        7.25,
        True,
        7,
        attacks,
    )
    return report.to_dict() | others


def test_a_page_is_filled_and_a_machine_is_replaced(tmp_path):
    page, results = tmp_path / "audit.md", tmp_path / "a.json"
    page.write_text("before\n<!-- audits -->\nold\n<!-- end of audits -->\nafter\n")
    several = [
        told(0.8, reach=0.9),
        told(0.3, features=5),
        told(0.2, adjacency="add_remove"),
        told(1.7, mechanism="lop"),
    ]
    results.write_text(json.dumps(several))
    main([f"two cores={results}", "--page", str(page)])
    text = page.read_text()
    assert (
        text.startswith("before\n") and text.endswith("<!-- end of audits -->\nafter\n") and "old" not in text
    )
    assert "4 audits with 9.6 million fits in 0.0 hours: 1 held, 2 inconclusive, 1 refuted." in text
    best = "| qop | directional | replace | **0.80** | 0.40 | 0.90 | 2.4 million | squared, d = 2 | 1 of 2 |"
    assert best in text
    assert (
        "| qop | directional | add_remove | 0.20 | 0.10 |  | 2.4 million | squared, d = 2 | 0 of 1 |" in text
    )
    assert "| lop | directional | replace | 1.70 refuted |" in text
    variant = Audited.of(
        "here", told(0.8, mechanism="statistics", cell="statistics wishart squared replace d=2")
    )
    assert variant.accounting == "wishart"
    release = Audited.of("here", told(0.8, loss="", features=0, mechanism="search", cell="refits replace"))
    assert (release.mechanism, release.accounting) == ("refits", "directional")
    alone = Audited.of("here", told(0.8, mechanism="output", cell="output squared replace d=2"))
    assert alone.accounting == "directional"
    results.write_text(json.dumps(told(0.9)))
    main([f"a GPU={results}", "--page", str(page)])
    main([f"two cores={results}", "--page", str(page)])
    rows = read_rows(page.with_suffix(".csv"), Audited)
    assert [row.machine for row in rows] == ["a GPU", "two cores"] and rows[0].proved == 0.9
    assert page.read_text().count("### On ") == 2


def test_what_holds_no_audits_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"mechanism": 1}')
    for path in (tmp_path / "a.json", tmp_path / "none.json"):
        with pytest.raises(InvalidInput, match="does not hold audits"):
            read_audits("here", path)
    with pytest.raises(InvalidInput, match="there is no page"):
        document(tmp_path / "audit.md")


def test_the_page_says_what_its_numbers_say():
    rows = read_rows(PAGE.with_suffix(".csv"), Audited)
    text = PAGE.read_text(encoding="utf-8")
    between = text.split("<!-- audits -->")[1].split("<!-- end of audits -->")[0]
    assert between.strip("\n").splitlines() == tables(rows)
    assert not any(row.verdict == "refuted" for row in rows)
