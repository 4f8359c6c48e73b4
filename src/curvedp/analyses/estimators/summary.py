"""The table of a fit, with intervals where it has some: as text, HTML, LaTeX, columns or a data frame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import escape

from curvedp.arrays import FloatArray, kron
from curvedp.data.columns import Categorical
from curvedp.data.targets import ClassTarget, CountTarget, Target, linear_odds
from curvedp.errors import InvalidInput
from curvedp.mechanisms.rule import Rule
from curvedp.numbers import number
from curvedp.postprocess.inference import FAR, Functionals, checked, in_user_units
from curvedp.postprocess.noise import ANOTHER_MECHANISM, ANOTHER_MODEL, UNTOLD, UserUnits
from curvedp.release.modelfile import Release
from curvedp.release.record import listed

if TYPE_CHECKING:
    import pandas as pd

Frame = Any  # of pandas or Polars; a dict of lists where neither is installed
Label = Any  # a declared class: a text, a number or a truth value
Columns = dict[str, list[Any]]

UNSEEN = (
    "No records are told apart there, as of an empty level, one whose records may all have one outcome, a "
    "column that is misread or repeats others, or bounds far too wide. Where a level is left out so, others "
    "of its category are against the mean of the rest."
)
ESTIMAND = (
    "The estimand is the coefficient of the population's fit on records clipped to the declared bounds. What "
    "the clip of gradients takes away is estimated; its doubt is part of the errors."
)
NOT_COVERED = (
    "Errors and intervals hold sampling and privacy noise together; “of it noise” is what privacy noise "
    "alone would give. No interval covers what the declared bounds clip: see `curvedp check`."
)
LONG_TAIL = (
    "Some records pull more than eight times as hard as typical ones: what hangs on few records may be "
    "stated too narrowly. Take a logarithm of the target, or bounds that leave such records out."
)
NOT_RESOLVED = "not resolved"
NOISE = (
    "“noise” is the deviation that privacy noise alone gives a coefficient; sampling adds to it, and so do "
    "clips and penalties."
)
INTERCEPT = "(intercept)"
WITHIN = "within persons (fixed effects absorbed)"
VERSUS = " vs "  # between a level and its reference
MANY = 60  # rows of a printed table; of more …
FIRST = 20  # … so many, those that stand out
WHOLE = "tidy() has"
# κ/√d below which nothing was seen of uniform columns: d 30 to 200, ε = 2, 3,000 to 60,000 rows.
CROWDED = 10.0
_WIDTH = 96
_TEX = {c: rf"\{c}" for c in "&%$#_{}"}
_TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {"ε": r"$\varepsilon$", "δ": r"$\delta$", "κ": r"$\kappa$", "±": r"$\pm$", "α": r"$\alpha$"}
_TEX |= {"−": "$-$", "<": "$<$", ">": "$>$", "≥": r"$\geq$"}
_IN_TEX = str.maketrans(_TEX)


@dataclass(frozen=True)
class Row:
    """One coefficient and what is known of its error; ends and p are NaN where it is not resolved.

    Of a fit without intervals `noise` alone can be a number.
    """

    name: str
    coefficient: float
    se: float
    noise: float
    df: float
    low: float
    high: float
    pvalue: float
    resolved: bool
    enough: float = 1.0  # about so many times the records would do where it is not resolved

    @property
    def cells(self) -> tuple[str, ...]:
        named = self.name, number(self.coefficient)
        df = "> 9,999" if self.df > 9999 else f"{self.df:,.0f}"
        if not self.resolved:
            return *named, "", "", df, NOT_RESOLVED, ""
        interval = f"[{number(self.low)}, {number(self.high)}]"
        p = "< 0.001" if self.pvalue < 0.001 else f"{self.pvalue:.3f}"
        return *named, number(self.se, 3), number(self.noise, 3), df, interval, p


def outcome(release: Release, exp: bool = False) -> str:
    """What positive coefficients speak for: the target, or classes against another one."""
    name, classes = release.schema.target or "y", release.classes or ()
    if len(classes) == 2:
        return f"{name}: {classes[1]} against {classes[0]}"
    against = outputs_of(release, exp)[2]
    return f"{name}: each class against {against}" if against else name


@dataclass(frozen=True, eq=False)
class Summary:
    """Coefficients, with intervals where the fit has some; made by `summary()` of a fitted model.

    Attributes
    ----------
    release : Release
        What was released.
    level : float
        Of the intervals.
    rows : tuple of Row
        In the order of the encoded columns, the intercept last; one output after another.
    ratio : str
        "odds ratio" or "rate ratio" where coefficients and ends are stated as such, "" otherwise.
    """

    release: Release
    level: float
    rows: tuple[Row, ...]
    ratio: str = ""

    @classmethod
    def of(cls, release: Release, level: float, exp: bool, reference: Mapping[str, str] | None) -> Summary:
        known, level = release.inference, checked(level)
        ratio = ratio_of(release.entry.load(), release.target) if exp else ""
        if exp and not ratio:
            raise InvalidInput(NO_RATIOS)
        T, names = stated_against(release, reference)
        E, labels, _ = outputs_of(release, exp)
        names = tuple(f"{label}: {name}" if label else name for label in labels for name in names)
        if known is None:
            found = _plain(release, kron(E, T))
        else:
            L, shift = release.units.L, release.units.shift
            found = in_user_units(known, UserUnits(kron(E, T @ L), kron(E.sum(axis=1), T @ shift)))
        return cls(release, level, rows_of(found, names, level, exp), ratio)

    @property
    def title(self) -> str:
        within = f", {WITHIN}" if self.release.columns.absorbed else ""
        return f"{self.release.estimator} of {outcome(self.release, bool(self.ratio))}{within}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The header, as names and values."""
        promise, local, R = self.release.guarantee, self.release.objective, self.release.inference
        found = [("ε", f"{promise.epsilon:g}"), ("δ", f"{promise.delta:g}"), ("adjacency", promise.adjacency)]
        if R is None:
            found.append(("mechanism", promise.mechanism))
            if local is not None:
                found.append((f"{promise.neighbours.who}s, about", f"{local.count:,.0f}"))
                found.append(("κ, signal to noise", number(local.kappa, 3)))
            return tuple(found)
        spread = 1.96 * R.count_scale
        return (
            *found,
            (f"{promise.neighbours.who}s", f"{R.count:,.0f}" + (f" ± {spread:,.0f}" if spread else "")),
            ("κ, signal to noise", number(R.kappa, 3)),
            ("clip", number(float(R.tail.edges[1]), 3)),
            (f"{promise.neighbours.who}s clipped", f"{R.tail.expected[1]:,.0f} ± {R.tail.scale:,.0f} (sd)"),
            ("tail index α", number(R.tail.index, 2)),
        )

    @property
    def _pairs(self) -> list[tuple[tuple[str, str], tuple[str, str]]]:
        """The facts in two columns: they are even in number."""
        half = len(self.facts) // 2
        return list(zip(self.facts[:half], self.facts[half:], strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside the numbers."""
        release = self.release
        found = [] if release.guarantee.private else ["NOT a private release: the run was seeded."]
        if len(self.printed) < len(self.rows):
            found.append(f"The {len(self.printed)} that stand out most; {WHOLE} all {len(self.rows):,}.")
        if release.trust < 1.0:
            found.append(
                "Released numbers say that noise outweighs what it explains: coef_ and predictions have "
                f"{100 * release.trust:.0f} % of the estimated slopes, the rest is the constant answer"
                + ("." if release.inference is None else "; the table is of the estimate itself.")
            )
        found += [*linear_odds(release.target, release.schema.target), *self.doubts]
        if self.ratio:
            found.append(
                f"A ratio is e^coefficient, for one unit of a column; of {INTERCEPT} it is the "
                f"{self.ratio.split()[0]} where all columns are 0. Errors are those of its logarithm."
            )
        if any(VERSUS in row.name for row in self.rows):
            found.append(
                f"Levels{VERSUS}a reference: {INTERCEPT} is that of the references. `coef_` has every level "
                "against the mean of all records."
            )
        if outputs_of(release, bool(self.ratio))[2]:
            found.append("`coef_` has every class against the mean of all, so that they add up to 0.")
        if release.inference is None:
            found.append(f"No intervals: {why_no_intervals(release)}.")
            return (*found, *([NOISE] if self._tells_noise else []))
        return (*found, ESTIMAND, NOT_COVERED, *self._refusals(release.inference.count))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is said of too few records, and where the widest clip cuts a tail that is hardly seen."""
        known = self.release.inference
        return tuple(filter(None, [self.crowded, LONG_TAIL if known and known.reach >= FAR else ""]))

    @property
    def crowded(self) -> str:
        """What is said where κ is too small for intervals, or noise hides most coefficients; "" elsewhere."""
        known, d = self.release.inference or self.release.objective, self.release.columns.d
        g = self.release.guarantee.neighbours
        most = 2 * sum(not math.isfinite(row.enough) for row in self.rows) > len(self.rows)
        least = g.gram_factor * max(Rule.least_kappa, most * CROWDED * math.sqrt(d))
        if known is None or known.kappa >= least:
            return ""
        few = f"Too few {g.who}s for so many columns: {known.count:,.0f} for {d} (κ = {known.kappa:.2g})."
        return f"{few} Noise hides what intervals need: fewer columns, more {g.who}s or a larger ε help."

    def _refusals(self, count: float) -> tuple[str, ...]:
        """What is too small where a coefficient is not resolved, and what would be enough."""
        refused, told = [row for row in self.rows if not row.resolved], []
        unseen = [row.name for row in refused if not math.isfinite(row.enough)]
        if unseen and not self.crowded:
            told.append(f"Not resolved: {listed(unseen)}. {UNSEEN}")
        if few := [row for row in refused if math.isfinite(row.enough)]:
            each = [f"{row.name} ({row.df:.1f} df; {row.enough * count:,.0f})" for row in few]
            told.append(
                f"Too few records: {listed(each)}. The curvature of the loss, or what its clip cuts off, "
                "drowns in noise there, or fewer than 4 degrees of freedom are left. About as many records "
                "as in brackets would do."
            )
        return tuple(told)

    @property
    def headings(self) -> tuple[str, ...]:
        first = self.ratio or "coef"
        if self.release.inference is None:
            return ("", first, "noise") if self._tells_noise else ("", first)
        return "", first, "std err", "of it noise", "df", f"{100 * self.level:g} % interval", "p"

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The printed rows, as a table shows them."""
        stated, wide = self.release.inference is not None, len(self.headings)

        def plain(row: Row) -> tuple[str, ...]:
            return row.name, number(row.coefficient), "" if np.isnan(row.noise) else number(row.noise, 3)

        return tuple(row.cells if stated else plain(row)[:wide] for row in self.printed)

    @property
    def printed(self) -> tuple[Row, ...]:
        """All rows, or of more than `MANY` the `FIRST` by |estimate|/error: of noise where that is all."""
        if len(self.rows) <= MANY:
            return self.rows
        stated = self.release.inference is not None
        told = np.array([row.se if row.resolved else np.inf if stated else row.noise for row in self.rows])
        ratios = np.abs(self._values) / (told if np.isfinite(told).any() else 1.0)
        return tuple(self.rows[k] for k in np.argsort(-np.nan_to_num(ratios), kind="stable")[:FIRST])

    @property
    def _values(self) -> list[float]:
        """The coefficients, of ratios their logarithms."""
        values = (row.coefficient for row in self.rows)
        return [math.log(value or math.nan) for value in values] if self.ratio else list(values)

    @property
    def _tells_noise(self) -> bool:
        return any(not np.isnan(row.noise) for row in self.rows)

    def table(self) -> dict[str, list[float | str | bool]]:
        """The rows by columns, ready for any data frame library.

        Returns
        -------
        columns : dict
            name, coefficient, se, noise, df, low, high, pvalue, resolved, enough.
        """
        return {key: [getattr(row, key) for row in self.rows] for key in Row.__dataclass_fields__}

    def as_frame(self) -> pd.DataFrame:
        """The rows as a data frame of pandas, which must be installed.

        Returns
        -------
        frame : pandas.DataFrame
            Indexed by the names of the coefficients.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise InvalidInput("as_frame needs pandas: install it, or take the columns of table()") from None
        return pd.DataFrame(self.table()).set_index("name")

    def tidy(self) -> Frame:
        """The rows as broom's `tidy` has them.

        Returns
        -------
        frame : pandas.DataFrame or polars.DataFrame
            term, estimate, std.error, statistic, p.value, conf.low, conf.high; NaN where not resolved. Of
            ratios, the error and the statistic are those of the logarithm. A dict of lists where neither
            pandas nor Polars is installed.
        """
        return frame_of(self.broom)

    @property
    def broom(self) -> Columns:
        """The columns of `tidy`."""
        errors = [row.se if row.resolved else math.nan for row in self.rows]
        return {
            "term": [row.name for row in self.rows],
            "estimate": [row.coefficient for row in self.rows],
            "std.error": errors,
            "statistic": [value / se for value, se in zip(self._values, errors, strict=True)],
            "p.value": [row.pvalue for row in self.rows],
            "conf.low": [row.low for row in self.rows],
            "conf.high": [row.high for row in self.rows],
        }

    def glance(self) -> Frame:
        """One line about the fit, as broom's `glance`: of what was released, so that it has no deviance.

        Returns
        -------
        frame : pandas.DataFrame or polars.DataFrame
            nobs (as released, noisy under add_remove) and df.residual, NaN where they are not known; kappa,
            trust, epsilon, delta, adjacency, unit, mechanism. A dict of lists where neither pandas nor Polars
            is installed.
        """
        release, promise = self.release, self.release.guarantee
        told = release.inference or release.objective
        count, kappa = (math.nan, math.nan) if told is None else (told.count, told.kappa)
        d, coding = release.columns.d, release.columns.coding
        spanned = 0 if coding.constant is None else len(coding.blocks)  # all levels together are the constant
        unknowns = (d - spanned) * max(len(release.classes or ()) - 1, 1)
        own = {"nobs": count, "df.residual": count - unknowns, "kappa": kappa}
        own |= {"trust": release.trust, "epsilon": promise.epsilon, "delta": promise.delta}
        words = {"adjacency": promise.adjacency, "unit": promise.neighbours.unit or ""}
        return frame_of({k: [v] for k, v in {**own, **words, "mechanism": promise.mechanism}.items()})

    def as_text(self) -> str:
        """The table as plain text.

        Returns
        -------
        text : str
            Lines of at most 96 columns where the names of the columns are short.
        """
        cells = [self.headings, *self.cells]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        full = max(len(lines[0]), 60)
        left = max(len(name) + len(value) for (name, value), _ in self._pairs) + 2
        header = [
            f"{_spread(a, left)}{' ' * 4}{_spread(b, full - left - 4)}"
            if full - left > 30
            else _spread(a, full)
            for a, b in self._pairs
        ]
        notes = [line for note in self.notes for line in wrap(note, max(min(full, _WIDTH), 60))]
        rule = "=" * full
        return "\n".join([self.title, rule, *header, rule, lines[0], "-" * full, *lines[1:], rule, *notes])

    def as_html(self) -> str:
        """The table as a fragment of HTML, every value escaped.

        Returns
        -------
        html : str
            Two tables and the notes.
        """
        left, right = (f'style="text-align:{side};padding:.15em .6em"' for side in ("left", "right"))

        def line(first: str, *rest: str) -> str:
            cells = "".join(f"<td {right}>{escape(text)}</td>" for text in rest)
            return f"<tr><th {left}>{escape(first)}</th>{cells}</tr>"

        facts, body = ("".join(line(*cells) for cells in table) for table in (self.facts, self.cells))
        heads = "".join(f"<th {right}>{escape(h)}</th>" for h in self.headings)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<table><caption>{escape(self.title)}</caption><tbody>{facts}</tbody></table>"
            f'<div style="overflow-x:auto"><table><thead><tr>{heads}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>{notes}"
        )

    def as_latex(self) -> str:
        """The table as LaTeX; it needs no package.

        Returns
        -------
        latex : str
            A `table` environment with two tabulars and the notes.
        """

        def line(*cells: str) -> str:
            return " & ".join(cell.translate(_IN_TEX) for cell in cells) + r" \\"

        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{self.title.translate(_IN_TEX)}}}",
                r"\begin{tabular}{lrlr}",
                *(line(*a, *b) for a, b in self._pairs),
                r"\end{tabular}",
                r"\begin{tabular}{l" + "r" * (len(self.headings) - 1) + "}",
                r"\hline",
                line(*self.headings),
                r"\hline",
                *(line(*cells) for cells in self.cells),
                r"\hline",
                r"\end{tabular}",
                r"\par\footnotesize " + " ".join(self.notes).translate(_IN_TEX),
                r"\end{table}",
            ]
        )

    __str__, _repr_html_ = as_text, as_html


