"""A column of truth values: one encoded column, 0 or 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.schema.cells import (
    LEVEL_KINDS,
    Cells,
    Kind,
    is_number_level,
    level,
    level_kinds,
    levels,
    positions,
)
from curvedp.schema.columns import Declared, is_list, is_text, level_text

_ALWAYS = {"0": 0, "1": 1}
_WORDS = {"false": 0, "f": 0, "no": 0, "n": 0, "true": 1, "t": 1, "yes": 1, "y": 1, **_ALWAYS}


@dataclass(frozen=True)
class Boolean(Declared):
    """False or true, as 0 or 1.

    Parameters
    ----------
    name : str
        The column's name in the table.
    words : pair of str, optional
        What a cell says for false and for true, such as ("nein", "ja"); 0 and 1 and truth values are read,
        too, unless a word is itself a number. Without words, false, f, no, n, 0 and true, t, yes, y, 1 are
        read. Upper and lower case are one. Anything else counts as missing.
    missing : {"middle", "indicator"}, default="middle"
        What a missing cell becomes: 1/2; or that and a 1 in a second column, "smoker?missing".
    source : str, optional
        Where the words come from, in one line.

    Examples
    --------
    >>> from curvedp.schema import Boolean, Schema
    >>> Schema([Boolean("smoker", ["nein", "ja"])]).read({"smoker": ["Ja", "nein", True, "?"]}).tolist()
    [[1.0], [0.0], [1.0], [nan]]
    """

    name: str
    words: tuple[str, str] | None = None
    missing: Literal["middle", "indicator"] = field(default="middle", kw_only=True)
    source: str = field(default="", repr=False, kw_only=True)

    kind = "boolean"
    cell_kinds = LEVEL_KINDS

    def __post_init__(self) -> None:
        self._check("middle", "indicator")
        if self.words is None:
            return
        words: Any = self.words
        told = is_list(words) and all(isinstance(word, str | int | float) for word in words)
        texts = [level_text(word) for word in words] if told else []
        keys = {level(text).casefold() for text in texts}
        if len(texts) != 2 or len(keys) != 2 or "" in keys or not all(map(is_text, texts)):
            raise InvalidInput(
                f"{self.what}: words must be two different texts, that of false first: write words = "
                '["no", "yes"]'
            )
        object.__setattr__(self, "words", (texts[0], texts[1]))

    @property
    def levels(self) -> tuple[str, str]:
        """The words for false and true."""
        return ("false", "true") if self.words is None else self.words

    @property
    def _own(self) -> Sequence[tuple[str, tuple[float, float]]]:
        return [(self.name, (0.0, 1.0))]

    def check_kind(self, kind: Kind) -> None:
        if kind in ("dates", "durations", "complex"):
            raise DataError(f"{self.what} has a type of {kind}, which say neither true nor false")

    def places(self, cells: Cells) -> NDArray[np.intp]:
        """0 for false, 1 for true, −1 where a cell says neither."""
        if cells.floats is not None:
            return positions(cells, self._keys)
        texts = levels(cells)
        known = {text: self._keys.get(text.casefold(), -1) for text in set(texts)}
        return np.fromiter((known[text] for text in texts), np.intp, len(texts))

    def encode(self, cells: Cells) -> FloatArray:
        """0 or 1, NaN where a cell says neither."""
        self.check_kind(cells.kind)
        found = self.places(cells)
        missing = found < 0
        return self._with_indicator(np.where(missing, np.nan, found.astype(np.float64))[:, None], missing)

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        return level_kinds(cells, self.places(cells))

    @cached_property
    def _keys(self) -> Mapping[str, int]:
        """What a cell may say, by `level` in lower case."""
        if self.words is None:
            return _WORDS
        own = {level(word).casefold(): i for i, word in enumerate(self.words)}
        return own if any(map(is_number_level, own)) else own | _ALWAYS
