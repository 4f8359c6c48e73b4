"""The table of a fit, with intervals where it has some: as text, HTML, LaTeX, columns or a data frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from curvedp.errors import InvalidInput
from curvedp.modelfile import Release
from curvedp.released.inference import Functionals, Inference
from curvedp.released.noise import ANOTHER_MECHANISM, ANOTHER_MODEL, OF_PERSONS, UNTOLD
from curvedp.released.units import UserUnits

if TYPE_CHECKING:
    import pandas as pd

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
HEADINGS = ("", "coef", "std err", "of it noise", "df", "interval", "p")
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


def outcome(target: str | None, classes: Sequence[object] = ()) -> str:
    """What positive coefficients speak for: the target, or of two classes the second."""
    name = target or "y"
    return f"{name}: {classes[1]} against {classes[0]}" if len(classes) == 2 else name


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
    """

    release: Release
    level: float
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, release: Release, level: float) -> Summary:
        names, known = [*release.schema.feature_names, INTERCEPT], release.inference
        kept = len(names) if release.columns.intercept else len(names) - 1
        if known is None:
            return cls(release, checked(level), _plain_rows(release, names, kept))
        found = in_user_units(known, release.units)
        return cls(release, level, rows_of(found, names, checked(level))[:kept])

    @property
    def title(self) -> str:
        release = self.release
        return f"{release.estimator} of {outcome(release.schema.target, release.classes or ())}"

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
                found.append(("records, about", f"{local.count:,.0f}"))
                found.append(("κ, signal to noise", number(local.kappa, 3)))
            return tuple(found)
        spread = 1.96 * R.count_scale
        return (
            *found,
            ("records", f"{R.count:,.0f}" + (f" ± {spread:,.0f}" if spread else "")),
            ("κ, signal to noise", number(R.kappa, 3)),
            ("clip", number(float(R.tail.edges[1]), 3)),
            ("records clipped", f"{R.tail.expected[1]:,.0f} ± {R.tail.scale:,.0f} (sd)"),
            ("tail index α", number(R.tail.index, 2)),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside the numbers."""
        release = self.release
        found = [] if release.guarantee.private else ["NOT a private release: the run was seeded."]
        if release.trust < 1.0:
            found.append(
                "Released numbers say that noise outweighs what it explains: coef_ and predictions have "
                f"{100 * release.trust:.0f} % of the estimated slopes, the rest is the constant answer"
                + ("." if release.inference is None else "; the table is of the estimate itself.")
            )
        if release.inference is None:
            found.append(f"No intervals: {why_no_intervals(release)}.")
            return (*found, *([NOISE] if self._tells_noise else []))
        found += [ESTIMAND, NOT_COVERED]
        return (*found, *self._refusals)

    @property
    def _refusals(self) -> tuple[str, ...]:
        """What is too small where a coefficient is not resolved, and what would be enough."""
        refused = [row for row in self.rows if not row.resolved]
        if not refused or self.release.inference is None:
            return ()
        count, told = self.release.inference.count, []
        unseen = [row.name for row in refused if not math.isfinite(row.enough)]
        if unseen:
            told.append(
                f"Not resolved: {_listed(unseen)}. No records are seen there that differ from others, as of "
                "an empty level, a column that is misread, or one that repeats others: see `curvedp check`."
            )
        few = [row for row in refused if math.isfinite(row.enough)]
        if few:
            each = [f"{row.name} ({row.df:.1f} degrees of freedom, {row.enough * count:,.0f})" for row in few]
            told.append(
                f"Too few records: {_listed(each)}. The curvature of the loss drowns in noise there: at "
                "least 4 degrees of freedom are needed; about as many records as in brackets would do."
            )
        return tuple(told)

    @property
    def headings(self) -> tuple[str, ...]:
        if self.release.inference is None:
            return ("", "coef", "noise") if self._tells_noise else ("", "coef")
        return tuple(f"{100 * self.level:g} % {h}" if h == "interval" else h for h in HEADINGS)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows, as a table shows them."""
        if self.release.inference is not None:
            return tuple(row.cells for row in self.rows)
        return tuple(row.plain_cells[: len(self.headings)] for row in self.rows)

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


def in_user_units(known: Inference, units: UserUnits) -> Functionals:
    """Of Lθ + shift."""
    found = known.of(units.L)
    return replace(found, estimate=found.estimate + units.shift)


def rows_of(found: Functionals, names: Sequence[str], level: float) -> tuple[Row, ...]:
    """One row per functional."""
    half = found.half_width(level)
    ends = found.estimate - half, found.estimate + half
    columns = found.estimate, found.se, found.noise, found.df, *ends, found.pvalues()
    told = zip(names, *(column.tolist() for column in (*columns, found.resolved, found.enough)), strict=True)
    return tuple(Row(*row) for row in told)


def _plain_rows(release: Release, names: Sequence[str], kept: int) -> tuple[Row, ...]:
    """Of a fit without intervals: one output after another, each with its intercept last."""
    values = np.column_stack([release.coefficients, release.intercept])
    noises = np.full(values.shape, np.nan)
    if release.noise.deviations is not None:
        noises[:, :-1] = release.noise.deviations
    labels = release.classes or range(1, len(values) + 1)
    nan = float("nan")
    return tuple(
        Row(
            name if len(values) == 1 else f"{labels[k]}: {name}",
            *(float(values[k, j]), nan, float(noises[k, j]), nan, nan, nan, nan, False),
        )
        for k in range(len(values))
        for j, name in enumerate(names[:kept])
    )


def why_no_intervals(release: Release) -> str:
    """Of a fit without them."""
    if release.guarantee.neighbours.unit is not None:
        return OF_PERSONS
    if release.noise.deviations is None and release.noise.reason != UNTOLD:
        return release.noise.reason
    return ANOTHER_MECHANISM if "inference" in release.settings else ANOTHER_MODEL


def checked(level: float) -> float:
    """A level between 0 and 1, or a refusal."""
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    return level


def number(value: float, digits: int = 4) -> str:
    """To so many digits, without an exponent where it can do without."""
    return f"{float(f'{value:.{digits}g}'):,.12g}".replace("-", "−")


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
