"""How wide the intervals of a default fit would be: a formula in public numbers, no data and no trial.

Trials on synthetic tables of a declared shape are in the package curvedp-studies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, expit, ndtri, softmax, stdtrit

from curvedp.arrays import ROWS_AT_MOST, FloatArray
from curvedp.data.mapping import ColumnMap
from curvedp.data.schema import Schema
from curvedp.data.targets import ClassTarget
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import GaussianNoise
from curvedp.mechanisms.constant import Constant, Rare
from curvedp.mechanisms.ending import TYPICAL_CURVATURE, bread_bound
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.mechanisms.walk import RARE_CLIPS, SCEPTICAL, WITHIN, wanted_share
from curvedp.postprocess.inference import ACROSS, ALONG, HIDDEN, LEAST_DF, LEAST_EIGENVALUE, RESOLVED
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Logistic, Loss, Quantile, Squared, jump_of
from curvedp.problems.losses.several import Multinomial
from curvedp.randomness import generator
from curvedp.release import catalogue

Columns = int | Schema
SEED = 20_240_601  # of all that is generated: a forecast is the same every time
ROWS_LIMIT = 10**9
FEATURES_AT_MOST = 2_000  # a synthetic table of more takes gigabytes
LEVELS = (0.2, 0.05, 0.01)  # shares of levels that are shown unless told otherwise
CLASSES = (0.5, 0.1, 0.02)  # likewise of classes
FEWEST_ROWS, GROWTH = 32.0, 4.0
LEAST_CLASS = 2.0  # κ·q(1−q), κ in units of what neighbours move: below it a class of share q is too few
# What a fit finds out and a plan has to guess; chosen on generated tables, see tests/cli/test_widths.py.
_NEXT_EDGE = 2.0**0.25  # a clip is the next of edges that lie a factor √2 apart: so much farther on average
_LENGTH = 1.5  # squared length, in units of d/n, to which records are shortened in S: four fifths are shorter
_CELLS = 5  # of the clip's histogram beyond the clip, whose noise adds up
_EXCESS = 0.25  # mean excess beyond the clip in units of it: what fits believe of normal residuals
_SURE_DF = 2.0 * LEAST_DF  # where only as many are expected, half of the fits have less
_MISFIT = 0.8  # over r, of the bread's variance: what the noise of both looks lets pass for a misfit of them
_ODD = 3.5  # deviations that they have to be apart to be taken for different
_MARGIN = 1.0  # deviation of the log-odds: what is known of a class
_DRAWS = 200  # of the log-odds of several classes
_nodes, _weights = np.polynomial.hermite_e.hermegauss(24)
_weights = _weights / _weights.sum()


@dataclass(frozen=True)
class HalfWidth:
    """The expected 95 % interval of one coefficient, and the rows that would be enough.

    Attributes
    ----------
    level : float or None
        The share of a level, which is stated against the weighted mean; None: a number, for one deviation of
        it.
    class_share : float or None
        The share of the rarer class where the target has two.
    half_width : float
        In deviations of what the model leaves unexplained, or in log-odds; of several classes one against
        another.
    multiple : float
        Of the interval without privacy.
    df : float
        Degrees of freedom.
    why : str
        Why it would not be stated; "" where it would.
    rows_enough : int or None
        The fewest rows (two digits) at which it is stated, and as narrow as was asked for.
    """

    level: float | None
    class_share: float | None
    half_width: float
    multiple: float
    df: float
    why: str
    rows_enough: int | None = None

    @property
    def name(self) -> str:
        of = "a number" if self.level is None else f"a level of {100 * self.level:g} %"
        return of if self.class_share is None else f"{of}, class of {100 * self.class_share:g} %"

    @property
    def words(self) -> str:
        return "not stated" if self.why else f"± {self.half_width:.2g} ({self.multiple:.2f}×)"


@dataclass(frozen=True)
class Widths:
    """What intervals a default fit of so many rows would have.

    Attributes
    ----------
    kappa : float
        κ = nμ/d, the signal-to-noise ratio of the fit.
    intervals : tuple of HalfWidth
        A number first.
    too_few : float or None
        The share below which one of two classes is too few to be told apart; None: there are not two.
    asked : float or None
        The half-width that rows were asked for.
    """

    rows_declared: int
    features: int
    task: catalogue.Task
    budget: Budget
    adjacency: Adjacency
    kappa: float
    intervals: tuple[HalfWidth, ...]
    too_few: float | None = None
    asked: float | None = None

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.adjacency)

    @property
    def measure(self) -> str:
        return "residual deviations" if self.task == "regression" else "log-odds"

    @property
    def tone(self) -> str:
        if self.intervals[0].why:
            return "bad"
        return "good" if self.intervals[0].multiple <= 1.5 else "warn"

    @property
    def sentence(self) -> str:
        if (first := self.intervals[0]).why:
            enough = f"{first.rows_enough:,} rows would be enough"
            if first.rows_enough is None:
                enough = f"not even {ROWS_LIMIT:,} rows are enough"
            return f"{first.name[0].upper()}{first.name[1:]} may have no interval: {first.why}; {enough}."
        return (
            f"The interval of {first.name} would be ± {first.half_width:.2g} {self.measure}, "
            f"{first.multiple:.2f} times as wide as without privacy."
        )

    @property
    def class_sentence(self) -> str:
        """From which share on one of two classes can be told apart; "" where there are not two."""
        if self.too_few is None:
            return ""
        if self.too_few >= 0.5:
            return f"Too few rows to tell two classes apart, whatever their shares: κ = {self.kappa:.3g}."
        return f"A class of less than {100 * self.too_few:.2g} % is too few at κ = {self.kappa:.3g}."


@dataclass(frozen=True)
class Verdict:
    """Whether the noise dominates, in one sentence; `tone` is "good", "warn" or "bad".

    `caveats` are sentences on what the synthetic table has and the fit may not have.
    """

    rows: int
    rows_needed: int | None
    share: float
    caveats: tuple[str, ...] = ()

    @property
    def tone(self) -> str:
        return "bad" if self.share < 0.5 else "warn" if self.share < 0.9 else "good"

    @property
    def sentence(self) -> str:
        kept = f"about {100 * min(max(self.share, 0.0), 1.0):.0f} % of what can be learned from such a table"
        if self.share >= 0.9:
            return f"The noise is small beside the data: the private model keeps {kept}."
        if self.share >= 0.5:
            return f"The noise is visible but does not dominate: the private model keeps {kept}."
        need = f"more than {ROWS_LIMIT:,}" if self.rows_needed is None else f"about {self.rows_needed:,}"
        return f"With these settings the answer is mostly noise; you need {need} rows."


def widths(
    rows: int,
    features: Columns,
    budget: Budget,
    adjacency: Adjacency = "replace",
    task: catalogue.Task = "regression",
    *,
    unit: str | None = None,
    levels: Sequence[float] | None = None,
    classes: Sequence[float] | None = None,
    half_width: float | None = None,
    quantile: float | None = None,
) -> Widths:
    """How wide the intervals of a default fit of such a table would be: a formula, nothing is tried.

    For columns that do not repeat each other, residuals with normal tails, log-odds of deviation 1; several
    classes have equal shares.

    Parameters
    ----------
    rows : int
        A number of rows that you declare.
    features : int or Schema
        The columns after one-hot coding, the target excluded; or the schema, which says them, the target and
        the unit.
    budget : Budget
        The (ε, δ) to spend.
    adjacency : {"replace", "add_remove"}
        Which tables are neighbours.
    task : {"regression", "classification"}
        What the target is, where no schema says it.
    unit : str, optional
        The column that says whose row it is, where no schema says it.
    levels : sequence of float, optional
        Shares of levels; 0.2, 0.05 and 0.01 by default where there may be some.
    classes : sequence of float, optional
        Shares of one of two classes; 0.5, 0.1 and 0.02 by default where there are two. Levels are for the
        first.
    half_width : float, optional
        Rows enough for an interval this narrow, too.
    quantile : float, optional
        Of a quantile regression, between 0 and 1, in the place of a linear one.

    Returns
    -------
    widths : Widths
        Of a number and of every level.

    Examples
    --------
    >>> from curvedp import Budget
    >>> from curvedp.planning import widths
    >>> found = widths(20_000, 6, Budget(1.0, 1e-6), levels=[0.02], half_width=0.01)
    >>> [item.words for item in found.intervals]
    ['± 0.02 (1.45×)', '± 0.2 (2.10×)']
    >>> found.intervals[0].rows_enough
    59000
    """
    check_rows(rows)
    for share in (*(levels or ()), *(classes or ())):
        if not 0.0 < share < 1.0:
            raise InvalidInput(f"the share of a level or class lies between 0 and 1, got {share!r}")
    if half_width is not None and not 0.0 < half_width < math.inf:
        raise InvalidInput(f"the half-width must be a positive number, got {half_width!r}")
    columns, labels, unit = declared(features, task, unit)
    if classes and labels != 2:
        raise InvalidInput("shares of classes are for targets of two classes: leave them out")
    if quantile is not None and labels:
        raise InvalidInput("a quantile is for targets that are numbers: leave it out")
    problem, coding = problem_of(columns, labels, adjacency, unit, quantile), columns.coding
    plan = Recentered(coding=coding, inference=True).plan(problem, columns.d, budget)
    shares = [min(q, 1.0 - q) for q in classes or CLASSES] if labels == 2 else [None]
    if levels is None:
        levels = LEVELS if isinstance(features, int) or any(coding.jumps) else ()
    asked = [(None, q) for q in shares] + [(level, shares[0]) for level in levels]
    items = []
    for level, q in asked:
        enough = partial(_is_stated, plan, level, q, math.inf if half_width is None else half_width)
        items.append(replace(expected(plan, rows, level, q), rows_enough=fewest_rows(enough, steps=10)))
    task, kappa = "classification" if labels else "regression", plan.kappa(rows)
    too_few = _too_few(plan, rows) if labels == 2 else None
    width = columns.n_inputs
    return Widths(rows, width, task, budget, adjacency, kappa, tuple(items), too_few, asked=half_width)


def expected(plan: RecenteredPlan, n: float, level: float | None, q: float | None) -> HalfWidth:
    """The 95 % interval of a number, or of a level of this share, where the rarer of two classes has share q.

    In the metric records have squared length r/n and Σzzᵀ is h along the coefficient: less than 1 by what is
    added to S for its noise, and for a level p by λ/(np(1−p)). In units of the slopes' deviation, the clip c
    leaves the share k of records, the walk's noise is s = c·factor/μ̄ and Ĵ = kh; the core of the sandwich
    is kh + s² + (error of Ĵ times the step)² + E²(what is believed of the clipped). Of K classes there are
    ρ = K − 1 such coefficients in orthogonal directions, and two classes are √2 of a direction apart.
    """
    rule, shifts, factors = plan.rule, plan.shifts, plan.problem.domain.neighbours
    loss, d, kappa = plan.problem.loss, plan.d, plan.kappa(n)
    r = d - len(plan.coding.blocks)
    every = r * loss.rank
    slopes = _slopes(loss, q)
    spread = 0.0 if level is None else 1.0 / (level * (1.0 - level))

    noise = factors.gram_factor * _LENGTH * d / (n * shifts.curvature)  # of S, in units of it
    lift = rule.floor * math.sqrt(2.0 * d) * factors.sum_factor * _LENGTH * d / (n * shifts.curvature)
    h = 1.0 / (1.0 + lift + rule.level / d * spread)
    clip, kept = _clip(plan, n, r, slopes, q)
    c, J = clip * math.sqrt(r / n), kept * h
    s = c * factors.sum_factor / _later_shift(plan, n)

    m = bread_bound(loss, kappa * shifts.bread / plan.mu)
    largest = _largest(plan, n, slopes, q)
    error = factors.gram_factor * m * largest * d / (n * shifts.bread)
    # Seen on few records: Ĵ leans on S, which shortens those of a rare level.
    rare = spread / (1.0 + rule.pilot_level / d * spread)
    shortened = max(1.0 - _LENGTH * d / (r - 1 + rare * (1.0 - (level or 0.0)) ** 2), 0.0)
    gap, before = J * shortened, noise**2 + _MISFIT / every * error**2
    share = max(before, gap**2 if gap > _ODD * error else 0.0)
    share /= share + error**2
    J, error = J - (1.0 - share) * gap, error * math.sqrt(share)
    seen = RESOLVED * math.sqrt(2.0 * every) * error
    along, across = (math.exp(2.0 * (mean + deviation**2)) for mean, deviation in (ALONG, ACROSS))
    excess = _EXCESS * max((1.0 - kept) * n, HIDDEN * factors.histogram_factor / shifts.tail) * c
    doubt2 = excess**2 / every * (across * h + along * h**2)
    core = kept * h + s**2 + 0.5 * every * (error * s / J) ** 2 + doubt2

    meat = factors.gram_factor * c**2 / (shifts.meat * math.sqrt(every))
    df = 2.0 / (4.0 * (error / J) ** 2 + (meat / core) ** 2)
    wider = float(stdtrit(max(df, 1.0), 0.975))
    apart = 2.0 if loss.rank > 1 else 1.0
    ordinary = math.sqrt(apart * (1.0 if level is None else (1.0 - level) / level) / n)
    return HalfWidth(
        level=level,
        class_share=q,
        half_width=wider * math.sqrt(core * h) / J * ordinary * slopes.deviation / slopes.curvature,
        multiple=wider / 1.959964 * math.sqrt(core * h) / J,
        df=df,
        why=_why(plan, n, q, J, max(seen, LEAST_EIGENVALUE * largest), df),
    )


def _largest(plan: RecenteredPlan, n: float, slopes: Slopes, q: float | None) -> float:
    """β that a record's curvature is bounded by, in units of the mean curvature."""
    loss, jump = plan.problem.loss, jump_of(plan.problem.loss)
    if jump is not None:  # 1/(2H), where ± H holds a share of 2H times the density
        share = wanted_share(jump, plan.problem.domain.neighbours, plan.kappa(n))
        return 1.0 / (_NEXT_EDGE * share)
    if loss.rank > 1:
        typical = math.sqrt(loss.rank) / loss.n_outputs
        return min(0.5, TYPICAL_CURVATURE * typical) / slopes.curvature
    return 1.0 if q is None else min(0.25, TYPICAL_CURVATURE * q * (1.0 - q)) / slopes.curvature


