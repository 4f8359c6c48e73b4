"""Recentered fits by torch operations: every fit of a batch in step, branches by masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from curvedp.audit.fits import Bins, Counts
from curvedp.audit.fits.recentered import EDGES, Drawn, RecenteredFits, Trace
from curvedp.audit.fits.torch import bartlett

Tensor = Any  # torch has no stubs that mypy follows here
_MEMORY = 2**24  # doubles of one intermediate in flight


@dataclass(frozen=True)
class TorchRecentered:
    """Recentered fits on one torch device ("cpu", "cuda")."""

    device: str = "cuda"

    def draw(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Drawn:
        """θ and the likelihood ratios of n fresh fits on table `side`."""
        trace = self.trace(fits, side, n, seed)
        return Drawn(trace.theta, trace.ratio)

    def trace(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Trace:
        """`draw`, and what was released on the way."""
        parts = list(self._parts(fits, side, n, seed))
        return Trace(
            *(np.concatenate([part[name].cpu().numpy() for part in parts]) for name in Trace.names())
        )

    def count(
        self,
        fits: RecenteredFits,
        side: int,
        direction: np.ndarray,
        ratio_bins: Bins,
        theta_bins: Bins,
        n: int,
        seed: int,
    ) -> tuple[Counts, Counts]:
        """Counts of the likelihood ratio and of direction·θ over n fresh fits."""
        along = torch.as_tensor(np.asarray(direction, dtype=np.float64), device=self.device)
        totals = [
            torch.zeros(b.count, dtype=torch.int64, device=self.device) for b in (ratio_bins, theta_bins)
        ]
        for part in self._parts(fits, side, n, seed):
            for total, bins, values in zip(
                totals, (ratio_bins, theta_bins), (part["ratio"], part["theta"] @ along), strict=True
            ):
                index = torch.floor((values - bins.low) * (bins.count / (bins.high - bins.low)))
                index = torch.nan_to_num(index, nan=bins.count - 1).clamp(0, bins.count - 1).long()
                total += torch.bincount(index, minlength=bins.count)
        return totals[0].cpu().numpy(), totals[1].cpu().numpy()

    def _parts(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Iterator[dict[str, Tensor]]:
        source = torch.Generator(self.device).manual_seed(seed)
        size = max(1, _MEMORY // (33 * 14 + len(fits.y) * fits.d))
        for start in range(0, n, size):
            yield Batch(fits, side, min(size, n - start), source).run()


@dataclass(eq=False)
class Batch:
    """One batch of fits: the releases in the order of the mechanism, their ratios added up."""

    fits: RecenteredFits
    side: int
    size: int
    source: Any

    def __post_init__(self) -> None:
        self.ratio = torch.zeros(self.size, dtype=torch.float64, device=self.source.device)

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values, dtype=np.float64), device=self.source.device)

    @cached_property
    def counts(self) -> Tensor:
        return self._tensor(self.fits.counts)

    @cached_property
    def change(self) -> Tensor:
        """c₁ − c₀."""
        return self.counts[1] - self.counts[0]

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.source, dtype=torch.float64, device=self.source.device)

    def release(self, parts: Tensor, sigma: Tensor, where: Tensor | None = None) -> Tensor:
        """Σ_r c_r v_r + σz for parts v of shape (fits, records, numbers); `where` it is really made."""
        asked = torch.einsum("r,nrk->nk", self.counts[self.side], parts)
        moved = torch.einsum("r,nrk->nk", self.change, parts)
        z = self._normal(*asked.shape)
        gain = (self.side - 0.5) * (moved**2).sum(1) / sigma**2 + (z * moved).sum(1) / sigma
        self.ratio += gain if where is None else torch.where(where, gain, 0.0)
        return asked + sigma[:, None] * z

    def histogram(self, lengths: Tensor, edges: Tensor, mu: float, where: Tensor | None = None) -> Tensor:
        """A noisy histogram of the lengths (fits, records), cells (…, edge]."""
        cells = (lengths[:, :, None] > edges[:, None, :]).sum(2)
        parts = torch.nn.functional.one_hot(cells, EDGES + 1).to(torch.float64)
        sigma = self.fits.numbers.histogram_factor / mu
        return self.release(parts, torch.full_like(self.ratio, sigma), where)

    def run(self) -> dict[str, Tensor]:
        p = self.fits.numbers
        n = self.released_count()
        kappa = n * p.mu / self.fits.d
        A, u, bound = self.pilot(n, kappa < p.precise)
        metric, u, resolved = self.curvature(A, u, bound, n)
        spread, typical = self.scales(u, resolved, n)
        quick = (kappa >= p.plenty) & (p.rounds > p.quick_rounds)
        walk = Walk(self, u, n, spread, typical, quick)
        phi, clip, kept = walk.finished(kappa)
        theta = torch.einsum("nji,nj->ni", metric, phi)
        return dict(
            zip(
                Trace.names(),
                (theta, self.ratio, n, bound, resolved, spread, typical, clip, kept),
                strict=True,
            )
        )

    def released_count(self) -> Tensor:
        p = self.fits.numbers
        if p.public_count:
            return torch.full_like(self.ratio, max(float(self.counts[0].sum()), 1.0))
        one = torch.ones(self.size, len(self.fits.y), 1, dtype=torch.float64, device=self.source.device)
        noisy = self.release(one, torch.full_like(self.ratio, 1.0 / p.mu_count))[:, 0]
        return noisy.clamp_min(max(1.0 / p.mu_count, 1.0))

    def pilot(self, n: Tensor, made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(A, Ax of the records, B̃); as they are where no pilot is `made`."""
        p, d = self.fits.numbers, self.fits.d
        x = self._tensor(self.fits.x)
        sigma = p.gram_factor * p.x_norm**2 / p.mu_pilot
        rows, columns = np.triu_indices(d)
        # Off the diagonal an entry counts twice in the Frobenius norm and has noise σ/√2: √2 times it has σ.
        weights = self._tensor(np.where(rows == columns, 1.0, math.sqrt(2.0)))
        parts = (x[:, rows] * x[:, columns] * weights).expand(self.size, -1, -1)
        entries = self.release(parts, torch.full_like(self.ratio, sigma), made) / weights
        gram = self._tensor(np.zeros((d, d))).repeat(self.size, 1, 1)
        gram[:, rows, columns] = entries
        gram[:, columns, rows] = entries
        lift = p.floor * sigma * math.sqrt(2.0 * d)
        values, V = _above(gram, torch.full_like(n, lift), n * p.x_norm**2)
        A = (V / torch.sqrt(values)[:, None, :]).mT
        A = torch.where(made[:, None, None], A, self._tensor(np.eye(d)))
        u = torch.einsum("nij,rj->nri", A, x)
        largest = p.x_norm / torch.sqrt(values.amin(1))
        edges = largest[:, None] * self._ladder
        counts = self.histogram(u.norm(dim=2), edges, p.mu_lengths, made)
        slack = p.histogram_factor / p.mu_lengths * self._beyond_noise
        fits = _beyond(counts) + slack <= ((1.0 - p.kept_lengths) * n)[:, None]
        bound = torch.where(fits.any(1), edges.gather(1, fits.int().argmax(1)[:, None])[:, 0], largest)
        return A, u, torch.where(made, bound, torch.full_like(bound, p.x_norm))

    @cached_property
    def _ladder(self) -> Tensor:
        return self._tensor(math.sqrt(2.0) ** -np.arange(EDGES)[::-1].astype(float))

    @cached_property
    def _beyond_noise(self) -> Tensor:
        return self._tensor(np.sqrt(np.arange(EDGES, 0, -1)))

    def curvature(self, A: Tensor, u: Tensor, bound: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(metric, records in it, resolved), S released with Wishart noise."""
        p, d = self.fits.numbers, self.fits.d
        short = u * (bound[:, None] / u.norm(dim=2).clamp_min(1e-300)).clamp_max(1.0)[:, :, None]
        sigma2 = (bound**2 * p.sigma2)[:, None, None]
        W = bartlett(p.m, True, self.size, d, self.source)[0]
        W = W @ W.mT
        moved = torch.einsum("r,nri,nrj->nij", self.change, short, short) / sigma2
        other = W + (1 if self.side == 0 else -1) * -moved  # what the other table's noise would have been
        logs, possible = _log_det(other)
        gain = 0.5 * (p.m - d - 1) * (logs - _log_det(W)[0]) - 0.5 * _trace(other - W)
        gain = torch.where(possible, gain, -math.inf)
        self.ratio += gain if self.side == 0 else -gain
        eye = self._tensor(np.eye(d))
        S = torch.einsum("r,nri,nrj->nij", self.counts[self.side], short, short) + sigma2 * (W - p.m * eye)
        norm = 2.0 * sigma2[:, 0, 0] * math.sqrt(p.m * d)
        values = torch.linalg.eigvalsh(S)
        lifted, U = _above(S, p.floor * norm, n * bound**2)
        return (
            (U / torch.sqrt(lifted)[:, None, :]).mT @ A,
            torch.einsum("nji,nrj->nri", U, u) / torch.sqrt(lifted)[:, None, :],
            _resolved(values, lifted, norm),
        )

    def scales(self, u: Tensor, resolved: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        """(spread, typical gradient) from two looks."""
        p, d = self.fits.numbers, self.fits.d
        lengths = u.norm(dim=2)
        length = self.typical(lengths, torch.sqrt(resolved / n), n.clamp_min(1.0), p.mu_spread, 0)
        spread = (n * length**2).clamp_max(float(d))
        slopes = self.slopes(torch.zeros_like(lengths)).abs()
        guess = p.slope * torch.sqrt(spread / n)
        return spread, self.typical(lengths * slopes, guess, n, p.mu_scale, 1)

    def typical(self, lengths: Tensor, guess: Tensor, n: Tensor, mu: float, prior: int) -> Tensor:
        """`released.scales.typical_length`."""
        p, looks = self.fits.numbers, self.fits.looks
        largest = p.widest_clip * guess
        counts = self.histogram(lengths, largest[:, None] * self._tensor(looks.edges), mu)
        error2 = (p.histogram_factor / mu) ** 2 + (0.1 * n) ** 2
        fit = n[:, None] * (counts @ self._tensor(looks.cells).T)
        fit = (fit - 0.5 * n[:, None] ** 2 * self._tensor(looks.squares)) / error2[:, None]
        weights = torch.softmax(fit + self._tensor(looks.priors[prior]), 1)
        return largest * 2.0 ** (weights @ self._tensor(looks.sizes))

    def slopes(self, margins: Tensor) -> Tensor:
        """φ'(s; y) of shape (fits, records)."""
        return self._slope(margins)

    @cached_property
    def _slope(self) -> Callable[[Tensor], Tensor]:
        y = self._tensor(self.fits.y)
        if self.fits.slopes is None:
            return lambda s: -y * torch.sigmoid(-y * s)
        low, high = (self._tensor(part) for part in self.fits.slopes)
        return lambda s: torch.minimum(torch.maximum(s - y, low), high)


@dataclass(eq=False)
class Walk:
    """The rounds, in the coordinates φ of the metric."""

    batch: Batch
    u: Tensor
    n: Tensor
    spread: Tensor
    typical: Tensor
    quick: Tensor

    def finished(self, kappa: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(φ, clip, kept)."""
        p = self.batch.fits.numbers
        first = self._pick(p.first_rounds, p.quick_first_rounds)
        later = self._pick(p.rounds - p.first_rounds, p.quick_rounds - p.quick_first_rounds)
        clip, kept = p.first_clip * self.typical, torch.full_like(self.typical, p.first_kept)
        phi = torch.zeros_like(self.u[:, 0, :])
        phi, _, _ = self.walk(phi, clip, kept, first, p.mu_first, p.first_travel, None)
        clip, kept = self.choose_clip(phi)
        power = p.weight * (1.0 + kappa / p.large)
        _, centre, gradient = self.walk(phi, clip, kept, later, p.mu_later, math.inf, power)
        return centre - gradient / (p.beta * kept)[:, None], clip, kept

    def _pick(self, slow: float, quick: float) -> Tensor:
        return torch.where(self.quick, quick, slow).to(torch.float64)

    def walk(
        self,
        phi: Tensor,
        clip: Tensor,
        kept: Tensor,
        rounds: Tensor,
        mu: float,
        most: float,
        power: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(φ, weighted mean of centres, of gradients) after so many rounds with a shift of μ together."""
        p = self.batch.fits.numbers
        way = (p.travel * self.n * mu / p.sum_factor / self.spread).clamp_max(most)
        step = self._pick(p.step, p.quick_step)
        momentum = (1.0 - step * rounds / way).clamp(0.0, p.momentum)[:, None]
        scale = (torch.minimum(step, way / rounds) / (p.beta * kept))[:, None]
        sigma = p.sum_factor * clip * torch.sqrt(rounds) / mu
        lengths = self.u.norm(dim=2)
        last, centres, gradients = phi, torch.zeros_like(phi), torch.zeros_like(phi)
        total = torch.zeros_like(clip)
        for turn in range(1, int(rounds.max()) + 1):
            active = turn <= rounds
            centre = phi + momentum * (phi - last)
            slopes = self.batch.slopes(torch.einsum("nri,ni->nr", self.u, centre))
            slopes = slopes * (clip[:, None] / (lengths * slopes.abs()).clamp_min(1e-300)).clamp_max(1.0)
            gradient = self.batch.release(slopes[:, :, None] * self.u, sigma, active)
            moved = centre - scale * gradient
            uphill = ((gradient * (moved - phi)).sum(1) > 0)[:, None]
            still = ~active[:, None]
            last = torch.where(still, last, torch.where(uphill, moved, phi))
            phi = torch.where(still, phi, moved)
            if power is not None:
                weight = torch.where(active, (turn / rounds) ** power, 0.0)
                total += weight
                centres += weight[:, None] * centre
                gradients += weight[:, None] * gradient
        return phi, centres / total[:, None], gradients / total[:, None]

    def choose_clip(self, phi: Tensor) -> tuple[Tensor, Tensor]:
        p, batch = self.batch.fits.numbers, self.batch
        edges = (p.widest_clip * self.typical)[:, None] * batch._ladder
        slopes = batch.slopes(torch.einsum("nri,ni->nr", self.u, phi)).abs()
        outside = _beyond(batch.histogram(self.u.norm(dim=2) * slopes, edges, p.mu_clip))
        scale = p.histogram_factor / p.mu_clip
        few = p.clipped * batch.fits.d * p.sum_factor / p.mu
        n = self.n[:, None]
        good = (outside - p.doubt * scale * batch._beyond_noise <= few) & (outside <= (1.0 - p.kept) * n)
        index = torch.where(good.any(1), good.int().argmax(1), EDGES - 1)[:, None]
        kept = (1.0 - outside.gather(1, index)[:, 0] / self.n).clamp(p.kept, 1.0)
        noise = scale * math.sqrt(EDGES / 2.0) > self.n / 3.0
        clip = torch.where(noise, p.first_clip * self.typical, edges.gather(1, index)[:, 0])
        return clip, torch.where(noise, torch.full_like(kept, p.first_kept), kept)


def _above(S: Tensor, lift: Tensor, ceiling: Tensor) -> tuple[Tensor, Tensor]:
    """`geometry.curvature_above`."""
    values, vectors = torch.linalg.eigh(S)
    capped = torch.minimum(values.clamp_min(0.0), ceiling[:, None])
    return capped + torch.minimum(lift, ceiling)[:, None], vectors


def _beyond(counts: Tensor) -> Tensor:
    """How many records lie beyond each edge."""
    return counts.flip(1).cumsum(1).flip(1)[:, 1:].clamp_min(0.0)


def _resolved(values: Tensor, lifted: Tensor, norm: Tensor) -> Tensor:
    """`geometry._resolved`."""
    above = values > norm[:, None]
    below = (~above).sum(1).clamp_min(1)
    mean = torch.where(above, 0.0, 1.0 / lifted).sum(1) / below
    total = torch.where(above, values / lifted, 0.0).sum(1) + torch.where(above, 0.0, values).sum(1) * mean
    return total.clamp(0.5, float(values.shape[1]))


def _log_det(W: Tensor) -> tuple[Tensor, Tensor]:
    """log det and whether W is positive definite."""
    factor, info = torch.linalg.cholesky_ex(W)
    return 2.0 * torch.log(factor.diagonal(dim1=-2, dim2=-1)).sum(1), info == 0


def _trace(W: Tensor) -> Tensor:
    return W.diagonal(dim1=-2, dim2=-1).sum(1)
