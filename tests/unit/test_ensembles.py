import math
from typing import Any

import numpy as np
import pytest

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp_studies.paper import Wishart


def density_ratio_margin(ensemble: Any, W: FloatArray, U: FloatArray) -> float:
    """‖U‖ f(rank U) − log q(W+U)/q(W), at α = λ_min(W): the density-ratio condition holds iff it is ≥ 0."""
    spectrum = np.abs(np.linalg.eigvalsh(U))
    norm = float(spectrum.max())
    rank = int((spectrum > norm * len(U) * 2e-15).sum())
    alpha = float(np.linalg.eigvalsh(W)[0])
    return ensemble.log_density_ratio_bound(norm, rank, alpha) - ensemble.log_density_ratio(W, U)


def random_direction(rng, d, rank):
    Q = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    return (Q * rng.uniform(-1, 1, rank)) @ Q.T


@pytest.mark.parametrize("d", [2, 5, 9])
@pytest.mark.parametrize("rank", [1, 2])
def test_density_ratio_is_the_ratio_of_densities(d, rank):
    from scipy.stats import wishart

    rng = np.random.default_rng(d + rank)
    ensemble = Wishart(d, 2 * d + 1.5)
    W = ensemble.sample(rng)
    U = random_direction(rng, d, rank) * 0.1 * np.linalg.eigvalsh(W)[0]
    law = wishart(df=ensemble.m, scale=np.eye(d))
    expected = law.logpdf(W + U) - law.logpdf(W)
    assert ensemble.log_density_ratio(W, U) == pytest.approx(expected, abs=1e-9)


def test_density_ratio_condition_holds_and_its_determinant_term_is_attained():
    rng = np.random.default_rng(5)
    d = 4
    ensemble = Wishart(d, 11)
    margins = []
    for _ in range(300):
        W = ensemble.sample(rng)
        U = (
            random_direction(rng, d, int(rng.integers(1, d + 1)))
            * rng.exponential()
            * np.linalg.eigvalsh(W)[0]
        )
        margins.append(density_ratio_margin(ensemble, W, U))
    assert min(margins) >= 0
    bottom = np.linalg.eigh(W)[1][:, 0]
    small = 1e-6 * np.outer(bottom, bottom)
    alpha = np.linalg.eigvalsh(W)[0]
    # Along the smallest eigenvector the determinant term is attained; only the sign of the trace is lost.
    assert ensemble.log_density_ratio(W, small) == pytest.approx(1e-6 * (ensemble.k / alpha - 0.5), rel=1e-4)
    assert ensemble.log_density_ratio(W, -2 * alpha * np.outer(bottom, bottom)) == -math.inf


def test_moments():
    assert Wishart(3, 10).inverse_mean == pytest.approx(1 / 6)
    assert Wishart(3, 4).inverse_mean == math.inf


def test_tail_is_monotone_and_a_probability():
    s = np.linspace(0, 60, 500)
    for ensemble in (Wishart(6, 14), Wishart(6, 14.5), Wishart(6, 7)):
        tail = ensemble.lambda_min_tail(s)
        assert tail[0] == 0 and tail[-1] == 1 and (np.diff(tail) >= 0).all()


def test_shapes_and_symmetry():
    rng = np.random.default_rng(0)
    one, many = Wishart(5, 8).sample(rng), Wishart(5, 8).sample(rng, 7)
    assert one.shape == (5, 5) and many.shape == (7, 5, 5)
    assert (many == many.transpose(0, 2, 1)).all()
    assert np.linalg.eigvalsh(many).min() > 0
    again = Wishart(5, 8).sample(np.random.default_rng(0))
    assert (again == one).all()


@pytest.mark.parametrize(
    ("d", "m"),
    [(0, 3), (2.0, 5), (True, 5), ("2", 5), (4, 3), (4, math.nan), (4, math.inf), (4, "9"), (4, None)],
)
def test_bad_dimensions_are_refused(d, m):
    with pytest.raises(InvalidInput, match=r"dimension [dm] must"):
        Wishart(d, m)


@pytest.mark.parametrize("m", [3.5, 4.9])
def test_privacy_needs_m_at_least_d_plus_one(m):
    ensemble = Wishart(4, m)
    with pytest.raises(InvalidInput, match=r"m ≥ d\+1 = 5"):
        ensemble.constants(1e-3, 1e-3)
    with pytest.raises(InvalidInput, match=r"m ≥ d\+1 = 5"):
        ensemble.lambda_min_tail(1.0)
    assert ensemble.sample(np.random.default_rng(1)).shape == (4, 4)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-3, math.nan, "1e-3", None])
def test_bad_probabilities_are_refused(bad):
    with pytest.raises(InvalidInput, match="delta1"):
        Wishart(4, 9).constants(bad, 1e-3)
    with pytest.raises(InvalidInput, match="delta3"):
        Wishart(4, 9).constants(1e-3, bad)
