"""log p₁ − log p₀ of what is accounted for: a likelihood ratio, and that of the shipped code."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import curvedp
from curvedp import randomness
from curvedp.audit.accounted import accounted
from curvedp.audit.fits import backend
from curvedp.audit.objective import RandomCurvatureFits, ThetaAlone
from curvedp.audit.others import accounts_for_all, shown
from curvedp.audit.pairs import Pair, worst_pairs
from curvedp.audit.power import reach
from curvedp.audit.recorded import Recorded
from curvedp.audit.records import no_records
from curvedp.audit.replayed import Replayed
from curvedp.audit.samplers import sampler
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.losses import Huber, Logistic, Squared
from curvedp.mechanisms import LOP, QOP, NoisyGradient, Statistics
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.lop import LOPClip
from curvedp.mechanisms.peers.dpsgd import DPSGD
from curvedp.plans import compose
from curvedp.problem import Problem
from curvedp.witness import Witness

ENGINE = backend("cpu")
BUDGET = Budget(1.0, 1e-3)


def problem(loss, adjacency="add_remove"):
    return Problem(loss, domain=Domain(adjacency=adjacency))


def pair(at: Problem, d: int) -> Pair:
    """A few records, and one more at the norm bound."""
    e = np.eye(d)
    left = no_records(at.domain, d).plus(0.4 * e[0], 1.0, 5.0).plus(-0.3 * e[-1], 1.0, 4.0)
    return Pair("", left, left.plus(-e[0], 1.0), e[:1])


def is_a_likelihood_ratio(source, n: int = 40_000) -> bool:
    """E₀[e^L] = E₁[e^{−L}] = 1, to four standard errors."""
    good = True
    for side, sign in ((0, 1.0), (1, -1.0)):
        weights = np.exp(sign * source.draw(side, n, 5 + side).ratio)
        good &= bool(abs(weights.mean() - 1) < 4 * weights.std() / math.sqrt(n) + 1e-12)
    return good


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.5)], ids=lambda loss: loss.name)
def test_objective_perturbation_gives_likelihood_ratios(loss, d):
    at = problem(loss)
    source = accounted(make_plan(QOP(), at, d, BUDGET), pair(at, d), ENGINE)
    assert isinstance(source, RandomCurvatureFits)
    assert is_a_likelihood_ratio(source, 40_000 if loss.is_quadratic else 8_000)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("mechanism", "loss"), [(LOP(), Logistic()), (LOPClip(clip=0.25), Squared())])
def test_linear_perturbation_gives_likelihood_ratios(mechanism, loss, d):
    at = problem(loss)
    source = accounted(make_plan(mechanism, at, d, BUDGET), pair(at, d), ENGINE)
    assert isinstance(source, ThetaAlone) and is_a_likelihood_ratio(source, 20_000)


@pytest.mark.parametrize("change", ["m", "sigma2"])
def test_a_planted_difference_of_the_law_is_seen(change):
    """The ratio of one law under draws of another does not average to one."""
    at = problem(Squared())
    source = accounted(make_plan(QOP(), at, 2, BUDGET), pair(at, 2), ENGINE)

    class Mixed:
        def __init__(self, times):
            self.law = replace(source, **{change: times * getattr(source, change)})

        def draw(self, side, n, seed):
            drawn, random = source.draw(side, n, seed), randomness.generator(seed)
            Y = source._centers[side] + source.sigma0 * random.standard_normal(drawn.theta.shape)
            left, right = (self.law.log_density(Y, drawn.theta, table) for table in source._tables)
            moved = [np.square((Y - c) / source.sigma0).sum(1) / 2 for c in source._centers]
            return replace(drawn, ratio=(right - moved[1]) - (left - moved[0]))

    assert is_a_likelihood_ratio(Mixed(1.0), 20_000)
    with np.errstate(all="ignore"):
        assert not is_a_likelihood_ratio(Mixed(1.1), 20_000)


def test_one_column_has_the_closed_form():
    """d = 1, squared loss: θ shows W = −Y/(σ²u) − Σx²/σ², and L is that of two shifted χ² laws."""
    at = problem(Squared())
    two, plan = pair(at, 1), make_plan(QOP(), at, 1, BUDGET)
    p, source = plan.parameters, accounted(plan, pair(at, 1), ENGINE)
    u, Y = np.linspace(0.2, 3.0, 7)[:, None], np.full((7, 1), -40.0)
    W = [(-Y / u)[:, 0] / p.sigma2 - t.moments().xx[0, 0] / p.sigma2 for t in (two.left, two.right)]
    logs = [stats.chi2(p.m).logpdf(w) for w in W]
    found = [source.log_density(Y, u, t) for t in (two.left, two.right)]
    np.testing.assert_allclose(found[1] - found[0], logs[1] - logs[0], rtol=1e-9, atol=1e-9)


def same_law(first, second, level: float = 1e-3) -> bool:
    return stats.ks_2samp(first, second).pvalue > level


def test_fits_beside_their_ratio_have_the_law_of_other_fits():
    at = problem(Logistic())
    plan = make_plan(QOP(), at, 2, BUDGET)
    source, other = accounted(plan, pair(at, 2), ENGINE), sampler(plan, pair(at, 2), ENGINE)
    theta, outputs = source.draw(1, 20_000, 1).theta, other.sample(1, 20_000, 2)
    assert all(same_law(theta[:, j], outputs[:, j]) for j in (0, 1))
    assert not same_law(theta[:, 0], 1.1 * outputs[:, 0])


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_descents_in_batches_are_those_of_the_shipped_code(adjacency):
    at = problem(Logistic(), adjacency)
    plan, two = make_plan(NoisyGradient(rounds=5), at, 2, BUDGET), pair(at, 2)
    if adjacency == "replace":
        two = replace(two, left=two.left.plus(0.5 * np.eye(2)[1], -1.0))
    batches, shipped = accounted(plan, two, ENGINE), Replayed(plan, (two.left, two.right))
    for side in (0, 1):
        many, few = batches.draw(side, 20_000, 3), shipped.draw(side, 300, 4)
        assert same_law(many.ratio, few.ratio) and same_law(many.theta[:, 0], few.theta[:, 0])
    assert not same_law(many.ratio, 1.5 * few.ratio)
    assert is_a_likelihood_ratio(batches)


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_what_is_recorded_once_is_what_is_replayed(noise):
    at = problem(Squared())
    plan, two = make_plan(Statistics(noise=noise), at, 2, BUDGET), pair(at, 2)
    source = accounted(plan, two, ENGINE)
    assert isinstance(source, Recorded) and is_a_likelihood_ratio(source)
    few = Replayed(plan, (two.left, two.right)).draw(1, 400, 6)
    assert same_law(source.draw(1, 20_000, 5).ratio, few.ratio)


def test_the_best_known_attacks_have_power_where_the_page_says_so():
    """Shares of ε at δ = 10⁻³, d = 2, that endless fits would prove."""
    for mechanism, loss, adjacency, name, least in (
        (QOP(), Squared(), "add_remove", "record along, gradient 2", 0.8),
        (QOP(), Squared(), "replace", "records at 115°, gradient 21.8 along it", 0.65),
        (LOP(), Logistic(), "add_remove", "record against, gradient 87", 0.78),
        (LOP(), Logistic(), "replace", "records at 40°, targets opposite, gradient 166 across", 0.72),
    ):
        at = problem(loss, adjacency)
        plan = make_plan(mechanism, at, 2, BUDGET)
        two = next(p for p in worst_pairs(at, 2, plan.pulls()) if p.name.startswith(name))
        source = accounted(plan, two, ENGINE)
        left, right = (source.draw(side, 40_000, 7 + side).ratio for side in (0, 1))
        assert least < max(reach(right, 1e-3), reach(-left, 1e-3)) <= 1.02


def test_only_plans_that_account_for_all_they_draw_are_replayed():
    at = problem(Logistic())
    sampled = make_plan(DPSGD(rounds=3, rate=0.1), at, 2, BUDGET)
    perturbed = make_plan(LOP(), at, 2, BUDGET)
    descent = make_plan(NoisyGradient(rounds=3), at, 2, BUDGET)
    assert [accounts_for_all(plan) for plan in (sampled, perturbed, descent)] == [False, False, True]
    assert not accounts_for_all(compose([descent, perturbed], delta=1e-2))
    assert shown(sampled, (pair(at, 2).left, pair(at, 2).right)) is None


def test_a_private_run_cannot_be_watched():
    """Witnesses are made by the audit alone, and the door's generator is none."""
    assert type(randomness.generator()) is np.random.Generator
    assert not isinstance(randomness.generator(), Witness)
    assert modules_with("Witness") == {"witness.py", "audit/replayed.py"}
    assert modules_with("Recording") == modules_with("Replaying") == {"audit/replayed.py"}


def modules_with(name: str) -> set[str]:
    """Modules that use, import or define the name."""
    root = Path(curvedp.__file__).parent

    def uses(node: ast.AST) -> bool:
        return name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None))

    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(uses(node) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    }
