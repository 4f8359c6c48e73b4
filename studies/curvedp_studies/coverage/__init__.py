"""Do the intervals of `inference=True` cover? Known populations, many samples, every fit beside the truth.

Two engines make the fits: the library itself, and a simulator of the same mechanism for many samples at once
(torch, CPU or GPU). The second needs numpy, scipy and torch alone.
"""

from curvedp_studies.coverage.isolation import open_library

open_library()
