"""A laboratory for continual learning: one command reproduces an experiment, one file adds a learner."""

__version__ = "0.1.0"
