"""scikit-learn's own conformance checks on every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.catalogue import ESTIMATORS, declared, expected_failed_checks


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([declared(cls) for cls in ESTIMATORS], expected_failed_checks=expected_failed_checks)
def test_sklearn_check(estimator, check):
    check(estimator)