def rows_of(found: Functionals, names: Sequence[str], level: float, exp: bool = False) -> tuple[Row, ...]:
    """One row per functional; with `exp`, estimates and ends are those of e^functional."""
    half = found.half_width(level)
    stated: Sequence[FloatArray] = (found.estimate, found.estimate - half, found.estimate + half)
    with np.errstate(over="ignore"):
        value, low, high = map(np.exp, stated) if exp else stated
    columns = value, found.se, found.noise, found.df, low, high, found.pvalues(), found.resolved, found.enough
    return tuple(Row(*row) for row in zip(names, *(column.tolist() for column in columns), strict=True))


NO_RATIOS = "ratios are for a logistic model (odds) and counts (rates): leave them out or choose such a model"


def ratio_of(estimator: type, target: Target) -> str:
    """What e^coefficient of a class of estimators with that target is; "" where it is no ratio."""
    if isinstance(target, CountTarget):
        return "rate ratio"
    return "odds ratio" if isinstance(target, ClassTarget) and hasattr(estimator, "predict_proba") else ""


def outputs_of(release: Release, exp: bool = False) -> tuple[FloatArray, tuple[str, ...], str]:
    """(E, labels, reference): a table states E·coefficients, E of shape (m, K), with a label for each row.

    Several classes with intervals, or as ratios, are stated against a reference: that of the target's
    column, else the first one declared. Only such differences are known: equal margins change nothing.
    """
    K, target = len(release.intercept), release.target
    if K == 1:
        return np.eye(1), ("",), ""
    labels = tuple(map(str, release.classes or range(1, K + 1)))
    if not isinstance(target, ClassTarget) or not (exp or release.inference is not None):
        return np.eye(K), labels, ""
    chosen = target.column.reference if isinstance(target.column, Categorical) else None
    base = labels.index(str(target.classes[0]) if chosen is None else chosen)
    others = [k for k in range(K) if k != base]
    return (np.eye(K) - np.eye(K)[base])[others], tuple(labels[k] for k in others), labels[base]


