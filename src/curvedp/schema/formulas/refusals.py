"""Functions of R and Python that look at data, and what to write in their place."""

from __future__ import annotations

from collections.abc import Mapping

_MOMENTS = "the mean or the deviation of all rows"
_MAPPED = "write the column itself, which its declared bounds map onto [-1, 1]"
_QUANTILES = "its knots are quantiles of all rows"
_KNOTS = "write spline(x, knots=[...]) with knots that you declare"
_OTHERS = "other rows"
_OUTSIDE = "compute it beforehand, from public numbers"

OF_DATA: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("scale", "center", "standardize", "zscore", "normalize"), (_MOMENTS, _MAPPED)),
    **dict.fromkeys(("ns", "cr", "cs", "cc", "te", "s", "lo"), (_QUANTILES, _KNOTS)),
    "poly": ("orthogonal on the rows that are there", "write x + I(x**2) + I(x**3)"),
    "hashed": ("levels that nobody declared", "declare the levels of the column and write C(x)"),
    **dict.fromkeys(("lag", "lead", "diff", "cumsum", "cumprod"), (_OTHERS, _OUTSIDE)),
    **dict.fromkeys(("mean", "median", "std", "var", "min", "max", "sum", "rank"), (_OTHERS, _OUTSIDE)),
    **dict.fromkeys(("quantile", "qcut", "ntile"), (_OTHERS, "write cut(x, breaks=[...])")),
}
WORDS = frozenset(("I", "np", "numpy", *OF_DATA))
