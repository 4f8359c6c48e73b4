"""A guarantee in a model file: its numbers, its public parameters, and points of its curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from curvedp.budget import Budget
from curvedp.forms import Within, read_object, refuse, write
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import MU, Parameter, Parameters
from curvedp.privacy.profiles import TabledProfile
from curvedp.privacy.promise import PrivacyCurve


@dataclass(frozen=True)
class Stated:
    """What the release promises: P[M(D) ∈ S] ≤ e^ε P[M(D′) ∈ S] + δ for all neighbouring tables D, D′.

    Attributes
    ----------
    epsilon : float
        ε.
    delta : float
        δ.
    unit : str or None
        The column that says whose row it is; null: every row is a unit of its own.
    theorem : str
        The theorem that proves it.
    private : bool
        False for runs that promise nothing: a fixed seed, a study.
    curve : list of pairs
        Points (ε, δ) that hold at once; by themselves they prove the promise.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: str | None
    mechanism: str
    accounting: str
    theorem: str
    parameters: tuple[Parameter, ...]
    private: bool
    curve: tuple[tuple[Annotated[float, Within(0.0)], Annotated[float, Within(0.0)]], ...]


def to_dict(guarantee: Guarantee) -> dict[str, Any]:
    """Plain values; the curve as points (ε, δ(ε)), that of the promised ε among them.

    So a page that is made later shows the same, and the curve proves the promise by itself.
    """
    described = {"parameters": guarantee.parameters.described, "curve": _points(guarantee)}
    entry: dict[str, Any] = write(Stated(**{**guarantee.to_dict(), **described}))
    return entry


def _points(guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
    if isinstance(guarantee.profile, TabledProfile):  # that of a file
        return guarantee.profile.points
    curve = PrivacyCurve.of(guarantee)
    found = dict(zip(curve.epsilons, curve.deltas, strict=True))
    promised = float(guarantee.epsilon)
    return tuple(sorted({**found, promised: guarantee.delta_at(promised)}.items()))


def from_dict(entry: Any) -> Guarantee:
    """What the file states, refused where its own curve or noise proves less; see `Guarantee`."""
    said: Stated = read_object(Stated, entry, "its guarantee")
    budget, profile = Budget(said.epsilon, said.delta), TabledProfile(said.curve)
    claim = f"its guarantee claims (epsilon, delta) = ({budget.epsilon:g}, {budget.delta:g})"
    if any(delta > 1.0 for _, delta in said.curve):
        refuse("its guarantee has a curve that no guarantee has")
    if not (said.curve and profile.delta_at(budget.epsilon) <= budget.delta):
        refuse(f"{claim}, and its own curve does not prove that")
    parameters = Parameters(*said.parameters)
    mu = parameters.get(MU.name)
    if isinstance(mu, int | float) and not _within(mu, budget):
        refuse(f"{claim}, and Gaussian noise of its shift mu = {mu:g} alone spends more")
    return Guarantee(
        budget=budget,
        neighbours=Neighbours(said.adjacency, said.unit),
        mechanism=said.mechanism,
        accounting=said.accounting,
        theorem=said.theorem,
        parameters=parameters,
        profile=profile,
        private=said.private,
    )


def _within(mu: float, budget: Budget) -> bool:
    """Whether (ε, δ) can hold where the Gaussian releases together shift by μ: δ ≥ H_Φ(ε; μ)  (P-2)."""
    return mu >= 0 and float(hockey_stick(budget.epsilon, mu)) <= budget.delta * (1 + 1e-9)
