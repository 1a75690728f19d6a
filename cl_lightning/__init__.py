"""A laboratory for continual learning: one command reproduces an experiment, one file adds a learner."""

import os

from cl_lightning.config.version import VERSION

# Matrix products of MKL depend on how their operands happen to lie in memory, unless told not to before they
# are first used.
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")
if {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS"} & set(os.environ):  # where one of several processes ends, torch
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # prints its own stack in all others

__version__ = VERSION


def __getattr__(name: str) -> object:
    """``run`` and ``load``, without torch for those who do not ask for them."""
    if name in ("run", "load"):
        from cl_lightning import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module 'cl_lightning' has no attribute {name!r}")
