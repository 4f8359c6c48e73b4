"""The page that answers NIST SP 800-226: from the record, or left to the operator to state."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.charges import gaussian
from tests.releases import RECEIPT, document, guarantee

from curvedp.data.files import Stated
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours
from curvedp.release.ledger import Ledger
from curvedp.reports.filings import Answer, evaluation, nist_page

STATED = Stated("employment register", "a wage report", "everybody", 12000)


def answers(*arguments: Any) -> dict[str, Answer]:
    return {answer.question: answer for layer in evaluation(*arguments) for answer in layer.answers}


class Text(HTMLParser):
    """The text of a page, and what it would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.loads: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "iframe", "img", "object")
        self.loads += [value for key, value in attrs if key in ("src", "href") and not value.startswith("#")]


def words(page: str) -> str:
    return " ".join(Text(page).words)


def test_the_layers_of_the_pyramid_are_there_from_the_top_to_the_ground() -> None:
    layers = evaluation(document())
    assert [layer.id for layer in layers] == [
        *("parameters", "unit", "budget", "algorithms", "utility"),
        *("bias", "trust", "implementation", "security", "collection"),
    ]
    for layer in layers:
        for answer in layer.answers:
            assert answer.known or answer.asked, answer.question
            assert all(line for line in answer.known)


def test_nothing_is_invented_where_nothing_was_stated() -> None:
    bare = answers(document())
    for question in (
        "Why are these values strong enough?",
        "Is δ small against the number of records?",
        "How are the raw data secured?",
        "Who can make releases, and who approves them?",
        "Who may see what?",
        "Which bias do the data bring along?",
        "Is more collected or kept than is needed?",
        "What do those whose data are used know of it?",
    ):
        assert bare[question].known == () and bare[question].asked
    assert bare["How does it add up with other releases of the same data?"].known == (
        "It was charged to no ledger.",
    )
    assert bare["What was chosen by looking at the data, and was that paid for?"].asked


def test_what_the_operator_stated_answers_instead() -> None:
    told = answers(document(stated=STATED, receipt=RECEIPT, source="codebook"))
    small = told["Is δ small against the number of records?"]
    assert small.known == ("δ times the 12,000 records that were declared is 0.012: far below 1.",)
    assert not small.asked and not told["Who may see what?"].asked and not told["Which data were used?"].asked
    assert "employment register" in told["Which data were used?"].known[0]
    assert "a wage report" in told["Is that accurate enough for its purpose?"].known[0]
    charged = told["How does it add up with other releases of the same data?"]
    assert RECEIPT.head in charged.known[0] and "Charge 7" in charged.known[0] and charged.asked
    assert RECEIPT.head in told["Can the record of the budget be changed afterwards?"].known[1]
    bounds = told["Do the bounds and levels come from public knowledge?"]
    assert "codebook (1 of 3)" in bounds.known[1] and "source not stated (2 of 3)" in bounds.known[1]


def test_a_delta_that_is_large_against_the_rows_says_so() -> None:
    large = document(guarantee(delta=1e-4), stated=STATED)
    assert "NOT far below 1" in answers(large)["Is δ small against the number of records?"].known[0]


@pytest.mark.parametrize(
    ("neighbours", "bounded", "covers"),
    [
        (Neighbours("replace"), "Bounded", "The schema says: one row is one record."),
        (Neighbours("add_remove"), "Unbounded", "The schema says: one row is one record."),
        (Neighbours("replace", "id"), "Bounded", "Yes: all rows of one 'id' count together, however many."),
    ],
)
def test_the_unit_follows_the_guarantee(neighbours: Neighbours, bounded: str, covers: str) -> None:
    told = answers(document(guarantee(neighbours=neighbours)))
    assert told["Is it bounded or unbounded differential privacy?"].known[0].startswith(bounded)
    found = told["Does the unit cover all data of a person?"].known
    assert found[0] == covers
    assert [line for line in found if 'write unit = "id"' in line] == list(found[1:])
    assert bool(found[1:]) == (neighbours.unit is None)  # 'id' is ignored in this schema
    assert told["Does the unit cover all data of a person?"].asked


def test_the_state_of_the_ledger_is_told(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    receipt = ledger.charge(gaussian(0.1, 1e-7))
    told = answers(document(receipt=receipt), ledger.state())
    assert "squares of μ" in told["How does it add up with other releases of the same data?"].known[1]
    other = Ledger.create(tmp_path / "other.db", epsilon=3, delta=1e-5)
    with pytest.raises(InvalidInput, match="charged to ledger"):
        evaluation(document(receipt=receipt), other.state())


def test_the_page_shows_every_answer_and_counts_what_is_open() -> None:
    made = document(stated=STATED, receipt=RECEIPT)
    page, layers = nist_page(made, cautions=["mind <this>"]), evaluation(made)
    text, open_answers = "".join(Text(page).words), sum(layer.open for layer in layers)
    for layer in layers:
        assert f'id="{layer.id}"' in page
        for answer in layer.answers:
            for line in (answer.question, *answer.known, answer.asked):
                assert "".join(line.replace("`", "").split()) in text
    assert page.count("To be stated by the operator:") == open_answers
    assert f'data-value="{open_answers}"' in page
    assert "mind &lt;this&gt;" in page and not [link for link in Text(page).loads if link != "data:,"]
    assert re.search(r'id="epsilon" data-value="1.0"', page)


def test_a_weak_or_void_guarantee_is_said_in_red() -> None:
    assert "box bad" not in nist_page(document())
    weak = nist_page(document(guarantee(50.0, 0.1)))
    assert "box bad" in weak and "A weak guarantee." in weak and "very little" in words(weak)
    void = nist_page(document(guarantee(private=False)))
    assert "box bad" in void and "Not a private release." in void
    assert "NOTHING is promised" in words(void)


def test_what_people_wrote_is_escaped() -> None:
    hostile = "<script>alert(1)</script>`"
    made = document(name=hostile, stated=Stated(hostile, hostile, hostile), source=hostile)
    page = nist_page(made)
    assert "<script" not in page and "&lt;script&gt;" in page