def stated_against(
    release: Release, reference: Mapping[str, str] | None = None
) -> tuple[FloatArray, tuple[str, ...]]:
    """(T, names): T(coef, intercept) states levels against a reference where there is one, as R does.

    The row of level l is β_l − β_r, there is none of the reference r, and the intercept is that of all
    references: the margin is the same for every record whose levels are declared. By default the references
    of the schema; a mapping names others by column. Without an intercept levels stay as they are.
    """
    names, start = [*release.schema.feature_names, INTERCEPT], 0
    T, left_out, used = np.eye(len(names)), set(), set()
    for block in release.schema.encoding.blocks:
        if isinstance(block, Categorical) and release.columns.intercept:
            chosen = block.reference if reference is None else reference.get(block.name)
            if chosen in block.levels:
                used.add(block.name)
                base = start + block.levels.index(chosen)
                T[start : start + block.size, base] -= 1.0
                T[-1, base] = 1.0
                for j in range(start, start + block.size):
                    names[j] += f"{VERSUS}{chosen}"
                left_out.add(base)
        start += block.size
    if reference is not None and used != set(reference):
        raise InvalidInput(
            "a reference is a level of a column, in a model with an intercept: pass reference={column: level}"
        )
    if not release.columns.intercept:
        left_out.add(len(names) - 1)
    kept = [j for j in range(len(names)) if j not in left_out]
    return T[kept], tuple(names[j] for j in kept)


