"""Learners: one file each, and each its paper's equations."""

from cl_lightning.learners.base import Candidate, Learner, Needs, Outcome, Phase, Phases, name_of
from cl_lightning.learners.finetune import Finetune
from cl_lightning.learners.independent import Independent
from cl_lightning.learners.joint import Joint

__all__ = ["Candidate", "Finetune", "Independent", "Joint", "Learner", "Needs", "Outcome", "Phase", "Phases", "name_of"]
