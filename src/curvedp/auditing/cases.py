"""What an audit tries: a plan, and neighbouring tables on which it is weak."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from curvedp import modelfile
from curvedp.auditing.exam import exam
from curvedp.auditing.pairs import Raw, declared_pairs, record_pairs
from curvedp.auditing.report import Audit
from curvedp.auditing.totals import Case, allowed_shift
from curvedp.budget import Budget
from curvedp.columns import Coding
from curvedp.errors import InvalidInput
from curvedp.estimators.beside import Passed
from curvedp.losses import Squared
from curvedp.mechanisms import Recentered, make_plan
from curvedp.mechanisms.base import Estimate, Mechanism
from curvedp.mechanisms.peers.dpsgd import DPSGDPlan
from curvedp.mechanisms.solved import SolvedPlan
from curvedp.plans import Plan
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.record import ReleaseRecord
from curvedp.regularizers import L2, NoRegularizer
from curvedp.rows.base import Layout, Rows
from curvedp.selection.refits import plan_refits
from curvedp.selection.trials import TrialsPlan, plan_trials

BUDGET: Budget = Budget(1.0, 1e-3)
_BEGUN = "2000-01-01T00:00:00+00:00"  # of every release that is tried: time is no part of it


# Mechanisms on rows (x, y)


def mechanism_case(mechanism: Mechanism, problem: Problem, d: int, budget: Budget, name: str = "") -> Case:
    """A mechanism on the pairs that its problem makes worst."""
    plan = make_plan(mechanism, problem, d, budget)
    pulls = plan.pulls() if isinstance(plan, SolvedPlan) else []
    rate = plan.profile.rate if isinstance(plan, DPSGDPlan) else 0.0
    pairs = record_pairs(problem, d, allowed_shift(plan.guarantee.budget) or 1.0, pulls, held=rate > 0)
    return Case(name or named(mechanism, problem, d), plan, pairs, sampled=rate)


# Models, from the raw table to the file


def model_case(model: Any, name: str, claimed: tuple[float, float] | None = None) -> Case:
    """An unfitted estimator with a schema: its own code reads a table, releases and writes the file."""
    target = model._declared_target()
    schema = model._given_schema
    pairs = declared_pairs(schema, target)
    declared = model._declare(pairs[0].right.table, target, None, _passed(model, pairs[0].right))
    d, budget = declared.columns.d, Budget(model.epsilon, model.delta)
    plan = make_plan(model._mechanism_of(declared), declared.problem, d, budget)
    if isinstance(plan, SolvedPlan):  # the law of a minimiser is known without a penalty
        plan = replace(plan, problem=replace(declared.problem, regularizer=NoRegularizer()))

    def read(raw: Raw) -> Rows:
        y = None if schema.has_target else raw.y
        rows: Rows = model._read_rows(raw.table, y, declared, None, _passed(model, raw))
        return rows

    def document(value: Estimate) -> Any:
        fitted = clone(model)
        guarantee = plan.guarantee
        record = ReleaseRecord.of(declared.schema, guarantee, None, _BEGUN)
        fitted._keep_estimate(value, guarantee, declared, record)
        return {**vars(fitted), "file": modelfile.Release.of(fitted).to_json()}

    return Case(name, plan, pairs, claimed, read, document)


def _passed(model: Any, raw: Raw) -> Passed:
    largest = getattr(model, "weight_max", None)
    return {} if largest is None else {"weight": [largest * weight for weight in raw.weights]}


def file_case(document: modelfile.Release) -> tuple[Case, tuple[str, ...]]:
    """The release behind a model file, planned anew from what it says; and what that leaves open."""
    promise, name = document.guarantee, f"{document.estimator}, {document.guarantee.adjacency}"
    model = clone(document.to_estimator())
    shorthand = {"bounds", "formula", "exposure_bounds"} & model.get_params(deep=False).keys()
    model.set_params(schema=document.schema, **dict.fromkeys(shorthand))  # which the schema says
    if promise.mechanism.startswith("search over"):
        return replace(_search_case(model, promise, name), claimed=(promise.epsilon, promise.delta)), ()
    case = replace(model_case(model, name), claimed=(promise.epsilon, promise.delta))
    other = _other_numbers(promise, case.plan.guarantee)
    if not other:
        return case, ()
    remark = (
        f"the file states other numbers than this version plans ({', '.join(other[:3])}): "
        f"it was made by curvedp {document.version}"
    )
    return case, (remark,)


def _other_numbers(promise: Guarantee, planned: Guarantee) -> list[str]:
    return [
        key
        for key, value in promise.parameters.items()
        if isinstance(value, float) and not np.isclose(value, float(planned.parameters.get(key, np.nan)))
    ]


# Searches


@dataclass(frozen=True, eq=False)
class Trial:
    """One trial of a search: the fit of a candidate and its score, under the promise of the whole search."""

    search: TrialsPlan
    index: int

    @property
    def guarantee(self) -> Guarantee:
        return self.search.guarantee

    @property
    def layout(self) -> Layout:
        return self.search.layout

    @property
    def inner(self) -> Plan[Rows, Estimate]:
        """The fit."""
        return self.search.plans[self.index]

    def accept(self, rows: Rows) -> None:
        self.search.accept(rows)

    def release(self, rows: Rows, random: np.random.Generator) -> tuple[Estimate, float]:
        estimate = self.inner.release(rows, random)
        return estimate, self.search._score(rows, estimate, random)


def _search_case(model: Any, promise: Guarantee, name: str) -> Case:
    """A search like the one of the file, over as many candidates that differ in their penalty."""
    words = promise.mechanism.removeprefix("search over ").split()
    count = int(words[0].rstrip(":"))
    case = model_case(model, name)
    plan: Any = case.plan
    problem, d, coding = plan.problem, plan.d, getattr(plan, "coding", Coding())
    problems = [replace(problem, regularizer=L2(10.0**k)) for k in range(count)]
    budget, mean = Budget(promise.epsilon, promise.delta), promise.parameters.get("mean_trials")
    if mean is None:
        refits = plan_refits(Recentered(coding=coding), problems, count // 2, d, budget)
        return replace(case, plan=refits, document=lambda choice: (choice, case.document(choice.estimate)))
    trials = plan_trials([Recentered(coding=coding)] * count, problems, d, budget, float(mean))
    return replace(case, plan=Trial(trials, 0), document=lambda value: value, trials=float(mean))


# Running


def named(mechanism: Mechanism, problem: Problem, d: int) -> str:
    how = [getattr(mechanism, option, "") for option in ("accounting", "noise")]
    domain = problem.domain
    beside = ["weights"] * domain.weighted + ["persons"] * (domain.unit is not None)
    coding = getattr(mechanism, "coding", Coding())
    beside += ["levels"] * bool(coding.blocks) + ["constant"] * (coding.constant is not None)
    beside += ["intervals"] * getattr(mechanism, "inference", False)
    parts = [mechanism.name, *how, problem.loss.name, f"d={d}", *beside]
    return f"{' '.join(part for part in parts if part)}, {domain.adjacency}"


def audit(
    release: Any,
    *,
    budget: Budget = BUDGET,
    features: int = 2,
    problem: Problem | None = None,
    **options: Any,
) -> Audit:
    """Replay a release on worst-case neighbouring tables and check every premise of its proof; needs no data.

    Parameters
    ----------
    release : Mechanism, fitted estimator, Release or path of a model file
        What is tried. A model is tried as it was released, on tables of its own declarations.
    budget : Budget, default=Budget(1.0, 1e-3)
        The (ε, δ) that a mechanism is planned for.
    features : int, default=2
        Model columns of the tables that a mechanism is tried on.
    problem : Problem, optional
        What a mechanism solves; by default squared loss in the unit ball.
    **options
        As for `exam`.

    Returns
    -------
    audit : Audit
        `audit.verdict` is "held", on the pairs tried, or "refuted"; `remarks` say where a file does not say
        all that the release was made with.

    Examples
    --------
    >>> from curvedp import audit
    >>> from curvedp.mechanisms import Statistics
    >>> found = audit(Statistics())
    >>> found.verdict, 0.9 < found.total <= 1.0
    ('held', True)
    """
    if hasattr(release, "plan"):  # a mechanism
        if features < 1:
            raise InvalidInput("an audit needs features > 0: the columns of the tables that are tried")
        return exam(mechanism_case(release, problem or Problem(Squared()), features, budget), **options)
    if isinstance(release, str | os.PathLike):
        release = modelfile.load(release)
    elif not isinstance(release, modelfile.Release):
        release = modelfile.Release.of(release)
    case, remarks = file_case(release)
    return replace(exam(case, **options), remarks=remarks)
