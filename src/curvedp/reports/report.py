"""What a reader of a release sees: one self-contained HTML page, made of released and public numbers only."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

from markupsafe import Markup

from curvedp.analyses.estimators.summary import FIRST, MANY, UNSEEN, VERSUS
from curvedp.data.columns import Categorical, Ignored
from curvedp.data.dates import Boolean, Date, Feature
from curvedp.data.files import BY_KIND, NOT_STATED, SEEDED, is_bought
from curvedp.data.schema import Schema
from curvedp.data.targets import ClassTarget, CountTarget, NumericTarget, SeveralTargets, Target
from curvedp.numbers import rounded_up, shown
from curvedp.pages import Axis, Series, interval_chart, line_chart, rendered
from curvedp.planning import Verdict
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import LARGE_DELTA, LARGE_EPSILON, Guarantee, PrivacyCurve, Promise, factor
from curvedp.release.ledger.storage import Charge, LedgerState
from curvedp.release.record import ReleaseRecord, listed

SHOWN = 30  # coefficients in the figure of a release
LISTED = 200  # in its table; beyond, some and a file
LARGEST_LOG = 700.0  # whose exponential is a number
INNER_DOUBLES = ("m", "Delta")  # parameters of matrices and linear noise drawn as doubles


@dataclass(frozen=True)
class Coefficient:
    """One released number in the user's units.

    `width` is the declared range of its column (None for an intercept), `output` the class it belongs to,
    `interval` what holds it with 95 % probability: NaN where not resolved, None where nothing is stated;
    `noise` the deviation that privacy noise alone gives it, None where nothing tells it; `place` that of its
    output among several; `unseen`: no number of records like these would resolve it.
    """

    name: str
    value: float
    width: float | None = None
    output: str = ""
    interval: tuple[float, float] | None = None
    noise: float | None = None
    place: int = 0
    unseen: bool = False

    @property
    def label(self) -> str:
        """Its name, with the class where there are several."""
        return f"{self.name} · {self.output}" if self.output else self.name

    @property
    def resolved(self) -> tuple[float, float] | None:
        """The interval, where it is one."""
        return self.interval if all(map(math.isfinite, self.interval or ())) else None

    @property
    def reach(self) -> tuple[float, float] | None:
        """The interval of the effect; None where not resolved."""
        if self.resolved is None or self.width is None:
            return None
        return self.resolved[0] * self.width, self.resolved[1] * self.width

    @property
    def factors(self) -> tuple[float, ...]:
        """e^value, and e to the ends of its interval where it is resolved."""
        return tuple(math.exp(min(end, LARGEST_LOG)) for end in (self.value, *(self.resolved or ())))

    @property
    def effect(self) -> float | None:
        """How far the answer moves when the column crosses its declared range."""
        return None if self.width is None else self.value * self.width

    @property
    def clearness(self) -> float:
        """|value| over half its interval; over its noise where there is none; across its range without it."""
        error = self.noise if self.interval is None else (self.interval[1] - self.interval[0]) / 2.0
        if error is None:
            return abs(self.effect or 0.0)
        return abs(self.value) / error if error > 0.0 else 0.0


@dataclass(frozen=True)
class DeclaredColumn:
    """One column as it was declared: what for, between which bounds or with which levels, from where.

    `source` says it in words, or that none was stated.
    """

    name: str
    use: str
    low: float | str | None = None
    high: float | str | None = None
    levels: tuple[str, ...] = ()
    source: str = NOT_STATED
    missing: str = ""
    is_feature: bool = False


@dataclass(frozen=True)
class Caution:
    """What a reader must know before relying on a release; red: do not share before it is resolved.

    `printed`: below the numbers of a fit, too. Not what is said there anyway, nor what its operator knows.
    """

    level: Literal["red", "amber"]
    text: str
    printed: bool = True


def privacy_curve(guarantee: Guarantee, curve: PrivacyCurve) -> Markup:
    """δ(ε), with the point that was asked for marked."""
    return line_chart(
        "Privacy curve: δ against ε",
        Axis("ε", 0.0, 1.5 * guarantee.epsilon),
        Axis("δ", curve.floor, 1.0, log=True),
        [Series("δ(ε)", curve.epsilons, curve.deltas)],
        (guarantee.epsilon, max(guarantee.delta, curve.floor), "what was asked for"),
    )


def clearest(coefficients: Sequence[Coefficient], many: int = MANY, first: int = FIRST) -> list[Coefficient]:
    """All in their order, or of more than `many` the `first` that stand out most of their errors."""
    if len(coefficients) <= many:
        return list(coefficients)
    return sorted(coefficients, key=lambda c: (-c.clearness, -abs(c.effect or 0.0)))[:first]


def effects_figure(coefficients: Sequence[Coefficient], ratio: str = "") -> Markup:
    """Effects across declared ranges, as bars or with intervals; ratios on an axis of their logarithms."""
    what = f"{ratio.capitalize()}s" if ratio else "Coefficients"
    bars = all(c.interval is None for c in coefficients)
    title = f"{what} across their ranges" if bars else f"{what} with their 95 % intervals"
    whiskers = [(c.label, c.effect or 0.0, c.reach) for c in coefficients]
    return interval_chart(title, whiskers, bars=bars, exp=bool(ratio))


def release_page(
    title: str,
    subtitle: str,
    guarantee: Guarantee,
    coefficients: Sequence[Coefficient],
    *,
    ratio: str = "",
    ledger: LedgerState | None = None,
    verdict: Verdict | None = None,
    columns: Sequence[DeclaredColumn] = (),
    record: ReleaseRecord | None = None,
    cautions: Sequence[Caution] = (),
    protects: str = "",
    ignored: Sequence[str] = (),
    file: str = "",
) -> str:
    """The HTML of one release: the promise first, the coefficients last; `file` is a CSV of all of them."""
    promise = Promise(guarantee)
    drawn = clearest([c for c in coefficients if c.effect is not None], SHOWN, SHOWN)
    plain = all(c.noise is None and c.interval is None for c in coefficients)
    used = 0.0  # the larger used share of ε and δ; of ε alone where squares add up, at one δ
    if ledger is not None:
        pairs = [(ledger.spent_epsilon, ledger.epsilon), (ledger.spent_delta, ledger.delta)]
        used = max(spent / total for spent, total in pairs[: 1 if ledger.spent.mu else 2] if total > 0)
    given: dict[str, Any] = {"title": title, "subtitle": subtitle, "cautions": cautions}
    given |= {"coefficients": coefficients, "ratio": ratio, "ledger": ledger, "verdict": verdict}
    given |= {"record": record, "protects": protects, "ignored": ignored, "not_stated": NOT_STATED}
    found = {
        "promise": promise,
        "curve": privacy_curve(guarantee, promise.curve),
        "listed": clearest(coefficients, LISTED),
        "standing": "move it furthest" if plain else "are largest beside their errors",
        "file": b64encode(file.encode()).decode(),
        "several": len({c.output for c in coefficients}) > 1,
        "drawn": drawn,
        "figure": effects_figure(drawn, ratio) if drawn else "",
        "inferred": any(c.interval is not None for c in drawn),
        "with_range": sum(c.effect is not None for c in coefficients),
        "budget_share": min(1.0, used),
        "columns": [
            (", ".join(column.name for column in alike), declaration)
            for declaration, alike in groupby(columns, lambda column: replace(column, name=""))
        ],
        "declared": len(columns),
        "unsourced": sum(c.source == NOT_STATED for c in columns),
        "inner_doubles": any(name in guarantee.parameters for name in INNER_DOUBLES),
    }
    return rendered("release.html", r={**given, **found}, g=guarantee)


# What was declared for a fit, column by column, as its report shows it.

SKIPPED = "no record: it adds nothing"
PASSED = "passed beside the table"
FOLLOWS = "follow from the columns it is computed from"  # the bounds do
MISSING = {  # what a missing cell of a feature becomes, by the rule of its column
    "middle": "the middle",
    "indicator": "the middle, and 1 in a column of its own",
    "zero": "no level: all codes are 0",
    "level": "a level of its own",
}


def declared_columns(model: Any) -> list[DeclaredColumn]:
    """Every column that a model's schema declares, what follows from them, and what was passed beside."""
    schema: Schema = model.schema_
    found = [_column(column, schema) for column in schema.columns if not isinstance(column, Ignored)]
    for name, low, high in schema.derived_bounds:
        computed = name == schema.target
        missing = SKIPPED if computed else "computed from what those columns then hold"
        use = "target" if computed else "feature"
        found.append(DeclaredColumn(name, use, low, high, source=FOLLOWS, missing=missing))
    if not schema.has_target:
        found += _targets(model.target_)
    if (weight := getattr(model, "weight_max", None)) is not None and "weight" not in schema.roles:
        found.append(DeclaredColumn(PASSED, "weight", 0.0, float(weight), missing=SKIPPED))
    return found


