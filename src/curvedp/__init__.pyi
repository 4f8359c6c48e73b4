from . import constraints, losses, mechanisms, regularizers
from .budget import Budget
from .domain import Domain
from .estimators import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    load,
)
from .fit import private_fit
from .inspection import inspect
from .ledger import Ledger
from .privacy.guarantee import Guarantee
from .problem import Problem
from .schema import Schema

__version__: str

__all__ = [
    "Budget",
    "Domain",
    "Guarantee",
    "Ledger",
    "PrivateElasticNet",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "Problem",
    "Schema",
    "constraints",
    "inspect",
    "load",
    "losses",
    "mechanisms",
    "private_fit",
    "regularizers",
]
