"""The Bartlett sampler against what is known of the Wishart law. Seeded; thresholds at p < 1e-7 or so."""

import numpy as np
import pytest
from scipy.stats import chi2, ks_1samp, ks_2samp

from curvedp_studies.paper import Wishart


@pytest.mark.parametrize(("d", "m"), [(3, 4.6), (5, 12), (8, 20.5)])
def test_mean_inverse_mean_and_variance(d, m):
    ensemble = Wishart(d, m)
    W = ensemble.sample(np.random.default_rng(7), 40_000)
    spread = np.sqrt(m * (1 + np.eye(d)))  # standard deviation of W_ij
    error = (W.mean(axis=0) - m * np.eye(d)) / (spread / 200)
    assert np.abs(error).max() < 6
    np.testing.assert_allclose(W.var(axis=0), spread**2, rtol=0.1)
    if m > d + 4:  # the inverse has a variance
        inverse = np.linalg.inv(W)
        standard_error = inverse.std(axis=0) / 200
        assert np.abs((inverse.mean(axis=0) - ensemble.inverse_mean * np.eye(d)) / standard_error).max() < 6


@pytest.mark.parametrize(("d", "m"), [(2, 3.3), (4, 9.0), (6, 7.5)])
def test_inverse_quadratic_form_is_chi_square(d, m):
    """‖x‖²/(xᵀW⁻¹x) ~ χ²_{m−d+1} in every direction, for integer m or not."""
    W = Wishart(d, m).sample(np.random.default_rng(11), 20_000)
    for x in (np.eye(d)[0], np.eye(d)[-1], np.ones(d)):
        form = (x @ x) / np.einsum("i,nij,j->n", x, np.linalg.inv(W), x)
        assert ks_1samp(form, chi2(m - d + 1).cdf).pvalue > 1e-7


def test_bartlett_is_gaussian_times_its_transpose():
    d, m, count = 4, 9, 20_000
    rng = np.random.default_rng(13)
    bartlett = Wishart(d, m).sample(rng, count)
    G = rng.standard_normal((count, d, m))
    direct = G @ G.transpose(0, 2, 1)
    statistics = [
        lambda W: np.linalg.eigvalsh(W)[:, 0],
        lambda W: np.linalg.eigvalsh(W)[:, -1],
        lambda W: np.linalg.slogdet(W)[1],
        lambda W: W[:, 0, -1],
    ]
    for statistic in statistics:
        assert ks_2samp(statistic(bartlett), statistic(direct)).pvalue > 1e-7


@pytest.mark.parametrize(("d", "m"), [(2, 3), (5, 8), (5, 8.5), (12, 24), (20, 60)])
def test_smallest_eigenvalue_obeys_its_tail_bound(d, m):
    ensemble, count = Wishart(d, m), 10_000
    smallest = np.sort(np.linalg.eigvalsh(ensemble.sample(np.random.default_rng(17), count))[:, 0])
    for rank in (20, 100, 1000, 5000):
        s = smallest[rank - 1]  # rank/count of the sample lies at or below s
        slack = 6 * np.sqrt(rank) / count
        assert rank / count <= ensemble.lambda_min_tail(s) + slack
    # and the bound is not vacuous: within an order of magnitude or two in the tail
    assert ensemble.lambda_min_tail(smallest[19]) < 100 * 20 / count
