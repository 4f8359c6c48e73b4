"""The table of a fit, with intervals where it has some: as text, HTML, LaTeX, columns or a data frame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from curvedp.arrays import FloatArray, kron
from curvedp.data.columns import Categorical
from curvedp.data.targets import ClassTarget, CountTarget, Target, linear_odds
from curvedp.errors import InvalidInput
from curvedp.mechanisms.rule import Rule
from curvedp.numbers import number
from curvedp.postprocess.inference import Functionals, checked, in_user_units
from curvedp.postprocess.noise import ANOTHER_MECHANISM, ANOTHER_MODEL, UNTOLD, UserUnits
from curvedp.release.modelfile import Release

if TYPE_CHECKING:
    import pandas as pd

Frame = Any  # of pandas or Polars; a dict of lists where neither is installed
Label = Any  # a declared class: a text, a number or a truth value
Columns = dict[str, list[Any]]

ESTIMAND = (
    "The estimand is the coefficient of the population's fit on records clipped to the declared bounds. What "
    "the clip of gradients takes away is estimated; its doubt is part of the errors."
)
NOT_COVERED = (
    "Errors and intervals hold sampling and privacy noise together; “of it noise” is what privacy noise "
    "alone would give. No interval covers what the declared bounds clip: see `curvedp check`."
)
NOT_RESOLVED = "not resolved"
NOISE = (
    "“noise” is the deviation that privacy noise alone gives a coefficient; sampling adds to it, and so do "
    "clips and penalties."
)
INTERCEPT = "(intercept)"
WITHIN = "within persons (fixed effects absorbed)"
HEADINGS = ("", "coef", "std err", "of it noise", "df", "interval", "p")
VERSUS = " vs "  # between a level and its reference
MANY = 60  # rows of a printed table; of more …
FIRST = 20  # … so many, those that stand out
WHOLE = "tidy() has"
CROWDED = (
    10.0  # κ/√d below which nothing was seen of uniform columns: d 30 to 200, ε = 2, 3,000 to 60,000 rows
)
_WIDTH = 96
_LISTED = 8  # names in a note
_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: rf"\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "κ": r"$\kappa$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "−": "$-$",
    "<": "$<$",
    ">": "$>$",
    "≥": r"$\geq$",
}


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
        """As a table shows it."""
        if not self.resolved:
            return self.name, number(self.coefficient), "", "", _df(self.df), NOT_RESOLVED, ""
        interval = f"[{number(self.low)}, {number(self.high)}]"
        p = "< 0.001" if self.pvalue < 0.001 else f"{self.pvalue:.3f}"
        errors = number(self.se, 3), number(self.noise, 3)
        return self.name, number(self.coefficient), *errors, _df(self.df), interval, p

    @property
    def plain_cells(self) -> tuple[str, ...]:
        """As a table without intervals shows it."""
        return self.name, number(self.coefficient), "" if np.isnan(self.noise) else number(self.noise, 3)


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
    def of(
        cls,
        release: Release,
        level: float,
        exp: bool = False,
        reference: Mapping[str, str] | None = None,
    ) -> Summary:
        known, level = release.inference, checked(level)
        ratio = ratio_of(release.entry.load(), release.target) if exp else ""
        if exp and not ratio:
            raise InvalidInput(NO_RATIOS)
        T, names = stated_against(release, reference)
        E, labels, _ = outputs_of(release, exp)
        names = tuple(f"{label}: {name}" if label else name for label in labels for name in names)
        if known is None:
            rows = _plain_rows(release, E, T, names)
        else:
            L, shift = release.units.L, release.units.shift
            found = in_user_units(known, UserUnits(kron(E, T @ L), kron(E.sum(axis=1), T @ shift)))
            rows = rows_of(found, names, level)
        return cls(release, level, tuple(map(_as_ratio, rows)) if exp else rows, ratio)

    @property
    def title(self) -> str:
        release = self.release
        of = outcome(release, bool(self.ratio))
        return f"{release.estimator} of {of}{', ' + WITHIN if release.columns.absorbed else ''}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The header, as names and values."""
        promise, local, R = self.release.guarantee, self.release.objective, self.release.inference
        found = [
            ("ε", f"{promise.epsilon:g}"),
            ("δ", f"{promise.delta:g}"),
            ("adjacency", promise.adjacency),
        ]
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
        found += [*linear_odds(release.target, release.schema.target), *filter(None, [self.crowded])]
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
        found += [ESTIMAND, NOT_COVERED]
        return (*found, *self._refusals)

    @property
    def crowded(self) -> str:
        """What is said where κ is too small for intervals, or noise hides most coefficients; "" elsewhere."""
        known, d = self.release.inference or self.release.objective, self.release.columns.d
        g = self.release.guarantee.neighbours
        most = 2 * sum(not math.isfinite(row.enough) for row in self.rows) > len(self.rows)
        if known is None or known.kappa >= g.gram_factor * max(
            Rule.least_kappa, most * CROWDED * math.sqrt(d)
        ):
            return ""
        few = f"Too few {g.who}s for so many columns: {known.count:,.0f} for {d} (κ = {known.kappa:.2g})."
        return f"{few} Noise hides what intervals need: fewer columns, more {g.who}s or a larger ε help."

    @property
    def _refusals(self) -> tuple[str, ...]:
        """What is too small where a coefficient is not resolved, and what would be enough."""
        refused = [row for row in self.rows if not row.resolved]
        if not refused or self.release.inference is None:
            return ()
        count, told = self.release.inference.count, []
        unseen = [row.name for row in refused if not math.isfinite(row.enough)]
        if unseen and not self.crowded:
            told.append(
                f"Not resolved: {_listed(unseen)}. No records are seen there that differ from others, as of "
                "an empty level, a column that is misread or repeats others, or bounds far too wide."
            )
        few = [row for row in refused if math.isfinite(row.enough)]
        if few:
            each = [f"{row.name} ({row.df:.1f} df; {row.enough * count:,.0f})" for row in few]
            told.append(
                f"Too few records: {_listed(each)}. The curvature of the loss, or what its clip cuts off, "
                "drowns in noise there, or fewer than 4 degrees of freedom are left. About as many records "
                "as in brackets would do."
            )
        return tuple(told)

    @property
    def headings(self) -> tuple[str, ...]:
        first = self.ratio or "coef"
        if self.release.inference is None:
            return ("", first, "noise") if self._tells_noise else ("", first)
        return ("", first, *(f"{100 * self.level:g} % {h}" if h == "interval" else h for h in HEADINGS[2:]))

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The printed rows, as a table shows them."""
        if self.release.inference is not None:
            return tuple(row.cells for row in self.printed)
        return tuple(row.plain_cells[: len(self.headings)] for row in self.printed)

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
        nan = float("nan")
        return [math.log(row.coefficient or nan) if self.ratio else row.coefficient for row in self.rows]

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
        rows = [asdict(row) for row in self.rows]
        return {key: [row[key] for row in rows] for key in Row.__dataclass_fields__}

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
            raise InvalidInput(
                "as_frame needs pandas: install it, or take the plain columns of table()"
            ) from None
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
        nan = float("nan")
        errors = [row.se if row.resolved else nan for row in self.rows]
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
        count, kappa = (float("nan"),) * 2 if told is None else (told.count, told.kappa)
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
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.headings))]
        lines = [_line(row, widths) for row in cells]
        full = max(len(lines[0]), 60)
        half = (len(self.facts) + 1) // 2
        pairs = [*zip(self.facts[:half], self.facts[half:], strict=False)]
        left = max(len(name) + len(value) for name, value in self.facts[:half]) + 2
        header = [
            f"{_spread(a, left)}{' ' * 4}{_spread(b, full - left - 4)}"
            if full - left > 30
            else _spread(a, full)
            for a, b in pairs
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
        left, cell = (f'style="text-align:{side};padding:.15em .6em"' for side in ("left", "right"))
        facts = "".join(
            f"<tr><th {left}>{escape(a)}</th><td {cell}>{escape(b)}</td></tr>" for a, b in self.facts
        )
        heads = "".join(f"<th {cell}>{escape(h)}</th>" for h in self.headings)
        body = "".join(
            f"<tr><th {left}>{escape(row[0])}</th>"
            + "".join(f"<td {cell}>{escape(text)}</td>" for text in row[1:])
            + "</tr>"
            for row in self.cells
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return str(
            Markup(
                f"<table><caption>{escape(self.title)}</caption><tbody>{facts}</tbody></table>"
                f'<div style="overflow-x:auto"><table><thead><tr>{heads}</tr></thead>'
                f"<tbody>{body}</tbody></table></div>{notes}"
            )
        )

    def as_latex(self) -> str:
        """The table as LaTeX; it needs no package.

        Returns
        -------
        latex : str
            A `table` environment with two tabulars and the notes.
        """
        half = (len(self.facts) + 1) // 2
        facts = [
            " & ".join(map(_tex, (*a, *b))) + r" \\"
            for a, b in zip(self.facts[:half], self.facts[half:], strict=False)
        ]
        rows = [" & ".join(map(_tex, row)) + r" \\" for row in self.cells]
        heads = " & ".join(map(_tex, self.headings)) + r" \\"
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(self.title)}}}",
                r"\begin{tabular}{lrlr}",
                *facts,
                r"\end{tabular}",
                r"\begin{tabular}{l" + "r" * (len(self.headings) - 1) + "}",
                r"\hline",
                heads,
                r"\hline",
                *rows,
                r"\hline",
                r"\end{tabular}",
                r"\par\footnotesize " + " ".join(map(_tex, self.notes)),
                r"\end{table}",
            ]
        )

    def __str__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return self.as_html()


def _listed(names: Sequence[str]) -> str:
    """The first of them, and how many there are."""
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


def rows_of(found: Functionals, names: Sequence[str], level: float) -> tuple[Row, ...]:
    """One row per functional."""
    half = found.half_width(level)
    ends = found.estimate - half, found.estimate + half
    columns = found.estimate, found.se, found.noise, found.df, *ends, found.pvalues()
    told = zip(names, *(column.tolist() for column in (*columns, found.resolved, found.enough)), strict=True)
    return tuple(Row(*row) for row in told)


ODDS, RATE = "odds ratio", "rate ratio"
NO_RATIOS = (
    "ratios are for a logistic model (odds) and for counts (rates): leave them out, or choose such a model"
)


def ratio_of(estimator: type, target: Target) -> str:
    """What e^coefficient of a class of estimators with that target is; "" where it is no ratio."""
    if isinstance(target, CountTarget):
        return RATE
    return ODDS if isinstance(target, ClassTarget) and hasattr(estimator, "predict_proba") else ""


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


def _as_ratio(row: Row) -> Row:
    with np.errstate(over="ignore"):
        value, low, high = (float(np.exp(end)) for end in (row.coefficient, row.low, row.high))
    return replace(row, coefficient=value, low=low, high=high)


def frame_of(columns: Columns) -> Frame:
    """A data frame of pandas, else of Polars; the columns themselves where neither is installed."""
    library = next((name for name in ("pandas", "polars") if find_spec(name) is not None), None)
    return columns if library is None else import_module(library).DataFrame(columns)


def _plain_rows(release: Release, E: FloatArray, T: FloatArray, names: Sequence[str]) -> tuple[Row, ...]:
    """Of a fit without intervals: one output after another, each with its intercept last."""
    values = np.column_stack([release.coefficients, release.intercept])
    noises = np.full(values.shape, np.nan)
    if release.noise.deviations is not None:
        noises[:, :-1] = release.noise.deviations
    F = kron(E, T)
    single = np.count_nonzero(F, axis=1) == 1  # of a difference noise is not known
    noise = np.where(single, noises.ravel()[np.argmax(F != 0.0, axis=1)], np.nan).tolist()
    nan = float("nan")
    return tuple(
        Row(name, value, nan, own, nan, nan, nan, nan, False)
        for name, value, own in zip(names, (F @ values.ravel()).tolist(), noise, strict=True)
    )


def why_no_intervals(release: Release) -> str:
    """Of a fit without them."""
    if release.noise.deviations is None and release.noise.reason != UNTOLD:
        return release.noise.reason
    return ANOTHER_MECHANISM if "inference" in release.settings else ANOTHER_MODEL


def _df(value: float) -> str:
    return "> 9,999" if value > 9999 else f"{value:,.0f}"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if k == 0 else cell.rjust(width)
        for k, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest])


def _spread(fact: tuple[str, str], width: int) -> str:
    name, value = fact
    return f"{name}:{value.rjust(width - len(name) - 1)}"


def _tex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text)
