"""What `coef_noise_reason_` advises can be done: following it is tried, and gives the noise."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

from curvedp import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
    load,
)
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.data import Categorical, Numeric, Schema
from curvedp.errors import InvalidInput
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.postprocess.noise import (
    ANOTHER_MODEL,
    BENT,
    PENALISED,
    REASONS,
    WITH_INFERENCE,
)
from curvedp.problems.constraints import L2Ball

QUICK = Recentered(Rule(rounds=6, first_rounds=3))
LABELS = {"two": ["no", "yes"], "three": ["no", "perhaps", "yes"]}


def table(n: int = 600) -> pd.DataFrame:
    random = np.random.default_rng(0)
    a = random.uniform(-1, 1, n)
    rest = {name: random.choice(labels, n) for name, labels in LABELS.items()}
    person = np.repeat(np.arange(n // 3), 3)
    return pd.DataFrame({"a": a, "y": 0.4 * a, "events": random.poisson(1.0, n), "person": person, **rest})


def schema(target: str, unit: str | None = None) -> Schema:
    last = {
        "y": Numeric("y", -1, 1),
        "events": Numeric("events", 0, 4),
        **{name: Categorical(name, labels) for name, labels in LABELS.items()},
    }
    return Schema([Numeric("a", -1, 1), last[target]], target=target, unit=unit)


def fitted(cls, target: str, unit: str | None = None, **options):
    rows = table()[["a", target, "person"] if unit else ["a", target]]
    return cls(schema=schema(target, unit), mechanism=QUICK, epsilon=3.0, **options).fit(rows)


CASES = {
    "linear": (PrivateLinearRegression, "y", None, {"inference": False}, WITH_INFERENCE),
    "Huber with a penalty": (PrivateHuberRegressor, "y", None, {"alpha": 1.0}, PENALISED),
    "two classes": (PrivateLogisticRegression, "two", None, {"inference": False}, WITH_INFERENCE),
    "two classes with a penalty": (PrivateLogisticRegression, "two", None, {"alpha": 1.0}, PENALISED),
    "three classes": (PrivateLogisticRegression, "three", None, {"alpha": 1.0}, PENALISED),
    "a constraint": (PrivateLinearRegression, "y", None, {"constraint": L2Ball(1.0)}, BENT),
    "ridge": (PrivateRidge, "y", None, {}, ANOTHER_MODEL),
    "lasso": (PrivateLasso, "y", None, {}, ANOTHER_MODEL),
    "counts": (PrivatePoissonRegressor, "events", None, {"inference": False}, WITH_INFERENCE),
    "persons": (PrivateLinearRegression, "y", "person", {"inference": False}, WITH_INFERENCE),
    "persons with a ridge": (PrivateRidge, "y", "person", {}, ANOTHER_MODEL),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_true_of_the_model_and_its_advice_can_be_followed(case, tmp_path):
    cls, target, unit, options, reason = CASES[case]
    model = fitted(cls, target, unit, **options)
    assert model.coef_noise_ is None and model.coef_noise_reason_ == reason and reason in REASONS
    model.save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").coef_noise_reason_ == reason
    has_parameter = "inference" in inspect.signature(cls).parameters
    if has_parameter:
        with pytest.raises(InvalidInput) as told:
            model.conf_int()
        assert reason in str(told.value)
    advice = {WITH_INFERENCE: {"inference": True}, PENALISED: {"alpha": 0.0}, BENT: {"constraint": None}}
    if reason in advice:
        again = fitted(cls, target, unit, **{**options, **advice[reason]})
        assert again.coef_noise_ is not None
    elif reason == ANOTHER_MODEL:
        assert not has_parameter


def test_a_mechanism_that_tells_nothing_advises_no_inference_for_persons():
    rows = table()[["a", "y", "person"]]
    model = PrivateLinearRegression(schema=schema("y", "person"), mechanism="gradient", epsilon=3.0).fit(rows)
    assert "inference=True" not in model.coef_noise_reason_
    with pytest.raises(InvalidInput, match="mechanism=auto"):
        model.conf_int()
