"""The adapter in a real Lomas server, through its routes: cost, debit, answer, refusals, and what leaves."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import curvedp_lomas
import numpy as np
import pandas as pd
import pytest
import yaml
from fastapi.testclient import TestClient
from lomas_core.models.collections import Metadata
from lomas_core.models.config import Config
from lomas_server.app import app
from lomas_server.data_connector.in_memory_connector import InMemoryConnector
from lomas_server.dp_queries.dp_querier import DPQuerier
from lomas_server.utils.config import CONFIG_LOADER

from curvedp.errors import InvalidInput
from curvedp.mechanisms.recentered import RecenteredPlan
from curvedp.release.modelfile import Release

curvedp_lomas.install(app)

ROWS = 4_000
USER = {"user-name": "Dr. Meier"}
ASKED: dict[str, Any] = {
    "dataset_name": "PEOPLE",
    "formula": "income ~ age + C(sex)",
    "epsilon": 1.0,
    "delta": 1e-6,
}
METADATA: dict[str, Any] = {
    "max_ids": 1,
    "rows": ROWS,
    "row_privacy": True,
    "columns": {
        "age": {"type": "int", "precision": 64, "lower": 18, "upper": 90},
        "sex": {"type": "string", "cardinality": 2, "categories": ["f", "m"]},
        "region": {"type": "int", "precision": 64, "cardinality": 3, "categories": [1, 2, 3]},
        "married": {"type": "boolean"},
        "since": {"type": "datetime", "lower": "2000-01-01", "upper": "2020-12-31"},
        "income": {"type": "float", "precision": 64, "lower": 0.0, "upper": 10.0},
        "note": {"type": "string"},
    },
}


def people(rows: int = ROWS) -> pd.DataFrame:
    random = np.random.default_rng(3)
    age = random.integers(18, 91, rows)
    sex = random.choice(["f", "m"], rows)
    return pd.DataFrame(
        {
            "age": age,
            "sex": sex,
            "region": random.choice([1, 2, 3], rows),
            "married": random.random(rows) < 0.5,
            "since": pd.Timestamp("2000-01-01") + pd.to_timedelta(random.integers(0, 7000, rows), unit="D"),
            "income": 1.0 + 0.05 * age + (sex == "m") + random.normal(0.0, 0.5, rows),
            "note": "x",
        }
    )


class Server:
    """A running server with one user, and what its administration says of the budget."""

    def __init__(self, client: TestClient, table: Path) -> None:
        self.client, self.table = client, table

    def post(self, route: str, **changes: Any) -> Any:
        return self.client.post(f"/{route}", json={**ASKED, **changes}, headers=USER)

    def spent(self) -> tuple[float, float]:
        asked = {"dataset_name": "PEOPLE"}
        found = self.client.post("/get_total_spent_budget", json=asked, headers=USER).json()
        return found["total_spent_epsilon"], found["total_spent_delta"]

    def archived(self) -> list[dict[str, Any]]:
        asked = {"dataset_name": "PEOPLE"}
        return self.client.post("/get_previous_queries", json=asked, headers=USER).json()["previous_queries"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    table, metadata, database = (tmp_path / name for name in ("people.csv", "metadata.yaml", "admin.yaml"))
    people().to_csv(table, index=False)
    metadata.write_text(yaml.safe_dump(METADATA))
    budget = {
        "initial_epsilon": 3.0,
        "initial_delta": 1e-4,
        "total_spent_epsilon": 0.0,
        "total_spent_delta": 0.0,
    }
    access = {"database_type": "PATH_DB"}
    places = {
        "dataset_access": {**access, "path": str(table)},
        "metadata_access": {**access, "path": str(metadata)},
    }
    user = {
        "user_name": USER["user-name"],
        "may_query": True,
        "datasets_list": [{"dataset_name": "PEOPLE", **budget}],
    }
    content = {"users": [user], "datasets": [{"dataset_name": "PEOPLE", **places}], "queries": []}
    database.write_text(yaml.safe_dump(content))
    CONFIG_LOADER.set_config(
        Config.model_validate(
            {
                "develop_mode": False,
                "server": {
                    "time_attack": {"method": "stall", "magnitude": 0.0},
                    "host_ip": "127.0.0.1",
                    "host_port": 8080,
                    "log_level": "info",
                    "reload": False,
                    "workers": 1,
                },
                "submit_limit": 10.0,
                "admin_database": {"db_type": "yaml", "db_file": str(database)},
                "private_db_credentials": [],
                "dp_libraries": {
                    "opendp": {"contrib": True, "floating_point": True, "honest_but_curious": True}
                },
            }
        )
    )
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Server(client, table)


def test_the_interface_is_the_one_of_lomas() -> None:
    assert issubclass(curvedp_lomas.CurvedpQuerier, DPQuerier)
    assert not curvedp_lomas.CurvedpQuerier.__abstractmethods__


def test_a_cost_is_told_without_the_table_and_without_a_debit(server: Server) -> None:
    server.table.unlink()
    answer = server.post("estimate_curvedp_cost")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"epsilon": 1.0, "delta": 1e-6}
    assert server.spent() == (0.0, 0.0)


def test_a_query_debits_once_and_answers_with_the_model_file_alone(server: Server) -> None:
    answer = server.post("curvedp_query")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert {*found} == {"requested_by", "epsilon", "delta", "result"}
    assert {*found["result"]} == {"res_type", "model"}
    assert (found["epsilon"], found["delta"]) == server.spent() == (1.0, 1e-6)
    release = Release.from_dict(found["result"]["model"])  # which knows every key that it may have
    assert release.guarantee.private and release.guarantee.adjacency == "add_remove"
    assert (release.guarantee.epsilon, release.guarantee.delta) == server.spent()
    slope = release.to_estimator().tidy()["estimate"][0]
    assert slope == pytest.approx(0.05, abs=0.01)
    [kept] = server.archived()
    assert kept["dp_librairy"] == "curvedp" and kept["client_input"]["formula"] == ASKED["formula"]
    assert kept["response"]["result"]["model"]["coefficients"] == found["result"]["model"]["coefficients"]


def test_the_budget_is_not_overspent_and_queries_go_on(server: Server) -> None:
    codes = [server.post("curvedp_query", epsilon=epsilon).status_code for epsilon in (2.5, 1.0, 0.5, 0.1)]
    assert codes == [200, 400, 200, 400]
    assert server.spent() == (3.0, 2e-6)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"formula": "income ~ wealth"}, 400),
        ({"formula": "note ~ age"}, 400),
        ({"model": "logistic"}, 400),
        ({"options": {"l1_ratio": 0.5}}, 400),
        ({"epsilon": 0.0}, 422),
        ({"random_state": 1}, 422),
        ({"options": {"random_state": 1}}, 422),
        ({"options": {"ledger": "budget.db"}}, 422),
    ],
)
def test_what_is_public_is_refused_before_the_debit(
    server: Server, changes: dict[str, Any], code: int
) -> None:
    for route in ("estimate_curvedp_cost", "curvedp_query"):
        assert server.post(route, **changes).status_code == code, changes
    assert server.spent() == (0.0, 0.0)
    assert server.post("curvedp_query").status_code == 200  # nobody is locked out by a refusal


def test_a_table_that_cannot_be_read_is_paid_for_and_told_to_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it can be read depends on every cell: the answer is bought, and quotes none."""
    server.table.write_text(server.table.read_text("utf-8").replace("\n", "\nsecret4711", 1), "utf-8")
    with caplog.at_level(logging.DEBUG):
        answer = server.post("curvedp_query")
    assert answer.status_code == 500
    assert server.spent() == (1.0, 1e-6)
    assert "4711" not in answer.text + caplog.text
    assert server.archived() == []


