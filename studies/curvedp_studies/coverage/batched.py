"""The inference mechanism for many samples at once: the same in law as the library's, noise not on a grid.

Public constants come from the library's plans (`Calibrations`); what follows from released numbers is
computed by the library itself, run by run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from curvedp.arrays import BoolArray, FloatArray
from curvedp.released.bread import Bread, Look
from curvedp.released.inference import Releases
from curvedp.released.tails import Tail
from curvedp_studies.coverage.calibration import Calibration, Constants
from curvedp_studies.coverage.derivatives import second
from curvedp_studies.coverage.draws import Draws, Tensor, histogram, weighted_gram
from curvedp_studies.coverage.metric import Setting, first_metric, second_metric
from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.steps import chosen_edge, coarse_step, weighed
from curvedp_studies.coverage.walking import Walk

Item = TypeVar("Item")
Result = TypeVar("Result")
Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
_ELEMENTS = {"cpu": 2e7, "cuda": 1e9}  # of the largest tensor


def in_turn(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [work(item) for item in items]


@dataclass(frozen=True, eq=False)
class Batched:
    """Samples of one population, on one device."""

    population: Population
    constants: Constants
    device: str = "cpu"

    def batches(self, n: int, runs: int) -> list[int]:
        """How many runs at once."""
        most = max(int(_ELEMENTS[self.device] / (n * self.population.r)), 1)
        return [min(most, runs - start) for start in range(0, runs, most)]

    def releases(
        self, plan: Calibration, n: int | None, runs: int, seed: int, mapper: Mapper = in_turn
    ) -> list[Releases]:
        """Of `runs` samples of n records with replacement; None: of all records, each once."""
        setting = self.setting(plan, n, runs, seed)
        walk = Walk(setting, second_metric(setting, first_metric(setting)))
        return _Newton(walk, self.population.N, mapper).releases()

    def setting(self, plan: Calibration, n: int | None, runs: int, seed: int) -> Setting:
        """The samples, and the public numbers of the plan."""
        draws = Draws.seeded(runs, self.device, seed)
        X = torch.as_tensor(self.population.inside, device=self.device)
        y = torch.as_tensor(self.population.y, device=self.device)
        if n is None:
            X, y = X.expand(runs, *X.shape), y.expand(runs, len(y))
        else:
            rows = draws.indices(len(y), n)
            X, y = X[rows], y[rows]
        return Setting(X, y, self.population.loss, self.population.x_norm, plan, self.constants, draws)


@dataclass(frozen=True, eq=False)
class _Newton:
    """From the walk's end to the releases that estimates rest on."""

    walk: Walk
    N: FloatArray
    mapper: Mapper

    def releases(self) -> list[Releases]:
        walk, setting = self.walk, self.walk.setting
        looks = setting.plan.looks
        parts = (walk.metric.raw, walk.metric.lifted, walk.metric.scale)
        seconds = [Look(raw, lifted, float(s)) for raw, lifted, s in zip(*map(_arrays, parts), strict=True)]
        w, clip = walk.walked()
        slack = setting.slack(walk.metric.A, walk.metric.n)
        breads, resolved = self._breads(w, clip.size, slack, seconds)
        w, inflations = self._step(
            w * torch.as_tensor(resolved, device=w.device), clip.size, seconds, breads, resolved
        )
        tails = self._tails(w, clip.size)
        noise = setting.plan.neighbours.sum_factor / looks["final"]
        edges = self.mapper(chosen_edge, [(tail, setting.r, noise) for tail in tails])
        clips = np.array([tail.edges[edge] for tail, edge in zip(tails, edges, strict=True)])
        last = torch.as_tensor(clips, device=w.device)
        meat_scale = setting.gram_scale(last**2, looks["meat"], slack)
        meat = setting.noisy_gram(weighted_gram(walk.Z, walk.clipped(w, last) ** 2), meat_scale)
        gradient = walk.gradient(w, last, looks["final"])
        columns = [
            _arrays(tensor)
            for tensor in (
                walk.metric.A,
                w,
                gradient,
                setting.gradient_scale(last, looks["final"]),
                meat,
                meat_scale,
                walk.metric.n,
                walk.kappa,
            )
        ]
        made = []
        for run in zip(*columns, resolved, breads, tails, edges, inflations, strict=True):
            A, centre, g, scale, M, M_scale, n, kappa, stands, bread, tail, edge, inflated = run
            made.append(
                Releases(
                    basis=self.N @ A.T,
                    lengths=np.linalg.norm(A, axis=1),
                    resolved=stands,
                    bread=bread,
                    beta=walk.beta,
                    centre=centre,
                    tail=tail,
                    edge=edge,
                    gradient=g,
                    noise=float(scale),
                    meat=M,
                    meat_scale=float(M_scale),
                    count=float(n),
                    count_scale=setting.plan.count_scale,
                    kappa=float(kappa),
                    inflation=inflated,
                )
            )
        return made

    def _breads(
        self, w: Tensor, clip: Tensor, slack: Tensor, seconds: Sequence[Look]
    ) -> tuple[list[Bread], BoolArray]:
        """Curvature at w₀: Ĵ of every run, and which directions it resolves."""
        walk, setting, constants = self.walk, self.walk.setting, self.walk.setting.constants
        looks, at_walk = setting.plan.looks, self.walk.metric
        growth = constants.bread_growth * walk.kappa * looks["bread"] / setting.plan.mu
        bound = growth.clamp(*constants.bread_bounds) * walk.beta * at_walk.resolved / at_walk.n
        lengths = walk.slopes(w).abs() * walk.lengths
        unclipped = (2.0 - lengths / clip[:, None]).clamp(0.0, 1.0)
        curvature = unclipped * second(setting.loss, walk.margins(w), setting.y, torch)
        weights = torch.minimum(curvature, bound[:, None] / walk.lengths.square().clamp_min(1e-300))
        scale = setting.gram_scale(bound, looks["bread"], slack)
        noisy = setting.noisy_gram(weighted_gram(walk.Z, weights), scale)
        columns = map(_arrays, (noisy, scale))
        done = self.mapper(weighed, [(*run, walk.beta) for run in zip(seconds, *columns, strict=True)])
        return [bread for bread, _ in done], np.array([resolved for _, resolved in done])

    def _step(
        self, w: Tensor, clip: Tensor, seconds: Sequence[Look], breads: Sequence[Bread], resolved: BoolArray
    ) -> tuple[Tensor, list[float]]:
        """w₁ of every run, and what its noise does to the next step."""
        walk, setting = self.walk, self.walk.setting
        mu = setting.plan.looks["step"]
        gradient = walk.gradient(w, clip, mu)
        columns = map(_arrays, (gradient, setting.gradient_scale(clip, mu), w, walk.metric.n))
        runs = zip(seconds, breads, resolved, *columns, strict=True)
        done = self.mapper(coarse_step, [(*run, walk.beta, setting.loss) for run in runs])
        moved = np.array([w1 for w1, _ in done])
        return torch.as_tensor(moved, device=w.device), [inflated for _, inflated in done]

    def _tails(self, w: Tensor, clip: Tensor) -> list[Tail]:
        walk, setting, mu = self.walk, self.walk.setting, self.walk.setting.plan.looks["tail"]
        powers = torch.arange(setting.constants.edges, device=w.device, dtype=w.dtype) - 1.0
        edges = clip[:, None] * 2.0 ** (0.5 * powers)
        counts = setting.noisy_counts(histogram(walk.slopes(w).abs() * walk.lengths, edges), mu)
        scale = setting.count_scale(mu)
        return [Tail(e, c, scale) for e, c in zip(_arrays(edges), _arrays(counts), strict=True)]


def _arrays(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()
