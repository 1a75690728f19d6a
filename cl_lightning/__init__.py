"""A laboratory for continual learning: one command reproduces an experiment, one file adds a learner."""

import os

# Matrix products of MKL depend on how their operands happen to lie in memory, unless told not to before they
# are first used.
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")

__version__ = "0.1.0"
