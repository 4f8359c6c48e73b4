"""scikit-learn's own conformance checks on every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from curvedp import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)

pytestmark = pytest.mark.filterwarnings("ignore")

REGRESSORS = [
    PrivateLinearRegression,
    PrivateRidge,
    PrivateLasso,
    PrivateElasticNet,
    PrivateHuberRegressor,
]
CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]

_DECLARED = "classes are declared, never read off the data: labels that occur do not change them"
_PUBLIC_RULE = "a target missing or out of range follows a public rule; an error would tell about the data"
EXPECTED_REGRESSOR = {"check_supervised_y_no_nan": _PUBLIC_RULE}
EXPECTED_CLASSIFIER = {
    "check_supervised_y_no_nan": _PUBLIC_RULE,
    "check_classifiers_regression_target": _PUBLIC_RULE,
    "check_classifiers_classes": _DECLARED,
    "check_classifiers_one_label": _DECLARED,
    "check_classifier_not_supporting_multiclass": _DECLARED + ", three labels in place of two included",
}


def expected(estimator):
    known = EXPECTED_CLASSIFIER if hasattr(estimator, "classes") else EXPECTED_REGRESSOR
    assert len(known) <= (5 if known is EXPECTED_CLASSIFIER else 3)
    return known


@parametrize_with_checks(
    [cls(bounds=(-10.0, 10.0), target_bounds=(-100.0, 100.0)) for cls in REGRESSORS]
    + [cls(bounds=(-10.0, 10.0), classes=(0, 1)) for cls in CLASSIFIERS],
    expected_failed_checks=expected,
)
def test_sklearn_check(estimator, check):
    check(estimator)