def _column(column: Feature, schema: Schema) -> DeclaredColumn:
    name, is_feature = column.name, column.name in schema.encoding.sources
    use = "feature" if is_feature else "not used"
    if name == schema.target_source:
        use = "target" if name == schema.target else f"target, as {schema.target}"
    use = {name: role for role, name in schema.roles.items()}.get(name, use)
    missing = MISSING[column.missing] if use in ("feature", "not used") else SKIPPED
    source = column.source or (BY_KIND if isinstance(column, Boolean) else NOT_STATED)
    made = partial(DeclaredColumn, source=source, is_feature=is_feature, missing=missing)
    if isinstance(column, Categorical):
        return made(name, use, levels=column.levels)
    if isinstance(column, Boolean):
        return made(name, use, 0.0, 1.0, column.words or ())
    if isinstance(column, Date):
        low, high = column.low.isoformat(), column.high.isoformat()
        days = f" (days since {low})" if "days" in column.parts else ""
        return made(f"{name}{days}", use, low, high)
    return made(name, use, column.low, column.high)


def _targets(target: Target) -> list[DeclaredColumn]:
    """The target that was passed beside the table."""
    if isinstance(target, SeveralTargets):
        return [
            replace(found, name=f"{PASSED}, {place}")
            for place, one in enumerate(target.targets, start=1)
            for found in _targets(one)
        ]
    if isinstance(target, ClassTarget):
        labels = tuple(str(label) for label in target.labels.tolist())
        return [DeclaredColumn(PASSED, "target", levels=labels, missing=SKIPPED)]
    low = target.low if isinstance(target, NumericTarget) else 0.0
    return [DeclaredColumn(PASSED, "target", low, target.high, missing=SKIPPED)]


