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

from markupsafe import Markup

from curvedp.errors import InvalidInput
from curvedp.numbers import shown
from curvedp.pages import rendered
from curvedp.release.ledger.storage import LedgerState
from curvedp.release.modelfile import Release
from curvedp.reports import answers
from curvedp.reports.answers import Answered


@dataclass(frozen=True)
class Answer:
    """A question, what is known, and what the operator is still asked for ("" where nothing is)."""

    question: str
    known: tuple[str, ...] = ()
    asked: str = ""


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
    purpose = document.record.purpose
    doubted = (f"But {release.schema.unit_advice}.",) if release.schema.unit_advice else ()
    scales = (f"Sizes of the noise: {release.noise_scales}.",) if release.noise_scales else ()
    command = "" if receipt is None else f"curvedp verify MODEL --ledger LEDGER --head {receipt.head}"
    seeded = "NOTHING is promised: the run had a fixed seed, or is a study. It must not be released."
    small = Answer(
        f"Is δ small against the number of {who}s?",
        asked=f"its size against the number of {who}s: it should be far below 1 divided by that number",
    )
    if release.rows is not None:
        expected = g.delta * release.rows
        size = "far below 1" if expected <= 0.1 else "NOT far below 1"
        known = f"δ times the {release.rows:,} {who}s that were declared is {shown(expected)}: {size}."
        small = Answer(small.question, (known,))
    layers = {
        ("parameters", "Privacy parameters"): [
            Answer(
                "Which guarantee is claimed, and with which parameters?",
                (f"{release.variant}: {release.numbers}.", *(() if g.private else (seeded,))),
            ),
            Answer("What do they mean for one whose data were used?", (promise.conclusion, promise.test)),
            small,
            Answer("Why are these values strong enough?", asked="who chose ε and δ, by what rule, and why"),
        ],
        ("unit", "Unit of privacy"): [
            Answer("What is the unit of privacy?", (promise.neighbours,)),
            Answer(
                "Does the unit cover all data of a person?",
                (f"The schema says: {release.schema.record}.", *doubted),
                "that no person has two rows, or why a row is what is to be protected",
            )
            if unit is None
            else Answer(
                "Does the unit cover all data of a person?",
                (f"Yes: all rows of one {unit!r} count together, however many.",),
                f"that {unit!r} identifies persons, and that none has two identifiers",
            ),
            Answer(
                "Is it bounded or unbounded differential privacy?",
                (
                    f"{'Bounded: one replaced' if bounded else 'Unbounded: one added or removed'}. The "
                    f"number of {who}s is {'public' if bounded else 'protected, too'}.",
                ),
            ),
            Answer("How is the contribution of a unit bounded?", (release.enforced,)),
        ],
        ("budget", "The budget across releases"): [
            Answer("How do computations within the release add up?", (release.within,)),
            Answer(
                "How does it add up with other releases of the same data?",
                tuple(line for line in (release.charged, release.across) if line)
                or ("It was charged to no ledger.",),
                "releases of the same data that are not in this ledger, with or without differential privacy",
            ),
            Answer(
                "What happens when the budget is spent?",
                ("The ledger refuses every further charge; nothing is computed then.",) if receipt else (),
                "whether the budget is ever renewed, when, and why that is justified",
            ),
        ],
        ("algorithms", "Algorithms and their correctness"): [
            Answer("Which algorithm was used?", (release.contents, release.mechanism, *scales)),
            Answer(
                "What proves that it is private?",
                (f"The theorem {g.theorem} of docs/theory.md, with its proof.",),
            ),
            Answer(
                "How was the implementation tested?",
                (answers.TESTED,),
                "the page of `curvedp audit` for this mechanism, and any review by others",
            ),
            Answer(
                "What was chosen by looking at the data, and was that paid for?",
                release.tuning,
                "anything else that was looked at before: summaries, plots, earlier models",
            ),
            Answer(
                "Do the bounds and levels come from public knowledge?",
                (answers.DECLARED, release.sources),
                "that no declared bound or level was read off the data",
            ),
            Answer(
                "What was computed from the release afterwards?", (release.after, answers.NOT_INTERACTIVE)
            ),
        ],
        ("utility", "Utility"): [
            Answer(
                "How far may the released numbers be from those without privacy?",
                (release.accuracy,) if release.accuracy else (),
                ""
                if release.accuracy
                else "how accurate it is: `curvedp plan` before, `curvedp score` after",
            ),
            Answer(
                "Is that accurate enough for its purpose?",
                (f"The purpose, as the operator states it: {purpose}.",) if purpose else (),
                "by which measure it is",
            ),
        ],
        ("bias", "Bias"): [
            Answer("Which bias does the method itself add?", (release.bias,)),
            Answer(
                "Whom does the noise hit?",
                ("Small groups more than large ones: the same noise stands beside fewer records.",),
                "scores by group (`curvedp score --group`), or why no group matters",
            ),
            Answer(
                "Which bias do the data bring along?",
                asked="how they were collected, who is missing from them, who decided what is measured",
            ),
        ],
        ("trust", "Trust and threats"): [
            Answer("Who is trusted, and who is the adversary?", (answers.TRUST,)),
            Answer("Can outsiders query the data?", (answers.NOT_INTERACTIVE,)),
            Answer("What is released without protection?", (release.unprotected,)),
            Answer(
                "Who may see what?",
                (f"As the operator states: {stated.audience}.",) if stated.audience else (),
                "" if stated.audience else "who may see the table, the ledger, the model and its report",
            ),
        ],
        ("implementation", "Implementation"): [
            Answer("Which software made it?", (f"{release.software}.",)),
            Answer("Can the digits of a number betray its input?", (release.arithmetic,)),
            Answer("Where does the randomness come from?", (answers.RANDOMNESS,)),
            Answer(
                "Which side channels are there?",
                (answers.TIMING,),
                "how outsiders are kept from measuring time, memory and load",
            ),
            Answer("What do messages, logs and failures reveal?", (answers.ERRORS,)),
        ],
        ("security", "Security and access control"): [
            Answer("How are the raw data secured?", asked="encryption, accounts, backups, deletion"),
            Answer("Who can make releases, and who approves them?", asked="who may charge the budget"),
            Answer(
                "Can the record of the budget be changed afterwards?",
                (
                    "A ledger chains its charges by hashes: who keeps a head elsewhere notices when what "
                    "came before it was rewritten. Whoever can replace the file can drop what came after.",
                    *((f"To check: `{command}`.",) if command else ()),
                ),
                "where heads of the ledger are kept, and who can replace or copy the file",
            ),
        ],
        ("collection", "Data collection and exposure"): [
            Answer(
                "Which data were used?",
                (
                    *((f"The table, as the operator states: {stated.table}.",) if stated.table else ()),
                    release.used,
                ),
                "" if stated.table else "what the table is called, and where it comes from",
            ),
            Answer(
                "Is more collected or kept than is needed?",
                asked="why these columns are needed, how long the data are kept, on what legal ground",
            ),
            Answer(
                "What do those whose data are used know of it?", asked="what they were told and agreed to"
            ),
        ],
    }
    return tuple(Layer(*key, tuple(found)) for key, found in layers.items())


