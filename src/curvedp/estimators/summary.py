"""The table of a fit with intervals: as text, HTML, LaTeX, plain columns or a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from curvedp.errors import InvalidInput
from curvedp.privacy.guarantee import Guarantee
from curvedp.released.inference import LEAST_KAPPA, Inference

if TYPE_CHECKING:
    import pandas as pd

ESTIMAND = (
    "The estimand is the coefficient of the population's bounded-influence fit on records clipped to the "
    "declared bounds; it is that of the plain fit unless a small group of records dominates."
)
NOT_COVERED = (
    "Errors and intervals hold sampling and privacy noise together; “of it noise” is what privacy noise "
    "alone would give. No interval covers what the declared bounds clip: see `curvedp check`."
)
NOT_RESOLVED = "not resolved"
HEADINGS = ("", "coef", "std err", "of it noise", "df", "interval", "p")
_WIDTH = 96
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
    """One coefficient and what is known of its error; ends and p are NaN where it is not resolved."""

    name: str
    coefficient: float
    se: float
    noise: float
    df: float
    low: float
    high: float
    pvalue: float
    resolved: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """As a table shows it."""
        if not self.resolved:
            return self.name, number(self.coefficient), "", "", _df(self.df), NOT_RESOLVED, ""
        interval = f"[{number(self.low)}, {number(self.high)}]"
        p = "< 0.001" if self.pvalue < 0.001 else f"{self.pvalue:.3f}"
        errors = number(self.se, 3), number(self.noise, 3)
        return self.name, number(self.coefficient), *errors, _df(self.df), interval, p


def outcome(target: str | None, classes: Sequence[object] = ()) -> str:
    """What positive coefficients speak for: the target, or of two classes the second."""
    name = target or "y"
    return f"{name}: {classes[1]} against {classes[0]}" if len(classes) == 2 else name


@dataclass(frozen=True, eq=False)
class Summary:
    """Coefficients with intervals; made by `summary()` of a model that was fitted with inference=True.

    Attributes
    ----------
    target, estimator : str
        What was predicted, and by which class.
    level : float
        Of the intervals.
    privacy : Guarantee
        What the release promises.
    inference : Inference
        The released numbers that everything rests on.
    rows : tuple of Row
        In the order of the encoded columns, the intercept last.
    """

    target: str
    estimator: str
    level: float
    privacy: Guarantee
    inference: Inference
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return f"{self.estimator} of {self.target}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The header, as names and values."""
        R, promise = self.inference.releases, self.privacy
        spread = 1.96 * R.count_scale
        records = f"{R.count:,.0f}" + (f" ± {spread:,.0f}" if spread else "")
        clipped, deviation = R.tail.expected[R.edge], R.tail.scale
        return (
            ("ε", f"{promise.epsilon:g}"),
            ("δ", f"{promise.delta:g}"),
            ("adjacency", promise.adjacency),
            ("records", records),
            ("κ, signal to noise", number(R.kappa, 3)),
            ("clip", number(float(R.tail.edges[R.edge]), 3)),
            ("records clipped", f"{clipped:,.0f} ± {deviation:,.0f} (sd)"),
            ("tail index α", number(R.tail.index, 2)),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside the numbers."""
        found = [ESTIMAND, NOT_COVERED]
        if not self.privacy.private:
            found.insert(0, "NOT a private release: the run was seeded.")
        if not self.inference.has_power:
            found.append(
                f"Not resolved: the signal is too weak beside the noise (κ = "
                f"{number(self.inference.releases.kappa, 3)}; at least {LEAST_KAPPA:g}, and more with many "
                "columns) for any interval to be known to hold: it takes more records or a larger ε."
            )
        elif not all(row.resolved for row in self.rows):
            found.append(
                "Not resolved: the noise leaves too few degrees of freedom, or the coefficient depends on a "
                "direction that the released curvature does not show, as of a rare level or a column that "
                "nearly repeats others. A difference of two levels may be resolved all the same: `contrast`."
            )
        return tuple(found)

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(f"{100 * self.level:g} % {h}" if h == "interval" else h for h in HEADINGS)

    def table(self) -> dict[str, list[float | str | bool]]:
        """The rows by columns, ready for any data frame library.

        Returns
        -------
        columns : dict
            name, coefficient, se, noise, df, low, high, pvalue, resolved.
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
        cells = [self.headings, *(row.cells for row in self.rows)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(HEADINGS))]
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
            f"<tr><th {left}>{escape(row.name)}</th>"
            + "".join(f"<td {cell}>{escape(text)}</td>" for text in row.cells[1:])
            + "</tr>"
            for row in self.rows
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
        rows = [" & ".join(map(_tex, row.cells)) + r" \\" for row in self.rows]
        heads = " & ".join(map(_tex, self.headings)) + r" \\"
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(self.title)}}}",
                r"\begin{tabular}{lrlr}",
                *facts,
                r"\end{tabular}",
                r"\begin{tabular}{lrrrrrr}",
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
