"""What each column of a table may hold, declared before the data are read, and the one entrance for cells."""

from curvedp.schema.columns import Categorical, Ignored, Numeric
from curvedp.schema.files import schema_template
from curvedp.schema.schema import EncodedTable, Schema
from curvedp.schema.targets import ClassTarget, CountTarget, NumericTarget

__all__ = [
    "Categorical",
    "ClassTarget",
    "CountTarget",
    "EncodedTable",
    "Ignored",
    "Numeric",
    "NumericTarget",
    "Schema",
    "schema_template",
]
