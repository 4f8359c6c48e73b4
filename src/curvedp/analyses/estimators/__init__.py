"""scikit-learn estimators: declared bounds in, a private linear model and its guarantee out."""

from curvedp.analyses.estimators.base import load
from curvedp.analyses.estimators.counts import PrivateMultiTaskRidge, PrivatePoissonRegressor
from curvedp.analyses.estimators.linear import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)

__all__ = [
    "PrivateElasticNet",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMultiTaskRidge",
    "PrivatePoissonRegressor",
    "PrivateRidge",
    "load",
]
