"""Releases made before the curvature may choose the angle of two records: the worst one at every outcome."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from curvedp.privacy.angles import AngleBound
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.quadrature import AfterGaussians
from curvedp.privacy.statistics import MomentAccounting, MomentReplaced


class Gaussian:
    """A bound with one case, for which the answer is known: shifts add in squares."""

    def divergence(self, epsilon, mu):
        return np.asarray(hockey_stick(epsilon, mu))


class TwoCases:
    """The larger of two losses that cross: a small certain one and a rare large one."""

    def divergence(self, epsilon, mu):
        certain = np.asarray(hockey_stick(epsilon - 0.3, mu))
        rare = 0.01 * np.asarray(hockey_stick(epsilon - 2.0, mu))
        return np.maximum(certain, rare)


@pytest.mark.parametrize("shift", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
def test_one_case_is_plain_composition_rounded_up(shift, epsilon):
    level = np.array([epsilon])
    composed = AfterGaussians(Gaussian(), shift).divergence(level, 0.5)[0]
    exact = float(hockey_stick(epsilon, math.hypot(0.5, shift)))
    assert exact <= composed <= 1.15 * exact + 1e-15


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_worst_case_is_taken_inside_the_mean(epsilon):
    shift, mu, cases = 0.4, 0.3, TwoCases()

    def integrand(z):
        level = np.array([epsilon - shift * z - shift**2 / 2])
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * cases.divergence(level, mu)[0]

    inside = quad(integrand, -9, 9, limit=400)[0]
    outside = max(
        float(hockey_stick(epsilon - 0.3, math.hypot(mu, shift))),
        0.01 * float(hockey_stick(epsilon - 2.0, math.hypot(mu, shift))),
    )
    value = AfterGaussians(cases, shift).divergence(np.array([epsilon]), mu)[0]
    assert inside * (1 - 1e-9) <= value <= 1.1 * inside
    assert value > outside


def test_replace_charges_more_when_the_metric_was_released_first_and_add_remove_does_not():
    first = MomentAccounting(8, 160.0, "replace", before=0.1)
    plain = AngleBound(153.0, MomentReplaced(153.0, 0.5))
    epsilon = np.array([1.0])
    together = plain.divergence(epsilon, math.hypot(0.2, 0.1))[0]
    assert together < first.losses(0.5).divergence(epsilon, 0.2)[0] < 1.2 * together
    by_count = MomentAccounting(8, 160.0, "add_remove", before=0.1).losses(0.5).divergence(epsilon, 0.2)
    assert by_count == MomentAccounting(8, 160.0, "add_remove").losses(0.5).divergence(
        epsilon, math.hypot(0.2, 0.1)
    )
