"""A check as one HTML page: every share as a bar with the interval of its noise."""

from __future__ import annotations

from markupsafe import Markup

from curvedp.looks.checked import Share, TableCheck
from curvedp.pages import environment


def check_page(found: TableCheck, record: str) -> str:
    """The HTML of a check; `record` says in words what one row is."""
    page = environment().get_template("check.html")
    return page.render(c=found, g=found.privacy, record=record, bar=bar, document=found.to_dict())


def bar(share: Share) -> Markup:
    """[low, high] as a thin line on the scale from 0 to 1, and the estimate as a bar where it is seen."""
    width = 100 * share.estimate if share.seen else 0.0
    return Markup(
        f'<svg aria-hidden="true"><rect x="0" y="3" width="{width:.2f}%" height="10" rx="2"/>'
        f'<line class="zero" x1="{100 * share.low:.2f}%" x2="{100 * share.high:.2f}%" y1="8" y2="8"/>'
        '<line class="zero" x1="0" x2="0" y1="0" y2="16"/></svg>'
    )
