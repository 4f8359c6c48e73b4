import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvedp.errors import InvalidInput
from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess, epsilon_of, hockey_stick

levels = st.floats(-50, 50)
shifts = st.floats(0, 30)
ROUNDING = 1 + 1e-11


@given(levels, levels, shifts)
def test_decreasing_in_epsilon(a, b, mu):
    assert hockey_stick(max(a, b), mu) <= hockey_stick(min(a, b), mu) * ROUNDING


@given(levels, shifts, shifts)
def test_increasing_in_mu(epsilon, a, b):
    assert hockey_stick(epsilon, min(a, b)) <= hockey_stick(epsilon, max(a, b)) * ROUNDING + 1e-300


@given(levels, shifts)
def test_between_its_limits(epsilon, mu):
    value = hockey_stick(epsilon, mu)
    assert max(0.0, -math.expm1(epsilon)) <= value <= 1.0


@given(st.lists(levels, min_size=1, max_size=5), st.lists(shifts, min_size=1, max_size=4))
def test_arrays_broadcast_like_scalars(epsilons, mus):
    table = hockey_stick(np.array(epsilons)[:, None], np.array(mus)[None, :])
    assert table.shape == (len(epsilons), len(mus))
    for i, e in enumerate(epsilons):
        for j, m in enumerate(mus):
            assert table[i, j] == pytest.approx(hockey_stick(e, m), rel=1e-14)


@given(st.floats(0, 20), st.floats(1e-15, 0.999))
def test_inverses_are_safe(epsilon, delta):
    mu = calibrate_mu(epsilon, delta)
    assert hockey_stick(epsilon, mu) <= delta
    assert hockey_stick(epsilon_of(delta, mu), mu) <= delta


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf, "1", None, True])
def test_calibration_refuses_bad_epsilon(epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        calibrate_mu(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, "1e-6", None])
def test_calibration_refuses_bad_delta(delta):
    with pytest.raises(InvalidInput, match="delta"):
        calibrate_mu(1.0, delta)
    with pytest.raises(InvalidInput, match="delta"):
        epsilon_of(delta, 1.0)


def test_bad_shift_is_refused():
    for mu in (-1.0, math.nan):
        with pytest.raises(InvalidInput, match="mu"):
            hockey_stick(1.0, mu)
        with pytest.raises(InvalidInput, match="mu"):
            epsilon_of(1e-6, mu)
        with pytest.raises(InvalidInput, match="mu"):
            discrete_gaussian_excess(mu, d=1, steps_per_sigma=8)
    with pytest.raises(InvalidInput, match="epsilon"):
        hockey_stick(math.nan, 1.0)
    with pytest.raises(InvalidInput, match="steps_per_sigma"):
        discrete_gaussian_excess(1.0, d=1, steps_per_sigma=0.5)
    with pytest.raises(InvalidInput, match="dimension"):
        discrete_gaussian_excess(1.0, d=0, steps_per_sigma=8)
