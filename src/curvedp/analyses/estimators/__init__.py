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
    PrivateQuantileRegressor,
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
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "load",
]