def _is_stated(plan: RecenteredPlan, level: float | None, q: float | None, most: float, n: float) -> bool:
    """Whether there is an interval at n rows, with a half-width of `most` at most."""
    found = expected(plan, n, level, q)
    return not found.why and found.half_width <= most


def _why(plan: RecenteredPlan, n: float, q: float | None, J: float, seen: float, df: float) -> str:
    """Why such an interval is not stated, with the number that is too small; "" where it is."""
    factors, kappa = plan.problem.domain.neighbours, plan.kappa(n)
    if not plan.infers(n):
        return f"κ = {kappa:.3g}, {plan.rule.least_kappa * factors.gram_factor:.3g} is needed"
    found = math.inf if q is None else kappa / factors.sum_factor * q * (1.0 - q)
    if found < LEAST_CLASS:
        return f"too few of the class: κ·q(1−q) is {found:.2g}, {LEAST_CLASS:g} is needed"
    if seen > J:
        return f"noise hides its curvature: {J:.2g} of what is ordinary, {seen:.2g} is needed"
    return f"about {df:.2g} degrees of freedom, {_SURE_DF:g} are enough" if df < _SURE_DF else ""


@dataclass(frozen=True, eq=False)
class Slopes:
    """|φ'| of records, in units of its deviation (along one direction of several classes), and E φ''."""

    sizes: FloatArray
    weights: FloatArray
    deviation: float
    curvature: float


