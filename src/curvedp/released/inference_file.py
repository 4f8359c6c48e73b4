"""What an inference release holds, as plain values for a file; checked when it is read."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.released.inference import Inference, Releases
from curvedp.released.tails import Tail
from curvedp.released.units import UserUnits

_POSITIVE = (
    *(
        "look_scale",
        "bread_scale",
        "beta",
        "guess",
        "stiffness",
        "noise",
        "beyond_scale",
        "meat_scale",
        "count",
    ),
    *("kappa", "tail_scale"),
)
_ARRAYS = {  # by the numbers of columns d, of directions r left out k and of categories b
    "basis": "dr",
    "fixed": "d",
    "left_out": "dk",
    "levels": "db",
    "shares": "d",
    "look": "r",
    "look_spread": "rr",
    "bread": "rr",
    "centre": "r",
    "gradient": "r",
    "beyond": "r",
    "meat": "rr",
}
_KEYS = {"shape", "count_scale", "inflation", "edges", "counts", *_POSITIVE, *_ARRAYS}
_LARGEST = 1e100  # of a number in such a file: products of three stay finite


def to_dict(inference: Inference) -> dict[str, Any]:
    """Numbers by name, arrays as the base64 of their doubles."""
    R = inference.releases
    numbers = {name: float(getattr(R, name)) for name in (*_POSITIVE[:-1], "count_scale", "inflation")}
    return {
        "shape": [*R.basis.shape, len(R.tail.edges), R.left_out.shape[1], R.levels.shape[1]],
        **numbers,
        "tail_scale": R.tail.scale,
        **{name: _text(getattr(R, name)) for name in _ARRAYS},
        "edges": _text(R.tail.edges),
        "counts": _text(R.tail.counts),
    }


def from_dict(content: Mapping[str, Any]) -> Inference:
    """The inverse of `to_dict`, for content that nobody vouches for."""
    if content.keys() != _KEYS:
        raise InvalidInput("its inference does not hold what it should")
    d, r, edges, left_out, categories = (int(size) for size in content["shape"])
    number = {name: float(content[name]) for name in (*_POSITIVE, "count_scale", "inflation")}
    if (
        not all(1.0 / _LARGEST <= number[name] <= _LARGEST for name in _POSITIVE)
        or not 0 <= number["count_scale"] <= _LARGEST
        or not -0.5 <= number["inflation"] <= _LARGEST
    ):
        raise InvalidInput("its inference holds a number that is not positive")
    if not (1 <= r <= d and edges >= 3 and min(left_out, categories) >= 0 and max(left_out, categories) <= d):
        raise InvalidInput("its inference has no sound shape")
    size = {"d": d, "r": r, "k": left_out, "b": categories}
    arrays = {
        name: _numbers(content[name], tuple(size[letter] for letter in shape))
        for name, shape in _ARRAYS.items()
    }
    ends = _numbers(content["edges"], (edges,))
    if not (ends[0] >= 1.0 / _LARGEST and np.all(np.diff(ends) > 0)):
        raise InvalidInput("its inference has no sound histogram")
    if not np.all(np.diag(arrays["look_spread"]) > 0):
        raise InvalidInput("its inference holds a variance that is not positive")
    tail = Tail(ends, _numbers(content["counts"], (edges + 1,)), number.pop("tail_scale"))
    known: dict[str, Any] = {**arrays, **number}
    return Inference(Releases(tail=tail, **known))


def agrees(inference: Inference, units: UserUnits, told: FloatArray, trust: float = 1.0) -> bool:
    """Whether `told`, coefficients and intercept in the user's units, are those of the inference.

    Coefficients times `trust`: then the intercept is that of another answer.
    """
    theta = inference.theta[:, 0]
    if theta.shape != units.L.shape[1:]:
        return False
    reach = np.abs(units.L) @ np.abs(theta) + np.abs(units.shift)
    apart = np.abs(trust * (units.L @ theta) + units.shift - told)
    kept = slice(None) if trust == 1.0 else slice(-1)
    return bool(np.all(apart[kept] <= 1e-6 * reach[kept]))


def _text(values: FloatArray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def _numbers(text: Any, shape: tuple[int, ...]) -> FloatArray:
    """Finite doubles."""
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
    if values.size != math.prod(shape) or not np.all(np.abs(values) <= _LARGEST):
        raise InvalidInput("its inference does not match its schema")
    return values.reshape(shape)
