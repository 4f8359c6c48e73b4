"""The text of a factor, read into a closed set of functions. What a person writes is never run as code."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise

from curvedp.data.columns import Categorical, Ignored, Numeric, level_text, nearest, shown
from curvedp.data.dates import Boolean, Column, Date, Feature
from curvedp.data.formulas import numbers
from curvedp.data.formulas.notation import MOST_FACTORS, Text, called, constant, parsed, quoted, split
from curvedp.data.formulas.numbers import Bins, Factor, Levels, Number, Scalar
from curvedp.errors import InvalidInput

LARGEST_DEGREE = 5
MOST_KNOTS = 100
_BLOCKS = {"C": ("contrast",), "cut": ("breaks",), "spline": ("knots", "degree"), "bs": ("knots", "degree")}
_DATE_LEVELS, _DATE_NUMBERS = ("month", "weekday"), ("days", "year", "month_number")

_MOMENTS = "the mean or the deviation of all rows"
_MAPPED = "write the column itself, which its declared bounds map onto [-1, 1]"
_QUANTILES = "its knots are quantiles of all rows"
_KNOTS = "write spline(x, knots=[...]) with knots that you declare"
_OTHERS = "other rows"
_OUTSIDE = "compute it beforehand, from public numbers"

# Functions of R and Python that look at data: why, and what to write in their place.
OF_DATA: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("scale", "center", "standardize", "zscore", "normalize"), (_MOMENTS, _MAPPED)),
    **dict.fromkeys(("ns", "cr", "cs", "cc", "te", "s", "lo"), (_QUANTILES, _KNOTS)),
    "poly": ("orthogonal on the rows that are there", "write x + I(x**2) + I(x**3)"),
    "hashed": ("levels that nobody declared", "declare the levels of the column and write C(x)"),
    **dict.fromkeys(("lag", "lead", "diff", "cumsum", "cumprod"), (_OTHERS, _OUTSIDE)),
    **dict.fromkeys(("mean", "median", "std", "var", "min", "max", "sum", "rank"), (_OTHERS, _OUTSIDE)),
    **dict.fromkeys(("quantile", "qcut", "ntile"), (_OTHERS, "write cut(x, breaks=[...])")),
}


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use: declared columns, and derived ones by their text."""

    columns: Mapping[str, Column]
    derived: Mapping[str, str] = field(default_factory=dict)
    open: tuple[str, ...] = ()

    def factor(self, text: str) -> Factor:
        """The factor that a text describes."""
        read = parsed(text)
        with suppress(RecursionError):
            return _Reader(self, read).factor(read.tree)
        raise InvalidInput("an expression is nested too deeply: declare parts of it as [[derived]]")

    def factors(self, text: str) -> tuple[Factor, ...]:
        """The factor that a text describes; several, where it names a derived column that is a product."""
        read = parsed(text)
        name = read.name(read.tree) if isinstance(read.tree, ast.Name) else ""
        parts = split(self.derived.get(name, ""))
        if len(parts) == 1:
            return (self.factor(text),)
        inner = self.inside(name)
        found: list[Factor] = []
        for part in parts:
            found += inner.factors(part)
            if len(found) > MOST_FACTORS:
                raise InvalidInput(f"a term has more than {MOST_FACTORS} factors: leave some out")
        return tuple(found)

    def column_alone(self, text: str) -> Feature | None:
        """The declared column that a factor names, with or without C(…); None where it is more than that."""
        read = parsed(text)
        tree = read.tree
        argument = tree.args[0] if isinstance(tree, ast.Call) and called(tree) == "C" and tree.args else tree
        name = read.name(argument) if isinstance(argument, ast.Name) else ""
        column = None if name in self.derived else self.columns.get(name)
        if isinstance(column, Categorical):
            return _Reader(self, read).treated(column, tree)
        return None if isinstance(column, Ignored) or argument is not tree else column

    def inside(self, name: str) -> Scope:
        """The scope of a derived column's own text, in which it is not known."""
        if name in self.open:
            raise InvalidInput(f"the derived column {shown(name)} is computed from itself: write it anew")
        return replace(self, open=(*self.open, name))

    def unknown(self, name: str) -> InvalidInput:
        if name in ("I", "np", "numpy", *OF_DATA, *numbers.FUNCTIONS, *_BLOCKS):
            return InvalidInput(f"{name} is a function: write {name}(...) with a column inside")
        known = [*self.columns, *self.derived]
        choices = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        hint = nearest(name, known, f"choose among {choices}")
        return InvalidInput(f"{shown(name)} is not a column of the schema: {hint}")


