"""Columns computed from declared columns: which numbers they hold follows from declarations, never from data.

`intervals` bounds what a function of bounded numbers can be, `numbers` and `factors` are the functions,
`language` reads them from text, `terms` makes encoded columns of them and `formula` reads R's notation.
"""
