"""What a reader must know before relying on a release, worked out from released and public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from curvedp.digits import rounded_up, shown
from curvedp.filing.report import Caution, Coefficient, DeclaredColumn
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.promise import LARGE_DELTA, LARGE_EPSILON, Promise, factor
from curvedp.record import ReleaseRecord
from curvedp.schema.sources import SEEDED, is_bought
from curvedp.schema.targets import ClassTarget, CountTarget, NumericTarget, SeveralTargets, Target

NAMED = 6  # columns that a sentence names
MANY_LEVELS = 100  # about which a word is due where no number of rows was declared
NOISY = 0.25  # of the target's range: two deviations from which noise is said to dominate a level
MANY_UNRESOLVED = 0.25  # of the intervals: about which a word is due
LOG_ODDS = 2 * math.log(999)  # from a probability of 0.1 % to one of 99.9 %


def record_warnings(
    guarantee: Guarantee,
    coefficients: Sequence[Coefficient],
    columns: Sequence[DeclaredColumn],
    target: Target,
    record: ReleaseRecord | None,
    rows: int | None = None,
) -> tuple[Caution, ...]:
    """Every caution about a release, the red ones first; `rows` is a declared number, never a count."""
    found = [
        *_promise(guarantee),
        *_failures(guarantee, rows),
        *_sources(columns),
        *_effects(coefficients, target),
        *_unresolved(coefficients),
        *_levels(columns, coefficients, target, guarantee, rows),
        *_filed(record),
    ]
    return tuple(sorted(found, key=lambda caution: caution.level != "red"))


def _promise(g: Guarantee) -> Iterator[Caution]:
    if not g.private:
        yield Caution(
            "red",
            "Not a private release. The run had a fixed seed, so that it can be repeated, or used a "
            "mechanism that is for studies only. Whoever knows or guesses the seed can remove the noise. Fit "
            "again with neither before sharing.",
        )
    if g.epsilon > LARGE_EPSILON:
        who, odds = g.neighbours.who, shown(rounded_up(factor(g.epsilon)))
        yield Caution(
            "red",
            f"ε = {shown(g.epsilon, 15)} is larger than {LARGE_EPSILON:g}: one {who} may change the odds of "
            f"a conclusion by a factor of e^ε = {odds}, and an attacker may detect a {who} in up to "
            f"{Promise(g).detected:.1f} cases of 100. Show the release to nobody who may not see the table, "
            "or release again with an ε near 1.",
        )


def _failures(g: Guarantee, rows: int | None) -> Iterator[Caution]:
    """δ·rows > 1: with that δ, a release may publish one record outright each time."""
    who = g.neighbours.who
    if rows is not None and g.delta * rows > 1:
        yield Caution(
            "red",
            f"δ = {shown(g.delta, 15)} is larger than 1/{rows:,}, one over the number of {who}s that was "
            f"declared. A release that publishes a {who} chosen at random, in full, each time, would keep "
            "such a promise. Release again with a δ far below that.",
        )
    elif g.delta >= LARGE_DELTA:
        yield Caution(
            "red",
            f"δ = {shown(g.delta, 15)} is large: with that probability nothing is promised to a {who}. "
            f"Release again with a δ far below one over the number of {who}s, such as 10⁻⁶.",
        )


def _sources(columns: Sequence[DeclaredColumn]) -> Iterator[Caution]:
    seeded = [column.name for column in columns if column.source == SEEDED]
    if seeded:
        yield Caution(
            "red",
            f"The bounds of {named(seeded)} come from a seeded run, which is not private: they may tell of "
            "single records. Declare them from a codebook, or buy them without a seed.",
        )
    bought = [column.name for column in columns if is_bought(column.source)]
    if bought:
        yield Caution(
            "amber",
            f"The bounds of {named(bought)} were bought from the private table. They are covered by releases "
            "of their own, whose ε and δ come on top of those above: add them up, or look at the ledger.",
        )
    silent = [c.name for c in columns if c.needs_source and not c.source and not c.follows]
    if silent:
        yield Caution(
            "amber",
            f"Nobody stated where the bounds or levels of {named(silent)} come from. If they were read off "
            "the data, nothing above holds, and no program can notice. Ask the operator; a schema keeps the "
            'answer as source = "codebook 2024, p. 12".',
        )


def _effects(coefficients: Sequence[Coefficient], target: Target) -> Iterator[Caution]:
    """|coefficient|·range > `reaches`: an answer that leaves the target's range by one column alone."""
    limits = reaches(target)
    beyond = [
        c.label
        for c in coefficients
        if c.effect is not None and abs(c.effect) > limits[min(c.place, len(limits) - 1)]
    ]
    if beyond:
        yield Caution(
            "amber",
            "Crossing its declared range, one column alone moves the answer further than the target can move"
            f"{_measure(target)}. That is noise, or bounds far wider than the data: read no meaning into the "
            f"coefficients of {named(beyond)}. Narrower public bounds, fewer columns or a stronger penalty "
            "help.",
        )