def _slopes(loss: Loss, q: float | None) -> Slopes:
    """Of normal residuals, or classes with log-odds of deviation `_MARGIN`.

    Of two classes around those that give the share q, of several around equal shares.
    """
    if (jump := jump_of(loss)) is not None:
        tau = jump.quantile
        deviation, sizes = math.sqrt(tau * (1.0 - tau)), np.array([tau, 1.0 - tau])
        density = math.exp(-0.5 * float(ndtri(tau)) ** 2) / math.sqrt(2.0 * math.pi)
        return Slopes(sizes / deviation, sizes[::-1], deviation, density)
    if loss.rank > 1:
        K = loss.n_outputs
        p = softmax(_MARGIN * math.sqrt(0.5) * generator(SEED).standard_normal((_DRAWS, K)), axis=1)
        curvature = float(np.mean(1.0 - np.sum(p**2, axis=1))) / loss.rank
        deviation = math.sqrt(curvature)
        lengths = np.sqrt(np.sum(p**2, axis=1)[:, None] - 2.0 * p + 1.0)  # of p − e_k
        return Slopes(np.ravel(lengths) / deviation, np.ravel(p) / _DRAWS, deviation, curvature)
    if q is None:
        return Slopes(np.abs(_nodes), _weights, 1.0, 1.0)
    margins = _MARGIN * _nodes
    middle = brentq(lambda b: float(_weights @ expit(margins + b)) - q, -40.0, 40.0)
    p = expit(margins + middle)
    curvature = float(_weights @ (p * (1.0 - p)))
    sizes, weights = np.append(p, 1.0 - p), np.append(_weights * (1.0 - p), _weights * p)
    return Slopes(sizes / math.sqrt(curvature), weights, math.sqrt(curvature), curvature)