# What a reader must know before relying on a release, worked out from released and public numbers alone.

NAMED = 6  # columns that a sentence names
MANY_LEVELS = 100  # about which a word is due where no number of rows was declared
NOISY = 0.25  # of the target's range: two deviations from which noise is said to dominate a level
MANY_UNRESOLVED = 0.25  # of the intervals: about which a word is due
LOG_ODDS = 2 * math.log(999)  # from a probability of 0.1 % to one of 99.9 %

UNCHARGED = (
    "No ledger was charged: nothing keeps count of what this table has given away. Ask the operator what "
    "else was released from it; the ε of all releases add up."
)
red, amber, named = partial(Caution, "red"), partial(Caution, "amber"), partial(listed, most=NAMED)


def record_warnings(
    guarantee: Guarantee,
    coefficients: Sequence[Coefficient],
    columns: Sequence[DeclaredColumn],
    target: Target,
    record: ReleaseRecord,
    unit_advice: str = "",
) -> tuple[Caution, ...]:
    """Every caution about a release, the red ones first; its rows are a declared number, never a count."""
    rows = record.stated.rows
    found = [
        *_promise(guarantee, rows),
        *([amber(f"{unit_advice[0].upper()}{unit_advice[1:]}.")] if unit_advice else []),
        *_sources(columns),
        *_effects(coefficients, target),
        *_unresolved(coefficients),
        *_levels(columns, coefficients, target, guarantee, rows),
    ]
    if record.receipt is None:
        found.append(amber(UNCHARGED, printed=False))
    return tuple(sorted(found, key=lambda caution: caution.level != "red"))