def frame_of(columns: Columns) -> Frame:
    """A data frame of pandas, else of Polars; the columns themselves where neither is installed."""
    library = next((name for name in ("pandas", "polars") if find_spec(name) is not None), None)
    return columns if library is None else import_module(library).DataFrame(columns)


def _plain(release: Release, F: FloatArray) -> Functionals:
    """F(coef, intercept), output after output, of a fit without intervals: only noise may be known of it."""
    values = np.column_stack([release.coefficients, release.intercept])
    noises = np.full(values.shape, np.nan)
    if release.noise.deviations is not None:
        noises[:, :-1] = release.noise.deviations
    single = np.count_nonzero(F, axis=1) == 1  # of a difference noise is not known
    noise = np.where(single, noises.ravel()[np.argmax(F != 0.0, axis=1)], np.nan)
    nan = np.full(len(F), np.nan)
    return Functionals(F @ values.ravel(), nan, noise, nan, np.zeros(len(F), dtype=bool), np.ones(len(F)))


def why_no_intervals(release: Release) -> str:
    """Of a fit without them."""
    if release.noise.deviations is None and release.noise.reason != UNTOLD:
        return release.noise.reason
    return ANOTHER_MECHANISM if "inference" in release.settings else ANOTHER_MODEL


def _spread(fact: tuple[str, str], width: int) -> str:
    name, value = fact
    return f"{name}:{value.rjust(width - len(name) - 1)}"
