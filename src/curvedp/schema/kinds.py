"""All kinds of columns."""

from __future__ import annotations

from curvedp.schema.columns import Categorical, Ignored, Numeric
from curvedp.schema.dates import Date
from curvedp.schema.truths import Boolean

Feature = Numeric | Categorical | Date | Boolean
Column = Feature | Ignored
TargetColumn = Numeric | Categorical | Boolean