def _unresolved(coefficients: Sequence[Coefficient]) -> Iterator[Caution]:
    """From a quarter of the stated intervals on."""
    stated = [c.interval for c in coefficients if c.interval is not None]
    hidden = sum(not all(map(math.isfinite, interval)) for interval in stated)
    if hidden and hidden >= MANY_UNRESOLVED * len(stated):
        yield Caution(
            "amber",
            f"{hidden} of {len(stated)} coefficients are not resolved: their noise is too large to be "
            "stated, and predictions have it, too. Broader levels, fewer columns or a larger ε help.",
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
        share = _released_share(column, coefficients, target)
        if share is not None:
            if share >= NOISY:
                yield Caution(
                    "amber",
                    f"The noise dominates the {len(column.levels)} levels of {column.name}: two standard "
                    f"deviations of it move a level's coefficient by about {100 * share:.0f} % of the "
                    "target's range, as the released numbers tell. Declare fewer, broader levels.",
                )
        elif rows is not None:
            ideal = ideal_share(len(column.levels), rows, g)
            if ideal >= NOISY:
                yield Caution(
                    "amber",
                    f"{column.name} has {len(column.levels)} levels, too many for {rows:,} {who}s: were the "
                    "whole budget spent on that column alone, the target's mean in a level of average size "
                    f"would still be off by {100 * ideal:,.0f} % of its range (two standard deviations, "
                    "Δ·levels/(μ·rows)). Declare fewer, broader levels.",
                )
        elif len(column.levels) >= MANY_LEVELS:
            yield Caution(
                "amber",
                f"{column.name} has {len(column.levels)} levels: with few {who}s in each, noise dominates "
                f"them. Declare the number of {who}s to have this judged, or fewer levels.",
            )


def ideal_share(levels: int, rows: int, g: Guarantee) -> float:
    """Δ·levels/(μ·rows): two deviations of a level's mean over the target's range, by an ideal mechanism.

    A sum of targets in [−1, 1] moves by at most Δ between neighbours; with the largest shift μ that (ε, δ)
    allows its noise has deviation Δ/μ, and rows/levels records share it. For δ = 0, Δ√2/ε (Laplace).
    """
    deviation = math.sqrt(2) / g.epsilon if g.delta == 0 else 1 / calibrate_mu(g.epsilon, g.delta)
    return g.neighbours.sum_factor * deviation * levels / rows


def _released_share(
    column: DeclaredColumn, coefficients: Sequence[Coefficient], target: Target
) -> float | None:
    """Two deviations of its levels' coefficients over the target's range, their median; None if not known."""
    own = {f"{column.name}={level}" for level in column.levels}
    limits = reaches(target)
    known = sorted(
        2 * c.noise / limits[min(c.place, len(limits) - 1)]
        for c in coefficients
        if c.name in own and c.noise is not None and math.isfinite(c.noise)
    )
    return known[len(known) // 2] if known else None


def _filed(record: ReleaseRecord | None) -> Iterator[Caution]:
    if record is None:
        yield Caution(
            "amber",
            "The model file keeps no record: its date, its ledger and what was tuned are not known. It was "
            "written by an earlier version. Ask the operator.",
        )
    elif record.receipt is None:
        yield Caution(
            "amber",
            "No ledger was charged: nothing keeps count of what this table has given away. Ask the operator "
            "what else was released from it; the ε of all releases add up.",
        )


def reaches(target: Target) -> tuple[float, ...]:
    """How far an answer can move, of each output: a range, log odds from 0.1 % to 99.9 %, log of a count."""
    if isinstance(target, NumericTarget):
        return (target.high - target.low,)
    if isinstance(target, SeveralTargets):
        return tuple(one.high - one.low for one in target.targets)
    if isinstance(target, CountTarget):
        return (math.log(max(target.high, math.e)),)
    return (LOG_ODDS,)


def _measure(target: Target) -> str:
    if isinstance(target, ClassTarget):
        return ": from a probability below 0.1 % to one above 99.9 %"
    return ": by a factor beyond the largest count" if isinstance(target, CountTarget) else ""


def named(names: Sequence[str], most: int = NAMED) -> str:
    """Some of the names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