def _clip(plan: RecenteredPlan, n: float, r: int, slopes: Slopes, q: float | None) -> tuple[float, float]:
    """(clip, share of the records within), in typical lengths of gradients, as the walk chooses it.

    A gradient is a slope times √(χ²_r/r): the clip is where about as many lie beyond as the rule allows, all
    slopes being the steepest where they jump.
    """
    rule, factors, jump = plan.rule, plan.problem.domain.neighbours, jump_of(plan.problem.loss)
    few = rule.clipped * plan.unknowns * factors.sum_factor / plan.mu
    noise = factors.histogram_factor / plan.shifts.clip

    def beyond(t: float, sizes: FloatArray = slopes.sizes, weights: FloatArray = slopes.weights) -> float:
        return float(weights @ chdtrc(float(r), r * (t / sizes) ** 2))

    looked = beyond
    if jump is not None:
        few /= (2.0 * jump.balance) ** 2
        looked = partial(beyond, sizes=slopes.sizes.max(keepdims=True), weights=np.ones(1))
    loss, unit = plan.problem.loss, plan.problem.domain.unit
    doubt = rule.doubt * (SCEPTICAL[0] if loss.is_quadratic and unit is None else 1.0)
    share = min((few + doubt * noise * math.sqrt(_CELLS)) / n, 1.0 - rule.kept)
    clip = _NEXT_EDGE * brentq(lambda t: looked(t) - share, 1e-3, 1e3)
    if q is not None:
        clip *= math.sqrt(WITHIN)  # or the longest of all gradients, if that is no farther: bounds decide
        class_mean = Constant(np.zeros(1), np.array([q]), 0.0, q * (1.0 - q))
        if Rare.of(class_mean, n, few, noise * math.sqrt(0.5 * rule.edges)) is not None:
            least, most = (length / slopes.deviation for length in RARE_CLIPS)
            clip = min(max(clip, least), most)
    return clip, 1.0 - beyond(clip)


