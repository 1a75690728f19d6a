"""Learners: one file each, and each its paper's equations."""

from cl_lightning.learners.agem import AGEM
from cl_lightning.learners.base import Candidate, Learner, Needs, Outcome, Phase, Phases, name_of
from cl_lightning.learners.den import DEN
from cl_lightning.learners.dgr import DGR
from cl_lightning.learners.er import ER
from cl_lightning.learners.ewc import EWC
from cl_lightning.learners.finetune import Finetune
from cl_lightning.learners.gem import GEM
from cl_lightning.learners.hat import HAT
from cl_lightning.learners.icarl import ICaRL, ICaRLOfGEM
from cl_lightning.learners.imm import IMM
from cl_lightning.learners.independent import Independent
from cl_lightning.learners.joint import Joint
from cl_lightning.learners.lwf import LwF
from cl_lightning.learners.mc_dropout import MCDropout
from cl_lightning.learners.mntdp import MNTDP
from cl_lightning.learners.mntdp_s import MNTDPS
from cl_lightning.learners.multimodal import Multimodal
from cl_lightning.learners.new_head import NewHead
from cl_lightning.learners.new_leg import NewLeg
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.notes import ModulePaths
from cl_lightning.learners.pnn import PNN
from cl_lightning.learners.rcl import RCL
from cl_lightning.learners.si import SI
from cl_lightning.learners.stop_by_kept import StopByKept
from cl_lightning.learners.vcl import VCL
from cl_lightning.learners.vcl_coreset import VCLCoreset
from cl_lightning.learners.vgr import VGR

__all__ = [
    "AGEM",
    "DEN",
    "DGR",
    "ER",
    "EWC",
    "GEM",
    "HAT",
    "IMM",
    "MNTDP",
    "MNTDPS",
    "PNN",
    "RCL",
    "SI",
    "VCL",
    "VGR",
    "Candidate",
    "Finetune",
    "GrowingList",
    "ICaRL",
    "ICaRLOfGEM",
    "Independent",
    "Joint",
    "Learner",
    "LwF",
    "MCDropout",
    "ModulePaths",
    "Multimodal",
    "Needs",
    "NewHead",
    "NewLeg",
    "Outcome",
    "Phase",
    "Phases",
    "StopByKept",
    "VCLCoreset",
    "name_of",
]  # fmt: skip
