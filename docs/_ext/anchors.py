"""How a heading is linked: `(P-9) The default fit` by p-9, `Filters: …` by filters, others by all words."""

from __future__ import annotations

import re


def slug(heading: str) -> str:
    """The id in front, or what stands before a colon, or the whole heading: in small letters, with dashes."""
    name = re.match(r"\([A-Z]-\d+j?\)(?= )|[^:]+(?=: )", heading)
    return re.sub(r"[^\w\- ]", "", (name[0] if name else heading).strip().lower()).replace(" ", "-")
