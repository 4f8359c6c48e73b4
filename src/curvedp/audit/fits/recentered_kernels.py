"""Recentered fits on the CPU, from n̂ to θ, with L = log p₁ − log p₀ of everything that is released."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from curvedp.arrays import FloatArray
from curvedp.audit.fits.recentered import EDGES, Numbers
from curvedp.audit.fits.small import FLAGS, diagonalize, log_determinant

_CELLS = EDGES + 1
_ROOTS = np.sqrt(np.arange(EDGES, 0, -1.0))  # √ of the number of cells beyond each edge
_HALVINGS = 2.0 ** (-0.5 * np.arange(EDGES - 1, -1, -1.0))  # edges a factor √2 apart, the largest is 1
_TINY = 1e-300


class Table(NamedTuple):
    """The distinct records of both tables, and how often each is in which."""

    x: FloatArray
    y: FloatArray
    counts: FloatArray  # (2, r)
    moved: FloatArray  # c₁ − c₀
    logistic: bool
    low: FloatArray
    high: FloatArray


class Constants(NamedTuple):
    """`recentered.Looks`."""

    edges: FloatArray
    sizes: FloatArray
    cells: FloatArray
    squares: FloatArray
    priors: FloatArray


class Room(NamedTuple):
    """Where one fit after the other is computed."""

    S: FloatArray  # (d, d)
    V: FloatArray  # (d, d) eigenvectors
    A: FloatArray  # (d, d) the metric
    change: FloatArray  # (d, d)
    factor: FloatArray  # (d, d)
    values: FloatArray  # (d,)
    u: FloatArray  # (r, d): Ax
    lengths: FloatArray  # (r,): ‖Ax‖
    sizes: FloatArray  # (r,)
    noisy: FloatArray  # (14,)
    difference: FloatArray  # (14,)
    vectors: FloatArray  # (7, d): φ, the last φ, centre, g, Δ, mean centre, mean g


@njit(nogil=True, fastmath=FLAGS, cache=True)
def lift(values: FloatArray, S: FloatArray, by: float, ceiling: float) -> None:
    """values ← min(max(s, 0), ceiling) + min(by, ceiling), s on the diagonal of S."""
    for i in range(values.size):
        values[i] = min(max(S[i, i], 0.0), ceiling) + min(by, ceiling)


@njit(nogil=True, fastmath=FLAGS, cache=True)
def measure(room: Room, x: FloatArray) -> None:
    """u ← Ax and its lengths for every record x."""
    r, d = x.shape
    for i in range(r):
        square = 0.0
        for j in range(d):
            total = 0.0
            for k in range(d):
                total += room.A[j, k] * x[i, k]
            room.u[i, j] = total
            square += total * total
        room.lengths[i] = math.sqrt(square)


@njit(nogil=True, fastmath=FLAGS, cache=True)
def look(
    random: np.random.Generator,
    room: Room,
    table: Table,
    side: int,
    edges: FloatArray,
    largest: float,
    sigma: float,
) -> float:
    """noisy ← the histogram of `room.sizes` cut by largest·edges, plus σz; returns its part of L."""
    for k in range(_CELLS):
        room.noisy[k] = room.difference[k] = 0.0
    for i in range(table.y.size):
        k = 0
        while k < EDGES and largest * edges[k] < room.sizes[i]:
            k += 1
        room.noisy[k] += table.counts[side, i]
        room.difference[k] += table.moved[i]
    ratio = 0.0
    for k in range(_CELLS):
        z, shift = random.standard_normal(), room.difference[k] / sigma
        room.noisy[k] += sigma * z
        ratio += shift * (z + (side - 0.5) * shift)
    return ratio


@njit(nogil=True, fastmath=FLAGS, cache=True)
def typical_length(
    noisy: FloatArray, deviation: float, n: float, constants: Constants, prior: FloatArray
) -> float:
    """`released.scales.typical_length` in units of the largest edge."""
    precision = 1.0 / (deviation * deviation + (0.1 * n) * (0.1 * n))
    fits = np.empty(constants.sizes.size)
    for j in range(fits.size):
        total = 0.0
        for k in range(_CELLS):
            total += noisy[k] * constants.cells[j, k]
        fits[j] = prior[j] + n * precision * (total - 0.5 * n * constants.squares[j])
    best = fits.max()
    mass = mean = 0.0
    for j in range(fits.size):
        weight = math.exp(fits[j] - best)
        mass += weight
        mean += weight * constants.sizes[j]
    return float(2.0 ** (mean / mass))


@njit(nogil=True, fastmath=FLAGS, cache=True)
def slope_at(table: Table, i: int, s: float) -> float:
    """φ'(s) of record i."""
    y = table.y[i]
    if table.logistic:
        return float(-y / (1.0 + math.exp(min(y * s, 700.0))))
    return float(min(max(s - y, table.low[i]), table.high[i]))