def _promise(g: Guarantee, rows: int | None) -> Iterator[Caution]:
    who = g.neighbours.who
    if not g.private:
        yield red(
            "Not a private release. The run had a fixed seed, so that it can be repeated, or used a "
            "mechanism that is for studies only. Whoever knows or guesses the seed can remove the noise. Fit "
            "again with neither before sharing.",
            printed=False,
        )
    if g.epsilon > LARGE_EPSILON:
        odds = shown(rounded_up(factor(g.epsilon)))
        yield red(
            f"ε = {shown(g.epsilon, 15)} is larger than {LARGE_EPSILON:g}: one {who} may change the odds of "
            f"a conclusion by a factor of e^ε = {odds}, and an attacker may detect a {who} in up to "
            f"{Promise(g).detected:.1f} cases of 100. Show the release to nobody who may not see the table, "
            "or release again with an ε near 1.",
            printed=False,
        )
    if rows is not None and g.delta * rows > 1:  # it may publish one record outright each time
        yield red(
            f"δ = {shown(g.delta, 15)} is larger than 1/{rows:,}, one over the number of {who}s that was "
            f"declared. A release that publishes a {who} chosen at random, in full, each time, would keep "
            "such a promise. Release again with a δ far below that."
        )
    elif g.delta >= LARGE_DELTA:
        yield red(
            f"δ = {shown(g.delta, 15)} is large: with that probability nothing is promised to a {who}. "
            f"Release again with a δ far below one over the number of {who}s, such as 10⁻⁶.",
            printed=False,
        )


def _sources(columns: Sequence[DeclaredColumn]) -> Iterator[Caution]:
    if seeded := [column.name for column in columns if column.source == SEEDED]:
        yield red(
            f"The bounds of {named(seeded)} come from a seeded run, which is not private: they may tell of "
            "single records. Declare them from a codebook, or buy them without a seed."
        )
    if bought := [column.name for column in columns if is_bought(column.source)]:
        yield amber(
            f"The bounds of {named(bought)} were bought from the private table. They are covered by releases "
            "of their own, whose ε and δ come on top of those above: add them up, or look at the ledger."
        )
    if silent := [c.name for c in columns if c.source == NOT_STATED]:
        yield amber(
            f"Nobody stated where the bounds or levels of {named(silent)} come from. If they were read off "
            "the data, nothing above holds, and no program can notice. Ask the operator; a schema keeps the "
            'answer as source = "codebook 2024, p. 12".',
            printed=False,
        )


def _effects(coefficients: Sequence[Coefficient], target: Target) -> Iterator[Caution]:
    """|coefficient|·range > `reach_of`: an answer that leaves the target's range by one column alone."""
    beyond = [c.label for c in coefficients if abs(c.effect or 0.0) > reach_of(target, c.place)]
    measure = ": by a factor beyond the largest count" if isinstance(target, CountTarget) else ""
    if isinstance(target, ClassTarget):
        measure = ": from a probability below 0.1 % to one above 99.9 %"
    if beyond:
        yield amber(
            "Crossing its declared range, one column alone moves the answer further than the target can move"
            f"{measure}. That is noise, bounds far wider than the data, or a column that decides a class: "
            f"read no meaning into the coefficients of {named(beyond)}. Narrower public bounds, fewer "
            "columns or a stronger penalty help."
        )


