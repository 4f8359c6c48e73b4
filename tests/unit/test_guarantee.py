"""The guarantee as a value: validated, proved by its profile, JSON-safe, escaped, composable."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.common import DifferentialPrivacyParameters
from scipy.stats import chi2

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.guarantee import SIGMA2, Guarantee, M, Parameter, Parameters
from curvedp.privacy.profiles import GaussianProfile, PointProfile, PureProfile
from curvedp_studies.accounting import qop_profile, statistics_profile
from curvedp_studies.mechanisms.lop import lop_profile


def guarantee(**changes: object) -> Guarantee:
    values: dict = {
        "budget": Budget(1.0, 1e-3),
        "neighbours": Neighbours("replace"),
        "mechanism": "qop",
        "accounting": "directional",
        "theorem": "(P-7j)",
        "parameters": Parameters(M(np.float64(40.0)), SIGMA2(2.0), Parameter("noise", "", "its law", "<b>")),
        "profile": GaussianProfile(0.3),
    }
    return Guarantee(**(values | changes))


def test_a_guarantee_is_public_values_and_a_curve() -> None:
    g = guarantee()
    assert g.delta_at(1.0) <= g.delta
    assert g.epsilon_at(1e-3) <= 1.0
    text = json.dumps(g.to_dict(), allow_nan=False)
    assert json.loads(text)["parameters"] == {"m": 40.0, "sigma2": 2.0, "noise": "<b>"}
    assert "profile" not in text
    again = pickle.loads(pickle.dumps(g))
    assert again.to_dict() == g.to_dict() and again.delta_at(0.7) == g.delta_at(0.7)


def test_html_is_escaped_and_says_when_nothing_is_promised() -> None:
    html = guarantee()._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;" in html
    assert "not private" not in html
    assert "not private" in guarantee(private=False)._repr_html_()


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-9), Budget(0.1, 1e-3)])
def test_what_is_not_proved_is_refused(budget: Budget) -> None:
    with pytest.raises(InvalidInput, match="does not prove"):
        guarantee(budget=budget)


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), [1.0]])
def test_a_parameter_is_a_finite_number_or_a_text(value: object) -> None:
    with pytest.raises(InvalidInput, match="'m'"):
        M(value)


def test_parameters_carry_their_meaning_and_have_one_name_each() -> None:
    parameters = guarantee().parameters
    assert [p.symbol for p in parameters.described] == ["m", "σ²", ""]
    assert all(p.meaning for p in parameters.described)
    with pytest.raises(InvalidInput, match="one name"):
        Parameters(M(1.0), M(2.0))


def test_a_run_that_promises_nothing_says_so() -> None:
    assert guarantee().private and not guarantee().without_privacy().private


def test_a_point_profile_says_no_more_than_its_point() -> None:
    point = PointProfile(0.7, 1e-4)
    reference = privacy_loss_distribution.from_privacy_parameters(
        DifferentialPrivacyParameters(0.7, 1e-4), value_discretization_interval=1e-4
    )
    for epsilon in (0.0, 0.2, 0.5, 0.7, 2.0):
        assert point.delta_at(epsilon) == pytest.approx(reference.get_delta_for_epsilon(epsilon), abs=1e-4)
    assert point.delta_at(0.7) == 1e-4
    assert PureProfile(0.7).delta_at(0.7) == 0.0
    assert PureProfile(0.7).epsilon_at(1e-9) <= 0.7 + 1e-9


@pytest.mark.parametrize("mu", [0.1, 0.7, 2.0])
def test_composing_gaussian_curves_is_pessimistic_and_close(mu: float) -> None:
    three = GaussianProfile(mu).to_pld(5e-4).self_compose(3)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        exact = hockey_stick(epsilon, math.sqrt(3) * mu)
        assert exact * (1 - 1e-6) - 1e-12 <= three.get_delta_for_epsilon(epsilon) <= 1.03 * exact + 1e-9


EXACT = [
    statistics_profile(L=1, d=4, m=80, sigma2=0.5, mu=0.2, adjacency="add_remove"),
    statistics_profile(L=1, d=4, m=80, sigma2=0.5, adjacency="add_remove"),
    PointProfile(1.0, 1e-5),
    PureProfile(0.5),
]
BOUNDS = [
    qop_profile(L=1, d=4, m=20, sigma2=2.0, sigma0=5.0, center_sensitivity=1.0, adjacency="replace"),
    qop_profile(L=1, d=4, m=20, sigma2=2.0, sigma0=0, center_sensitivity=0, adjacency="add_remove"),
    lop_profile(L=1, zeta=1, Delta=5, sigma=4, adjacency="replace"),
]


def test_the_pld_of_one_release_dominates_its_curve() -> None:
    """Where the curve is that of real losses, at every ε; a curve of bounds is not convex near ε = 0, and
    the hull of its points, which bounds the truth as well, lies below it there."""
    for profile in EXACT + BOUNDS:
        pld = profile.to_pld()
        for epsilon in (0.0, 0.013, 0.2, 0.7, 1.0, 1.7, 4.0):
            value, bound = pld.get_delta_for_epsilon(epsilon), profile.delta_at(epsilon)
            assert value <= 1.05 * bound + 1e-6
            if profile in EXACT or epsilon > 0.5:
                assert value >= bound * (1 - 2e-4) - 1e-15  # the points are rounded up by 1e-4


def test_composing_curvatures_dominates_the_convolution_of_true_losses() -> None:
    """Two QOP releases with a squared loss in dimension one: θ determines S = x² + σ²w, so the true losses
    are those of the chi-square density itself, adding or removing; two of them add up."""
    m, g = 30.0, 1.0
    profile = qop_profile(L=g, d=1, m=m, sigma2=1.0, sigma0=0, center_sensitivity=0, adjacency="add_remove")
    both = profile.to_pld(1e-3).self_compose(2)
    w = chi2.ppf((np.arange(3000) + 0.5) / 3000, m)
    for epsilon in (0.1, 0.3, 0.6, 1.0):
        for sign in (1.0, -1.0):
            moved = np.maximum(w + sign * g, 1e-300)
            loss = chi2.logpdf(w, m) - np.where(w + sign * g > 0, chi2.logpdf(moved, m), -np.inf)
            true = float(np.mean(-np.expm1(np.minimum(epsilon - loss[:, None] - loss, 0.0))))
            value = both.get_delta_for_epsilon(epsilon)
            assert value >= true * 0.999
        assert value <= 4 * true


def test_a_discretization_must_be_positive() -> None:
    with pytest.raises(InvalidInput, match="discretization"):
        GaussianProfile(0.3).to_pld(0.0)
