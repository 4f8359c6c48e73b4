"""A release as an entry for the registry of deployments of differential privacy (OpenDP).

The field names are those of its schema (`deployments-schema.yaml`, tiers 1 to 3). What the model file knows
is filled in; what it does not know is `TODO`, with a comment that asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill, indent

from curvedp.errors import InvalidInput
from curvedp.filing import answers
from curvedp.filing.answers import Answered
from curvedp.ledger import LedgerState
from curvedp.modelfile import Release

TODO = "TODO"
_WIDTH = 100
_HEAD = """\
# An entry for the registry of differential privacy deployments, from a model file of curvedp.
# Every TODO is for the operator to answer; the registry accepts none.
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
        A model file, as `curvedp.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.

    Returns
    -------
    entry : dict
        Plain values; "TODO" where only the operator knows.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.modelfile import Release
    >>> from curvedp.filing.registry import deployment
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> entry = deployment(Release.of(model))["deployment"]
    >>> entry["privacy_loss"]["privacy_parameters"], entry["basic"]["data_product_region"]
    ({'epsilon': 1.0, 'delta': 1e-06}, 'TODO')
    """
    return {key: _plain(value) for key, value in _entry(Answered(document, ledger)).items()}


def deployment_yaml(document: Release, ledger: LedgerState | None = None) -> str:
    """Write the entry of a release as YAML, with a comment at every field that the operator must answer.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.

    Returns
    -------
    text : str
        The file; its name may have lowercase letters, digits and underscores.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.modelfile import Release
    >>> from curvedp.filing.registry import deployment_yaml
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> print(deployment_yaml(Release.of(model)).splitlines()[2])
    url_slug: ridge-regression
    """
    return _HEAD + "".join(f"{line}\n" for line in _lines(_entry(Answered(document, ledger))))


def _entry(release: Answered) -> Tree:
    if not release.guarantee.private:
        raise InvalidInput("a seeded or study run promises nothing: there is nothing to register")
    return {
        "url_slug": Field(_slug(release.name)),
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
    purpose = "" if record is None else record.purpose
    return {
        "name": Field(release.name),
        "data_curators": [
            {
                "data_curator_name": asked("the entity that publishes the model"),
                "data_curator_type": asked("Government, Industry or Nonprofit"),
            }
        ],
        "description": Field(release.contents),
        "intended_use": Field(purpose) if purpose else asked("what the model is for"),
        "data_product_type": Field("Machine learning model"),
        "data_product_region": asked("which region the data describe, or whose laws apply"),
        "data_product_sector": asked("Technology, Healthcare, Education, Government, Energy or Finance"),
        "publication_date": (
            asked("the day of publication, as '2026-01-31'")
            if record is None
            else Field(record.time[:10], "the day of the release: correct it if it was published later")
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


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


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
