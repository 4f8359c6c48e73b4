"""What a server relies on: a plan without a table, its own account charged first and once, plain errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curvedp
from curvedp import Budget, Categorical, Numeric, PrivateSearch, Schema
from curvedp.analyses.scores import private_scores
from curvedp.errors import BudgetExceeded, CurvedpError, DataError, InvalidInput
from curvedp.mechanisms.recentered import RecenteredPlan
from curvedp.privacy.guarantee import Guarantee
from curvedp.release import catalogue
from curvedp.release.modelfile import Release

COLUMNS = [Numeric("age", 18, 90), Categorical("job", ["a", "b"]), Numeric("wage", 0, 1)]
SCHEMA = Schema(COLUMNS, target="wage", adjacency="add_remove")
TARGETS = {"regression": "wage", "classification": "job"}


@dataclass
class Account:
    """A budget of ε that a server keeps."""

    left: float = 10.0
    charged: list[tuple[Guarantee, str]] = field(default_factory=list)

    def charge(self, guarantee: Guarantee, label: str = "") -> None:
        if guarantee.epsilon > self.left:
            raise BudgetExceeded("not enough is left")
        self.left -= guarantee.epsilon
        self.charged.append((guarantee, label))


@pytest.fixture
def people() -> pd.DataFrame:
    random = np.random.default_rng(1)
    age = random.uniform(18, 90, 2000)
    return pd.DataFrame({"age": age, "job": random.choice(["a", "b"], 2000), "wage": age / 100})


def linear(**options: Any) -> Any:
    return curvedp.PrivateLinearRegression(schema=SCHEMA, epsilon=1.0, delta=1e-6, **options)


@pytest.mark.parametrize("name", [name for name, e in catalogue.ESTIMATORS.items() if e.task != "several"])
def test_a_plan_without_a_table_promises_what_a_fit_promises(name: str, people: pd.DataFrame) -> None:
    entry = catalogue.ESTIMATORS[name]
    schema = Schema(COLUMNS, target=TARGETS[str(entry.task)], adjacency="add_remove")
    model = entry.load()(schema=schema, epsilon=0.7, delta=1e-5)
    planned = model.plan().guarantee
    account = Account()
    fitted = model.set_params(ledger=account).fit(people)
    [(charged, label)] = account.charged
    assert planned == charged == fitted.privacy_
    assert (planned.epsilon, planned.delta, label) == (0.7, 1e-5, entry.class_name)


def test_a_plan_refuses_what_a_fit_would() -> None:
    with pytest.raises(InvalidInput, match="wealth"):
        linear(formula="wage ~ wealth").plan()
    with pytest.raises(InvalidInput, match="schema"):
        curvedp.PrivateRidge(bounds=(-1, 1), target_bounds=(0, 1)).plan()
    with pytest.raises(InvalidInput):
        linear(mechanism="nonsense").plan()


def test_an_account_that_refuses_lets_nothing_out(people: pd.DataFrame) -> None:
    model = linear(ledger=Account(left=0.5))
    with pytest.raises(BudgetExceeded):
        model.fit(people)
    assert not hasattr(model, "release_") and model.ledger.charged == []


def test_an_account_is_charged_before_the_release_and_keeps_it_when_that_fails(
    people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()
    seen = []

    def stop(*_: Any) -> None:
        seen.append(account.left)
        raise ValueError(f"the cell {people.wage[0]}")

    monkeypatch.setattr(RecenteredPlan, "release", stop)
    with pytest.raises(DataError, match="the charge stands") as caught:
        linear(ledger=account).fit(people)
    assert seen == [9.0] and account.left == 9.0
    assert str(people.wage[0]) not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("lacking", ["no file", "no column"])
def test_what_is_public_of_a_table_is_refused_before_the_charge(
    lacking: str, people: pd.DataFrame, tmp_path: Path
) -> None:
    account, table = Account(), tmp_path / "people.csv"
    if lacking == "no column":
        people.drop(columns="age").to_csv(table, index=False)
    with pytest.raises(CurvedpError):
        linear(ledger=account).fit(table)
    assert account.charged == []


def test_an_answer_is_the_model_file_and_reads_back(people: pd.DataFrame, tmp_path: Path) -> None:
    model = linear(ledger=Account()).fit(people)
    text = json.dumps(model.release_.to_dict(), allow_nan=False)
    again = Release.from_dict(json.loads(text)).to_estimator()
    np.testing.assert_array_equal(again.predict(people), model.predict(people))
    model.save(tmp_path / "model.json")  # an account is no file that it could overwrite
    assert json.loads((tmp_path / "model.json").read_text("utf-8")) == json.loads(text)
    assert "ledger" not in model.release_.settings


def test_other_releases_charge_an_account_too(people: pd.DataFrame, tmp_path: Path) -> None:
    account = Account()
    curvedp.describe(people, SCHEMA, epsilon=1.0, delta=1e-6, ledger=account)
    curvedp.check(SCHEMA, people, epsilon=1.0, ledger=account)
    private_scores(linear().fit(people), people, epsilon=1.0, delta=1e-6, ledger=account)
    ridge = curvedp.PrivateRidge(schema=SCHEMA)
    PrivateSearch(ridge, {"alpha": [0.1, 1.0]}, 1.0, 1e-6, ledger=account).fit(people)
    assert account.left == 6.0 and len(account.charged) == 4


def test_a_release_is_a_function_of_plan_table_and_noise(people: pd.DataFrame) -> None:
    documents = [linear(random_state=3).fit(people).release_.to_dict() for _ in range(2)]
    for document in documents:
        document["record"].pop("time")
    assert documents[0] == documents[1]
    assert Budget(1.0, 1e-6) == linear().plan().guarantee.budget
