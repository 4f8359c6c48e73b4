"""What an inference release holds, as plain values for a file; checked when it is read."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.released.bread import Bread
from curvedp.released.inference import Inference, Releases
from curvedp.released.tails import Tail
from curvedp.released.units import UserUnits

_POSITIVE = ("beta", "noise", "meat_scale", "count", "kappa", "tail_scale")
_KEYS = {
    *("shape", "edge", "count_scale", "inflation", *_POSITIVE),
    *("basis", "lengths", "resolved", "J", "variance", "centre", "gradient", "meat", "edges", "counts"),
}
_LARGEST = 1e200  # of a number in such a file: products of two stay finite


def to_dict(inference: Inference) -> dict[str, Any]:
    """Numbers by name, arrays as the base64 of their doubles."""
    R = inference.releases
    arrays = {
        "basis": R.basis,
        "lengths": R.lengths,
        "resolved": R.resolved,
        "J": R.bread.J,
        "variance": R.bread.variance,
        "centre": R.centre,
        "gradient": R.gradient,
        "meat": R.meat,
        "edges": R.tail.edges,
        "counts": R.tail.counts,
    }
    return {
        "shape": [*R.basis.shape, len(R.tail.edges)],
        "edge": R.edge,
        "beta": R.beta,
        "noise": R.noise,
        "meat_scale": R.meat_scale,
        "count": R.count,
        "count_scale": R.count_scale,
        "kappa": R.kappa,
        "inflation": R.inflation,
        "tail_scale": R.tail.scale,
        **{name: _text(np.asarray(array, dtype=np.float64)) for name, array in arrays.items()},
    }


def from_dict(content: Mapping[str, Any]) -> Inference:
    """The inverse of `to_dict`, for content that nobody vouches for."""
    if content.keys() != _KEYS:
        raise InvalidInput("its inference does not hold what it should")
    d, r, edges = (int(size) for size in content["shape"])
    number = {name: float(content[name]) for name in (*_POSITIVE, "count_scale", "inflation")}
    if (
        not all(0 < number[name] <= _LARGEST for name in _POSITIVE)
        or not 0 <= number["count_scale"] <= _LARGEST
        or not -0.5 <= number["inflation"] <= _LARGEST
    ):
        raise InvalidInput("its inference holds a number that is not positive")
    edge = content["edge"]
    if not (1 <= r <= d and edges >= 1 and type(edge) is int and 0 <= edge < edges):
        raise InvalidInput("its inference has no sound shape")
    shapes = {
        "basis": (d, r),
        "lengths": (r,),
        "resolved": (r,),
        "J": (r, r),
        "variance": (r, r),
        "centre": (r,),
        "gradient": (r,),
        "meat": (r, r),
        "edges": (edges,),
        "counts": (edges + 1,),
    }
    arrays = {name: _numbers(content[name], shape) for name, shape in shapes.items()}
    ends = arrays["edges"]
    if not (ends[0] > 0 and np.all(np.diff(ends) > 0) and np.all(arrays["lengths"] > 0)):
        raise InvalidInput("its inference has no sound histogram or metric")
    if not (np.all(arrays["variance"] >= 0) and np.all(np.isin(arrays["resolved"], (0.0, 1.0)))):
        raise InvalidInput("its inference holds a variance below 0")
    return Inference(
        Releases(
            basis=arrays["basis"],
            lengths=arrays["lengths"],
            resolved=arrays["resolved"] > 0,
            bread=Bread(arrays["J"], arrays["variance"]),
            beta=number["beta"],
            centre=arrays["centre"],
            tail=Tail(ends, arrays["counts"], number["tail_scale"]),
            edge=edge,
            gradient=arrays["gradient"],
            noise=number["noise"],
            meat=arrays["meat"],
            meat_scale=number["meat_scale"],
            count=number["count"],
            count_scale=number["count_scale"],
            kappa=number["kappa"],
            inflation=number["inflation"],
        )
    )


def agrees(inference: Inference, units: UserUnits, told: FloatArray) -> bool:
    """Whether `told`, coefficients and intercept in the user's units, are those of the inference."""
    theta = inference.theta[:, 0]
    if theta.shape != units.L.shape[1:]:
        return False
    reach = np.abs(units.L) @ np.abs(theta) + np.abs(units.shift)
    return bool(np.all(np.abs(units.L @ theta + units.shift - told) <= 1e-6 * reach))


def _text(values: FloatArray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def _numbers(text: Any, shape: tuple[int, ...]) -> FloatArray:
    """Finite doubles."""
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
    if values.size != math.prod(shape) or not np.all(np.abs(values) <= _LARGEST):
        raise InvalidInput("its inference does not match its schema")
    return values.reshape(shape)
