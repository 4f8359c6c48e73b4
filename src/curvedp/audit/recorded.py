"""Plans whose questions do not hang on earlier answers: asked once, answered many times.

Such a plan is recorded on both tables, and from then on its answers come from the recorded laws, many at
once. That its questions are fixed is seen from other recordings; where one differs, every run is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.accounted import Accounted, CountedDraws
from curvedp.audit.fits.recentered import Drawn
from curvedp.audit.replayed import Replayed, transcript
from curvedp.ensembles import Wishart
from curvedp.plans import Plan, Source
from curvedp.witness import Laplace, Law, NoisyCurvature, Normal

S = TypeVar("S", bound=Source)
Known = Normal | Laplace | NoisyCurvature

_RECORDINGS = 3
_ROWS = 2**15  # answers in memory


def replayed(plan: Plan[S, Any], tables: tuple[S, S]) -> Accounted:
    """All releases of a plan from two tables: in batches where its questions are fixed."""
    laws = fixed_laws(plan, tables)
    return Replayed(plan, tables) if laws is None else Recorded(tuple(_differing(*pair) for pair in laws))


def fixed_laws(plan: Plan[S, Any], tables: tuple[S, S]) -> tuple[tuple[Known, Known], ...] | None:
    """The laws of every answer on both tables; None where some recordings differ, or hold other laws."""
    found = []
    random = randomness.generator(0)
    for _ in range(_RECORDINGS):
        run = transcript(plan, *tables, random)
        if not run.same:
            return None
        found.append([(own, other) for (own, _), other in zip(run.answers, run.others, strict=True)])
    pairs: list[tuple[Known, Known]] = []
    for own, other in found[0]:
        if not (isinstance(own, Known) and isinstance(other, Known)):
            return None
        pairs.append((own, other))
    public = [[_public(law) for pair in laws for law in pair] for laws in found]
    return tuple(pairs) if all(p == public[0] for p in public[1:]) else None


def _differing(left: Known, right: Known) -> tuple[Known, Known]:
    """The entries that tell the tables apart; noise on the others is independent of them."""
    matrix = isinstance(left, NoisyCurvature) or (isinstance(left, Normal) and left.symmetric)
    if matrix or _public(replace(left, query=right.query)) != _public(right):
        return left, right
    apart = left.query != right.query
    return replace(left, query=left.query[apart]), replace(right, query=right.query[apart])


def _public(law: Law[Any]) -> tuple[object, ...]:
    """Every number of a law, to be compared."""
    return tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in (type(law), *vars(law).values()))


@dataclass(frozen=True, eq=False)
class Recorded(CountedDraws):
    """Answers by the laws of two tables; what leaves is every answer, or what differs of it."""

    laws: tuple[tuple[Known, Known], ...]

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """n fresh answers to every question, and log p₁ − log p₀."""
        random = randomness.generator(seed)
        theta = np.zeros((n, sum(left.query.size for left, _ in self.laws)))
        ratio = np.zeros(n)
        for start in range(0, n, _ROWS):
            part = slice(start, min(start + _ROWS, n))
            column = 0
            for pair in self.laws:
                values = sample(pair[side], part.stop - start, random)
                ratio[part] += log_densities(pair[1], values) - log_densities(pair[0], values)
                theta[part, column : column + pair[0].query.size] = values.reshape(len(values), -1)
                column += pair[0].query.size
        return Drawn(theta, ratio)


def sample(law: Known, n: int, random: np.random.Generator) -> FloatArray:
    """n draws of the law, on no grid, shape (n, *shape of the query)."""
    query = law.query
    match law:
        case Normal(symmetric=True):
            raw = random.standard_normal((n, *query.shape))
            return np.asarray(query + law.sigma * (raw + raw.transpose(0, 2, 1)) / 2)
        case Normal():
            return np.asarray(query + law.sigma * random.standard_normal((n, *query.shape)))
        case Laplace():
            return np.asarray(query + random.laplace(0.0, law.scale, (n, *query.shape)))
        case NoisyCurvature():
            W = Wishart(len(query), law.m).sample(random, n)
            return np.asarray(query + law.sigma2 * (W - law.m * np.eye(len(query))))


def log_densities(law: Known, values: FloatArray) -> FloatArray:
    """`law.log_density` of each of n values, up to a constant of the scales."""
    moved = values - law.query
    axes = tuple(range(1, values.ndim))
    match law:
        case Normal():
            return np.asarray(
                -np.square(moved / law.sigma).sum(axes) / 2 - law.query.size * np.log(law.sigma)
            )
        case Laplace():
            return np.asarray(-np.abs(moved).sum(axes) / law.scale - law.query.size * np.log(law.scale))
        case NoisyCurvature():
            d = len(law.query)
            W = moved / law.sigma2 + law.m * np.eye(d)
            sign, logdet = np.linalg.slogdet(W)
            inside = sign > 0 if d < 2 else np.linalg.eigvalsh(W)[:, 0] > 0
            scale = d * (d + 1) / 2 * np.log(law.sigma2)
            found = (law.m - d - 1) / 2 * logdet - np.trace(W, axis1=1, axis2=2) / 2 - scale
            return np.where(inside, found, -np.inf)
