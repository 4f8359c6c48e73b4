"""The table of a fit, with intervals where it has some: as text, HTML, LaTeX, columns or a data frame."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import dedent, wrap
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from markupsafe import Markup, escape

from curvedp.errors import InvalidInput
from curvedp.postprocess.inference import Functionals, Inference
from curvedp.postprocess.noise import ANOTHER_MECHANISM, ANOTHER_MODEL, OF_PERSONS, UNTOLD, UserUnits
from curvedp.release.modelfile import Release

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
            each = [f"{row.name} ({row.df:.1f} df; {row.enough * count:,.0f})" for row in few]
            told.append(
                f"Too few records: {_listed(each)}. The curvature of the loss, or what its clip cuts off, "
                "drowns in noise there, or fewer than 4 degrees of freedom are left. About as many records "
                "as in brackets would do."
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


# What the docstrings of all estimators share, written once.


_PARAMETERS = """\
    epsilon : float, default=1.0
        ε of the promise: one record shifts the odds of any outcome by at most e^ε.
    delta : float, default=1e-6
        δ of the promise: the chance with which it may fail; far below 1/rows.
    schema : Schema, optional
        Declares every column of a raw table, and perhaps the target: text, levels and missing cells are then
        read cell by cell. In its place, `bounds` and what declares the target serve tables of numbers.
    bounds : pair, list of pairs, or dict of pairs, optional
        Public ranges, never read off the data: one `(low, high)` for all columns, one pair per column, or
        `{column: (low, high)}`. Cells outside are clipped.
    formula : str, optional
        Which columns the model learns from, in R's notation: "wage ~ age + I(age**2) + C(region):female", or
        "~ age + log1p(capital)" where the target is declared otherwise. See docs/formulas.md.
{target}
    adjacency : {"replace", "add_remove"}, optional
        Which tables are neighbours. By default what the schema says, else "replace".
    mechanism : str or Mechanism, default="auto"
        How the coefficients are released: a name such as "qop", or an object such as
        `curvedp.mechanisms.QOP(radius=2.0)`. "auto" is the most accurate, recentered QOP.
    constraint : Constraint, optional
        One of `curvedp.problems.constraints`, on the coefficients of the mapped columns.
    fit_intercept : bool, default=True
        Whether to fit a constant, which no penalty touches.
    x_norm : float, optional
        Clip mapped records to this length; by default what the bounds imply.
    weight_max : float, optional
        The largest weight that `fit` may get as `sample_weight`, public; larger ones are clipped to it. A
        record of full weight counts as one, so that the scale of weights changes nothing, and alpha is in
        units of such records.
    ledger : Ledger or path, optional
        The budget that is charged before anything is computed.
    random_state : int, optional
        A seed, for research: the fit is then not private, and a ledger refuses it."""

_INFERENCE = """\
    inference : bool, default=True
        Whether to spend part of the budget on standard errors; the fit then has `conf_int`,
        `predict_interval`, `coef_se_`, `coef_cov_`, `coef_df_`, `intercept_se_` and `pvalues_`. A fit with a
        penalty, a constraint, more than two classes, a unit or another mechanism has none all the same, and
        `summary` says why."""

_TARGET_BOUNDS = """\
    target_bounds : (low, high), optional
        The public range of the target, never read off the data; targets are clipped to it."""

_CLASSES = """\
    classes : list, optional
        The labels that may occur, declared, never read off the data. Labels are compared as text after
        dropping idle zeros (1, 1.0 and "1" are one label). BEWARE: nobody can notice without looking at the
        data that `["No", "Yes"]` was declared for "no" and "yes"; such records contribute nothing."""

_ATTRIBUTES = """\
    release_ : Release
        Everything that was released; `save` writes it, and what follows are views of it.
    coef_ : array
        Coefficients in the user's units, one per encoded column of `schema_`; of classifiers a row
        per class.
    intercept_ : float or array
        The constant.
    privacy_ : Guarantee
        What the release promises: (ε, δ), adjacency, theorem, public parameters, the curve δ(ε).
    record_ : ReleaseRecord
        What is to be filed of the release: date, software, what was tuned.
    receipt_ : Receipt or None
        Where it was charged: ledger, charge number, the hash of the ledger's history; None without a ledger.
    objective_ : LocalObjective or None
        What a recentered release leaves: a private quadratic model of the objective, from which `refit` and
        `path` take other penalties at no cost.
    trust_ : float
        How much of the estimated slopes `coef_` has; below 1 where released numbers say that noise outweighs
        what the fit explains, and the rest is the constant answer. Intervals are of the estimate itself.
    coef_noise_ : array or None
        The standard deviation that privacy noise alone gives each coefficient; NaN where what was released
        does not resolve it, None where it cannot be known.
    coef_noise_reason_ : str
        Why `coef_noise_` is None or has NaN; empty where every coefficient has its noise.
    schema_ : Schema
        The declarations that the fit used; predictions read new tables by them.
    target_ : NumericTarget or ClassTarget
        What was declared of the target.
    columns_ : ColumnMap
        The public map from encoded columns to model columns.
    n_features_in_ : int
        The number of raw columns.
    feature_names_in_ : array of str
        Their names, where X had names."""

_LABELS = """
    classes_ : array
        The declared labels, sorted."""

_REGRESSION = """\
    >>> import numpy as np
    >>> from curvedp import {name}
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform([18, 0], [80, 60], (5000, 2))            # age, hours per week
    >>> y = 50 * X[:, 0] + 300 * X[:, 1] + random.normal(0, 3000, 5000)
    >>> model = {name}(bounds=[(16, 90), (0, 80)], target_bounds=(0, 40_000)).fit(X, y)
    >>> model.coef_.shape, model.privacy_.epsilon
    ((2,), 1.0)"""

_CLASSIFICATION = """\
    >>> import numpy as np
    >>> from curvedp import {name}
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, (5000, 3))
    >>> y = np.where(X @ [2.0, -1.0, 0.5] + random.logistic(size=5000) > 0, "yes", "no")
    >>> model = {name}(bounds=(-1, 1), classes=["no", "yes"]).fit(X, y)
    >>> model.predict([[1.0, -1.0, 1.0]]).tolist(), model.coef_.shape
    (['yes'], (1, 3))"""

_COUNTS = """\
    >>> import numpy as np
    >>> from curvedp.analyses.estimators import {name}
    >>> random = np.random.default_rng(0)
    >>> X, days = random.uniform(-1, 1, (5000, 2)), random.uniform(1, 30, 5000)
    >>> y = random.poisson(days * np.exp(X @ [0.5, -0.3] - 1.0))
    >>> model = {name}(bounds=(-1, 1), target_bounds=(0, 50), exposure_bounds=(1, 30))
    >>> model.fit(X, y, exposure=days).coef_.shape
    (2,)
    >>> model.predict(X[:3], exposure=[1, 10, 30]).shape
    (3,)"""

_SEVERAL = """\
    >>> import numpy as np
    >>> from curvedp.analyses.estimators import {name}
    >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    >>> Y = np.column_stack([5 + 3 * X[:, 0], X[:, 0] - X[:, 1]])
    >>> model = {name}(bounds=(-1, 1), target_bounds=[(0, 10), (-2, 2)]).fit(X, Y)
    >>> model.coef_.shape, model.predict(X[:3]).shape
    ((2, 2), (3, 2))"""

_OF = {"PrivatePoissonRegressor": _COUNTS, "PrivateMultiTaskRidge": _SEVERAL}

Class = TypeVar("Class", bound=type)


def documented(cls: Class) -> Class:
    """The class with what all estimators share added to its summary, parameters and examples."""
    classifies = hasattr(cls, "classes")
    text, _, own_examples = inspect.cleandoc(cls.__doc__ or "").partition("\n\nExamples\n--------\n")
    if "\nParameters\n" not in text:
        text += "\n\nParameters\n----------"
    target = _CLASSES if classifies else _TARGET_BOUNDS
    shared = _PARAMETERS.replace("{target}", target)
    if hasattr(cls, "inference"):
        shared += f"\n{_INFERENCE}"
    example = _OF.get(cls.__name__, _CLASSIFICATION if classifies else _REGRESSION)
    example = example.replace("{name}", cls.__name__)
    sections = [
        f"{text}\n{dedent(shared)}",
        f"Attributes\n----------\n{dedent(_ATTRIBUTES)}" + (dedent(_LABELS) if classifies else ""),
        f"Examples\n--------\n{dedent(example)}",
        *([own_examples] if own_examples else []),
    ]
    cls.__doc__ = "\n\n".join(sections) + "\n"
    return cls
