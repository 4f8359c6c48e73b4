"""scikit-learn estimators: declared bounds in, a private linear model and its guarantee out."""

from curvedp.estimators.base import load
from curvedp.estimators.classification import PrivateLinearSVC, PrivateLogisticRegression
from curvedp.estimators.counts import PrivatePoissonRegressor
from curvedp.estimators.regression import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateRidge,
)
from curvedp.estimators.several import PrivateMultiTaskRidge

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