def _later_shift(plan: RecenteredPlan, n: float) -> float:
    """μ̄ with which the weighted mean of the later gradients is released."""
    rule, kappa = plan.rule, plan.kappa(n)
    noise = GaussianNoise(generator(SEED), plan.problem.domain.neighbours)  # its scales; none is drawn
    pace = rule.pace(kappa)
    rounds = np.arange(1.0, pace.later + 1.0) / pace.later
    weights = np.exp(rule.weight * (1.0 + kappa / rule.large) * np.log(rounds))
    return plan.walk_shifts(noise, n).later_round(pace) * float(weights.sum() / np.linalg.norm(weights))


def _too_few(plan: RecenteredPlan, n: float) -> float:
    """The share q with κ·q(1−q) = 2; ½ where there is none."""
    kappa = plan.kappa(n) / plan.problem.domain.neighbours.sum_factor
    return 0.5 * (1.0 - math.sqrt(max(1.0 - 4.0 * LEAST_CLASS / kappa, 0.0)))


def fewest_rows(enough: Callable[[float], bool], steps: int) -> int | None:
    """The fewest rows, two digits, that are enough; None beyond 10⁹. Enough rows stay so when more come."""
    high = FEWEST_ROWS
    while not enough(high):
        high *= GROWTH
        if high > ROWS_LIMIT:
            return None
    low, high = math.log(high / GROWTH), math.log(high)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
    digits = 10 ** max(0, math.floor(high / math.log(10)) - 1)
    return int(math.ceil(math.exp(high) / digits) * digits)


