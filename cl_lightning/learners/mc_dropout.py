"""Dropout as approximate inference."""

from __future__ import annotations

from cl_lightning.learners.parts.averaging import Averaging


class MCDropout(Averaging):
    """Finetune with dropout on at test: the mean probability over passes with other units dropped (Gal and
    Ghahramani 2016). For networks with dropout; weight decay takes the place of the divergence from a prior.

    It has no posterior that could become a prior: Farquhar and Gal 2018 use it where the prior stays, in
    VGR."""
