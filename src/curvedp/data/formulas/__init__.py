"""Columns computed from declared columns: which numbers they hold follows from declarations, never from data.

`notation` reads R's notation, `numbers` has the functions and the bounds that follow, `language` reads them
from text, and `derived` makes encoded columns of them.
"""
