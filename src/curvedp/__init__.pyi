from . import constraints, losses, mechanisms, regularizers
from .auditing import audit
from .budget import Budget
from .domain import Domain
from .estimators import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMultiTaskRidge,
    PrivatePoissonRegressor,
    PrivateRidge,
    load,
)
from .fit import private_fit
from .forecast import widths as plan
from .inspection import inspect
from .ledger import Ledger
from .looks.bounds import private_bounds as bounds
from .looks.check import check
from .looks.describe import describe
from .privacy.guarantee import Guarantee
from .problem import Problem
from .schema import Boolean, Categorical, Date, Ignored, Numeric, Schema, schema_template
from .scores import private_scores as score
from .selection import PrivateSearch
from .workflow import report

__version__: str

__all__ = [
    "Boolean",
    "Budget",
    "Categorical",
    "Date",
    "Domain",
    "Guarantee",
    "Ignored",
    "Ledger",
    "Numeric",
    "PrivateElasticNet",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMultiTaskRidge",
    "PrivatePoissonRegressor",
    "PrivateRidge",
    "PrivateSearch",
    "Problem",
    "Schema",
    "audit",
    "bounds",
    "check",
    "constraints",
    "describe",
    "inspect",
    "load",
    "losses",
    "mechanisms",
    "plan",
    "private_fit",
    "regularizers",
    "report",
    "schema_template",
    "score",
]
