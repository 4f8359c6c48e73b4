"""A guarantee in a model file: its numbers, its public parameters, and points of its curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from curvedp.budget import Budget
from curvedp.modelfile.checks import check, check_finite, is_a, refuse
from curvedp.neighbours import Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import MU, Parameter, Parameters
from curvedp.privacy.profiles import TabledProfile
from curvedp.privacy.promise import PrivacyCurve

_KEYS: dict[str, tuple[type, ...]] = {
    "epsilon": (int, float),
    "delta": (int, float),
    "adjacency": (str,),
    "unit": (str, type(None)),
    "mechanism": (str,),
    "accounting": (str,),
    "theorem": (str,),
    "parameters": (list,),
    "private": (bool,),
    "curve": (list,),
}
_PARAMETER_KEYS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "symbol": (str,),
    "meaning": (str,),
    "value": (int, float, str),
    "is_noise": (bool,),
}


def to_dict(guarantee: Guarantee) -> dict[str, Any]:
    """Plain values; the curve as points (ε, δ(ε)), that of the promised ε among them.

    So a page that is made later shows the same, and the curve proves the promise by itself.
    """
    return {
        **guarantee.to_dict(),
        "parameters": [asdict(parameter) for parameter in guarantee.parameters.described],
        "curve": [list(point) for point in _points(guarantee)],
    }


def _points(guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
    if isinstance(guarantee.profile, TabledProfile):  # that of a file
        return guarantee.profile.points
    curve = PrivacyCurve.of(guarantee)
    found = dict(zip(curve.epsilons, curve.deltas, strict=True))
    promised = float(guarantee.epsilon)
    return tuple(sorted({**found, promised: guarantee.delta_at(promised)}.items()))


def from_dict(entry: dict[str, Any]) -> Guarantee:
    """What the file states, refused where its own curve or noise proves less; see `Guarantee`."""
    check(entry, _KEYS, "its guarantee")
    for parameter in entry["parameters"]:
        if not isinstance(parameter, dict):
            refuse("its guarantee has a parameter of the wrong kind")
        check(parameter, _PARAMETER_KEYS, "a parameter of its guarantee")
    budget = Budget(float(entry["epsilon"]), float(entry["delta"]))
    profile = TabledProfile(tuple(map(_point, entry["curve"])))
    claim = f"its guarantee claims (epsilon, delta) = ({budget.epsilon:g}, {budget.delta:g})"
    if not (profile.points and profile.delta_at(budget.epsilon) <= budget.delta):
        refuse(f"{claim}, and its own curve does not prove that")
    parameters = Parameters(*(Parameter(**parameter) for parameter in entry["parameters"]))
    mu = parameters.get(MU.name)
    if isinstance(mu, int | float) and not _within(mu, budget):
        refuse(f"{claim}, and Gaussian noise of its shift mu = {mu:g} alone spends more")
    return Guarantee(
        budget=budget,
        neighbours=Neighbours(entry["adjacency"], entry["unit"]),
        mechanism=entry["mechanism"],
        accounting=entry["accounting"],
        theorem=entry["theorem"],
        parameters=parameters,
        profile=profile,
        private=entry["private"],
    )


def _within(mu: float, budget: Budget) -> bool:
    """Whether (ε, δ) can hold where the Gaussian releases together shift by μ: δ ≥ H_Φ(ε; μ)  (P-2)."""
    return mu >= 0 and float(hockey_stick(budget.epsilon, mu)) <= budget.delta * (1 + 1e-9)


def _point(pair: Any) -> tuple[float, float]:
    """One (ε, δ) of a curve."""
    if not (isinstance(pair, list) and len(pair) == 2 and all(is_a(value, (int, float)) for value in pair)):
        refuse("its guarantee has a curve that is not made of pairs of numbers")
    epsilon, delta = pair
    check_finite(epsilon)
    if not (epsilon >= 0 and 0 <= delta <= 1):
        refuse("its guarantee has a curve that no guarantee has")
    return float(epsilon), float(delta)
