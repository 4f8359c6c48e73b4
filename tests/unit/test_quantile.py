"""Quantile regression: against statsmodels, under noise, by its scores, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from sklearn.metrics import mean_pinball_loss
from typer.testing import CliRunner

import curvedp
from curvedp import PrivateQuantileRegressor, PrivateRidge
from curvedp.analyses.scores import private_scorer, private_scores
from curvedp.cli import app
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import JUMPS, Rule
from curvedp.problems.losses import Offset, Quantile, Squared, Weighted
from curvedp.problems.losses.margin import jump_of

SIGMA = 0.1
QUANTILES = (0.1, 0.5, 0.9)


def sample(n=20_000, seed=0):
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 2))
    return X, X @ [0.3, -0.2] + 0.2 + SIGMA * (0.5 + (X[:, 0] > 0)) * random.standard_normal(n)


X, Y = sample()


def reference(quantile, X=X, y=Y):
    """Coefficients and, last, the intercept of an exact fit."""
    found = sm.QuantReg(y, sm.add_constant(X)).fit(q=quantile, max_iter=5000)
    return np.append(found.params[1:], found.params[0])


def model(quantile=0.5, **options):
    return PrivateQuantileRegressor(
        quantile=quantile, bounds=(-1, 1), **{"target_bounds": (-1, 1), "random_state": 0, **options}
    )


def told(fitted):
    return np.append(fitted.coef_, fitted.intercept_)


def minimiser(loss, X=X, y=Y):
    """Of the sum of the loss, without noise and by somebody else's solver; the intercept last."""
    Z = np.column_stack([X, np.ones(len(X))])

    def summed(theta):
        s = (Z @ theta)[:, None]
        return loss.value(s, y).mean(), Z.T @ loss.gradient(s, y)[:, 0] / len(y)

    return minimize(summed, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-8}).x


@pytest.mark.parametrize("quantile", QUANTILES)
def test_without_noise_it_is_that_of_statsmodels_up_to_the_smoothing(quantile):
    """h²/6·|f'/f| ≤ h²/6·z/σ moves a quantile at most: 0.004 here, and a fit of 1 − τ is 0.2 away."""
    found = minimiser(Quantile(0.02, quantile=quantile))
    assert np.max(np.abs(found - reference(quantile))) < 0.004
    if quantile != 0.5:
        assert abs(found[-1] - reference(1.0 - quantile)[-1]) > 0.15


def test_the_smoothing_moves_a_quantile_by_h2_over_6_times_the_logarithmic_slope_of_the_density():
    random = np.random.default_rng(1)
    X = np.zeros((400_000, 2))
    y = random.standard_normal(len(X))
    z, h = 1.2815515655446004, 0.5
    moved = minimiser(Quantile(h, quantile=0.9), X, y)[-1] - np.quantile(y, 0.9)
    assert moved == pytest.approx(h**2 / 6 * z, rel=0.1)  # f'/f = −z of a normal


def test_the_curvature_is_the_largest_slope_of_the_gradient():
    """A bound that is too small is found, one that is twice as large would be, too."""
    loss, s, y = Quantile(0.2, quantile=0.7), np.linspace(-1, 1, 4001)[:, None], np.zeros(4001)
    steepest = np.max(np.diff(loss.gradient(s, y)[:, 0]) / np.diff(s[:, 0]))
    assert steepest == pytest.approx(loss.curvature(curvedp.Domain(), 1.0))
    assert loss.gradient(s, y)[[0, -1], 0] == pytest.approx([-0.7, 0.3])


@pytest.mark.parametrize("quantile", QUANTILES)
def test_at_an_epsilon_of_a_million_it_is_within_its_stated_noise(quantile):
    fitted = model(quantile, epsilon=1e6).fit(X, Y)
    apart = np.abs(fitted.coef_ - reference(quantile)[:-1])
    assert np.all(apart < 4 * fitted.coef_noise_ + 0.002)  # what is left of the smoothing
    assert np.all(fitted.coef_noise_ < 0.1 * fitted.coef_se_)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("quantile", QUANTILES)
def test_the_share_below_is_the_quantile(quantile, adjacency):
    fitted = model(quantile, epsilon=1.0, adjacency=adjacency).fit(X, Y)
    assert np.mean(fitted.predict(X) >= Y) == pytest.approx(quantile, abs=0.01)
    low, high = fitted.conf_int(intercept=True).T
    assert np.all((low < reference(quantile)) & (reference(quantile) < high))
    assert np.all(high - low < 0.1)


def test_bounds_of_the_target_need_not_be_narrow():
    """No gradient depends on them: ten times wider ones cost next to nothing."""
    narrow, wide = (model(0.9, target_bounds=(-b, b)).fit(X, Y) for b in (1, 10))
    assert np.all(wide.coef_se_ < 1.5 * narrow.coef_se_)
    assert np.mean(wide.predict(X) >= Y) == pytest.approx(0.9, abs=0.015)


def test_records_without_a_target_do_not_count():
    y = np.where(np.random.default_rng(3).random(len(Y)) < 0.4, np.nan, Y)
    fitted = model(0.9).fit(X, y)
    assert np.mean(fitted.predict(X) >= Y) == pytest.approx(0.9, abs=0.015)


def test_weights_are_those_of_records():
    weight = np.where(X[:, 1] > 0, 1.0, 0.1)
    fitted = model(0.9, weight_max=1.0, epsilon=10.0).fit(X, Y, sample_weight=weight)
    assert np.average(fitted.predict(X) >= Y, weights=weight) == pytest.approx(0.9, abs=0.01)


