"""What authorities ask: answers to NIST SP 800-226, and an entry for the registry of deployments.

"Guidelines for Evaluating Differential Privacy Guarantees" (March 2025) orders its questions as a pyramid:
each layer holds only if those below it do. Answers come from the model file, from the ledger and from how
curvedp is made; what these do not tell is left for the operator to state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill, indent
from typing import Any

from markupsafe import Markup

from curvedp.errors import InvalidInput
from curvedp.numbers import shown
from curvedp.pages import rendered
from curvedp.release.ledger.storage import LedgerState
from curvedp.release.modelfile import Release
from curvedp.release.outputs import visible
from curvedp.reports import answers
from curvedp.reports.answers import Answered

SEEDED = "NOTHING is promised: the run had a fixed seed, or is a study. It must not be released."


class Asked(str):
    """What only the operator can say."""


@dataclass(frozen=True)
class Answer:
    """A question, what is known, and what the operator is still asked for ("" where nothing is)."""

    question: str
    known: tuple[str, ...]
    asked: str


@dataclass(frozen=True)
class Layer:
    id: str
    name: str
    answers: tuple[Answer, ...]

    @property
    def open(self) -> int:
        """How many answers the operator still owes."""
        return sum(bool(answer.asked) for answer in self.answers)


def evaluation(document: Release, ledger: LedgerState | None = None) -> tuple[Layer, ...]:
    """Answer the questions of SP 800-226 for a release, from the top of its pyramid to the ground.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.release.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.

    Returns
    -------
    layers : tuple of Layer
        Each with its questions, what is known, and what only the operator can say.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.release.modelfile import Release
    >>> from curvedp.reports.filings import evaluation
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> layers = evaluation(Release.of(model))
    >>> layers[0].name, layers[0].answers[0].known[0]
    ('Privacy parameters', 'Approximate DP: ε = 1, δ = 10⁻⁶.')
    """
    release = Answered(document, ledger)
    g, promise, stated, receipt = release.guarantee, release.promise, release.schema.release, release.receipt
    who, unit, bounded = g.neighbours.who, g.neighbours.unit, g.neighbours.count_is_public
    purpose, rows, advice = document.record.purpose, release.rows, release.schema.unit_advice
    claimed, small = f"{release.variant}: {release.numbers}.", ""
    if rows is not None:
        size = "far below 1" if g.delta * rows <= 0.1 else "NOT far below 1"
        small = f"δ times the {rows:,} {who}s that were declared is {shown(g.delta * rows)}: {size}."
    layers: dict[tuple[str, str], dict[str, list[str]]] = {
        ("parameters", "Privacy parameters"): {
            "Which guarantee is claimed, and with which parameters?": [claimed, "" if g.private else SEEDED],
            "What do they mean for one whose data were used?": [promise.conclusion, promise.test],
            f"Is δ small against the number of {who}s?": [
                small
                or Asked(
                    f"its size against the number of {who}s: it should be far below 1 divided by that number"
                )
            ],
            "Why are these values strong enough?": [Asked("who chose ε and δ, by what rule, and why")],
        },
        ("unit", "Unit of privacy"): {
            "What is the unit of privacy?": [promise.neighbours],
            "Does the unit cover all data of a person?": [
                f"The schema says: {release.schema.record}.",
                advice and f"But {advice}.",
                Asked("that no person has two rows, or why a row is what is to be protected"),
            ]
            if unit is None
            else [
                f"Yes: all rows of one {unit!r} count together, however many.",
                Asked(f"that {unit!r} identifies persons, and that none has two identifiers"),
            ],
            "Is it bounded or unbounded differential privacy?": [
                f"{'Bounded: one replaced' if bounded else 'Unbounded: one added or removed'}. The number of "
                f"{who}s is {'public' if bounded else 'protected, too'}."
            ],
            "How is the contribution of a unit bounded?": [release.enforced],
        },
        ("budget", "The budget across releases"): {
            "How do computations within the release add up?": [release.within],
            "How does it add up with other releases of the same data?": [
                release.charged or "It was charged to no ledger.",
                release.across,
                Asked(
                    "releases of the same data that are not in this ledger, with or without differential "
                    "privacy"
                ),
            ],
            "What happens when the budget is spent?": [
                "The ledger refuses every further charge; nothing is computed then." if receipt else "",
                Asked("whether the budget is ever renewed, when, and why that is justified"),
            ],
        },
        ("algorithms", "Algorithms and their correctness"): {
            "Which algorithm was used?": [release.contents, release.mechanism, release.noise_scales],
            "What proves that it is private?": [
                f"The theorem {g.theorem} of docs/theory.md, with its proof."
            ],
            "How was the implementation tested?": [
                "The library is tested against independent oracles. `curvedp audit --model MODEL` replays "
                "the release of this file on worst-case neighbouring tables and checks every premise of its "
                "proof there, without data.",
                Asked("the page of `curvedp audit` for this mechanism, and any review by others"),
            ],
            "What was chosen by looking at the data, and was that paid for?": [
                *release.tuning,
                Asked("anything else that was looked at before: summaries, plots, earlier models"),
            ],
            "Do the bounds and levels come from public knowledge?": [
                answers.DECLARED,
                release.sources,
                Asked("that no declared bound or level was read off the data"),
            ],
            "What was computed from the release afterwards?": [release.after, answers.NOT_INTERACTIVE],
        },
        ("utility", "Utility"): {
            "How far may the released numbers be from those without privacy?": [
                release.accuracy or Asked("how accurate it is: `curvedp plan` before, `curvedp score` after")
            ],
            "Is that accurate enough for its purpose?": [
                purpose and f"The purpose, as the operator states it: {purpose}.",
                Asked("by which measure it is"),
            ],
        },
        ("bias", "Bias"): {
            "Which bias does the method itself add?": [release.bias],
            "Whom does the noise hit?": [
                "Small groups more than large ones: the same noise stands beside fewer records.",
                Asked("scores by group (`curvedp score --group`), or why no group matters"),
            ],
            "Which bias do the data bring along?": [
                Asked("how they were collected, who is missing from them, who decided what is measured")
            ],
        },
        ("trust", "Trust and threats"): {
            "Who is trusted, and who is the adversary?": [answers.TRUST],
            "Can outsiders query the data?": [answers.NOT_INTERACTIVE],
            "What is released without protection?": [release.unprotected],
            "Who may see what?": [
                f"As the operator states: {stated.audience}."
                if stated.audience
                else Asked("who may see the table, the ledger, the model and its report")
            ],
        },
        ("implementation", "Implementation"): {
            "Which software made it?": [release.software],
            "Can the digits of a number betray its input?": [release.arithmetic],
            "Where does the randomness come from?": [answers.RANDOMNESS],
            "Which side channels are there?": [
                answers.TIMING,
                Asked("how outsiders are kept from measuring time, memory and load"),
            ],
            "What do messages, logs and failures reveal?": [
                "Nothing that depends on the data reaches messages, warnings, logs or files but what the "
                "mechanism releases. Whether a release happens does not depend on the data either: what can "
                "be refused is refused from public facts, before the charge."
            ],
        },
        ("security", "Security and access control"): {
            "How are the raw data secured?": [Asked("encryption, accounts, backups, deletion")],
            "Who can make releases, and who approves them?": [Asked("who may charge the budget")],
            "Can the record of the budget be changed afterwards?": [
                "A ledger chains its charges by hashes: who keeps a head elsewhere notices when what came "
                "before it was rewritten. Whoever can replace the file can drop what came after.",
                f"To check: `curvedp verify MODEL --ledger LEDGER --head {receipt.head}`." if receipt else "",
                Asked("where heads of the ledger are kept, and who can replace or copy the file"),
            ],
        },
        ("collection", "Data collection and exposure"): {
            "Which data were used?": [
                stated.table and f"The table, as the operator states: {stated.table}.",
                release.used,
                "" if stated.table else Asked("what the table is called, and where it comes from"),
            ],
            "Is more collected or kept than is needed?": [
                Asked("why these columns are needed, how long the data are kept, on what legal ground")
            ],
            "What do those whose data are used know of it?": [Asked("what they were told and agreed to")],
        },
    }

    def answer(question: str, said: list[str]) -> Answer:
        known = tuple(text for text in said if text and not isinstance(text, Asked))
        return Answer(question, known, "".join(text for text in said if isinstance(text, Asked)))

    return tuple(
        Layer(*key, tuple(answer(*each) for each in questions.items())) for key, questions in layers.items()
    )


def nist_page(document: Release, ledger: LedgerState | None = None, cautions: Sequence[str] = ()) -> str:
    """Write the answers as one HTML page, with room for what the operator has to add.

    Parameters
    ----------
    document, ledger : Release and LedgerState
        As in `evaluation`.
    cautions : sequence of str, default=()
        What the report warns of.

    Returns
    -------
    html : str
        A page that loads nothing.
    """
    told = {"layers": evaluation(document, ledger), "cautions": cautions, "marked": _marked}
    return rendered("nist.html", release=Answered(document, ledger), g=document.guarantee, **told)


def _marked(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if i % 2 else part for i, part in enumerate(text.split("`")))


# A release as an entry for the registry of deployments of differential privacy (OpenDP).
#
# The field names are those of its schema (`deployments-schema.yaml`, tiers 1 to 3). What the model file knows
# is filled in; what it does not know is `TODO`, with a comment that asks for it.

TODO = "TODO"
SECTORS = "Technology, Healthcare, Education, Government, Energy or Finance"
_WIDTH = 100
_HEAD = """\
# An entry for the registry of differential privacy deployments, from a model file of curvedp.
# Every TODO is for the operator to answer; the registry accepts none.
# All fields of tier 3, the registry's highest, are here, and comments say what a person may add to them.
# A person still has to fill in {count}:
"""
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9 ,.()/-]*[A-Za-z0-9.)])?")  # needs no quotes in YAML
_NO_TEXT = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")  # unless it is one of these

Tree = Mapping[str, Any]  # of plain values, `Field`s, trees and lists of these


@dataclass(frozen=True)
class Field:
    """A value of the entry, and what the operator is still asked for."""

    value: str | int
    asks: str


def asked(question: str, known: str | int | None = None) -> str | int | Field:
    """A field that only the operator can fill in, where it is not known."""
    return known or Field(TODO, question)


def deployment(document: Release, ledger: LedgerState | None = None) -> dict[str, Any]:
    """Describe a release in the fields of the registry.

    Parameters
    ----------
    document, ledger : Release and LedgerState
        As in `evaluation`.

    Returns
    -------
    entry : dict
        Plain values; "TODO" where only the operator knows.
    """
    return dict(_plain(_entry(Answered(document, ledger))))


def deployment_yaml(document: Release, ledger: LedgerState | None = None) -> str:
    """Write the entry of a release as YAML, with a comment at every field that the operator must answer.

    Parameters
    ----------
    document, ledger : Release and LedgerState
        As in `evaluation`.

    Returns
    -------
    text : str
        The file; its name may have lowercase letters, digits and underscores.
    """
    asks, lines = unanswered(document), _lines(_entry(Answered(document, ledger)))
    head = [_HEAD.format(count=len(asks)), *(f"#   {each}\n" for each in asks)]
    return "".join([*head, *(f"{line}\n" for line in lines)])


def unanswered(document: Release) -> list[str]:
    """ "field: question" of every field of the registry that only a person can fill in, in their order."""
    return list(_asked(_entry(Answered(document))))


def _asked(tree: Tree) -> Iterator[str]:
    for key, part in tree.items():
        for one in part if isinstance(part, list) else [part]:
            if isinstance(one, Mapping):
                yield from _asked(one)
            elif isinstance(one, Field) and one.value == TODO:
                yield f"{key}: {one.asks}"


def _entry(release: Answered) -> Tree:
    if not release.guarantee.private:
        raise InvalidInput("a seeded or study run promises nothing: there is nothing to register")
    record, g, audience = release.document.record, release.guarantee, release.schema.release.audience
    unit, who = g.neighbours.unit, g.neighbours.who
    persons = f"Person-level: all rows of one {unit} together"
    curator = {"data_curator_name": asked("the entity that publishes the model")}
    curator["data_curator_type"] = asked("Government, Industry or Nonprofit")
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", release.name.lower()).strip("-"),
        "deployment": {
            "basic": {
                "name": release.name,
                "data_curators": [curator],
                "description": release.contents,
                "intended_use": asked("what the model is for", record.purpose),
                "data_product_type": "Machine learning model",
                "data_product_region": asked("which region the data describe, or whose laws apply"),
                "data_product_sector": asked(SECTORS),
                "publication_date": Field(
                    record.time[:10], "the day of the release: correct it if it was published later"
                ),
            },
            "dp_variant": {
                "variant_name": release.variant,
                "data_domain": release.domain,
                "unprotected_quantities": Field(
                    release.unprotected, "anything else that was published of the table without noise"
                ),
            },
            "privacy_loss": {
                "privacy_unit": f"Record-level: {release.schema.record}" if unit is None else persons,
                "privacy_unit_details": f"{release.promise.neighbours} {release.enforced}",
                "number_of_privacy_units": asked(
                    f"the number of {who}s; a round one that is public where it is private", release.rows
                ),
                "privacy_parameters": {"epsilon": g.epsilon, "delta": g.delta},
                "privacy_parameters_details": f"{release.promise.conclusion} {release.promise.test}",
            },
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": f"{answers.TRUST} {answers.DECLARED}",
                "actors": asked("who may see the table, the ledger and the model", audience),
                "release_type": "One release",
                "release_type_details": Field(
                    "The model was released once.", "whether the table will be used or published again"
                ),
                "data_source_type": asked("Static, or Dynamic where new records come in"),
                "access_type": "Non-interactive",
                "access_type_details": answers.NOT_INTERACTIVE,
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _listed(
                    (*release.tuning, release.sources),
                    "what was done to the table before, and how ε, δ and the settings were chosen",
                ),
                "mechanisms": _listed(
                    (
                        *(release.mechanism, release.noise_scales, release.software),
                        f"Floating point: {release.arithmetic}",
                        answers.RANDOMNESS,
                        f"Side channels: {answers.TIMING}",
                    ),
                    "how the table is secured, and who has access to it",
                ),
                "composition": _listed(
                    (release.within, release.charged, release.across),
                    "" if release.receipt else "how this adds up with other releases of the table",
                ),
                "post_processing": release.after,
                "justification": asked("why this ε, this δ, this unit and this mechanism"),
                "utility": asked("how well the model predicts", release.accuracy),
                "additional_information": Field(
                    "The model file and its report state all declarations and the whole privacy curve.",
                    "links to the model, to papers, to reports",
                ),
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": [asked("who fills in this entry")],
                "tier": Field(3, "1 or 2 where the fields of the higher tiers are taken out"),
            },
        },
    }


def _listed(items: Sequence[str], asks: str) -> Field:
    """A list in Markdown of what is not empty."""
    return Field("\n".join(f"- {item}" for item in items if item), asks)


def _plain(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _plain(part) for key, part in tree.items()}
    if isinstance(tree, list):
        return [_plain(part) for part in tree]
    return tree.value if isinstance(tree, Field) else tree


def _lines(tree: Tree, margin: str = "") -> Iterator[str]:
    """The lines of a mapping in YAML, with comments above the fields that ask."""
    for key, part in tree.items():
        several = part if isinstance(part, list) else [part]
        lead, inner = f"{margin}{key}:", f"{margin}  "
        if isinstance(several[0], Field) and several[0].asks:
            yield f"{margin}# TODO by the operator: {several[0].asks}"
        if several is part:
            yield lead
            lead, inner = f"{margin}  -", f"{margin}    "
        for one in several:
            if isinstance(one, Mapping):
                yield lead
                yield from _lines(one, inner)
            else:
                yield f"{lead} {_scalar(_plain(one), inner)}"


def _scalar(value: str | int | float, margin: str) -> str:
    """Longer text in a block, its lines broken between words: Markdown reads them as one.

    Floats as 1.0e-06, not 1e-06, which readers of YAML 1.1 take for a text.
    """
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        mantissa, mark, exponent = repr(float(value)).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"
    lines = visible(value).split("\n")  # a block of YAML cannot hold control characters
    if len(lines) == 1 and len(lines[0]) <= _WIDTH:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
        return value if plain else json.dumps(lines[0], ensure_ascii=False)
    hung = [fill(line, _WIDTH, subsequent_indent="  " * line.startswith("- ")) for line in lines]
    block = indent("\n".join(hung), margin)
    return f"|2\n{block}" if lines[0].startswith(" ") else f"|\n{block}"