@njit(nogil=True, fastmath=FLAGS, cache=True)
def gradient_sizes(room: Room, table: Table) -> None:
    """sizes ← lengths of the gradients at φ = vectors[0]."""
    for i in range(table.y.size):
        s = 0.0
        for j in range(room.values.size):
            s += room.u[i, j] * room.vectors[0, j]
        room.sizes[i] = room.lengths[i] * abs(slope_at(table, i, s))


@njit(nogil=True, fastmath=FLAGS, cache=True)
def pilot_metric(
    random: np.random.Generator, numbers: Numbers, table: Table, room: Room, side: int, n: float
) -> float:
    """A ← the metric of a noisy XᵀX; returns its part of L."""
    r, d = table.x.shape
    scale = numbers.gram_factor * numbers.x_norm**2 / numbers.mu_pilot
    ratio = 0.0
    for i in range(d):
        for j in range(i + 1):
            query = shift = 0.0
            for k in range(r):
                product = table.x[k, i] * table.x[k, j]
                query += table.counts[side, k] * product
                shift += table.moved[k] * product
            deviation = scale if i == j else scale / math.sqrt(2.0)
            shift /= deviation
            z = random.standard_normal()
            ratio += shift * (z + (side - 0.5) * shift)
            room.S[i, j] = room.S[j, i] = query + deviation * z
    diagonalize(room.S, room.V)
    ceiling = n * numbers.x_norm**2
    lift(room.values, room.S, numbers.floor * scale * math.sqrt(2.0 * d), ceiling)
    for i in range(d):
        for j in range(d):
            room.A[i, j] = room.V[j, i] / math.sqrt(room.values[i])
    return ratio


@njit(nogil=True, fastmath=FLAGS, cache=True)
def length_bound(noisy: FloatArray, largest: float, deviation: float, few: float) -> float:
    """The smallest edge beyond which at most `few` records surely lie; else the largest."""
    bound, beyond = largest, 0.0
    for j in range(EDGES - 1, -1, -1):
        beyond += noisy[j + 1]
        if max(beyond, 0.0) + deviation * _ROOTS[j] <= few:
            bound = largest * _HALVINGS[j]
    return bound


@njit(nogil=True, fastmath=FLAGS, cache=True)
def curvature(
    random: np.random.Generator, numbers: Numbers, table: Table, room: Room, side: int, bound: float
) -> float:
    """S ← Σ uuᵀ + B̃²σ²(W − mI), records shortened to B̃; returns log p₁ − log p₀ of it.

    W₁ − W₀ = −Δ/(B̃²σ²); a table that would need a W that is not positive definite cannot have released S.
    """
    r, d = table.x.shape
    m, sigma2 = numbers.m, numbers.sigma2 * bound**2
    drawn = trace = 0.0
    for j in range(d):
        square = random.chisquare(m - j)
        drawn += math.log(square)
        room.factor[j, j] = math.sqrt(square)
        for i in range(j + 1, d):
            room.factor[i, j] = random.standard_normal()
    for k in range(r):
        room.sizes[k] = min(1.0, (bound / max(room.lengths[k], _TINY)) ** 2)
    for i in range(d):
        for j in range(i + 1):
            query = shift = wishart = 0.0
            for k in range(r):
                product = room.u[k, i] * room.u[k, j] * room.sizes[k]
                query += table.counts[side, k] * product
                shift += table.moved[k] * product
            for k in range(j + 1):
                wishart += room.factor[i, k] * room.factor[j, k]
            room.S[i, j] = room.S[j, i] = query + sigma2 * (wishart - (m if i == j else 0.0))
            room.change[i, j] = wishart + (2 * side - 1) * shift / sigma2
            trace += shift / sigma2 if i == j else 0.0
    other = log_determinant(room.change)
    return float(0.5 * (m - d - 1.0) * (2 * side - 1) * (drawn - other) + 0.5 * trace)


