"""Which public rule of the recentered mechanism is the most accurate? All seeds and ε of a table at once.

The simulator (torch, CPU or GPU) is the library's mechanism in law; rule, shifts, paces and the shape of its
looks are the library's own. It needs numpy, scipy and torch alone.
"""

from curvedp_studies.accuracy.isolation import open_rule

open_rule()
