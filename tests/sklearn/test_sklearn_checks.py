"""scikit-learn's own conformance checks on every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.catalogue import ESTIMATORS, declared, expected_failed_checks

# One of each kind: numbers, classes, counts, several targets. The others differ in loss and penalty.
KINDS = {
    *("PrivateLinearRegression", "PrivateLogisticRegression"),
    *("PrivatePoissonRegressor", "PrivateMultiTaskRidge"),
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [declared(cls) for cls in ESTIMATORS if cls.__name__ in KINDS],
    expected_failed_checks=expected_failed_checks,
)
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [declared(cls) for cls in ESTIMATORS if cls.__name__ not in KINDS],
    expected_failed_checks=expected_failed_checks,
)
def test_sklearn_check_of_the_others(estimator, check):
    check(estimator)


def test_there_is_one_of_each_kind():
    assert {cls.__name__ for cls in ESTIMATORS} > KINDS
