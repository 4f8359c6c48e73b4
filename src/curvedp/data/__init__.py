"""What each column of a table may hold, declared before the data are read, and the one entrance for cells."""

from curvedp.data.columns import Categorical, Ignored, Numeric
from curvedp.data.dates import Boolean, Date
from curvedp.data.delimited import FileFormat
from curvedp.data.formulas.derived import Derived
from curvedp.data.schema import Schema
from curvedp.data.targets import ClassTarget, CountTarget, NumericTarget
from curvedp.data.templates import schema_template

__all__ = [
    "Boolean",
    "Categorical",
    "ClassTarget",
    "CountTarget",
    "Date",
    "Derived",
    "FileFormat",
    "Ignored",
    "Numeric",
    "NumericTarget",
    "Schema",
    "schema_template",
]