@njit(nogil=True, fastmath=FLAGS, cache=True)
def metric_of(numbers: Numbers, room: Room, n: float, bound: float) -> float:
    """A ← the metric of S on top of the pilot's; returns about Σ‖Ax‖²."""
    d = room.values.size
    norm = 2.0 * numbers.sigma2 * bound**2 * math.sqrt(numbers.m * d)
    diagonalize(room.S, room.V)
    lift(room.values, room.S, numbers.floor * norm, n * bound**2)
    resolved = weak = inverse = 0.0
    below = 0
    for i in range(d):
        if room.S[i, i] > norm:
            resolved += room.S[i, i] / room.values[i]
        else:
            weak += room.S[i, i]
            inverse += 1.0 / room.values[i]
            below += 1
    if below > 0:
        resolved += weak * inverse / below
    for i in range(d):
        root = 1.0 / math.sqrt(room.values[i])
        for j in range(d):
            total = 0.0
            for k in range(d):
                total += room.V[k, i] * room.A[k, j]
            room.change[i, j] = root * total
    room.A[:, :] = room.change
    return min(max(resolved, 0.5), float(d))


@njit(nogil=True, fastmath=FLAGS, cache=True)
def walk(
    random: np.random.Generator,
    table: Table,
    room: Room,
    side: int,
    clip: float,
    sigma: float,
    damping: float,  # over b
    momentum: float,
    rounds: int,
    power: float,
) -> float:
    """Rounds from φ on, the t-th of weight ∝ t^power in the means; returns their part of L."""
    r, d = room.u.shape
    phi, last, centre, g = room.vectors[0], room.vectors[1], room.vectors[2], room.vectors[3]
    shift, mean, mean_g = room.vectors[4], room.vectors[5], room.vectors[6]
    last[:] = phi
    mean[:] = 0.0
    mean_g[:] = 0.0
    ratio = mass = 0.0
    for t in range(rounds):
        for j in range(d):
            centre[j] = phi[j] + momentum * (phi[j] - last[j])
            g[j] = shift[j] = 0.0
        for i in range(r):
            s = 0.0
            for j in range(d):
                s += room.u[i, j] * centre[j]
            slope = slope_at(table, i, s)
            slope *= min(1.0, clip / max(abs(slope) * room.lengths[i], _TINY))
            here, moved = table.counts[side, i] * slope, table.moved[i] * slope / sigma
            for j in range(d):
                g[j] += here * room.u[i, j]
                shift[j] += moved * room.u[i, j]
        weight = math.exp(power * math.log((t + 1.0) / rounds))
        mass += weight
        uphill = 0.0
        for j in range(d):
            z = random.standard_normal()
            ratio += shift[j] * (z + (side - 0.5) * shift[j])
            g[j] += sigma * z
            last[j] = phi[j]
            phi[j] = centre[j] - damping * g[j]
            uphill += g[j] * (phi[j] - last[j])
            mean[j] += weight * centre[j]
            mean_g[j] += weight * g[j]
        if uphill > 0.0:
            last[:] = phi
    for j in range(d):
        mean[j] /= mass
        mean_g[j] /= mass
    return ratio


@njit(nogil=True, fastmath=FLAGS, cache=True)
def chosen_clip(numbers: Numbers, room: Room, typical: float, n: float) -> tuple[float, float]:
    """`Rounds.choose_clip` from the noisy histogram: the clip and the fraction of records that it leaves."""
    d = room.values.size
    deviation = numbers.histogram_factor / numbers.mu_clip
    if deviation * math.sqrt(EDGES / 2.0) > n / 3.0:
        return numbers.first_clip * typical, numbers.first_kept
    few = numbers.clipped * d * numbers.sum_factor / numbers.mu
    most = (1.0 - numbers.kept) * n
    index, at, beyond = EDGES - 1, max(room.noisy[EDGES], 0.0), 0.0
    for j in range(EDGES - 1, -1, -1):
        beyond += room.noisy[j + 1]
        outside = max(beyond, 0.0)
        if outside - numbers.doubt * deviation * _ROOTS[j] <= few and outside <= most:
            index, at = j, outside
    kept = min(max(1.0 - at / n, numbers.kept), 1.0)
    return numbers.widest_clip * typical * _HALVINGS[index], kept


@njit(nogil=True, fastmath=FLAGS, cache=True)
def stride(
    numbers: Numbers, n: float, spread: float, mu: float, rounds: int, step: float, most: float
) -> tuple[float, float]:
    """(damping, momentum) of `Rounds.stride`."""
    way = min(numbers.travel * n * mu / (numbers.sum_factor * spread), most)
    return min(step, way / rounds), min(max(1.0 - step * rounds / way, 0.0), numbers.momentum)