def nist_page(document: Release, ledger: LedgerState | None = None, cautions: Sequence[str] = ()) -> str:
    """Write the answers as one HTML page, with room for what the operator has to add.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.release.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.
    cautions : sequence of str, default=()
        What the report warns of.

    Returns
    -------
    html : str
        A page that loads nothing.
    """
    release, layers = Answered(document, ledger), evaluation(document, ledger)
    return rendered(
        "nist.html",
        release=release,
        g=release.guarantee,
        layers=layers,
        asked=sum(layer.open for layer in layers),
        questions=sum(len(layer.answers) for layer in layers),
        cautions=cautions,
        marked=_marked,
    )


def _marked(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if i % 2 else part for i, part in enumerate(text.split("`")))


# A release as an entry for the registry of deployments of differential privacy (OpenDP).
#
# The field names are those of its schema (`deployments-schema.yaml`, tiers 1 to 3). What the model file knows
# is filled in; what it does not know is `TODO`, with a comment that asks for it.


TODO = "TODO"
_WIDTH = 100
_HEAD = """\
# An entry for the registry of differential privacy deployments, from a model file of curvedp.
# Every TODO is for the operator to answer; the registry accepts none.
# All fields of tier 3, the registry's highest, are here, and comments say what a person may add to them.
# A person still has to fill in {count}:
"""
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9 ,.()/-]*[A-Za-z0-9.)])?")  # needs no quotes in YAML
_NO_TEXT = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")  # unless it is one of these

