"""curvedp behind a Lomas server (lomas-server 0.4.1): what a fit costs, and the fit, as its `DPQuerier`.

`install(app)` adds three routes: `estimate_curvedp_cost`, `curvedp_query` and `dummy_curvedp_query`. What
leaves is a model file of curvedp, (ε, δ) and public refusals. The user's budget is debited before the table
is read.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, Request
from lomas_core.error_handler import (
    SERVER_QUERY_ERROR_RESPONSES,
    InternalServerException,
    InvalidQueryException,
    UnauthorizedAccessException,
)
from lomas_core.models.requests import DummyQueryModel, LomasRequestModel, QueryModel
from lomas_core.models.responses import CostResponse, QueryResponse
from lomas_server.admin_database import admin_database as archive
from lomas_server.data_connector.data_connector import DataConnector
from lomas_server.data_connector.factory import data_connector_factory
from lomas_server.dp_queries.dp_querier import DPQuerier
from lomas_server.dp_queries.dummy_dataset import get_dummy_dataset_for_query
from lomas_server.routes.utils import server_live, timing_protection
from pydantic import BaseModel, ConfigDict, Field

from curvedp import Budget, Ignored, Schema
from curvedp.cli.workflow import build
from curvedp.data.dictionaries import read_dictionary
from curvedp.data.files import column_of
from curvedp.errors import CurvedpError, InvalidInput

LIBRARY = "curvedp"
Option = Literal["alpha", "fit_intercept", "inference", "l1_ratio", "max_rate", "width", "x_norm"]
Result = TypeVar("Result")


class CurvedpRequestModel(LomasRequestModel):
    """A fit: which model of which columns, and what it may cost.

    No other parameter is taken from a client: a seed would make the noise known, a path would name a file of
    the server.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    formula: str
    """In R's notation, such as "income ~ age + C(sex)"; what it names is in the metadata."""
    model: str = "auto"
    """linear, ridge, lasso, elastic_net, huber, poisson, logistic or svc; auto: linear or logistic."""
    epsilon: float = Field(..., gt=0)
    """ε of the fit."""
    delta: float = Field(..., gt=0, lt=1)
    """δ of the fit."""
    options: dict[Option, bool | float] = Field(default_factory=dict)
    """Parameters of the model."""


class CurvedpQueryModel(CurvedpRequestModel, QueryModel):
    """A fit to be run."""


class CurvedpDummyQueryModel(CurvedpQueryModel, DummyQueryModel):
    """A fit to be run on a table that is made of the metadata alone."""


class CurvedpQueryResult(BaseModel):
    """The model file, whose content `curvedp.release.modelfile.Release.from_dict` reads."""

    res_type: Literal["curvedp"] = LIBRARY
    model: dict[str, Any]


class CurvedpQueryResponse(QueryResponse):
    """The answer of `curvedp_query`."""

    result: CurvedpQueryResult


class CurvedpQuerier(DPQuerier[CurvedpRequestModel, CurvedpQueryModel, CurvedpQueryResult]):
    """Fits on the table of one data connector."""

    def cost(self, query_json: CurvedpRequestModel) -> tuple[float, float]:
        """(ε, δ) of the plan, which is made of the metadata and the request: no table is read."""
        guarantee = refusing(lambda: self._asked(query_json).plan().guarantee)
        return guarantee.epsilon, guarantee.delta

    def query(self, query_json: CurvedpQueryModel) -> CurvedpQueryResult:
        """The model file of a fit. `handle_query` has debited the budget; a dummy table has none."""

        def release() -> CurvedpQueryResult:
            model = self._asked(query_json).fit(self.data_connector.get_pandas_df())
            return CurvedpQueryResult(model=model.release_.to_dict())

        return refusing(release)

    def handle_query(self, query_json: CurvedpQueryModel, user_name: str) -> CurvedpQueryResponse:
        """Cost, debit, query, in this order: whatever fails after the debit leaves it as it is.

        The order of the base class is cost, query, debit: an error of the query is an answer that nobody
        paid for.
        """
        database, table = self.admin_database, query_json.dataset_name
        if not database.get_and_set_may_user_query(user_name, False):
            raise UnauthorizedAccessException(f"User {user_name} has a query that is not finished.")
        try:
            epsilon, delta = self.cost(query_json)
            left = database.get_remaining_budget(user_name, table)
            if epsilon > left[0] or delta > left[1]:
                raise InvalidQueryException(
                    f"Not enough budget: this costs epsilon {epsilon}, delta {delta}, and epsilon {left[0]}, "
                    f"delta {left[1]} remain."
                )
            database.update_budget(user_name, table, epsilon, delta)
            response = CurvedpQueryResponse(
                requested_by=user_name, result=self.query(query_json), epsilon=epsilon, delta=delta
            )
            database.save_query(user_name, query_json, response)
        finally:
            database.set_may_user_query(user_name, True)
        return response

    def _asked(self, query_json: CurvedpRequestModel) -> Any:
        """The unfitted estimator."""
        schema = schema_of(self.data_connector.get_metadata().model_dump(mode="json")).with_formula(
            query_json.formula
        )
        budget = Budget(query_json.epsilon, query_json.delta)
        return build(schema, budget, query_json.model, **query_json.options)