def test_a_fit_that_stops_is_paid_for_once_and_quotes_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(*_: Any) -> None:
        raise ValueError("secret4711")

    monkeypatch.setattr(RecenteredPlan, "release", stop)
    with caplog.at_level(logging.DEBUG):
        answer = server.post("curvedp_query")
    assert answer.status_code == 400 and "the charge stands" in answer.text
    assert "4711" not in answer.text + caplog.text
    assert server.spent() == (1.0, 1e-6)
    monkeypatch.undo()
    assert server.post("curvedp_query").status_code == 200
    assert server.spent() == (2.0, 2e-6)


def test_the_debit_comes_before_the_table(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    read = pd.read_csv
    monkeypatch.setattr(pd, "read_csv", lambda *a, **k: (seen.append(server.spent()), read(*a, **k))[1])
    assert server.post("curvedp_query").status_code == 200
    assert seen == [(1.0, 1e-6)]


def test_a_dummy_query_is_free_and_reads_no_table(server: Server) -> None:
    server.table.unlink()
    answer = server.post(
        "dummy_curvedp_query",
        dummy_nb_rows=500,
        dummy_seed=1,
        formula="income ~ age + C(sex) + C(region) + married + since",
    )
    assert answer.status_code == 200, answer.text
    assert server.spent() == (0.0, 0.0)
    assert Release.from_dict(answer.json()["result"]["model"]).coefficients.shape[1] >= 5


def test_who_has_no_access_gets_nothing(server: Server) -> None:
    body = {**ASKED, "dummy_nb_rows": 10, "dummy_seed": 1}
    for route in ("estimate_curvedp_cost", "curvedp_query", "dummy_curvedp_query"):
        asked = body if route.startswith("dummy") else ASKED
        answer = server.client.post(f"/{route}", json=asked, headers={"user-name": "Nobody"})
        assert answer.status_code == 403, answer.text


def test_what_others_ask_of_lomas_is_archived_as_before() -> None:
    from lomas_core.models.requests import OpenDPRequestModel
    from lomas_server.admin_database.admin_database import model_input_to_lib

    other = OpenDPRequestModel(dataset_name="PEOPLE", opendp_json="{}", fixed_delta=None)
    assert model_input_to_lib(other) == "opendp"


def test_a_private_id_protects_a_person_with_all_rows() -> None:
    metadata = json.loads(json.dumps(METADATA))
    metadata["columns"]["person"] = {"type": "string", "private_id": True}
    metadata |= {"row_privacy": False, "max_ids": 4}
    parsed = Metadata.model_validate(metadata)
    assert curvedp_lomas.schema_of(parsed.model_dump(mode="json")).unit == "person"
    table = people().assign(person=[f"p{i // 4}" for i in range(ROWS)])
    querier = curvedp_lomas.CurvedpQuerier(InMemoryConnector(parsed, table), None)
    found = querier.query(curvedp_lomas.CurvedpQueryModel(**ASKED))
    assert Release.from_dict(found.model).guarantee.neighbours.unit == "person"
    by_row = {**metadata, "row_privacy": True}
    assert curvedp_lomas.schema_of(Metadata.model_validate(by_row).model_dump(mode="json")).unit is None


def test_several_rows_without_an_identifier_are_refused() -> None:
    metadata = {**METADATA, "row_privacy": False, "max_ids": 2}
    with pytest.raises(InvalidInput, match="private_id"):
        curvedp_lomas.schema_of(Metadata.model_validate(metadata).model_dump(mode="json"))