def _unresolved(coefficients: Sequence[Coefficient]) -> Iterator[Caution]:
    """From a quarter of the stated intervals on."""
    stated = [c.interval for c in coefficients if c.interval is not None]
    hidden = sum(not all(map(math.isfinite, interval)) for interval in stated)
    if hidden and hidden >= MANY_UNRESOLVED * len(stated):
        yield amber(
            f"{hidden} of {len(stated)} coefficients are not resolved: their noise is too large to be "
            "stated, and predictions have it, too. Broader levels, fewer columns or a larger ε help.",
            printed=False,
        )
    if unseen := [c.label for c in coefficients if c.unseen]:
        yield amber(
            f"Not seen: {named(unseen)}. {UNSEEN} Read no meaning into these coefficients; curvedp check "
            "tells of misread cells.",
            printed=False,
        )


def _levels(
    columns: Sequence[DeclaredColumn],
    coefficients: Sequence[Coefficient],
    target: Target,
    g: Guarantee,
    rows: int | None,
) -> Iterator[Caution]:
    who = g.neighbours.who
    for column in columns:
        if not column.is_feature or column.low is not None:
            continue
        if (share := _released_share(column, coefficients, target)) is not None:
            if share >= NOISY:
                yield amber(
                    f"The noise dominates the {len(column.levels)} levels of {column.name}: two standard "
                    f"deviations of it move a level's coefficient by about {100 * share:.0f} % of the "
                    "target's range, as the released numbers tell. Declare fewer, broader levels."
                )
        elif rows is not None:
            if (ideal := ideal_share(len(column.levels), rows, g)) >= NOISY:
                yield amber(
                    f"{column.name} has {len(column.levels)} levels, too many for {rows:,} {who}s: were the "
                    "whole budget spent on that column alone, the target's mean in a level of average size "
                    f"would still be off by {100 * ideal:,.0f} % of its range (two standard deviations, "
                    "Δ·levels/(μ·rows)). Declare fewer, broader levels."
                )
        elif len(column.levels) >= MANY_LEVELS:
            yield amber(
                f"{column.name} has {len(column.levels)} levels: with few {who}s in each, noise dominates "
                f"them. Declare the number of {who}s to have this judged, or fewer levels."
            )


def ideal_share(levels: int, rows: int, g: Guarantee) -> float:
    """Δ·levels/(μ·rows): two deviations of a level's mean over the target's range, by an ideal mechanism.

    A sum of targets in [−1, 1] moves by at most Δ between neighbours; with the largest shift μ that (ε, δ)
    allows its noise has deviation Δ/μ, and rows/levels records share it. For δ = 0, Δ√2/ε (Laplace).
    """
    deviation = math.sqrt(2) / g.epsilon if g.delta == 0 else 1 / calibrate_mu(g.epsilon, g.delta)
    return g.neighbours.sum_factor * deviation * levels / rows


def _released_share(column: DeclaredColumn, found: Sequence[Coefficient], target: Target) -> float | None:
    """Two deviations of its levels' coefficients over the target's range, their median; None if not known."""
    own = {f"{column.name}={level}" for level in column.levels}
    known = sorted(
        2 * c.noise / reach_of(target, c.place)
        for c in found
        if c.name.partition(VERSUS)[0] in own and c.noise is not None and math.isfinite(c.noise)
    )
    return known[len(known) // 2] if known else None


def unchecked(charges: Iterable[Charge]) -> list[Caution]:
    """Of a ledger without a check."""
    if any(charge.label == "check" for charge in charges):
        return []
    words = (
        "No check was charged to this ledger: cells that are missing, misread or out of bounds became what a "
        "public rule says, and nobody knows how many. curvedp check tells, for an ε of 0.05."
    )
    return [amber(words)]


def reach_of(target: Target, output: int) -> float:
    """How far an answer can move: through a range, log odds from 0.1 % to 99.9 %, the log of a count."""
    if isinstance(target, SeveralTargets):
        return reach_of(target.targets[output], 0)
    if isinstance(target, NumericTarget):
        return target.high - target.low
    return math.log(max(target.high, math.e)) if isinstance(target, CountTarget) else LOG_ODDS