def _levels(column: Categorical) -> Levels:
    dropped = 0 if column.reference is None else column.levels.index(column.reference)
    return Levels(column.encoded_names, column, dropped)


@dataclass(frozen=True)
class _Reader:
    scope: Scope
    text: Text

    def treated(self, column: Categorical, tree: ast.expr) -> Categorical:
        """The column with the reference of C(column, Treatment("level")), or as it is."""
        contrast = self._options(tree).get("contrast") if isinstance(tree, ast.Call) else None
        if contrast is None:
            return column
        named: list[ast.expr] = []
        if isinstance(contrast, ast.Call) and called(contrast) == "Treatment":
            named = [*contrast.args, *(one.value for one in contrast.keywords if one.arg == "reference")]
        level = named[0] if len(named) == 1 else None
        if not isinstance(level, ast.Constant) or not isinstance(level.value, str | int | float):
            raise InvalidInput(
                f'{self.text.of(tree)} is not understood: write C(x, Treatment("level")), or C(x) for the '
                "mean of all records"
            )
        return replace(column, reference=level_text(level.value))

    def factor(self, tree: ast.expr) -> Factor:
        if isinstance(tree, ast.Name):
            return self._named(self.text.name(tree))
        name = called(tree)
        if isinstance(tree, ast.Call) and name in _BLOCKS:
            return self._block(tree, name)
        if isinstance(tree, ast.Call) and name in _DATE_LEVELS:
            date = self._date(tree, name)
            return Levels(date.encoded_names, date)
        return self._varying(self.number(tree), self.text.of(tree))

    def _named(self, name: str) -> Factor:
        column = self.scope.columns.get(name)
        if name in self.scope.derived:
            found = self.scope.inside(name).factor(self.scope.derived[name])
            return found if isinstance(found, Levels) else replace(found, name=name)
        if isinstance(column, Categorical):
            return _levels(column)
        return Scalar(self._source(name), name)

    def _source(self, name: str) -> Number:
        column = self.scope.columns.get(name)
        if isinstance(column, Numeric | Boolean):
            return Number(column)
        if column is None:
            raise self.scope.unknown(name)
        text = quoted(name)
        instead = "is ignored: declare its bounds or its levels"
        if isinstance(column, Categorical):
            instead = (
                f"has levels, no numbers: write C({text}) alone or in an interaction such as C({text}):x"
            )
        elif isinstance(column, Date):
            instead = f"has dates: write days({text}) or year({text})"
        raise InvalidInput(f"column {shown(name)} {instead}")

    def _date(self, tree: ast.Call, part: str) -> Date:
        """The declared dates of which a part is asked, with that part alone."""
        shape, argument = self.text.of(tree), tree.args[0] if len(tree.args) == 1 else None
        if not isinstance(argument, ast.Name) or tree.keywords:
            raise InvalidInput(f"{shape} is not understood: write {part}(x) with a column of dates")
        name = self.text.name(argument)
        column = self.scope.columns.get(name)
        if column is None:
            raise self.scope.unknown(name)
        if not isinstance(column, Date):
            raise InvalidInput(f'{shape} needs a column of dates: declare {shown(name)} with kind = "date"')
        return replace(column, parts=(part,), missing="middle")

    def _block(self, tree: ast.Call, name: str) -> Factor:
        """C(x), cut(x, breaks=[…]), spline(x, knots=[…], degree=3)."""
        given, shape, argument = self._options(tree), self.text.of(tree), tree.args[0]
        if name == "C":
            whole = isinstance(argument, ast.Name) or called(argument) in _DATE_LEVELS
            name = self.text.name(argument) if isinstance(argument, ast.Name) else ""
            column = None if name in self.scope.derived else self.scope.columns.get(name)
            if given and not isinstance(column, Categorical):
                raise InvalidInput(f"{shape}: a reference is one of the levels that a column declares")
            if isinstance(column, Categorical):
                return _levels(self.treated(column, tree))
            inner = self.factor(argument) if whole else None
            if isinstance(inner, Levels | Bins):
                return inner
            raise InvalidInput(
                f"{shape} needs declared levels: declare the column as categorical, or write "
                f"cut({self.text.of(argument)}, breaks=[...])"
            )
        number = self._varying(self.number(argument), shape).number
        points = self._inner_points(given, number, shape, *(("breaks", 1) if name == "cut" else ("knots", 0)))
        if name == "cut":
            is_name, text = isinstance(argument, ast.Name), self.text.of(argument)
            return Bins(number, text.replace("`", "") if is_name else text, points)
        degree = given.get("degree", ast.Constant(3))
        if not (isinstance(degree, ast.Constant) and type(degree.value) is int):
            raise InvalidInput(f"{shape}: the degree must be a whole number: write degree=3")
        if not 1 <= degree.value <= LARGEST_DEGREE:
            raise InvalidInput(f"{shape}: the degree must be 1 to {LARGEST_DEGREE}: write degree=3")
        return numbers.Spline(number, shape, points, degree.value)

    def _options(self, tree: ast.Call) -> dict[str, ast.expr]:
        """What C, cut or spline is given beside its first argument, by name."""
        known = _BLOCKS[called(tree)]
        given = dict(zip(known, tree.args[1:], strict=False))
        named = {keyword.arg: keyword.value for keyword in tree.keywords}
        wrong = next((key for key in named if key not in known or key in given), None)
        if not tree.args or len(tree.args) > 1 + len(known) or wrong is not None or None in named:
            example = ", ".join(["x", *(f"{key}=..." for key in known)])
            raise InvalidInput(f"{self.text.of(tree)} is not understood: write {called(tree)}({example})")
        return given | {str(key): value for key, value in named.items()}

    def _inner_points(
        self, given: Mapping[str, ast.expr], number: Number, shape: str, what: str, least: int
    ) -> tuple[float, ...]:
        """Declared points in increasing order, strictly between the bounds."""
        low, high, listed = number.interval.low, number.interval.high, given.get(what)
        if listed is None:
            raise InvalidInput(
                f"{shape}: {what} must be declared, the data may not choose them: write {what}=[...] with "
                f"numbers between {low:g} and {high:g}"
            )
        values = list(map(constant, listed.elts)) if isinstance(listed, ast.List | ast.Tuple) else [None]
        points = tuple(value for value in values if value is not None)
        if len(points) < len(values) or not least <= len(points) <= MOST_KNOTS:
            raise InvalidInput(f"{shape}: {what} must be a list of {least} to {MOST_KNOTS} numbers")
        if not all(a < b for a, b in pairwise((low, *points, high))):
            raise InvalidInput(
                f"{shape}: {what} must increase and lie between the declared bounds {low:g} and {high:g}"
            )
        return points

    def _varying(self, number: Number, shape: str) -> Scalar:
        if not number.sources or not number.interval.low < number.interval.high:
            raise InvalidInput(f"{shape} is the same for every row: leave it out, or name a column in it")
        return Scalar(number, shape)

    def number(self, tree: ast.expr) -> Number:
        """The number that an expression is."""
        value = constant(tree)
        if value is not None:
            return Number(value)
        if isinstance(tree, ast.Name):
            return self._number_named(self.text.name(tree))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
            inner = self.number(tree.operand)
            return self._applied(numbers.NEGATE, tree, inner) if isinstance(tree.op, ast.USub) else inner
        if isinstance(tree, ast.BinOp):
            return self._operation(tree)
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            compare = numbers.SIGNS.get(type(tree.ops[0]).__name__)
            if compare is not None:
                return self._applied(compare, tree, self.number(tree.left), self.number(tree.comparators[0]))
        if isinstance(tree, ast.Call):
            return self._call(tree)
        raise InvalidInput(
            f"{shown(self.text.of(tree))} is not understood: an expression has columns, numbers, + - * / **, "
            f"comparisons and {', '.join(numbers.FUNCTIONS)}"
        )

    def _number_named(self, name: str) -> Number:
        if name not in self.scope.derived:
            return self._source(name)
        found = self.scope.factors(quoted(name))
        if all(isinstance(one, Scalar) for one in found):
            own = [one.number for one in found if isinstance(one, Scalar)]
            return reduce(lambda a, b: Number(numbers.MULTIPLY, (a, b), name), own)
        raise InvalidInput(
            f"the derived column {shown(name)} has several columns: it is no number to compute with"
        )

    def _applied(self, operation: numbers.Operation, tree: ast.expr, *arguments: Number) -> Number:
        return Number(operation, arguments, self.text.of(tree))

    def _operation(self, tree: ast.BinOp) -> Number:
        if isinstance(tree.op, ast.Pow):
            return self._power(tree)
        operation = numbers.SIGNS.get(type(tree.op).__name__)
        left, right = self.number(tree.left), self.number(tree.right)
        if operation is None:
            raise InvalidInput(f"{self.text.of(tree)} is not understood: use + - * / **")
        if operation is numbers.DIVIDE and 0.0 in right.interval:
            raise InvalidInput(
                f"{self.text.of(tree)} may divide by 0 within the declared bounds: raise them, or write "
                f"({self.text.of(tree.right)} + 1)"
            )
        if operation is numbers.MULTIPLY and left == right:
            return self._applied(numbers.power(2), tree, left)
        return self._applied(operation, tree, left, right)

    def _power(self, tree: ast.BinOp) -> Number:
        base, exponent, shape = self.number(tree.left), constant(tree.right), self.text.of(tree)
        if exponent is None or not 0 < abs(exponent) <= numbers.LARGEST_POWER:
            raise InvalidInput(
                f"{shape}: the exponent must be a number up to {numbers.LARGEST_POWER}, and not 0"
            )
        if exponent < 0 and 0.0 in base.interval:
            raise InvalidInput(f"{shape} may divide by 0 within the declared bounds: raise them")
        if exponent == int(exponent):
            found = self._applied(numbers.power(abs(exponent)), tree, base)
            return found if exponent > 0 else self._applied(numbers.DIVIDE, tree, Number(1.0), found)
        if base.interval.low < 0:
            raise InvalidInput(f"{shape} needs values ≥ 0: write abs({self.text.of(tree.left)})")
        return self._applied(numbers.power(exponent), tree, base)

    def _call(self, tree: ast.Call) -> Number:
        name, shape = called(tree), self.text.of(tree)
        if name in OF_DATA:
            why, instead = OF_DATA[name]
            raise InvalidInput(f"{shape} would look at the data ({why}): {instead}")
        if name in _BLOCKS or name in _DATE_LEVELS:
            instead = "with : as an interaction" if name in _BLOCKS else "month_number for a number"
            raise InvalidInput(f"{shape} has several columns: write it by itself, or {instead}")
        if name in _DATE_NUMBERS:
            return Number(self._date(tree, name))
        if name == "I" and len(tree.args) == 1 and not tree.keywords:
            return self.number(tree.args[0])
        function = numbers.FUNCTIONS.get(name)
        if function is None:
            known = ["I", *_BLOCKS, *numbers.FUNCTIONS, *_DATE_NUMBERS, *_DATE_LEVELS]
            hint = nearest(name, known, f"use one of {', '.join(known)}")
            raise InvalidInput(f"{shown(name or shape)} is not a function of formulas: {hint}")
        if tree.keywords or len(tree.args) != function.arity:
            raise InvalidInput(f"{shape}: {name} takes {function.arity} numbers, without names")
        arguments = [self.number(argument) for argument in tree.args]
        low, sign = arguments[0].interval.low, ">" if function.open else "≥"
        if low < function.low or (function.open and low == function.low):
            instead = function.instead.format(x=self.text.of(tree.args[0]))
            raise InvalidInput(
                f"{shape} needs values {sign} {function.low:g}, and {low:g} is within the declared bounds: "
                f"raise the lower bound if that is true, or {instead}"
            )
        return self._applied(function, tree, *arguments)
