"""Nothing is untested for not being listed."""

from __future__ import annotations

import dataclasses
import inspect
from types import ModuleType

import pytest
from tests.catalogue import CONSTRAINTS, LOSSES, LOSSES_OF_COLUMNS, MECHANISMS, REGULARIZERS

from curvedp.errors import InvalidInput
from curvedp.problems import constraints, losses, regularizers
from curvedp.release import catalogue


def classes(module: ModuleType, method: str) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and dataclasses.is_dataclass(value) and hasattr(value, method)
        if value.__module__.startswith(module.__name__) and not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("module", "method", "listed"),
    [
        (losses, "clip_target", LOSSES + LOSSES_OF_COLUMNS),
        (regularizers, "prox", REGULARIZERS),
        (constraints, "project", CONSTRAINTS),
    ],
    ids=["losses", "regularizers", "constraints"],
)
def test_every_class_is_listed(module, method, listed):
    assert classes(module, method) == {type(value).__name__ for value in listed}


def test_every_name_of_the_catalogue_is_a_mechanism_of_that_name():
    for name, mechanism in MECHANISMS.items():
        assert mechanism.name == name
        assert isinstance(mechanism, catalogue.MECHANISMS[name].load())
        assert not {"epsilon", "delta"} & {field.name for field in dataclasses.fields(mechanism)}


def test_every_estimator_of_the_catalogue_loads():
    for entry in catalogue.ESTIMATORS.values():
        assert entry.load().__name__ == entry.class_name
        assert catalogue.estimator_of(entry.class_name) is entry


def test_a_mechanism_refuses_options_that_it_does_not_have():
    assert catalogue.mechanism("qop", accounting="spectral", radius=2.0).radius == 2.0
    with pytest.raises(InvalidInput, match="choice of qop"):
        catalogue.mechanism("auto", accounting="spectral")
    with pytest.raises(InvalidInput, match="no radius"):
        catalogue.mechanism("recentered", radius=2.0)
    with pytest.raises(InvalidInput, match="unknown mechanism 'magic'"):
        catalogue.mechanism("magic")
    assert catalogue.mechanism("auto", accounting="auto", radius=None).name == "recentered"
