"""Standard errors and intervals of linear functionals of θ: everything follows from released numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.special import chdtri, logsumexp, softmax, stdtr, stdtrit

from curvedp.arrays import BoolArray, FloatArray, kron
from curvedp.errors import InvalidInput
from curvedp.forms import LARGEST, Packed, Positive, Within
from curvedp.postprocess.noise import UserUnits

# How many records lie beyond a clip, and what clipping them can do: from one noisy histogram of lengths.

_INDICES = np.geomspace(1.0, 10.0, 24)  # α of a tail N(e) ∝ e^−α
TYPICAL_INDEX = 4.0  # α a priori …
_OUTLYING_INDEX = 1.4  # … where much leverage is unseen …
_LONG_CLIP = 5.0  # … and √(this/reach) times where a clip reaches more typical gradients than these (P-10)
_INDEX_DOUBT = 0.4  # deviation of ln α
_FIRM = 6.0  # deviations of a cell that surely holds some records
_SURELY = 4.0  # deviations of some run of cells: noise makes one in at most 1 of 350 fits (91 runs)
HIDDEN = 0.7  # of a deviation: so many records beyond an edge may always be hidden by noise
_HEAVIEST = 1.0 / 3.0  # of α − 1: no mean excess above three times the edge is believed
_UNEVEN = 1.0  # deviation of ln(count/expected) of a cell; 1, 1.5 and 2 were tried (P-10)
_APART = np.linspace(-6.0, 8.0, 225)  # in units of it


@dataclass(frozen=True, eq=False)
class Tail:
    """Noisy counts of gradient lengths in the cells cut by `edges`, each with deviation `scale`.

    From the last cell with a firm count on, or of a run that surely holds more than a power does, the tail is
    taken to fall like e^−α, α on a grid with a public prior.
    """

    edges: Annotated[FloatArray, Packed("e")]
    counts: Annotated[FloatArray, Packed("c")]  # one more than edges
    scale: Positive
    longest: Positive = LARGEST  # that a gradient can be
    outlying: Annotated[float, Within(0.0)] = 0.0  # up to 1 where most leverage may be unseen
    likely: Annotated[float, Within(0.0)] = 0.0  # α a priori; 0: it is as most tails are, without a lump

    @cached_property
    def _power(self) -> tuple[int, FloatArray, FloatArray]:
        """(start, what is in each cell from that edge on for every α, probabilities of the α).

        The start is the lower edge of the last cell that holds a firm count, or surely too many with others.
        """
        firm = np.flatnonzero(self.counts[1:] >= _FIRM * self.scale)
        start = int(firm[-1]) if firm.size else 0
        while True:
            cells, posterior = self._fitted(start)
            if (lump := self._lump(start, posterior @ cells)) == start:
                return start, cells, posterior
            start = lump

    def _fitted(self, start: int) -> tuple[FloatArray, FloatArray]:
        """`_power` from an edge on: N there is by least squares, so that far cells hardly count.

        A cell has e^δ times what e^−α says, δ normal, but for noise and Poisson variance: posterior means.
        """
        seen = self.counts[start + 1 :]
        fallen = (self.edges[start:] / self.edges[start]) ** -_INDICES[:, None]
        shares = fallen - np.append(fallen[:, 1:], np.zeros((len(fallen), 1)), axis=1)
        sizes = np.maximum(shares @ seen / np.sum(shares**2, axis=1), 0.0)
        uneven = _UNEVEN * (1.0 - self.outlying)
        possible = (sizes[:, None] * shares)[..., None] * np.exp(uneven * (_APART - 0.5 * uneven))
        variance = self.scale**2 + possible + 1.0
        logs = -0.5 * ((seen[:, None] - possible) ** 2 / variance + np.log(variance) + _APART**2)
        likely = (self.likely or TYPICAL_INDEX) ** (1.0 - self.outlying) * _OUTLYING_INDEX**self.outlying
        prior = (np.log(_INDICES / likely) / _INDEX_DOUBT) ** 2
        posterior = softmax(np.sum(logsumexp(logs, axis=-1), axis=1) - 0.5 * prior)
        return np.sum(softmax(logs, axis=-1) * possible, axis=-1), posterior

    def _lump(self, start: int, expected: FloatArray) -> int:
        """The lower edge of the last cell of the run that holds most for what is expected; or `start`."""
        total = np.append(0.0, np.cumsum(self.counts[start + 1 :] - expected))
        variance = np.append(0.0, np.cumsum(self.scale**2 + expected))
        first, end = np.triu_indices(len(total), 1)
        deviations = (total[end] - total[first]) / np.sqrt(variance[end] - variance[first])
        best = int(np.argmax(deviations))
        return start + int(end[best]) - 1 if self.likely and deviations[best] >= _SURELY else start

    @cached_property
    def _surviving(self) -> FloatArray:
        """N(e) at every edge (columns) for every α (rows)."""
        start, cells, _ = self._power
        before = np.maximum(self.counts[1 : start + 1], 0.0)
        cells = np.hstack([np.tile(before, (len(_INDICES), 1)), cells])
        return np.asarray(np.cumsum(cells[:, ::-1], axis=1)[:, ::-1])

    @property
    def posterior(self) -> FloatArray:
        """Probabilities of the α."""
        return self._power[2]

    @property
    def expected(self) -> FloatArray:
        """The posterior mean of N(e): records longer than each edge."""
        return np.asarray(self.posterior @ self._surviving)

    @property
    def index(self) -> float:
        """The posterior mean of α."""
        return float(self.posterior @ _INDICES)

    @cached_property
    def _beyond_clip(self) -> tuple[FloatArray, FloatArray]:
        """N(c) at the second edge c for every α, a count that noise hides being no 0; and α there."""
        N = self._surviving
        near = 2.0 * np.log2(np.maximum(N[:, 1], 1e-300) / np.maximum(N[:, 2], 1e-300))  # edges √2 apart
        near = np.where(N[:, 1] > HIDDEN * self.scale, near, _INDICES)
        return np.maximum(N[:, 1], HIDDEN * self.scale), np.maximum(near - 1.0, _HEAVIEST) + 1.0

    @cached_property
    def excesses(self) -> FloatArray:
        """E = Σ(|g| − c)⁺ = ∫ N(e) de beyond the second edge c for every α, of a power in every cell."""
        at, N = self.edges[1:], self._surviving[:, 1:]
        start = self.edges[max(self._power[0], 1)]
        hidden = HIDDEN * self.scale * np.maximum(at / start, 1.0) ** -_INDICES[:, None]
        x = np.maximum(N, hidden) * at
        steps = np.log(x[:, :-1] / x[:, 1:])
        flat = np.abs(steps) < 1e-6
        each = np.where(flat, x[:, 1:], -np.diff(x, axis=1) / np.where(flat, 1.0, steps))
        counted = each @ np.diff(np.log(at))
        rest = x[:, -1] / np.maximum(_INDICES - 1.0, _HEAVIEST)
        room = max(self.longest - self.edges[1], 0.0)
        return np.asarray(np.minimum(counted + rest, room * self._beyond_clip[0]))

    def stretch(self, ramp: float) -> FloatArray:
        """f = E/Σ min((|g|/c − 1)⁺/ramp, 1) for every α; of one power c·ramp/(1 − (1+ramp)^{1−α})."""
        count, index = self._beyond_clip
        share = (1.0 - (1.0 + ramp) ** (1.0 - index)) / (ramp * (index - 1.0))
        return np.asarray(self.excesses / (count * share))


def likely_index(reach: float, several: float) -> float:
    """α a priori: tails of which even a long clip leaves records fall slowly; but sums over rows differ."""
    return float(TYPICAL_INDEX * min(_LONG_CLIP / max(reach, _LONG_CLIP), 1.0) ** (0.5 * (1.0 - several)))


FAR = 15.0  # typical gradients: where a clip reaches so far, much hangs on few records
BEYOND = 0.125  # a record counts as beyond the clip once its gradient is longer by this share of it
LEAST_DF = 2.0  # degrees of freedom below which nothing is stated
_LEAST_COUNT = 20.0  # deviations of a count: fewer records tell no tail from its noise, see `of`
_MOST_HIDDEN = 0.98  # of a variance: what unresolved directions may contribute
_LARGER = 2.0  # times the root mean square of all coefficients: so large are those along such directions
_MOST_FIXED = 0.2  # of a functional's largest entry: its part along directions that are left out
_HOPELESS = 1e3  # times the records: what is so far away is not seen at all
RESOLVED = 0.5  # of the spectral norm √(2r) of a noise of deviation 1: eigenvalues of Ĵ above it are seen
LEAST_EIGENVALUE = 0.01  # of β: smallest eigenvalue of Ĵ among resolved directions
_DOUBT = 0.25  # relative prior deviation of ρ
_BENT = (0.5, 4.0)  # of a correction q for the bend of the mean response, and of q²: so well is it known
_STRAIGHT = 1e-9  # no larger |q| is more than rounding
_FARTHEST = 3.0  # it is believed to be from its guess, as a factor
_ODD = (
    0.02  # chance that noise makes some entry of Ĵ look odd, which hides a direction: there are many entries
)
_LEAST_PROPORTION = 0.05  # eigenvalue below which the two looks are not expected to agree in proportion
_nodes, _weights = np.polynomial.hermite_e.hermegauss(7)
_LOG_WEIGHTS = np.log(_weights / _weights.sum())
ALONG = (-1.0, 0.9)  # mean and deviation of ln(τ/E) along b
ACROSS = (-0.75, 0.6)  # of ln(τ√r/E) elsewhere
# Where units have several rows: their sums are more symmetric, so that less is cut off; but how many they are
# may go with the response, and then all that is cut off, τ = E, points the same way.
SEVERAL_ALONG = (-2.6, 0.9)
SEVERAL_ACROSS = (-2.5, 0.8)


@dataclass(frozen=True, eq=False)
class Functionals:
    """Estimates of linear functionals aᵀθ, with what is known of their errors.

    `se` holds sampling, privacy noise and clipping together, `noise` that of privacy alone, with all that
    directions may hide which are not seen for it. `enough` is about how many times the records would do where
    one is not resolved: infinite where what is released cannot tell, as of a level without records.
    """

    estimate: FloatArray
    se: FloatArray
    noise: FloatArray
    df: FloatArray
    resolved: BoolArray
    enough: FloatArray

    def half_width(self, level: float) -> FloatArray:
        """Of the interval aᵀθ̂ ± half that holds aᵀθ with this probability; NaN where not resolved."""
        half = self.se * -stdtrit(np.maximum(self.df, 1.0), (1.0 - level) / 2.0)
        return np.where(self.resolved, half, np.nan)

    def pvalues(self) -> FloatArray:
        """Of aᵀθ = 0: the p at which the interval of level 1 − p ends at 0; NaN where not resolved."""
        z = np.abs(self.estimate) / np.where(self.resolved, self.se, 1.0)
        return np.where(self.resolved, 2.0 * stdtr(np.maximum(self.df, 1.0), -z), np.nan)


@dataclass(frozen=True, eq=False)
class Inference:
    """What a fit releases for intervals (P-10), in r coordinates w, θ = basis·w + fixed.

    Noise is white there. The estimate is a Newton step from the walk's mean centre, where Ĵ is resolved, with
    a bread and a meat of its own. Of K outputs θ is D = dK numbers, one output after another.
    """

    basis: Annotated[FloatArray, Packed("Dr")]
    left_out: Annotated[FloatArray, Packed("Dk")]  # directions of θ along which nothing is known …
    fixed: Annotated[FloatArray, Packed("D")]  # … but this θ among them
    # Deviations of the noise in shares of levels, by category; 0 in other rows.
    levels: Annotated[FloatArray, Packed("db")]
    shares: Annotated[FloatArray, Packed("d")]  # of the records, 0 where a column is no level
    look: Annotated[FloatArray, Packed("r")]  # Σ z zᵀ of shortened records, diagonal here
    look_spread: Annotated[FloatArray, Packed("rr")]  # TTᵀ: its noise is τ·T Sym Tᵀ
    look_scale: Positive  # τ
    bread: Annotated[FloatArray, Packed("rr")]  # Σ uφ'' z zᵀ + noise
    bread_scale: Positive
    beta: Positive
    guess: Positive  # of Ĵ in units of the look
    stiffness: Positive  # the curvature b that the walk took for J
    centre: Annotated[FloatArray, Packed("r")]  # mean centre of the walk
    gradient: Annotated[FloatArray, Packed("r")]  # mean of the noisy gradients there
    noise: Positive  # its deviation
    tail: Tail  # of gradient lengths; the clip is its second edge
    beyond: Annotated[FloatArray, Packed("r")]  # Σ min((|g|/c − 1)⁺/BEYOND, 1)·g/|g| + noise
    beyond_scale: Positive
    meat: Annotated[FloatArray, Packed("rr")]  # Σ clip(g)clip(g)ᵀ + noise
    meat_scale: Positive
    count: Positive
    count_scale: Annotated[float, Within(0.0)]
    several: Annotated[float, Within(0.0)]  # min(ρ − 1, 1), ρ the mean number of rows of a unit
    common: Annotated[FloatArray, Packed("c")]  # the direction of the mean row's gradient, of length 1; or 0
    kappa: Positive
    reach: Annotated[float, Within(0.0)]  # of the clip, in typical gradients; 0 where slopes are bounded
    # What the scatter of the centres adds to the step, relative to w (`ending.inflation`).
    inflation: Annotated[float, Within(-0.5)]

    def check(self) -> None:
        """Refuse what a file says where no release leaves it."""
        edges, (D, r), d, c = self.tail.edges, self.basis.shape, len(self.shares), len(self.common)
        told = 1 <= r <= D and max(self.left_out.shape[1], self.levels.shape[1]) <= D and self.several <= 1
        if not (told and d and c) or D % d or r % c or not r // c <= D // d <= r // c + 1:
            raise InvalidInput("its inference has no sound shape")
        sound = len(edges) >= 3 and len(self.tail.counts) == len(edges) + 1 and self.tail.outlying <= 1.0
        if not (sound and edges[0] >= 1.0 / LARGEST and np.all(np.diff(edges) > 0)):
            raise InvalidInput("its inference has no sound histogram")
        if not np.all(np.diag(self.look_spread) > 0):
            raise InvalidInput("its inference holds a variance that is not positive")

    def agrees(self, units: UserUnits, told: FloatArray, trust: float) -> bool:
        """Whether `told` are the coefficients (p, K) in the user's units and, last, the K intercepts.

        Coefficients times `trust`: then the intercept is that of another answer.
        """
        theta, shift = self.theta, units.shift[:, None]
        if theta.shape != (units.L.shape[1], told.shape[1]):
            return False
        reach = np.abs(units.L) @ np.abs(theta) + np.abs(shift)
        apart = np.abs(trust * (units.L @ theta) + shift - told)
        kept = slice(None) if trust == 1.0 else slice(-1)
        return bool(np.all(apart[kept] <= 1e-6 * reach[kept]))

    @cached_property
    def _bread(self) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """(U, λ, variances, resolved): eigenvectors and eigenvalues of Ĵ, Var(u_kᵀEu_l) of its error E."""
        J, entries = weighed_bread(
            self.look,
            self.look_scale**2 * noise_pattern(self.look_spread),
            self.bread,
            self.bread_scale,
            self.guess,
        )
        values, U = np.linalg.eigh(J)
        squares = U**2
        off = entries - np.diag(np.diag(entries))
        variance = squares.T @ entries @ squares
        variance += np.diag(np.diag(squares.T @ off @ squares))
        deviation = np.sqrt(np.diag(variance))
        seen = values >= RESOLVED * np.sqrt(2.0 * len(values)) * deviation
        return U, values, variance, seen & (values >= LEAST_EIGENVALUE * self.beta)

    @property
    def resolved(self) -> BoolArray:
        return self._bread[3]

    @cached_property
    def _slopes(self) -> FloatArray:
        """1/λ where Ĵ is resolved, elsewhere 1/b as in the walk."""
        _, values, _, resolved = self._bread
        return np.where(resolved, 1.0 / np.where(resolved, values, 1.0), 1.0 / self.stiffness)

    @cached_property
    def _clipped(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """In the eigenvectors of Ĵ: (what clipping took from the gradient, by a typical tail; the mean square
        error of that, by the tail as it may be; what noise has in it)."""
        U, values, _, _ = self._bread
        curved = np.maximum(values, 0.0)
        slopes = U.T @ self.centre - self._slopes * (U.T @ self.gradient)
        outputs = max(len(self.centre) // max(len(self.common), 1), 1)  # in which of them is not known
        common = U.T @ kron(np.eye(outputs), self.common[:, None])
        for m in common.T:  # but for the mean response
            slopes = slopes - m * float(curved * m @ slopes) / max(float(curved @ m**2), 1e-300)
        looked = U.T @ self.beyond, self.beyond_scale, values, curved * slopes, self.several, common
        mean, covariance, _ = clipped_away(self.tail, BEYOND, *looked)  # noise of a lump moves no estimate
        moved, _, noise = clipped_away(replace(self.tail, likely=0.0), BEYOND, *looked)
        return moved, covariance + np.outer(mean - moved, mean - moved), noise

    @cached_property
    def _step(self) -> FloatArray:
        """Ĵ⁻¹(Ĝ + D̂) in its eigenvectors."""
        U = self._bread[0]
        return self._slopes * (U.T @ self.gradient + self._clipped[0])

    @cached_property
    def w(self) -> FloatArray:
        """The estimate in the eigenvectors of Ĵ."""
        return (self._bread[0].T @ self.centre - self._step) / (1.0 + self.inflation)

    @cached_property
    def _basis(self) -> FloatArray:
        return self.basis @ self._bread[0]

    @property
    def theta(self) -> FloatArray:
        """The estimate in model units, shape (d, K)."""
        return np.ascontiguousarray((self._basis @ self.w + self.fixed).reshape(-1, len(self.shares)).T)

    @cached_property
    def _meat(self) -> tuple[FloatArray, float]:
        U, values, _, kept = self._bread
        M = (U.T @ self.meat @ U)[np.ix_(kept, kept)]
        M, scale = shrunk(M, np.diag(values[kept]), self.meat_scale)
        return eigenvalues_above(M, 0.0), scale

    @property
    def dispersion(self) -> float:
        """tr M/tr Ĵ where that is resolved, at most: about 1 of odds; ∞ where noise hides it."""
        U, values, _, kept = self._bread
        noise, squares = 2.0 * math.sqrt(kept.sum()), np.einsum("ik,ij,jk->k", U, self.meat, U)
        least = float(values[kept].sum()) - noise * self.bread_scale
        if least <= 0.0 or _LEAST_COUNT * self.tail.scale > self.count:
            return math.inf
        return (float(squares[kept].sum()) + noise * self.meat_scale) / least

    @cached_property
    def _bread_noise(self) -> FloatArray:
        """Cov(Ev) among resolved directions: what the error E of Ĵ adds to the step v."""
        _, _, variance, kept = self._bread
        variance, v = variance[np.ix_(kept, kept)], self._step[kept]
        off = variance - np.diag(np.diag(variance))
        return np.diag(variance @ v**2) + off * np.outer(v, v)

    @cached_property
    def covariance(self) -> FloatArray:
        """Ĵ⁻¹(s²I + M + Cov(Ev) + Cov(D))Ĵ⁻¹ among resolved directions."""
        _, values, _, kept = self._bread
        core = self.noise**2 * np.eye(int(kept.sum())) + self._meat[0] + self._bread_noise
        core = core + self._clipped[1][np.ix_(kept, kept)]
        bent = (_BENT[0] + _BENT[1] * self.inflation) * self.inflation * self.w[kept]
        return np.asarray(core / np.outer(values[kept], values[kept]) + np.outer(bent, bent))

    @cached_property
    def _hidden(self) -> FloatArray:
        """Prior variances of w along unresolved directions."""
        _, values, variance, kept = self._bread
        lengths = np.sum(self._basis[:, ~kept] ** 2, axis=0)
        size = _LARGER**2 * float(np.mean(self.theta**2)) / lengths
        firm = np.maximum(values - np.sqrt(np.diag(variance)), 1e-12)[~kept]
        return np.asarray(np.minimum(size, (2.0 * self.noise / firm) ** 2))

    def _means(self, functionals: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(t, noise, sampling): how far the share of a level moves each functional, and variances of shares.

        Coefficients of a category are stated from their mean over the records, of every output alike.
        """
        each = functionals.reshape(len(functionals), -1, len(self.shares))
        coded = np.asarray(self.levels > 0.0, dtype=np.float64)
        moved = np.sum(each @ (coded @ coded.T) * self.theta.T, axis=1)
        return moved, np.sum(self.levels**2, axis=1), coded.any(axis=1) * self.shares / self.count

    @cached_property
    def _largest(self) -> float:
        """Prior variance of θ along what is left out: as large as any coefficient squared."""
        return float(np.max(self.theta**2, initial=0.0))

    def covariance_of(self, functionals: FloatArray) -> FloatArray:
        """Cov of the estimates of `of`, whose diagonal is se²; NaN where one of the two is not resolved."""
        kept = self.resolved
        a, told = functionals @ self._basis, self.of(functionals).resolved
        seen, apart = a[:, kept], a[:, ~kept]
        covariance = seen @ self.covariance @ seen.T + (apart * self._hidden) @ apart.T
        fixed = functionals @ self.left_out
        covariance += self._largest * fixed @ fixed.T
        moved, noise, sampling = self._means(functionals)
        covariance += (moved * (noise + sampling)) @ moved.T
        return np.where(np.outer(told, told), covariance, np.nan)

    def of(self, functionals: FloatArray) -> Functionals:
        """For the rows a of `functionals`, shape (m, D): aᵀθ.

        Where the curvature of the loss falls with θ, a clip that the noise of a tail made too small leaves
        the walk where it went astray, and the noise there is small: such a tail has to be seen. (Intervals of
        a slope of 2 covered 0.77, 0.92 and 0.98 where the records were 14, 20 and 28 deviations.)
        """
        _, values, variance, kept = self._bread
        a = functionals @ self._basis
        fixed = np.abs(functionals @ self.left_out)
        hidden = a[:, ~kept] ** 2 @ self._hidden + self._largest * np.sum(fixed**2, axis=1)
        seen = a[:, kept]
        P = seen / values[kept]
        V = np.einsum("mi,ij,mj->m", seen, self.covariance, seen)
        squares = np.sum(P**2, axis=1)
        noise = self._bread_noise + self._clipped[2][np.ix_(kept, kept)]
        moved, *shares = self._means(functionals)
        means, sampled = (moved**2 @ variance for variance in shares)
        privacy = self.noise**2 * squares + np.einsum("mi,ij,mj->m", P, noise, P) + means + hidden
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = variance[np.ix_(kept, kept)]
            relative = 4.0 * _bilinear(P, seen @ self.covariance, inner) / V**2
            relative += (self._meat[1] * squares / V) ** 2
            df = np.where(V > 0, 2.0 / np.maximum(relative, 1e-9), 0.0)
            se = np.sqrt(V + hidden + means + sampled)
            told = (df >= LEAST_DF) & (hidden <= _MOST_HIDDEN * se**2) & (se > 0)
            largest = np.abs(functionals).max(axis=1, initial=0.0)
            told &= fixed.max(axis=1, initial=0.0) <= _MOST_FIXED * largest
            tail = _LEAST_COUNT * self.tail.scale / self.count if abs(self.inflation) > _STRAIGHT else 0.0
            told &= tail <= 1.0
            enough = np.maximum(tail, np.sqrt(LEAST_DF / np.maximum(df, 1e-9)))  # df grows with n²
            parts = a[:, ~kept] ** 2 * self._hidden > 0.1 * se[:, None] ** 2
            enough = np.maximum(enough, np.max(parts * self._unseen, axis=1, initial=0.0))
            enough = np.where(enough > _HOPELESS, np.inf, np.maximum(enough, 1.0))
            enough = np.where(np.sum(fixed, axis=1) > _MOST_FIXED, np.inf, enough)
        estimate = functionals @ np.ravel(self.theta.T)
        return Functionals(estimate, se, np.sqrt(privacy), df, told, np.where(told, 1.0, enough))

    @property
    def _unseen(self) -> FloatArray:
        """How many times the records would let each unresolved eigenvalue of Ĵ be seen; infinite below 0."""
        _, values, variance, kept = self._bread
        least = RESOLVED * np.sqrt(2.0 * len(values) * np.diag(variance))
        with np.errstate(divide="ignore"):
            return np.where(values > 0.0, least / np.maximum(values, 0.0), np.inf)[~kept]


