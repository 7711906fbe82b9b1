"""Settings of all tests.  Being here also puts this folder on the path: ``from fuzz.graphs import …``."""

import os

# Before NumPy is imported: its BLAS threads spin, and on a busy machine the reference then takes
# thirty times as long (measured 2026-11-21).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
