"""Scores: what an attacker computes from the released θ to tell two datasets apart.

The exact likelihood ratio where the density is known; projections, a quadratic (two Gaussians) and nearest
neighbours where it is not, learned on a pilot sample that is used for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from curvedp.arrays import FloatArray
from curvedp.audit.densities import Density
from curvedp.audit.pairs import Pair
from curvedp.losses import Loss

_NEAREST = 8
_TREE_POINTS = 3000
_MOST_AXES = 3
_CELLS = 1024


class Score(Protocol):
    """A number per output, large where D' is the likelier dataset or small: events are sets of scores."""

    @property
    def name(self) -> str: ...

    def __call__(self, outputs: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class Projection:
    """direction·θ."""

    name: str
    direction: FloatArray

    def __call__(self, outputs: FloatArray) -> FloatArray:
        if outputs.shape[1] != len(self.direction):
            return np.full(len(outputs), np.nan)
        return np.asarray(outputs @ self.direction)


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """log p_{D'}(θ) − log p_D(θ), exact."""

    density: Density
    pair: Pair
    loss: Loss
    name = "likelihood ratio"

    def __call__(self, outputs: FloatArray) -> FloatArray:
        right, left = (
            self.density.log_density(outputs, r, self.loss) for r in (self.pair.right, self.pair.left)
        )
        return right - left


@dataclass(frozen=True, eq=False)
class Standardize:
    """(θ − median)/spread per coordinate, cut off at ±8, so that a few far outputs do not decide a fit."""

    center: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, outputs: FloatArray) -> Standardize:
        low, center, high = np.nanquantile(outputs, [0.16, 0.5, 0.84], axis=0)
        return cls(center, np.maximum((high - low) / 2, 1e-12 * np.maximum(np.abs(center), 1e-300)))

    def __call__(self, outputs: FloatArray) -> FloatArray:
        return np.clip((outputs - self.center) / self.spread, -8.0, 8.0)


@dataclass(frozen=True, eq=False)
class GaussianRatio:
    """The log-ratio of two Gaussians fitted to the pilot outputs."""

    standardize: Standardize
    means: tuple[FloatArray, FloatArray]
    precisions: tuple[FloatArray, FloatArray]
    name = "quadratic"

    @classmethod
    def fit(cls, standardize: Standardize, left: FloatArray, right: FloatArray) -> GaussianRatio:
        means, precisions = [], []
        for z in (standardize(left), standardize(right)):
            covariance = np.atleast_2d(np.cov(z, rowvar=False)) + 1e-9 * np.eye(z.shape[1])
            means.append(z.mean(0))
            precisions.append(np.asarray(np.linalg.inv(covariance), dtype=np.float64))
        return cls(standardize, (means[0], means[1]), (precisions[0], precisions[1]))

    def __call__(self, outputs: FloatArray) -> FloatArray:
        z = self.standardize(outputs)
        parts = [
            np.einsum("ni,ij,nj->n", z - mean, precision, z - mean)
            for mean, precision in zip(self.means, self.precisions, strict=True)
        ]
        return np.asarray(0.5 * (parts[0] - parts[1]))


@dataclass(frozen=True, eq=False)
class NearestOutputs:
    """log of the distance to the 8th nearest pilot output of D over that to the 8th of D'.

    In few features, since distances say little in many: the projections `axes`·θ and the norm of the rest.
    """

    axes: FloatArray  # orthonormal rows
    standardize: Standardize
    trees: tuple[Any, Any]
    name = "nearest neighbours"

    @classmethod
    def fit(cls, axes: FloatArray, left: FloatArray, right: FloatArray) -> NearestOutputs:
        features = [_features(axes, side[:_TREE_POINTS]) for side in (left, right)]
        standardize = Standardize.of(np.concatenate(features))
        trees = [cKDTree(standardize(part)) for part in features]
        return cls(axes, standardize, (trees[0], trees[1]))

    def __call__(self, outputs: FloatArray) -> FloatArray:
        z = self.standardize(_features(self.axes, outputs))
        good = np.isfinite(z).all(1)
        result = np.full(len(z), np.nan)
        # The floor keeps the logarithm finite where outputs repeat exactly.
        far = [tree.query(z[good], k=[min(_NEAREST, tree.n)])[0][:, 0] + 1e-12 for tree in self.trees]
        result[good] = np.log(far[0]) - np.log(far[1])
        return result


def _features(axes: FloatArray, outputs: FloatArray) -> FloatArray:
    shown = outputs @ axes.T
    if axes.shape[0] == axes.shape[1]:
        return np.asarray(shown)
    rest = np.sqrt(np.maximum(np.square(outputs).sum(1) - np.square(shown).sum(1), 0.0))
    return np.column_stack([shown, rest])


def learn(pair: Pair, left: FloatArray, right: FloatArray) -> list[Score]:
    """Scores for one pair from pilot outputs of D and D'."""
    size = max(left.shape[1], right.shape[1])  # a side without any release has no shape of its own
    left, right = (side[np.isfinite(side).all(1)] for side in (left, right))
    matching = pair.directions.shape[1] == size
    directions = [*pair.directions] if matching else []
    found: list[Score] = [Projection(f"projection {i + 1}", w) for i, w in enumerate(directions)]
    if min(len(left), len(right)) > 2 * size + 10:
        standardize = Standardize.of(np.concatenate([left, right]))
        z = [standardize(left), standardize(right)]
        within = np.atleast_2d(np.cov(z[0], rowvar=False) + np.cov(z[1], rowvar=False)) + 1e-9 * np.eye(size)
        w = np.linalg.solve(within, z[1].mean(0) - z[0].mean(0)) / standardize.spread
        if size > 1 and np.linalg.norm(w) > 0:
            directions.append(w / np.linalg.norm(w))
            found.append(Projection("linear discriminant", directions[-1]))
        found.append(GaussianRatio.fit(standardize, left, right))
        if directions:
            axes = np.linalg.qr(np.array(directions[-_MOST_AXES:]).T)[0].T
            found.append(NearestOutputs.fit(np.ascontiguousarray(axes), left, right))
    return found or [Projection("projection 1", np.eye(size)[0])]


@dataclass(frozen=True, eq=False)
class ScoreCells:
    """Cells between increasing `edges`, both open ends included, and a last one for what is no number."""

    edges: FloatArray

    @property
    def count(self) -> int:
        return len(self.edges) + 2

    @classmethod
    def of(cls, scores: FloatArray) -> ScoreCells:
        """Quantiles of pilot scores, finer towards both ends; a repeated value gets a cell of its own."""
        finite = np.sort(scores[np.isfinite(scores)])
        if not len(finite):
            return cls(np.zeros(0))
        count = int(np.clip(len(finite) / 8, 8, _CELLS))
        tail = np.geomspace(1.0 / len(finite), 0.05, max(2, count // 8))
        levels = np.unique(np.concatenate([tail, np.linspace(0.05, 0.95, count), 1 - tail]))
        edges, counts = np.unique(np.quantile(finite, levels, method="nearest"), return_counts=True)
        repeated = np.nextafter(edges[counts > 1], np.inf)
        return cls(np.unique(np.concatenate([edges, repeated])))

    def histogram(self, scores: FloatArray) -> NDArray[np.int64]:
        index = np.searchsorted(self.edges, scores, side="right")
        index = np.where(np.isnan(scores), self.count - 1, index)
        return np.bincount(index, minlength=self.count)