def in_user_units(known: Inference, units: UserUnits) -> Functionals:
    """Of Lθ + shift."""
    found = known.of(units.L)
    return replace(found, estimate=found.estimate + units.shift)


def checked(level: float) -> float:
    """A level between 0 and 1, or a refusal."""
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    return level


def noise_pattern(spread: FloatArray) -> FloatArray:
    """Variances of the entries of T Sym Tᵀ, spread = TTᵀ; of Sym itself 1 on the diagonal, ½ off it."""
    own = np.diag(spread)
    return np.asarray((np.outer(own, own) + spread**2) / 2.0)


def _bilinear(p: FloatArray, q: FloatArray, variance: FloatArray) -> FloatArray:
    """Var(pᵀEq) of symmetric noise E whose entries have these variances, row by row."""
    off = variance - np.diag(np.diag(variance))
    p2, q2, pq = p**2, q**2, p * q
    crossed = np.sum((p2 @ off) * q2, axis=1) + np.sum((pq @ off) * pq, axis=1)
    return np.asarray(crossed + (p2 * q2) @ np.diag(variance))


def weighed_bread(
    look: FloatArray, before: FloatArray, second: FloatArray, scale: float, guess: float
) -> tuple[FloatArray, FloatArray]:
    """Ĵ, entry by entry ρ·diag(look) and a later look `second` weighed by their precision; its variances.

    ρ is fitted, a priori `guess` up to a quarter; what noise adds to squares of the first look is taken
    off. The first look is of all records with equal weights, so beyond its noise it may miss J by
    ω√(diag_i diag_j); ω² comes from how far the two are apart (method of moments).
    """
    r = len(second)
    first, pattern = np.diag(look), noise_pattern(np.eye(r))
    own = scale**2 * pattern
    weights = np.diag(1.0 / (own + guess**2 * before))
    prior = (_DOUBT * guess) ** -2
    seen = np.maximum(look**2 - np.diag(before), 0.0)
    rho = (float(weights @ (np.diag(second) * look)) + prior * guess) / (float(weights @ seen) + prior)
    rho = min(max(rho, guess / _FARTHEST), guess * _FARTHEST)
    before = rho**2 * before
    size = np.maximum(np.maximum(look, 0.0), _LEAST_PROPORTION)
    shape = rho**2 * np.outer(size, size) * pattern
    weights = shape / (own + before) ** 2
    apart = (second - rho * first) ** 2 - own - before
    omega2 = max(float(np.sum(weights * apart) / np.sum(weights * shape)), 0.0)
    before = before + omega2 * shape
    odd = (second - rho * first) ** 2  # records of one level may all be clipped: the first look misses it
    beyond = float(chdtri(1.0, 2.0 * _ODD / (r * (r + 1))))  # deviations, squared
    before = np.where(odd > beyond * (own + before), np.maximum(before, odd), before)
    share = before / (before + own)
    return share * second + (1.0 - share) * rho * first, share * own


