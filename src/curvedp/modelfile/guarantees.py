"""A guarantee in a model file: its numbers, its public parameters, and points of its curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from curvedp.budget import Budget
from curvedp.modelfile.checks import check, is_a, refuse
from curvedp.neighbours import Neighbours
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameter, Parameters
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
}
_PARAMETER_KEYS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "symbol": (str,),
    "meaning": (str,),
    "value": (int, float, str),
    "is_noise": (bool,),
}


def to_dict(guarantee: Guarantee) -> dict[str, Any]:
    """Plain values; the curve as points (ε, δ(ε)), so that a page that is made later shows the same."""
    curve = PrivacyCurve.of(guarantee)
    return {
        **guarantee.to_dict(),
        "parameters": [asdict(parameter) for parameter in guarantee.parameters.described],
        "curve": [[epsilon, delta] for epsilon, delta in zip(curve.epsilons, curve.deltas, strict=True)],
    }


def from_dict(entry: dict[str, Any]) -> Guarantee:
    """What the file states; of the whole curve what its points and its (ε, δ) imply."""
    check(entry, _KEYS | ({"curve": (list,)} if "curve" in entry else {}), "its guarantee")
    for parameter in entry["parameters"]:
        if not isinstance(parameter, dict):
            refuse("its guarantee has a parameter of the wrong kind")
        check(parameter, _PARAMETER_KEYS, "a parameter of its guarantee")
    budget = Budget(float(entry["epsilon"]), float(entry["delta"]))
    return Guarantee(
        budget=budget,
        neighbours=Neighbours(entry["adjacency"], entry["unit"]),
        mechanism=entry["mechanism"],
        accounting=entry["accounting"],
        theorem=entry["theorem"],
        parameters=Parameters(*(Parameter(**parameter) for parameter in entry["parameters"])),
        profile=TabledProfile(((budget.epsilon, budget.delta), *map(_point, entry.get("curve", ())))),
        private=entry["private"],
    )


def _point(pair: Any) -> tuple[float, float]:
    """One (ε, δ) of a curve."""
    if not (isinstance(pair, list) and len(pair) == 2 and all(is_a(value, (int, float)) for value in pair)):
        refuse("its guarantee has a curve that is not made of pairs of numbers")
    epsilon, delta = pair
    if not (0 <= epsilon < 1e6 and 0 <= delta <= 1):
        refuse("its guarantee has a curve that no guarantee has")
    return float(epsilon), float(delta)
