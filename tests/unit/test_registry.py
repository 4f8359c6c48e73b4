"""The entry for the registry of deployments: its fields, facts of the model file, no inventions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from tests.charges import Release
from tests.registry_schema import ANSWERS, LEFT_OUT, REGISTRY
from tests.releases import RECEIPT, document, guarantee

from curvedp.data.files import Stated
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.guarantee import Parameters
from curvedp.release import modelfile
from curvedp.release.ledger import Ledger
from curvedp.reports.filings import TODO, deployment, deployment_yaml, unanswered

VALIDATOR = Draft202012Validator(REGISTRY, format_checker=Draft202012Validator.FORMAT_CHECKER)
STATED = Stated("employment register", "a wage report", "everybody", 12000)
KINDS: dict[str, modelfile.Release] = {
    "bare": document(),
    "stated": document(stated=STATED, receipt=RECEIPT, source="codebook"),
    "persons": document(guarantee(neighbours=Neighbours("add_remove", "id")), stated=STATED),
    "pure": document(guarantee(delta=0.0)),
    "qop": document(guarantee(mechanism="qop", theorem="(P-7j)", accounting="directional")),
}


def leaves(entry: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(entry, dict):
        for key, value in entry.items():
            yield from leaves(value, (*path, key))
    elif isinstance(entry, list):
        for value in entry:
            yield from leaves(value, path)
    else:
        yield path, entry


def answered(entry: Any, name: str = "") -> Any:
    """Every TODO with an answer in its place."""
    if isinstance(entry, dict):
        return {key: answered(value, key) for key, value in entry.items()}
    if isinstance(entry, list):
        return [answered(value, name) for value in entry]
    return ANSWERS.get(name, "an answer") if entry == TODO else entry


def properties(schema: dict[str, Any]) -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        yield name
        yield from properties(part.get("items", part))


def one_line(entry: Any) -> Any:
    return {path: " ".join(str(value).split()) for path, value in leaves(entry)}


@pytest.mark.parametrize("name", KINDS)
def test_the_entry_is_valid_once_the_operator_has_answered(name: str) -> None:
    entry = deployment(KINDS[name])
    VALIDATOR.validate(answered(entry))
    assert not VALIDATOR.is_valid(entry)  # as long as a TODO is left
    present = {key for path, _ in leaves(entry) for key in path} | set(entry)
    assert set(properties(REGISTRY)) - present <= LEFT_OUT


@pytest.mark.parametrize("name", KINDS)
def test_the_file_says_the_same_to_every_reader(name: str) -> None:
    text = deployment_yaml(KINDS[name])
    entry = deployment(KINDS[name])
    for read in (yaml.safe_load(text), YAML(typ="safe", pure=True).load(text)):
        assert one_line(read) == one_line(entry)
        told = read["deployment"]["privacy_loss"]["privacy_parameters"]
        assert told == entry["deployment"]["privacy_loss"]["privacy_parameters"]
        assert all(type(value) is float for value in told.values())
        VALIDATOR.validate(answered(read))


@pytest.mark.parametrize("delta", [1e-6, 1.2345678901234567e-7, 1e-300, 0.25])
def test_numbers_survive_exactly(delta: float) -> None:
    read = yaml.safe_load(deployment_yaml(document(guarantee(1 / 3, delta))))
    assert read["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1 / 3, "delta": delta}


@pytest.mark.parametrize("name", KINDS)
def test_every_placeholder_has_a_comment_that_asks(name: str) -> None:
    lines = deployment_yaml(KINDS[name]).splitlines()
    places = [i for i, line in enumerate(lines) if line.strip() in ("- TODO",) or line.endswith(": TODO")]
    assert len(places) == sum(value == TODO for _, value in leaves(deployment(KINDS[name])))
    for i in places:
        above = lines[i - 2] if lines[i].strip() == "- TODO" else lines[i - 1]
        assert above.strip().startswith("# TODO by the operator: "), lines[i]


def test_what_is_known_is_filled_in() -> None:
    entry = deployment(KINDS["stated"])["deployment"]
    basic, loss, model = entry["basic"], entry["privacy_loss"], entry["deployment_model"]
    assert (basic["intended_use"], basic["publication_date"]) == ("a wage report", "2026-03-01")
    assert basic["name"] == "Ridge regression of wage (employment register)"
    assert (loss["number_of_privacy_units"], model["actors"]) == (12000, "everybody")
    assert "codebook (1 of 3)" in entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    composition = entry["implementation"]["composition"]
    assert RECEIPT.head in composition and "Charge 7 of ledger 0123456789ab" in composition
    assert "by Ada, for: wages" in composition
    assert "Python 3.13.0" in entry["implementation"]["mechanisms"]


def test_what_is_not_known_is_asked() -> None:
    bare = deployment(KINDS["bare"])["deployment"]
    asked = {path[-1] for path, value in leaves(bare) if value == TODO}
    assert asked == {
        *("data_curator_name", "data_curator_type", "intended_use", "data_product_region"),
        *("data_product_sector", "number_of_privacy_units", "actors", "data_source_type"),
        *("justification", "utility", "registry_authors"),
    }


def test_the_variant_and_the_unit_follow_the_guarantee() -> None:
    entries = {name: deployment(made)["deployment"] for name, made in KINDS.items()}
    assert entries["pure"]["dp_variant"]["variant_name"] == "Pure DP"
    assert entries["bare"]["dp_variant"]["variant_name"] == "Approximate DP"
    persons = entries["persons"]["privacy_loss"]
    assert persons["privacy_unit"] == "Person-level: all rows of one id together"
    assert persons["number_of_privacy_units"] == 12_000  # with a unit, the rows that are stated are persons
    assert "is not public" in persons["privacy_unit_details"]
    assert entries["bare"]["privacy_loss"]["privacy_unit"].startswith("Record-level")
    assert "number of records is public" in entries["bare"]["dp_variant"]["unprotected_quantities"]


def test_floating_point_is_told_of_the_mechanism_that_ran() -> None:
    texts = {
        name: deployment(made)["deployment"]["implementation"]["mechanisms"] for name, made in KINDS.items()
    }
    assert "drawn exactly in integers" in texts["bare"] and "double precision" not in texts["bare"]
    wishart = document(guarantee(mechanism="wishart", theorem="(S-1)"))
    told = deployment(wishart)["deployment"]["implementation"]["mechanisms"]
    assert "the random curvature W is sampled in double precision, added to the sum XᵀX" in told
    assert "nor the rounding errors of XᵀX" in told
    assert "The noise inside the objective is sampled in double precision" in texts["qop"]
    exact = guarantee(mechanism="gradient", parameters=Parameters())
    told = deployment(document(exact))["deployment"]["implementation"]["mechanisms"]
    assert "drawn exactly in integers" in told and "double precision" not in told
    search = document(guarantee(mechanism="search over 3: qop, recentered", parameters=exact.parameters))
    told = deployment(search)["deployment"]["implementation"]["mechanisms"]
    assert "random curvature W" not in told and "noise inside the objective" in told


def test_sentences_claim_no_more_than_the_threat_model() -> None:
    """What is not proved or not known is not said: see docs/threat-model.md, "Arithmetic", "Bad values"."""
    entry = deployment(KINDS["bare"])["deployment"]
    implementation, loss = entry["implementation"], entry["privacy_loss"]
    assert "rounding errors are counted in the sensitivity" in implementation["mechanisms"]
    assert "target cannot be read adds nothing" in loss["privacy_unit_details"]
    assert "also those that depend on earlier ones" in " ".join(implementation["composition"].split())
    laplace = guarantee(mechanism="functional", parameters=Parameters())
    told = deployment(document(laplace))["deployment"]["implementation"]["mechanisms"]
    assert "discrete Laplace" in told and "Gaussian" not in told


def test_a_run_that_promises_nothing_is_not_registered() -> None:
    with pytest.raises(InvalidInput, match="nothing to register"):
        deployment(document(guarantee(private=False)))


def test_the_ledger_must_be_the_one_that_was_charged(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    receipt = ledger.charge(Release())
    made = document(receipt=receipt)
    told = deployment(made, ledger.state())["deployment"]["implementation"]["composition"]
    assert "of ε = 3, δ = 10⁻⁵ in all, ε = 0.1, δ = 10⁻⁷ are spent (charges: 1)" in told
    other = Ledger.create(tmp_path / "other.db", epsilon=3, delta=1e-5)
    with pytest.raises(InvalidInput, match="charged to ledger"):
        deployment(made, other.state())


@pytest.mark.parametrize("name", ["a: b # c", "x\n- y: TODO", "\x1b[31m\u2028", "'\"|>", "TODO", "é" * 300])
def test_names_cannot_break_the_file(name: str) -> None:
    made = document(name=name, stated=Stated("[a]: {b}", "# no", "- x: y"))
    read = yaml.safe_load(deployment_yaml(made))
    assert read["deployment"]["basic"]["intended_use"] == "# no"
    assert read["deployment"]["deployment_model"]["actors"] == "- x: y"
    VALIDATOR.validate(answered(read))


def test_the_schema_of_this_test_bites() -> None:
    good = answered(deployment(KINDS["bare"]))
    for change in (
        lambda e: e.pop("url_slug"),
        lambda e: e["deployment"].pop("administrative"),
        lambda e: e["deployment"]["basic"].pop("name"),
        lambda e: e["deployment"]["basic"].update(publication_date="1/1/2026"),
        lambda e: e["deployment"]["basic"].update(surprise=1),
        lambda e: e["deployment"]["deployment_model"].update(model_name="Trusted"),
        lambda e: e["deployment"]["privacy_loss"]["privacy_parameters"].update(epsilon="1"),
    ):
        bad = copy.deepcopy(good)
        change(bad)
        assert not VALIDATOR.is_valid(bad)


def test_inference_is_told_as_utility() -> None:
    told = replace(KINDS["bare"].noise, deviations=np.abs(KINDS["bare"].coefficients), reason="")
    entry = deployment(document(noise=told))["deployment"]
    assert entry["implementation"]["utility"].startswith("How far privacy noise alone moves")


@pytest.mark.parametrize("name", KINDS)
def test_the_file_begins_with_what_a_person_must_fill_in_for_the_highest_tier(name: str) -> None:
    """All fields of tier 3 are there; those listed are those that are open, and no other."""
    text, asks = deployment_yaml(KINDS[name]), unanswered(KINDS[name])
    head = text[: text.index("url_slug")].splitlines()
    assert [line.removeprefix("#   ") for line in head if line.startswith("#   ")] == asks
    assert f"# A person still has to fill in {len(asks)}:" in head
    entry = deployment(KINDS[name])
    open_fields = [path[-1] for path, value in leaves(entry) if value == TODO]
    assert [ask.partition(": ")[0] for ask in asks] == open_fields
    assert all(ask.partition(": ")[2] for ask in asks)
    assert entry["deployment"]["administrative"]["tier"] == 3
    assert len(unanswered(KINDS["stated"])) == len(unanswered(KINDS["bare"])) - 3  # purpose, rows, audience
