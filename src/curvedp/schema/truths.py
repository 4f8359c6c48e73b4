"""A column of truth values: one encoded column, 0 or 1."""

from __future__ import annotations

from collections.abc import Mapping
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
from curvedp.schema.columns import (
    check_missing,
    check_name,
    check_source,
    is_list,
    is_text,
    level_text,
    missing_name,
    shown,
    with_indicator,
)

_ALWAYS = {"0": 0, "1": 1}
_WORDS = {"false": 0, "f": 0, "no": 0, "n": 0, "true": 1, "t": 1, "yes": 1, "y": 1, **_ALWAYS}


@dataclass(frozen=True)
class Boolean:
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

    def __post_init__(self) -> None:
        what = f"column {shown(check_name(self.name))}"
        check_source(self.source, what)
        check_missing(self.missing, ("middle", "indicator"), what)
        if self.words is None:
            return
        words: Any = self.words
        told = is_list(words) and all(isinstance(word, str | int | float) for word in words)
        texts = [level_text(word) for word in words] if told else []
        keys = {_key(level(text)) for text in texts}
        if len(texts) != 2 or len(keys) != 2 or "" in keys or not all(map(is_text, texts)):
            raise InvalidInput(
                f'{what}: words must be two different texts, that of false first: write words = ["no", "yes"]'
            )
        object.__setattr__(self, "words", (texts[0], texts[1]))

    @property
    def levels(self) -> tuple[str, str]:
        """The words for false and true."""
        return ("false", "true") if self.words is None else self.words

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return (self.name,) if self.missing == "middle" else (self.name, missing_name(self.name))

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 1.0),) * len(self.encoded_names)

    @property
    def blocks(self) -> tuple[range, ...]:
        """One-hot blocks among the encoded columns."""
        return ()

    @property
    def is_as_read(self) -> bool:
        return False

    def check_kind(self, kind: Kind) -> None:
        """Refuse a declared type that can never hold such cells."""
        if kind in ("dates", "durations", "complex"):
            raise DataError(
                f"column {shown(self.name)} has a type of {kind}, which say neither true nor false"
            )

    def places(self, cells: Cells) -> NDArray[np.intp]:
        """0 for false, 1 for true, −1 where a cell says neither."""
        if cells.floats is not None:
            return positions(cells, self._keys)
        texts = levels(cells)
        known = {text: self._keys.get(_key(text), -1) for text in set(texts)}
        return np.fromiter((known[text] for text in texts), np.intp, len(texts))

    def encode(self, cells: Cells) -> FloatArray:
        """0 or 1, NaN where a cell says neither, and 1 there in a second column."""
        self.check_kind(cells.kind)
        found = self.places(cells)
        return with_indicator(np.where(found < 0, np.nan, found.astype(np.float64))[:, None], self.missing)

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        """What may be wrong with a cell."""
        return LEVEL_KINDS

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        """The place in `cell_kinds` of every cell; beyond it by 0 or 1 where it says which."""
        return level_kinds(cells, self.places(cells))

    def to_dict(self) -> dict[str, Any]:
        words = {} if self.words is None else {"words": list(self.words)}
        missing = {} if self.missing == "middle" else {"missing": self.missing}
        source = {"source": self.source} if self.source else {}
        return {"name": self.name, "kind": "boolean", **words, **missing, **source}

    @cached_property
    def _keys(self) -> Mapping[str, int]:
        """What a cell may say, by `level` in lower case."""
        if self.words is None:
            return _WORDS
        own = {_key(level(word)): i for i, word in enumerate(self.words)}
        return own if any(map(is_number_level, own)) else own | _ALWAYS


def _key(text: str) -> str:
    return text.casefold()
