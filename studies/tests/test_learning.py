import math

import numpy as np
import pytest

from curvedp_studies import learning
from curvedp_studies.learning import DIRECTIONAL, EXPERIMENT, GENERATED, PAPER, SPECTRAL, Task, halving, kept


@pytest.fixture(scope="module")
def risks():
    return learning.means(learning.compute(Task("maximum", GENERATED, (1.0,), runs=3)))


def test_directional_accounting_leaves_an_eighth_of_the_papers_excess_risk(risks):
    share = {
        m: kept(risks, "maximum", GENERATED, 1.0, m.name) for m in (EXPERIMENT, PAPER, SPECTRAL, DIRECTIONAL)
    }
    assert share[PAPER] > 8 * share[DIRECTIONAL]
    assert share[EXPERIMENT] > 8 * share[DIRECTIONAL]
    assert share[DIRECTIONAL] < 0.15 < share[SPECTRAL] < share[PAPER] < 1.0


def test_repeated_records_have_the_same_risks_and_more_weight():
    one, three = learning.moments("maximum", GENERATED), learning.moments("maximum", 3 * GENERATED)
    np.testing.assert_allclose(three.xx, 3 * one.xx, rtol=1e-15)
    theta = np.full((learning.D, 1), 0.01)
    assert learning.risk_from(three, 3 * GENERATED, theta) == pytest.approx(
        learning.risk_from(one, GENERATED, theta)
    )


def test_every_calibration_keeps_the_promised_budget():
    c = learning.Configuration(1, learning.D, learning.EPSILON, learning.DELTA)
    for mechanism in (SPECTRAL, DIRECTIONAL):
        found = mechanism.parameters(c)
        assert found.profile.delta_at(0.5) <= 0.01
        assert mechanism.curvature(c, 1.0) == found.sigma2 * found.m
    lop = learning.CalibratedLOP().parameters(c, 1.0)
    assert lop.profile.delta_at(0.5) <= 0.01 and lop.profile.adjacency == "replace"


def test_halving_is_the_first_crossing_in_log_n():
    assert halving((10, 1000), (1.0, 0.0)) == pytest.approx(100.0)
    assert halving((10, 100, 1000), (1.0, 0.6, 0.4)) == pytest.approx(100 * math.sqrt(10))
    assert halving((10, 100), (1.0, 0.7)) == math.inf
