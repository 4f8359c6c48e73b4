"""`Receipt`: what a ledger gives for a charge. `Fingerprint`: what it keeps of the release that follows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

_FIELD_DIGITS = 16  # of a field's hash: it names what differs, the whole one decides


@dataclass(frozen=True)
class Receipt:
    """Where in which ledger a release was charged.

    Attributes
    ----------
    ledger : str
        The id of the ledger: the beginning of the hash of its first record, the budget.
    charge : int
        The number of the charge, counted from 1.
    head : str
        The hash of the whole history up to and with this charge. `curvedp ledger verify LEDGER HEAD` shows
        later that nothing up to here was rewritten.
    time : str
        When it was charged (UTC).
    by, purpose : str
        Who charged and why, as the operator said; "" where nothing was said.
    """

    ledger: str
    charge: int
    head: str
    time: str
    by: str = ""
    purpose: str = ""


@dataclass(frozen=True)
class Fingerprint:
    """The hash of a document, and of each of its fields.

    A field is a key of the document or, where a mapping stands there, a key of that: "coefficients",
    "guarantee.epsilon".

    Attributes
    ----------
    sha256 : str
        H(every field's place and hash), so of everything that the document says.
    fields : dict
        By field the first digits of its own hash.
    """

    sha256: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Fingerprint:
        """Of plain values, as they stand in a JSON file; the order of keys and white space do not matter."""
        places: list[tuple[tuple[str, ...], Any]] = []
        for key, value in document.items():
            inner = isinstance(value, Mapping) and value
            places += [((key, below), part) for below, part in value.items()] if inner else [((key,), value)]
        hashes = {place: hashed(_canonical(value)) for place, value in sorted(places, key=lambda at: at[0])}
        return cls(
            hashed(_canonical([[*map(list, hashes)], [*hashes.values()]])),
            {".".join(place): found[:_FIELD_DIGITS] for place, found in hashes.items()},
        )


def hashed(text: str) -> str:
    """SHA-256 of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(value: Any) -> str:
    """One text for one value: sorted keys, no white space, every number as Python writes it."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def finite(value: Any) -> Any:
    """Plain values for JSON, which knows no infinity and no NaN: they become None."""
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