def declared(features: Columns, task: catalogue.Task, unit: str | None) -> tuple[ColumnMap, int, str | None]:
    """The columns of a fit, the classes of its target (0: it is a number), and the column of the unit."""
    if not isinstance(features, int) and features.declared_offset is not None:
        raise InvalidInput("there is no forecast for counts: it is for numbers and for classes")
    width = features if isinstance(features, int) else len(features.feature_names)
    if not 1 <= width <= FEATURES_AT_MOST:
        raise InvalidInput(f"features must lie between 1 and {FEATURES_AT_MOST:,} for a forecast")
    if isinstance(features, int):
        bounds = np.ones(features)
        return ColumnMap.from_bounds(-bounds, bounds), 2 if task == "classification" else 0, unit
    target = features.declared_target if features.has_target else None
    classes = len(target.classes) if isinstance(target, ClassTarget) else 0
    plain = replace(features, absorb=None)  # a person has one row there, which is no difference
    return plain.column_map(intercept=1.0), classes, features.unit


def problem_of(
    columns: ColumnMap, classes: int, adjacency: Adjacency, unit: str | None, quantile: float | None = None
) -> Problem:
    """A default fit of such a table, the target within [−1, 1] or one of so many classes."""
    loss: Loss = Squared() if classes == 0 else Logistic() if classes == 2 else Multinomial(classes)
    if quantile is not None:
        loss = Quantile(quantile=quantile)
    return Problem(loss, domain=Domain(columns.norm_bound, 1.0, adjacency, unit))


def check_rows(rows: int) -> None:
    """Refuse numbers of rows that no table has."""
    if not 1 <= rows <= ROWS_AT_MOST:
        raise InvalidInput(f"rows must lie between 1 and {ROWS_AT_MOST:,}")


def plan_page(wide: Sequence[Widths]) -> str:
    """The HTML of expected intervals that differ in their adjacency alone."""
    from curvedp.pages import rendered

    return rendered("plan.html", t=wide[0], wide=wide)