def test_without_a_constant_column_and_by_another_mechanism():
    centred = model(0.5, fit_intercept=False, epsilon=5.0).fit(X, Y - 0.2)
    assert np.max(np.abs(centred.coef_ - [0.3, -0.2])) < 0.02
    other = model(0.5, mechanism="qop", epsilon=5.0).fit(X, Y)
    assert np.max(np.abs(other.coef_ - [0.3, -0.2])) < 0.1


def test_a_penalty_has_no_intervals_and_a_wrong_quantile_is_refused_before_the_charge(tmp_path):
    fitted = model(0.5, alpha=2.0).fit(X, Y)
    assert fitted.inference_ is None and "alpha=0" in str(fitted.summary())
    book = curvedp.Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    for wrong in (0.0, 1.0, -0.5, np.nan):
        with pytest.raises(InvalidInput, match="quantile must be a number between 0 and 1"):
            model(wrong, ledger=book, random_state=None).fit(X, Y)
    assert book.state().spent.epsilon == 0


def test_a_quantile_is_not_refitted_nor_has_it_a_path(tmp_path):
    """Its curvature is a density that moves with the coefficients; a fit and a model file both say so."""
    fitted = model(0.9).fit(X, Y)
    fitted.save(tmp_path / "ninth.json")
    for one in (fitted, curvedp.load(tmp_path / "ninth.json"), model(0.9, inference=False).fit(X, Y)):
        for again in (lambda m=one: m.refit(alpha=1.0), lambda m=one: m.path([0.0, 1.0])):
            with pytest.raises(NotCovered, match="with the quantile loss they are far from fresh fits"):
                again()
        with pytest.raises(TypeError):
            one.refit(quantile=0.5)


@pytest.mark.parametrize("wrapped", [Weighted, lambda inner: Offset(inner, 1.0)])
def test_what_jumps_is_told_through_weights_and_offsets(wrapped):
    jump = jump_of(wrapped(Quantile(quantile=0.8)))
    assert (jump.quantile, jump.steepest, jump.balance) == (0.8, 0.8, pytest.approx(0.32))
    assert jump_of(wrapped(Squared())) is None


def test_its_rounds_are_its_own_unless_a_rule_is_passed():
    """Many small rounds whatever κ is, and a better look at the curvature; another rule is kept."""
    assert Recentered().rule_of(Weighted(Quantile())) == JUMPS != Recentered().rule_of(Squared())
    own = Rule(step=0.4)
    assert Recentered(rule=own).rule_of(Quantile()) == own
    assert JUMPS.pace(1e6).rounds == JUMPS.rounds > Rule().pace(1e6).rounds


@pytest.mark.parametrize("quantile", QUANTILES)
def test_scores_are_check_loss_and_share(quantile):
    fitted = model(quantile, epsilon=3.0).fit(X, Y)
    exact = mean_pinball_loss(Y, fitted.predict(X), alpha=quantile)
    sharp = private_scores(fitted, X, Y, epsilon=1e6, delta=1e-6, random_state=0)
    assert sharp["pinball_loss"].value == pytest.approx(exact, rel=1e-3)
    assert sharp["below"].value == pytest.approx(np.mean(fitted.predict(X) >= Y), abs=1e-4)
    noisy = private_scores(fitted, X, Y, epsilon=1.0, delta=1e-6, random_state=0)
    assert noisy["pinball_loss"].low < exact < noisy["pinball_loss"].high
    assert noisy["below"].low < quantile < noisy["below"].high
    scorer = private_scorer("neg_mean_pinball_loss", epsilon=1e6, delta=1e-6)
    assert scorer(fitted, X, Y) == pytest.approx(-exact, rel=0.01)
    mean = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), epsilon=3.0).fit(X, Y)
    with pytest.raises(InvalidInput, match="no private score of PrivateRidge"):
        scorer(mean, X, Y)


SCHEMA = """
target = "y"
adjacency = "add_remove"
[[column]]
name = "a"
kind = "numeric"
bounds = [-1, 1]
[[column]]
name = "y"
kind = "numeric"
bounds = [-1, 1]
"""


def test_the_command_fits_saves_predicts_and_scores(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    Path("table.csv").write_text("a,y\n" + "".join(f"{a},{y}\n" for a, y in zip(X[:, 0], Y, strict=True)))
    promise = ["--epsilon", "2", "--delta", "1e-6"]
    fit = ["fit", "table.csv", "--schema", "schema.toml", "--model", "quantile", "--quantile", "0.9"]
    for command in (
        [*fit, *promise, "--out", "model.json", "--report", "report.html", "--tidy", "tidy.csv"],
        ["predict", "model.json", "table.csv", "--out", "predicted.csv"],
        ["score", "model.json", "table.csv", *promise, "--report", "scores.html", "--json"],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, (command, done.output)
    again = curvedp.load("model.json")
    assert again.quantile == 0.9 and isinstance(again, PrivateQuantileRegressor)
    predicted = np.genfromtxt("predicted.csv", delimiter=",", names=True)
    assert np.mean(predicted[predicted.dtype.names[-1]] >= Y) == pytest.approx(0.9, abs=0.02)
    assert "Quantile regression" in Path("report.html").read_text("utf-8")
    assert json.loads(done.stdout)["overall"]["scores"]["below"]["value"] == pytest.approx(0.9, abs=0.03)
    assert "check (pinball) loss" in Path("scores.html").read_text("utf-8")
