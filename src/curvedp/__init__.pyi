from . import mechanisms
from .analyses.estimators import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMultiTaskRidge,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
    load,
)
from .analyses.explore.bounds import private_bounds as bounds
from .analyses.explore.check import check
from .analyses.explore.describe import describe
from .analyses.inspection import inspect
from .analyses.scores import private_scores as score
from .analyses.search import PrivateSearch
from .analyses.split import dummy
from .auditing import audit
from .cli.workflow import report
from .data import Boolean, Categorical, Date, Ignored, Numeric, Schema, schema_template
from .planning import widths as plan
from .privacy.budget import Budget
from .privacy.guarantee import Guarantee
from .problems import Problem, constraints, losses, regularizers
from .problems.domain import Domain
from .release.fit import private_fit
from .release.ledger import Ledger

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
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PrivateSearch",
    "Problem",
    "Schema",
    "audit",
    "bounds",
    "check",
    "constraints",
    "describe",
    "dummy",
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