def eigenvalues_above(S: FloatArray, floor: float) -> FloatArray:
    """The symmetric matrix with eigenvalues max(s, floor)."""
    values, vectors = np.linalg.eigh((S + S.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def shrunk(noisy: FloatArray, target: FloatArray, scale: float) -> tuple[FloatArray, float]:
    """Positive-part James–Stein of a symmetric matrix towards ρ·target; the scale of what noise is left.

    ρ is fitted; noise of `scale` has r(r+1)/2 free entries. At least the noise of ρ is left: scale/√r.
    """
    r = max(len(noisy), 1)
    rho = max(float(np.sum(noisy * target)) / max(float(np.sum(target**2)), 1e-300), 1e-12)
    apart = noisy - rho * target
    noise = 0.5 * r * (r + 1) * scale**2
    share = max(0.0, 1.0 - noise / max(float(np.sum(apart**2)), 1e-300))
    return rho * target + share * apart, scale * max(share, r**-0.5)


def clipped_away(
    tail: Tail,
    ramp: float,
    beyond: FloatArray,
    scale: float,
    values: FloatArray,
    pull: FloatArray,
    several: float,
    common: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(mean, covariance, moved) of D = Σ(|g| − c)⁺ g/|g|, in coordinates in which J is diag(`values`).

    `moved` is the covariance that noise alone gives the mean.

    `beyond` is Σ min((|g|/c − 1)⁺/ramp, 1)·g/|g| with noise of deviation `scale`: in a tail ∝ |g|^−α, D is
    f times that (`Tail.stretch`), if directions do not depend on lengths. A priori D is
    N(0, τ₁²bbᵀ + τ₂²J/mean(values)) with b along `pull`, J times the slopes, for a clip attenuates what they
    explain; τ₁ and τ₂ are log-normal in units of the excess E = Σ(|g| − c)⁺ that the tail has for α. Along
    m, each column of `common` (unit or 0), D may be as large as E where units have several rows: by what
    `beyond` shows there it is doubted, not corrected.

    The posterior is a mixture over α, τ₁ and τ₂ (axes i, k, l), all in units of `beyond`.
    """
    r, E = len(values), tail.excesses
    if not E.any():
        return np.zeros(r), np.zeros((r, r)), np.zeros((r, r))
    factor = tail.stretch(ramp)
    shape = np.maximum(values, 0.0)
    shape = shape / max(float(shape.mean()), 1e-300)
    b = pull / max(float(np.linalg.norm(pull)), 1e-300)
    along, across = (
        (1.0 - several) * np.array(one) + several * np.array(many)
        for one, many in ((ALONG, SEVERAL_ALONG), (ACROSS, SEVERAL_ACROSS))
    )
    one = np.outer(E / factor, np.exp(along[0] + along[1] * _nodes)) ** 2
    two = np.outer(E / factor, np.exp(across[0] + across[1] * _nodes)) ** 2 / r
    prior = two[:, None, :, None] * shape
    total = prior + scale**2
    inverse_b = b / total
    grown = 1.0 + one[:, :, None] * (inverse_b @ b)
    part = one[:, :, None] / grown
    projected = beyond / total - inverse_b * (part * (inverse_b @ beyond))[..., None]
    logs = np.log(np.maximum(tail.posterior, 1e-300))[:, None, None] + _LOG_WEIGHTS[:, None] + _LOG_WEIGHTS
    logs = logs - 0.5 * (projected @ beyond + np.log(total).sum(axis=-1) + np.log(grown))
    share = np.exp(logs - logs.max())
    share /= share.sum()
    means = prior * projected + (one[:, :, None] * (projected @ b))[..., None] * b
    means = means * factor[:, None, None, None]
    mean = np.einsum("ikl,iklr->r", share, means)

    def squares(weight: FloatArray, v: FloatArray) -> FloatArray:
        """The sum of weight·vvᵀ over the mixture."""
        flat = np.broadcast_to(v, means.shape).reshape(-1, r)
        return np.asarray((flat.T * weight.ravel()) @ flat)

    def gained(power: int) -> FloatArray:
        """The mean of f^power·(I − ν(Σ + νI)⁻¹), (Σ + νI)⁻¹ = diag(1/total) − part·inverse_b inverse_bᵀ."""
        weight = share * factor[:, None, None] ** power
        own = np.einsum("il,ilr->r", weight.sum(axis=1), 1.0 / total[:, 0])
        return np.asarray(
            weight.sum() * np.eye(r) - scale**2 * (np.diag(own) - squares(weight * part, inverse_b))
        )

    covariance = scale**2 * gained(2) + squares(share, means - mean)  # Σ − Σ(Σ + νI)⁻¹Σ = ν(I − ν(Σ + νI)⁻¹)
    of_index = share.sum(axis=(1, 2))
    weight = E**2 / (E**2 + (factor * scale) ** 2)
    for m in common.T:
        seen = weight * factor * float(m @ beyond)
        doubt = several**2 * float(of_index @ ((1.0 - weight) * E**2 + seen**2))
        covariance = covariance + doubt / common.shape[1] * np.outer(m, m)
    gain = gained(1)
    return mean, covariance, scale**2 * gain @ gain
