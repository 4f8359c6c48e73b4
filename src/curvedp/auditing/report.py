"""What an audit found, as a value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from markupsafe import Markup

from curvedp.neighbours import Adjacency, Neighbours
from curvedp.pages import environment
from curvedp.transcript import Unit

Verdict = Literal["held", "refuted"]


@dataclass(frozen=True)
class Answer:
    """One answer of a plan: what is paid for it, and the largest part of that found on a pair of tables."""

    name: str
    unit: Unit
    share: float
    worst: float
    pair: str


@dataclass(frozen=True)
class Audit:
    """One release, tried on pairs of neighbouring tables.

    Attributes
    ----------
    answers : tuple of Answer
        Every answer with a share of its own, and how much of it was found.
    total : float
        All answers together, in units of what (ε, δ) allows; NaN where they have no total.
    problems : tuple of str
        The premises that do not hold, with the pair.
    """

    name: str
    theorem: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    pairs: tuple[str, ...]
    replays: int
    answers: tuple[Answer, ...]
    total: float
    total_pair: str
    total_by: str
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """*held*, on the pairs tried, or *refuted*."""
        return "refuted" if self.problems else "held"

    @property
    def worst(self) -> Answer | None:
        """The answer that comes nearest to its share."""
        return max(self.answers, key=lambda answer: answer.worst, default=None)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.problems:
            return f"Premise refuted: {self.problems[0]}."
        parts = []
        if self.worst is not None:
            parts.append(f"{self.worst.name} came to {self.worst.worst:.3f} of its share ({self.worst.pair})")
        if math.isfinite(self.total):
            parts.append(f"all answers to {self.total:.3f} of what (ε, δ) allows ({self.total_pair})")
        return f"Held on the {len(self.pairs)} pairs tried: {'; '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts for JSON."""
        document = asdict(self) | {"verdict": self.verdict, "sentence": self.sentence}
        return document | {"total": self.total if math.isfinite(self.total) else None}


def audit_page(audits: Sequence[Audit]) -> str:
    """The HTML of one audit or of many."""
    words = {kind: Neighbours(kind).words for kind in get_args(Adjacency)}
    return environment().get_template("audit.html").render(audits=audits, words=words, bar=_bar)


def _bar(share: float) -> Markup:
    """A share as a bar; the line is the whole of it, at two thirds of the width."""
    width = 100 * min(max(share, 0.0), 1.5) / 1.5
    return Markup(
        f'<svg aria-hidden="true"><rect x="0" y="3" width="{width:.2f}%" height="10" rx="2"/>'
        '<line class="zero" x1="66.67%" x2="66.67%" y1="0" y2="16"/></svg>'
    )
