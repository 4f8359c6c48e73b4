"""The text of a factor, read into a closed set of functions. What a person writes is never run as code."""

from __future__ import annotations

import ast
from ast import unparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise

from curvedp.data.columns import Categorical, Ignored, Numeric, level_text, nearest, shown
from curvedp.data.dates import Boolean, Column, Date, Feature
from curvedp.data.formulas import numbers
from curvedp.data.formulas.notation import MOST_FACTORS, called, constant, name_in, parsed, quoted, split
from curvedp.data.formulas.numbers import LARGEST_POWER, Bins, Factor, Levels, Number, Scalar
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


def _levels(column: Categorical) -> Levels:
    dropped = 0 if column.reference is None else column.levels.index(column.reference)
    return Levels(column.encoded_names, column, dropped)


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use: declared columns, and derived ones by their text."""

    columns: Mapping[str, Column]
    derived: Mapping[str, str] = field(default_factory=dict)
    open: tuple[str, ...] = ()

    def factor(self, text: str) -> Factor:
        """The factor that a text describes."""
        tree = parsed(text)
        with suppress(RecursionError):
            return self._factor(tree)
        raise InvalidInput("an expression is nested too deeply: declare parts of it as [[derived]]")

    def factors(self, text: str) -> tuple[Factor, ...]:
        """The factor that a text describes; several, where it names a derived column that is a product."""
        name = name_in(parsed(text))
        if len(parts := split(self.derived.get(name, ""))) == 1:
            return (self.factor(text),)
        inner = self._inside(name)
        found: list[Factor] = []
        for part in parts:
            found += inner.factors(part)
            if len(found) > MOST_FACTORS:
                raise InvalidInput(f"a term has more than {MOST_FACTORS} factors: leave some out")
        return tuple(found)

    def column_alone(self, text: str) -> Feature | None:
        """The declared column that a factor names, with or without C(…); None where it is more than that."""
        tree = parsed(text)
        argument = tree.args[0] if isinstance(tree, ast.Call) and called(tree) == "C" and tree.args else tree
        if isinstance(column := self._declared(name_in(argument)), Categorical):
            return self._treated(column, tree)
        return None if isinstance(column, Ignored) or argument is not tree else column

    def _declared(self, name: str) -> Column | None:
        """The column of this name, unless a derived one has it."""
        return None if name in self.derived else self.columns.get(name)

    def _inside(self, name: str) -> Scope:
        """The scope of a derived column's own text, in which it is not known."""
        if name in self.open:
            raise InvalidInput(f"the derived column {shown(name)} is computed from itself: write it anew")
        return replace(self, open=(*self.open, name))

    def _column(self, name: str) -> Column:
        if name in self.columns:
            return self.columns[name]
        if name in ("I", "np", "numpy", *OF_DATA, *numbers.FUNCTIONS, *_BLOCKS):
            raise InvalidInput(f"{name} is a function: write {name}(...) with a column inside")
        known = [*self.columns, *self.derived]
        choices = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        hint = nearest(name, known, f"choose among {choices}")
        raise InvalidInput(f"{shown(name)} is not a column of the schema: {hint}")

    def _treated(self, column: Categorical, tree: ast.expr) -> Categorical:
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
                f'{unparse(tree)} is not understood: write C(x, Treatment("level")), or C(x) for the '
                "mean of all records"
            )
        return replace(column, reference=level_text(level.value))

    def _factor(self, tree: ast.expr) -> Factor:
        if isinstance(tree, ast.Name):
            if (name := name_in(tree)) in self.derived:
                found = self._inside(name).factor(self.derived[name])
                return found if isinstance(found, Levels) else replace(found, name=name)
            column = self._column(name)
            return _levels(column) if isinstance(column, Categorical) else Scalar(self._source(name), name)
        function = called(tree)
        if isinstance(tree, ast.Call) and function in _BLOCKS:
            return self._block(tree, function)
        if isinstance(tree, ast.Call) and function in _DATE_LEVELS:
            date = self._date(tree, function)
            return Levels(date.encoded_names, date)
        return self._varying(self._number(tree), unparse(tree))

    def _source(self, name: str) -> Number:
        if isinstance(column := self._column(name), Numeric | Boolean):
            return Number(column)
        instead = "is ignored: declare its bounds or its levels"
        if isinstance(column, Categorical):
            parts = f"C({quoted(name)})"
            instead = f"has levels, no numbers: write {parts} alone or in an interaction such as {parts}:x"
        elif isinstance(column, Date):
            instead = f"has dates: write days({quoted(name)}) or year({quoted(name)})"
        raise InvalidInput(f"column {shown(name)} {instead}")

    def _date(self, tree: ast.Call, part: str) -> Date:
        """The declared dates of which a part is asked, with that part alone."""
        shape, argument = unparse(tree), tree.args[0] if len(tree.args) == 1 else None
        if not isinstance(argument, ast.Name) or tree.keywords:
            raise InvalidInput(f"{shape} is not understood: write {part}(x) with a column of dates")
        name = name_in(argument)
        if not isinstance(column := self._column(name), Date):
            raise InvalidInput(f'{shape} needs a column of dates: declare {shown(name)} with kind = "date"')
        return replace(column, parts=(part,), missing="middle")

    def _block(self, tree: ast.Call, name: str) -> Factor:
        """C(x), cut(x, breaks=[…]), spline(x, knots=[…], degree=3)."""
        given, shape, argument = self._options(tree), unparse(tree), tree.args[0]
        if name == "C":
            whole = isinstance(argument, ast.Name) or called(argument) in _DATE_LEVELS
            if isinstance(column := self._declared(name_in(argument)), Categorical):
                return _levels(self._treated(column, tree))
            if given:
                raise InvalidInput(f"{shape}: a reference is one of the levels that a column declares")
            inner = self._factor(argument) if whole else None
            if isinstance(inner, Levels | Bins):
                return inner
            raise InvalidInput(
                f"{shape} needs declared levels: declare the column as categorical, or write "
                f"cut({unparse(argument)}, breaks=[...])"
            )
        number = self._varying(self._number(argument), shape).number
        points = self._inner_points(given, number, shape, *(("breaks", 1) if name == "cut" else ("knots", 0)))
        if name == "cut":
            is_name, text = isinstance(argument, ast.Name), unparse(argument)
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
            raise InvalidInput(f"{unparse(tree)} is not understood: write {called(tree)}({example})")
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

    def _number(self, tree: ast.expr) -> Number:
        if (value := constant(tree)) is not None:
            return Number(value)
        if isinstance(tree, ast.Name):
            name = name_in(tree)
            factors = self.factors(unparse(tree)) if name in self.derived else ()
            own = [factor.number for factor in factors if isinstance(factor, Scalar)]
            if len(own) < len(factors):
                raise InvalidInput(
                    f"the derived column {shown(name)} has several columns: it is no number to compute with"
                )
            return reduce(lambda a, b: Number(numbers.MULTIPLY, (a, b), name), own or [self._source(name)])
        match tree:
            case ast.UnaryOp(op=ast.UAdd()):
                return self._number(tree.operand)
            case ast.UnaryOp(op=ast.USub()):
                return Number(numbers.NEGATE, (self._number(tree.operand),), unparse(tree))
            case ast.BinOp():
                return self._power(tree) if isinstance(tree.op, ast.Pow) else self._operation(tree)
            case ast.Compare(ops=[sign], comparators=[right]) if type(sign).__name__ in numbers.SIGNS:
                compared = self._number(tree.left), self._number(right)
                return Number(numbers.SIGNS[type(sign).__name__], compared, unparse(tree))
            case ast.Call():
                return self._call(tree)
        raise InvalidInput(
            f"{shown(unparse(tree))} is not understood: an expression has columns, numbers, + - * / **, "
            f"comparisons and {', '.join(numbers.FUNCTIONS)}"
        )

    def _operation(self, tree: ast.BinOp) -> Number:
        operation, shape = numbers.SIGNS.get(type(tree.op).__name__), unparse(tree)
        left, right = self._number(tree.left), self._number(tree.right)
        if operation is None:
            raise InvalidInput(f"{shape} is not understood: use + - * / **")
        if operation is numbers.DIVIDE and 0.0 in right.interval:
            raise InvalidInput(
                f"{shape} may divide by 0 within the declared bounds: raise them, or write "
                f"({unparse(tree.right)} + 1)"
            )
        if operation is numbers.MULTIPLY and left == right:
            return Number(numbers.power(2), (left,), shape)
        return Number(operation, (left, right), shape)

    def _power(self, tree: ast.BinOp) -> Number:
        base, exponent, shape = self._number(tree.left), constant(tree.right), unparse(tree)
        if exponent is None or not 0 < abs(exponent) <= LARGEST_POWER:
            raise InvalidInput(f"{shape}: the exponent must be a number up to {LARGEST_POWER}, and not 0")
        if exponent < 0 and 0.0 in base.interval:
            raise InvalidInput(f"{shape} may divide by 0 within the declared bounds: raise them")
        if exponent == int(exponent):
            found = Number(numbers.power(abs(exponent)), (base,), shape)
            return found if exponent > 0 else Number(numbers.DIVIDE, (Number(1.0), found), shape)
        if base.interval.low < 0:
            raise InvalidInput(f"{shape} needs values ≥ 0: write abs({unparse(tree.left)})")
        return Number(numbers.power(exponent), (base,), shape)

    def _call(self, tree: ast.Call) -> Number:
        name, shape = called(tree), unparse(tree)
        if name in OF_DATA:
            why, instead = OF_DATA[name]
            raise InvalidInput(f"{shape} would look at the data ({why}): {instead}")
        if name in _BLOCKS or name in _DATE_LEVELS:
            instead = "with : as an interaction" if name in _BLOCKS else "month_number for a number"
            raise InvalidInput(f"{shape} has several columns: write it by itself, or {instead}")
        if name in _DATE_NUMBERS:
            return Number(self._date(tree, name))
        if name == "I" and len(tree.args) == 1 and not tree.keywords:
            return self._number(tree.args[0])
        if (function := numbers.FUNCTIONS.get(name)) is None:
            known = ["I", *_BLOCKS, *numbers.FUNCTIONS, *_DATE_NUMBERS, *_DATE_LEVELS]
            hint = nearest(name, known, f"use one of {', '.join(known)}")
            raise InvalidInput(f"{shown(name or shape)} is not a function of formulas: {hint}")
        if tree.keywords or len(tree.args) != function.arity:
            raise InvalidInput(f"{shape}: {name} takes {function.arity} numbers, without names")
        arguments = tuple(map(self._number, tree.args))
        low, sign = arguments[0].interval.low, ">" if function.open else "≥"
        if low < function.low or (function.open and low == function.low):
            instead = function.instead.format(x=unparse(tree.args[0]))
            raise InvalidInput(
                f"{shape} needs values {sign} {function.low:g}, and {low:g} is within the declared bounds: "
                f"raise the lower bound if that is true, or {instead}"
            )
        return Number(function, arguments, shape)
