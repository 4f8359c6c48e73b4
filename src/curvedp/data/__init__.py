"""What each column of a table may hold, declared before the data are read, and the one entrance for cells."""

from curvedp.schema.columns import Categorical, Ignored, Numeric
from curvedp.schema.dates import Date
from curvedp.schema.encoded import EncodedTable
from curvedp.schema.formats import FileFormat
from curvedp.schema.formulas.derived import Derived
from curvedp.schema.schema import Schema
from curvedp.schema.targets import ClassTarget, CountTarget, NumericTarget
from curvedp.schema.templates import schema_template
from curvedp.schema.truths import Boolean

__all__ = [
    "Boolean",
    "Categorical",
    "ClassTarget",
    "CountTarget",
    "Date",
    "Derived",
    "EncodedTable",
    "FileFormat",
    "Ignored",
    "Numeric",
    "NumericTarget",
    "Schema",
    "schema_template",
]
