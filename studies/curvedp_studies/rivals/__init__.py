"""Methods of other papers, rebuilt from the papers, for the comparison alone.

They are private as far as their papers' theorems go: noise is drawn in floating point, which the library
itself never does. Data-dependent sufficient statistics (DD-SSP) are left out: they rest on a marginal
selection (AIM) and a graphical-model inference that a few pages cannot rebuild faithfully.
"""