@njit(nogil=True, fastmath=FLAGS, cache=True)
def run(
    random: np.random.Generator,
    numbers: Numbers,
    table: Table,
    constants: Constants,
    side: int,
    theta: FloatArray,
    ratios: FloatArray,
    trace: FloatArray,
) -> None:
    """theta[f], ratios[f] and, where `trace` has columns, those of `Trace` for every fit f."""
    r, d = table.x.shape
    room = Room(
        np.empty((d, d)),
        np.empty((d, d)),
        np.empty((d, d)),
        np.empty((d, d)),
        np.empty((d, d)),
        np.empty(d),
        np.empty((r, d)),
        np.empty(r),
        np.empty(r),
        np.empty(_CELLS),
        np.empty(_CELLS),
        np.empty((7, d)),
    )
    for f in range(theta.shape[0]):
        ratio, n, bound = 0.0, max(table.counts[side].sum(), 1.0), numbers.x_norm
        if numbers.public_count == 0.0:
            z, shift = random.standard_normal(), table.moved.sum() * numbers.mu_count
            ratio += shift * (z + (side - 0.5) * shift)
            n = max(table.counts[side].sum() + z / numbers.mu_count, 1.0 / numbers.mu_count, 1.0)
        kappa = n * numbers.mu / d
        if kappa < numbers.precise:
            ratio += pilot_metric(random, numbers, table, room, side, n)
            measure(room, table.x)
            room.sizes[:] = room.lengths
            largest = numbers.x_norm / math.sqrt(room.values.min())
            deviation = numbers.histogram_factor / numbers.mu_lengths
            ratio += look(random, room, table, side, _HALVINGS, largest, deviation)
            bound = length_bound(room.noisy, largest, deviation, (1.0 - numbers.kept_lengths) * n)
        else:
            for i in range(d):
                for j in range(d):
                    room.A[i, j] = 1.0 if i == j else 0.0
            measure(room, table.x)
        ratio += curvature(random, numbers, table, room, side, bound)
        resolved = metric_of(numbers, room, n, bound)
        measure(room, table.x)

        largest = numbers.widest_clip * math.sqrt(resolved / n)
        deviation = numbers.histogram_factor / numbers.mu_spread
        room.sizes[:] = room.lengths
        ratio += look(random, room, table, side, constants.edges, largest, deviation)
        length = largest * typical_length(room.noisy, deviation, n, constants, constants.priors[0])
        spread = min(n * length * length, float(d))
        largest = numbers.widest_clip * numbers.slope * math.sqrt(spread / n)
        deviation = numbers.histogram_factor / numbers.mu_scale
        room.vectors[0] = 0.0
        gradient_sizes(room, table)
        ratio += look(random, room, table, side, constants.edges, largest, deviation)
        typical = largest * typical_length(room.noisy, deviation, n, constants, constants.priors[1])

        rounds, first, step = int(numbers.rounds), int(numbers.first_rounds), numbers.step
        if kappa >= numbers.plenty and numbers.rounds > numbers.quick_rounds:
            rounds, first, step = (
                int(numbers.quick_rounds),
                int(numbers.quick_first_rounds),
                numbers.quick_step,
            )
        later = rounds - first
        damping, momentum = stride(numbers, n, spread, numbers.mu_first, first, step, numbers.first_travel)
        clip, b = numbers.first_clip * typical, numbers.beta * numbers.first_kept
        sigma = numbers.sum_factor * clip * math.sqrt(first) / numbers.mu_first
        ratio += walk(random, table, room, side, clip, sigma, damping / b, momentum, first, 0.0)

        gradient_sizes(room, table)
        deviation = numbers.histogram_factor / numbers.mu_clip
        largest = numbers.widest_clip * typical
        ratio += look(random, room, table, side, _HALVINGS, largest, deviation)
        clip, kept = chosen_clip(numbers, room, typical, n)
        damping, momentum = stride(numbers, n, spread, numbers.mu_later, later, step, math.inf)
        b = numbers.beta * kept
        sigma = numbers.sum_factor * clip * math.sqrt(later) / numbers.mu_later
        power = numbers.weight * (1.0 + kappa / numbers.large)
        ratio += walk(random, table, room, side, clip, sigma, damping / b, momentum, later, power)

        ratios[f] = ratio
        for j in range(d):
            total = 0.0
            for k in range(d):
                total += room.A[k, j] * (room.vectors[5, k] - room.vectors[6, k] / b)
            theta[f, j] = total
        if trace.shape[1] > 0:
            trace[f] = np.array([n, bound, resolved, spread, typical, clip, kept])