Plain = str | int | float | list["Plain"] | dict[str, "Plain"]


@dataclass(frozen=True)
class Field:
    """A value of the entry, and what the operator is still asked for."""

    value: str | int | float
    asks: str = ""


Tree = Mapping[str, "Field | Tree | Sequence[Field | Tree]"]


def asked(question: str) -> Field:
    """A field that only the operator can fill in."""
    return Field(TODO, question)


def deployment(document: Release, ledger: LedgerState | None = None) -> dict[str, Plain]:
    """Describe a release in the fields of the registry.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.release.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.

    Returns
    -------
    entry : dict
        Plain values; "TODO" where only the operator knows.
    """
    return {key: _plain(value) for key, value in _entry(Answered(document, ledger)).items()}


def deployment_yaml(document: Release, ledger: LedgerState | None = None) -> str:
    """Write the entry of a release as YAML, with a comment at every field that the operator must answer.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.release.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.

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
        for one in [part] if isinstance(part, Field | Mapping) else part:
            if isinstance(one, Mapping):
                yield from _asked(one)
            elif one.value == TODO:
                yield f"{key}: {one.asks}"


def _entry(release: Answered) -> Tree:
    if not release.guarantee.private:
        raise InvalidInput("a seeded or study run promises nothing: there is nothing to register")
    return {
        "url_slug": Field(re.sub(r"[^a-z0-9]+", "-", release.name.lower()).strip("-")),
        "deployment": {
            "basic": _basic(release),
            "dp_variant": {
                "variant_name": Field(release.variant),
                "data_domain": Field(release.domain),
                "unprotected_quantities": Field(
                    release.unprotected, "anything else that was published of the table without noise"
                ),
            },
            "privacy_loss": _privacy_loss(release),
            "deployment_model": _model(release),
            "implementation": _implementation(release),
            "administrative": {
                "status": Field("Draft"),
                "registry_authors": [asked("who fills in this entry")],
                "tier": Field(3, "1 or 2 where the fields of the higher tiers are taken out"),
            },
        },
    }


def _basic(release: Answered) -> Tree:
    record = release.document.record
    return {
        "name": Field(release.name),
        "data_curators": [
            {
                "data_curator_name": asked("the entity that publishes the model"),
                "data_curator_type": asked("Government, Industry or Nonprofit"),
            }
        ],
        "description": Field(release.contents),
        "intended_use": Field(record.purpose) if record.purpose else asked("what the model is for"),
        "data_product_type": Field("Machine learning model"),
        "data_product_region": asked("which region the data describe, or whose laws apply"),
        "data_product_sector": asked("Technology, Healthcare, Education, Government, Energy or Finance"),
        "publication_date": Field(
            record.time[:10], "the day of the release: correct it if it was published later"
        ),
    }


def _privacy_loss(release: Answered) -> Tree:
    g, promise = release.guarantee, release.promise
    parameters: dict[str, Field] = {"epsilon": Field(g.epsilon), "delta": Field(g.delta)}
    unit = (
        f"Record-level: {release.schema.record}"
        if g.neighbours.unit is None
        else f"Person-level: all rows of one {g.neighbours.unit} together"
    )
    count = release.rows  # of persons, where there is a unit
    return {
        "privacy_unit": Field(unit),
        "privacy_unit_details": Field(f"{promise.neighbours} {release.enforced}"),
        "number_of_privacy_units": (
            asked(f"the number of {g.neighbours.who}s; a round one that is public where it is private")
            if count is None
            else Field(count)
        ),
        "privacy_parameters": parameters,
        "privacy_parameters_details": Field(f"{promise.conclusion} {promise.test}"),
    }


def _model(release: Answered) -> Tree:
    audience = release.schema.release.audience
    return {
        "model_name": Field("Central"),
        "trust_assumptions": Field(f"{answers.TRUST} {answers.DECLARED}"),
        "actors": Field(audience) if audience else asked("who may see the table, the ledger and the model"),
        "release_type": Field("One release"),
        "release_type_details": Field(
            "The model was released once.", "whether the table will be used or published again"
        ),
        "data_source_type": asked("Static, or Dynamic where new records come in"),
        "access_type": Field("Non-interactive"),
        "access_type_details": Field(answers.NOT_INTERACTIVE),
    }


def _implementation(release: Answered) -> Tree:
    noise = release.noise_scales
    mechanisms = (
        f"- {release.mechanism}",
        *((f"- Sizes of the noise: {noise}.",) if noise else ()),
        f"- {release.software}.",
        f"- Floating point: {release.arithmetic}",
        f"- {answers.RANDOMNESS}",
        f"- Side channels: {answers.TIMING}",
    )
    return {
        "preprocessing_and_hyperparameter_tuning": Field(
            "\n".join(f"- {line}" for line in (*release.tuning, release.sources)),
            "what was done to the table before, and how ε, δ and the settings were chosen",
        ),
        "mechanisms": Field("\n".join(mechanisms), "how the table is secured, and who has access to it"),
        "composition": Field(
            "\n".join(f"- {line}" for line in (release.within, release.charged, release.across) if line),
            *(() if release.receipt else ("how this adds up with other releases of the table",)),
        ),
        "post_processing": Field(release.after),
        "justification": asked("why this ε, this δ, this unit and this mechanism"),
        "utility": Field(release.accuracy) if release.accuracy else asked("how well the model predicts"),
        "additional_information": Field(
            "The model file and its report state all declarations and the whole privacy curve.",
            "links to the model, to papers, to reports",
        ),
    }


def _plain(tree: Field | Tree | Sequence[Field | Tree]) -> Plain:
    if isinstance(tree, Field):
        return tree.value
    if isinstance(tree, Mapping):
        return {key: _plain(part) for key, part in tree.items()}
    return [_plain(part) for part in tree]


def _lines(tree: Tree, margin: str = "") -> Iterator[str]:
    """The lines of a mapping in YAML, with comments above the fields that ask."""
    for key, part in tree.items():
        inner = [part] if isinstance(part, Field | Mapping) else part
        asks = next((one.asks for one in inner if isinstance(one, Field)), "")
        if asks:
            yield f"{margin}# TODO by the operator: {asks}"
        if isinstance(part, Field):
            yield f"{margin}{key}: {_scalar(part.value, margin)}"
            continue
        yield f"{margin}{key}:"
        if isinstance(part, Mapping):
            yield from _lines(part, f"{margin}  ")
            continue
        for one in part:
            if isinstance(one, Field):
                yield f"{margin}  - {_scalar(one.value, f'{margin}    ')}"
            else:
                yield f"{margin}  -"
                yield from _lines(one, f"{margin}    ")


def _scalar(value: str | int | float, margin: str) -> str:
    """Longer text in a block, its lines broken between words: Markdown reads them as one.

    Floats as 1.0e-06, not 1e-06, which readers of YAML 1.1 take for a text.
    """
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        mantissa, mark, exponent = repr(float(value)).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"
    lines = ["".join(map(_visible, line)) for line in value.split("\n")]
    if len(lines) == 1 and len(lines[0]) <= _WIDTH:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
        return value if plain else json.dumps(lines[0], ensure_ascii=False)
    block = indent("\n".join(map(_broken, lines)), f"{margin}  ")
    return f"|2\n{block}" if lines[0].startswith(" ") else f"|\n{block}"


def _broken(line: str) -> str:
    return fill(line, _WIDTH, subsequent_indent="  " if line.startswith("- ") else "")


def _visible(letter: str) -> str:
    """The letter; a control character, which a block of YAML cannot hold, spelled out."""
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