def refusing(work: Callable[[], Result]) -> Result:
    """work(), its errors as those of Lomas: what curvedp says, which holds no record, or no more than a kind.

    Lomas logs and, of some kinds, sends the texts of errors; pandas quotes cells in its own.
    """
    failure: Exception
    try:
        return work()
    except CurvedpError as error:
        failure = InvalidQueryException(str(error))
    except Exception as error:
        failure = InternalServerException(f"curvedp: {type(error).__name__}")
    raise failure


def schema_of(metadata: Mapping[str, Any]) -> Schema:
    """The declarations that metadata of Lomas make, for tables with one record more or less (`add_remove`).

    A column `private_id` is the unit, whose rows are protected together however many they are (`max_ids` is
    not needed), unless `row_privacy` says that a row is a person.
    """
    known = read_dictionary(metadata)
    by_row = metadata.get("row_privacy", False)
    if not known.unit and not by_row and metadata.get("max_ids", 1) > 1:
        raise InvalidInput(
            "a person may have several rows: the metadata must mark one column as `private_id`, or say "
            "`row_privacy` where rows are to be protected"
        )
    return Schema(
        [
            column_of({"name": k.name, **k.entry}, 1) if k.is_complete else Ignored(k.name)
            for k in known.values()
        ],
        adjacency="add_remove",
        unit=None if by_row else known.unit or None,
        record="one row is one person" if by_row else "one row is one record",
    )


# Routes. Lomas has no place for a library that it does not know: names are an enum, queriers a match.


router = APIRouter(dependencies=[Depends(server_live)], responses=SERVER_QUERY_ERROR_RESPONSES)
User = Annotated[str, Header()]
_known = archive.model_input_to_lib


def _library(request: LomasRequestModel) -> str:
    """The library of a request as the archive of queries names it."""
    return LIBRARY if isinstance(request, CurvedpRequestModel) else _known(request)


archive.model_input_to_lib = _library  # type: ignore[assignment]


def install(app: FastAPI) -> None:
    """Add the routes to a server."""
    app.include_router(router)


def _private(request: Request, asked: LomasRequestModel) -> CurvedpQuerier:
    state = request.app.state
    table = data_connector_factory(asked.dataset_name, state.admin_database, state.private_credentials)
    return _querier(request, table)


def _querier(request: Request, table: DataConnector) -> CurvedpQuerier:
    return CurvedpQuerier(table, request.app.state.admin_database)


def _require_access(request: Request, user_name: str, dataset_name: str) -> None:
    if not request.app.state.admin_database.has_user_access_to_dataset(user_name, dataset_name):
        raise UnauthorizedAccessException(f"{user_name} does not have access to {dataset_name}.")


@router.post("/estimate_curvedp_cost", tags=["USER_QUERY"])
@timing_protection
def estimate_curvedp_cost(user_name: User, request: Request, asked: CurvedpRequestModel) -> CostResponse:
    """Tell what a fit would cost."""
    _require_access(request, user_name, asked.dataset_name)
    epsilon, delta = _private(request, asked).cost(asked)
    return CostResponse(epsilon=epsilon, delta=delta)


@router.post("/curvedp_query", tags=["USER_QUERY"])
@timing_protection
def curvedp_query(user_name: User, request: Request, asked: CurvedpQueryModel) -> CurvedpQueryResponse:
    """Debit the user's budget and fit."""
    return _private(request, asked).handle_query(asked, user_name)


@router.post("/dummy_curvedp_query", tags=["USER_DUMMY"])
def dummy_curvedp_query(
    user_name: User, request: Request, asked: CurvedpDummyQueryModel
) -> CurvedpQueryResponse:
    """Fit on a table made of the metadata: free, and about nobody."""
    _require_access(request, user_name, asked.dataset_name)
    dummy = _querier(request, get_dummy_dataset_for_query(request.app.state.admin_database, asked))
    epsilon, delta = dummy.cost(asked)
    result = dummy.query(asked)
    return CurvedpQueryResponse(requested_by=user_name, result=result, epsilon=epsilon, delta=delta)
