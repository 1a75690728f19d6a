"""What papers train with, written from the papers, and what the experiments of the same name compose."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from cl_lightning.config.resolvers import conf_dir
from cl_lightning.report.beside import as_published, learner_called, published
from cl_lightning.report.groups import Group, settings_of
from cl_lightning.report.printed import content, tables
from cl_lightning.runs.identity import relevant
from tests.commands import configure
from tests.test_published_numbers import PRINTED, ROWS, key_of

Settings = dict[str, Any]

# Nothing in this file is read from conf/. A new key of the configuration is written here, too.
NO_NUMBER_CHANGES = {"learner.name", "stream.name", "data", "trainer.accelerator"}

EVERYWHERE: Settings = {  # what no paper has, or all have
    "trainer.max_steps": None, "trainer.optimizer_state": "reset", "trainer.momentum": 0.0,
    "trainer.weight_decay": 0.0, "trainer.betas": None, "trainer.restore": None, "trainer.schedule": None,
    "trainer.clip": None, "trainer.score_at": [0, 1, 2, 3, 4, 5, 10],
    "trainer.score_every": None, "trainer.probe": "winner", "trainer.probe_every": None,
    "trainer.precision": 32, "trainer.threads": 1, "trainer.stack": True, "trainer.block": 25,
    "trainer.lightning": {}, "trainer.callbacks": [],
    "trainer.measures": [], "trainer.keep_predictions": False,
    "grants.task_id_at_test": True, "grants.past_data": True,
    "stream.n_test": None, "stream.order": None, "stream.test_share": None, "stream.on_shortage": "error",
    "stream.show.fit": "scale", "stream.show.values": [0, 1],
    "backbone.heads": "shared",
}  # fmt: skip
NO_PROBES: Settings = {"trainer.probe_at": [], "trainer.probe_examples": None, "reference": False}
AS_THEY_ARE: Settings = {
    "stream.show.shape": None, "stream.show.normalise": False, "stream.show.flip": False,
    "stream.show.crop": 0, "stream.show.val_copies": 0,
}  # fmt: skip

LEARNERS: dict[str, Settings] = {  # with the keys that no paper tunes by experiment
    "finetune": {"_target_": "Finetune", "batch_norm": "train"},
    "stop_by_kept": {"_target_": "StopByKept", "images": 100, "batch_norm": "train"},
    "joint": {"_target_": "Joint", "at": "every_task", "restart": True},
    "independent": {"_target_": "Independent", "start": "random", "split_width": False},
    # hidden units divided by the number of tasks; cloned in all three published runs
    "independent_gem": {"_target_": "Independent", "start": "clone", "split_width": True},
    "multimodal": {"_target_": "Multimodal"},
    "ewc": {"_target_": "EWC", "strength": 100.0, "penalty": "separate", "merging": "sum",
            "fisher": "empirical", "examples": None, "drawn": False, "gamma": 1.0, "free_heads": False,
            "batch_norm": "train"},
    # as Veniat et al. 2021 run it: Fishers of 1024 drawn examples by predicted labels, decayed by 0.9, the
    # last one whole; heads are free
    "online_ewc": {"_target_": "EWC", "strength": 100.0, "penalty": "veniat", "merging": "sum",
                   "fisher": "predicted", "examples": 1024, "drawn": True, "gamma": 0.9, "free_heads": True,
                   "batch_norm": "first_task"},
    "si": {"_target_": "SI", "strength": 0.1, "damping": 0.1, "clamp": True, "penalty_in_path": False},
    "lwf": {"_target_": "LwF", "strength": 1.0, "temperature": 2.0, "times_squared_temperature": False,
            "warm_up": 0},
    # uniform alphas, labels drawn from the model; transfer by weights alone
    "imm": {"_target_": "IMM", "merging": "mode", "alpha": None, "alphas": [], "strength": 0.0, "drop": 0.0,
            "fisher": "sample", "examples": None},
    # Rebuffi et al. 2017: 2000 exemplars; Lopez-Paz and Ranzato 2017: 1280, with a strength of 1
    "icarl": {"_target_": "ICaRL", "total": 2000},
    "icarl_gem": {"_target_": "ICaRLOfGEM", "total": 1280, "strength": 1.0},
    "pnn": {"_target_": "PNN"},
    "hat": {"_target_": "HAT", "strength": 0.75, "s_max": 400.0},
    # 5120 memories for 20 tasks; a margin of 0.5
    "gem": {"_target_": "GEM", "memories": 256, "total": None, "tasks_known": True, "ring": None,
            "margin": 0.5, "heads": "project", "memory_precision": 32},
    "agem": {"_target_": "AGEM", "memories": 256, "heads": "project", "reference_batch": 256},
    "er": {"_target_": "ER", "policy": "reservoir", "size": 1000, "per_class": False, "batch_norm": "train"},
    # 40 examples of each of five tasks of two digits
    "vcl": {"_target_": "VCL", "prior": "last", "start": "likelihood", "logged": 0, "draws": 100},
    "vcl_coreset": {"_target_": "VCLCoreset", "prior": "last", "start": "likelihood", "logged": 0,
                    "draws": 100, "size": 40, "choice": "k_center", "coreset_epochs": None},
    "coreset_only": {"_target_": "VCLCoreset", "prior": "standard", "start": "likelihood", "logged": 0,
                     "draws": 100, "size": 40, "choice": "k_center", "coreset_epochs": None},
    "vgr": {"_target_": "VGR", "replay": "generated", "generator": "mlp", "generator_epochs": None,
            "generator_lr": 2e-4, "generator_batch_size": 128,
            "per_class": None, "batch_per_task": None, "draws": 100},
    "dgr": {"_target_": "DGR", "importance": None, "generator": "mlp", "generator_epochs": None,
            "generator_lr": 2e-4, "generator_batch_size": 128},
    "mc_dropout": {"_target_": "MCDropout", "draws": 100},
    "new_head": {"_target_": "NewHead", "trunk": "freeze", "batch_norm": "first_task"},
    "new_leg": {"_target_": "NewLeg", "trunk": "freeze", "batch_norm": "first_task"},
    # one past task, found by 5 neighbours among at most 1000 images; a whole path may be used again
    "mntdp_d": {"_target_": "MNTDP", "k": 1, "prior": "nearest", "allow_head_reuse": True,
                "neighbours": 5, "searched": 1000},
    # the paper's prior over whole paths; the rate of its distribution is 1e-2 or 1e-3
    "mntdp_s": {"_target_": "MNTDPS", "k": 1, "prior": "nearest", "allow_head_reuse": True,
                "neighbours": 5, "searched": 1000, "gamma": "paths", "gamma_lr": 0.01, "entropy": 1.0,
                "draw": "example"},
    # their default in both paper and program: ten units more, a loss of 0.01, units that moved by 0.05
    "den": {"_target_": "DEN", "l1": 1e-5, "l2": 1e-4, "drift": 0.5, "threshold": 0.01, "units": 10,
            "group": 1e-3, "split": 0.05, "splits": 10},
    # the authors' program: 50 trials, from 0 to 29 units, 1e-4 of accuracy each
    "rcl": {"_target_": "RCL", "trials": 50, "actions": 30, "cost": 1e-4},
}  # fmt: skip

# ---- Lopez-Paz and Ranzato 2017 ----------------------------------------------------------------------------

GEM: Settings = {  # 20 tasks of 1000 digits of 28 x 28, all test images; one pass, batches of 10, plain SGD
    **EVERYWHERE, **NO_PROBES, **AS_THEY_ARE,
    "stream.source": "mnist", "stream.tasks": 20, "stream.n_train": 1000, "stream.n_val": 0,
    "stream.n_test": None, "stream.head": "domain", "stream.order": None, "stream.balanced": False,
    "backbone._target_": "cl_lightning.backbones.MLP", "backbone.sizes": [100, 100],
    "backbone.dropout": 0.0, "backbone.input_dropout": 0.0, "backbone.init": "glorot",
    "selection.grid": {},
    "trainer.single_pass": True, "trainer.max_epochs": 1, "trainer.batch_size": 10,
    "trainer.eval_batch_size": 1000, "trainer.optimizer": "sgd", "trainer.lr": 0.1,
    "trainer.patience": None, "trainer.evaluate": "all",
}  # fmt: skip
GEM_STREAMS: dict[str, Settings] = {
    "gem_permutations": {"stream._target_": "cl_lightning.data.streams.permuted",
                         "stream.first_identity": False, "stream.permutations": None},
    "gem_rotations": {"stream._target_": "cl_lightning.data.streams.rotated",
                      "stream.degrees": 180, "stream.angles": None},
}  # fmt: skip
TUNED: dict[tuple[str, str], Settings] = {  # the released run script; all others have a rate of 0.1
    ("gem_permutations", "finetune"): {"trainer.lr": 0.03},
    ("gem_permutations", "independent_gem"): {"trainer.lr": 0.03},
    # strengths 3 and 1000 there are without the 1/2
    ("gem_permutations", "ewc"): {"trainer.lr": 0.1, "learner.strength": 2 * 3, "learner.examples": 10},
    ("gem_rotations", "finetune"): {"trainer.lr": 0.003},
    ("gem_rotations", "independent_gem"): {"trainer.lr": 0.1},
    ("gem_rotations", "ewc"): {"trainer.lr": 0.01, "learner.strength": 2 * 1000, "learner.examples": 1000},
}  # fmt: skip
OF_GEM: dict[str, Settings] = {
    "multimodal": {"backbone.init": "torch_unbiased"},
    "ewc": {"learner.fisher": "batch_squared"},
    "joint": {"learner.at": "last_task"},  # one pool of all tasks' examples
}
CIFAR: Settings = {  # 20 tasks of five classes in their own order; a task's own outputs in loss and test
    "stream._target_": "cl_lightning.data.streams.split", "stream.source": "cifar100",
    "stream.classes_per_task": 5, "stream.class_order": "native", "stream.n_train": None,
    "stream.n_val": 0, "stream.test_share": None, "stream.order": None, "stream.head": "multi_train_test",
    "stream.on_shortage": "error",
    "backbone._target_": "cl_lightning.backbones.ResNet18", "backbone.width": 20,
    "backbone.heads": "shared", "backbone.channels_last": True,
}  # fmt: skip
CIFAR_TUNED: dict[str, Settings] = {  # all others: 0.1; a strength of 1 there is without the 1/2
    "finetune": {"trainer.lr": 1.0}, "independent_gem": {"trainer.lr": 0.3}, "icarl_gem": {"trainer.lr": 1.0},
    "ewc": {"trainer.lr": 1.0, "learner.strength": 2.0, "learner.examples": 10},
}  # fmt: skip
CIFAR_REDUCED: dict[str, Settings] = {
    "gem": {"learner.memories": 10},
    "agem": {"learner.memories": 10},
    "er": {"learner.size": 50},
    "icarl_gem": {"learner.total": 50},
}
STUDIES_OF_GEM: dict[str, tuple[str, Settings]] = {
    "gem_passes": ("gem_rotations", {}),
    "gem_memory": ("gem_rotations", {}),
    "gem_table1": ("gem_permutations", {"trainer.evaluate": "final"}),
}


def of_gem(experiment: str, learner: str) -> Settings:
    if experiment in ("gem_cifar100", "gem_cifar100_reduced", "gem_table2"):
        return of_cifar(experiment, learner)
    base, changed = STUDIES_OF_GEM.get(experiment, (experiment, {}))
    own = {**of_learner(learner), **OF_GEM.get(learner, {}), **TUNED.get((base, learner), {})}
    return {**GEM, **GEM_STREAMS[base], **own, **changed}


def of_cifar(experiment: str, learner: str) -> Settings:
    same = {key: value for key, value in GEM.items() if not key.startswith(("backbone.", "stream.order"))}
    tuned = {key: value for key, value in OF_GEM.get(learner, {}).items() if key.startswith("learner.")}
    own = {**of_learner(learner), **tuned, **CIFAR_TUNED.get(learner, {})}
    if experiment == "gem_cifar100_reduced":
        reduced = {"stream.tasks": 5, "stream.n_train": 500}
        return {**same, **CIFAR, **reduced, **own, **CIFAR_REDUCED.get(learner, {})}
    return {**same, **CIFAR, **own}


# ---- Veniat et al. 2021 ------------------------------------------------------------------------------------

LARGE, SMALL = {"n_train": 4000, "n_val": 2000}, {"n_train": 400, "n_val": 200}  # over ten classes


def ten(source: str, size: dict[str, int] = SMALL, **more: Any) -> Settings:
    return {"source": source, "classes": 10, **size, **more}


MIDDLE = [ten("mnist"), ten("dtd"), ten("fashion_mnist"), ten("svhn")]
AGAIN = {"source": "cifar10", "like": 0}
CTRL_TASKS = {  # table 4
    "ctrl_minus": [ten("cifar10", LARGE), *MIDDLE, {**AGAIN, **SMALL}],
    "ctrl_plus": [ten("cifar10"), *MIDDLE, {**AGAIN, **LARGE}],
    "ctrl_in": [ten("mnist", LARGE, colour=0), ten("cifar10"), *MIDDLE[1:],
                {"source": "mnist", "like": 0, "colour": 1, "n_train": 50, "n_val": 30}],
    "ctrl_out": [ten("cifar10", LARGE), *MIDDLE, {**AGAIN, "labels": "shift", **SMALL}],
    "ctrl_pl": [*MIDDLE, ten("cifar10", LARGE)],
}  # fmt: skip
HELD_OUT = {"cifar10": 500, "cifar100": 50, "mnist": 500, "fashion_mnist": 500, "svhn": 500}  # a class
LISTED: Settings = {
    "stream._target_": "cl_lightning.data.streams.sequence", "stream.n_val": 0, "stream.balanced": True,
    **{f"stream.held_out.{name}": count for name, count in {**HELD_OUT, "dtd": 27}.items()},
}  # fmt: skip
LONG: Settings = {  # appendix A and the released generator
    "stream._target_": "cl_lightning.data.streams.long", "stream.tasks": 100,
    "stream.names": ["mnist", "svhn", "cifar10", "fashion_mnist", "cifar100"],
    "stream.classes_per_task": 5, "stream.large": [5000, 2500], "stream.small": [25, 15],
    "stream.at_most.cifar100": [2250, 250], "stream.shares": [0.5, 0.25, 0.0],
    **{f"stream.held_out.{name}": count for name, count in HELD_OUT.items()},
    "stream.show.val_copies": 4,
}  # fmt: skip
CTRL: Settings = {
    **EVERYWHERE,
    "stream.head": "domain", "stream.test_per_class": 1000,
    "stream.show.shape": [3, 32, 32], "stream.show.normalise": True, "stream.show.flip": True,
    "stream.show.crop": 4, "stream.show.val_copies": 0,
    "trainer.single_pass": False, "trainer.optimizer": "adam", "trainer.lr": 0.001,
    "trainer.evaluate": "seen", "trainer.probe_at": [0, 1, 2, 3, 4, 5],  # LCA@5
    "trainer.probe_examples": 1000,  # ours: the paper's is of all test images
    "reference": True,
}  # fmt: skip
PUBLISHED: Settings = {
    "trainer.batch_size": 256, "trainer.eval_batch_size": 1024, "trainer.max_epochs": 300,
    "trainer.patience": 300,
    "selection.grid.lr": [0.01, 0.001], "selection.grid.weight_decay": [0.0, 0.00001, 0.0001],
}  # fmt: skip
RESNET: Settings = {
    "backbone._target_": "cl_lightning.backbones.ResNet", "backbone.width": 64, "backbone.modules": 7,
    "backbone.channels_last": True,
}  # fmt: skip
ALEXNET: Settings = {
    "backbone._target_": "cl_lightning.backbones.AlexNet", "backbone.widen": 1.0,
    "backbone.dropouts": [0.2, 0.2, 0.5, 0.5, 0.5], "backbone.channels_last": True,
}  # fmt: skip
REDUCED: Settings = {  # ours, for a CPU
    **RESNET, "backbone.width": 16, "trainer.batch_size": 32, "trainer.eval_batch_size": 125,
    "trainer.max_epochs": 40, "trainer.max_steps": 2500, "trainer.patience": 400, "selection.grid": {},
}  # fmt: skip
OF_CTRL: dict[str, Settings] = {
    "ewc": {  # of convolutional networks; the penalty is on shared modules
        "learner.fisher": "predicted", "learner.examples": 1024, "learner.drawn": True,
        "learner.free_heads": True, "learner.batch_norm": "first_task",
    },
    "er": {"learner.policy": "ring", "learner.size": 15, "learner.batch_norm": "first_task"},
    "finetune": {"learner.batch_norm": "first_task"},  # of all learners that share modules
}  # fmt: skip
STRENGTHS = {"learner.strength": [1, 5, 10, 50, 100, 500, 1000, 5000, 10000]}  # by whole streams
STUDIES_OF_CTRL = {
    "ctrl_ablation_k": "ctrl_minus", "ctrl_ablations": "ctrl_minus", "ctrl_table1": "ctrl_minus",
    "ctrl_split_cifar100": "ctrl_minus", "ctrl_long_small": "ctrl_long", "ctrl_long_figure": "ctrl_long",
}  # fmt: skip


SPLIT_CIFAR: Settings = {  # ten tasks of ten classes in random order; 450 + 50 images a class
    "stream._target_": "cl_lightning.data.streams.split", "stream.source": "cifar100", "stream.tasks": 10,
    "stream.classes_per_task": 10, "stream.class_order": "random", "stream.n_train": 4500,
    "stream.n_val": 500, "stream.n_test": None, "stream.balanced": True, "stream.head": "multi_train_test",
}  # fmt: skip
HEADS_OF_FIGURE = {"online_ewc": "per_task"}
TEN_PERMUTATIONS: Settings = {  # ten permutations of all pixels, learned by an MLP
    **EVERYWHERE, **AS_THEY_ARE,
    "stream._target_": "cl_lightning.data.streams.permuted", "stream.source": "mnist", "stream.tasks": 10,
    "stream.n_train": 50000, "stream.n_val": 5000, "stream.n_test": None, "stream.head": "domain",
    "stream.first_identity": False, "stream.permutations": None, "stream.order": None,
    "stream.balanced": False, "stream.show.normalise": True,
    **{key: value for key, value in CTRL.items() if key.startswith("trainer.")},
    **{key: value for key, value in REDUCED.items() if not key.startswith("backbone.")},
    "backbone._target_": "cl_lightning.backbones.MLP", "backbone.sizes": [1000, 1000],
    "backbone.dropout": 0.0, "backbone.input_dropout": 0.0, "backbone.init": "torch", "reference": False,
}  # fmt: skip
OF_PERMUTED: dict[str, Settings] = {
    "ewc": {"learner.fisher": "empirical", "learner.examples": 1000, "learner.drawn": True},
    "er": {"learner.policy": "ring", "learner.size": 25},  # a class of each task: 15.0 MB
    "rcl": {"learner.trials": 10},  # for a CPU
}


def of_ctrl(experiment: str, learner: str, trained: Settings = REDUCED) -> Settings:
    if experiment == "ctrl_permuted":
        return {**TEN_PERMUTATIONS, **of_learner(learner), **OF_PERMUTED.get(learner, {})}
    base = STUDIES_OF_CTRL.get(experiment, experiment)
    stream = LONG if base == "ctrl_long" else {**LISTED, "stream.tasks": CTRL_TASKS[base]}
    changed: Settings = {"stream.tasks": 20} if experiment == "ctrl_long_small" else {}
    if experiment == "ctrl_long_figure":
        changed = {"backbone.width": 8, "backbone.heads": HEADS_OF_FIGURE.get(learner, "shared")}
    if base == "ctrl_in":
        changed["stream.show.normalise"] = False  # in the authors' code
    own = {**of_learner(learner), **OF_CTRL.get(learner, {})}
    common = CTRL
    if experiment == "ctrl_table1":  # its first row chooses between two rates
        grid = {"selection.grid.lr": [0.01, 0.001], "selection.grid.weight_decay": [0.0]}
        trained = {**{key: value for key, value in trained.items() if key != "selection.grid"}, **grid}
    if experiment == "ctrl_split_cifar100":
        common = {key: value for key, value in CTRL.items() if key != "stream.test_per_class"}
        stream, changed = SPLIT_CIFAR, {}
    return {**common, **stream, **own, **trained, **changed}


# ---- Farquhar and Gal 2018: the evaluation is theirs, what is trained is the program's ---------------------


HEADS: dict[str, Settings] = {  # the two evaluations, with the program's own training
    "robust_single_head": {"stream.head": "single", "grants.task_id_at_test": False},
    "robust_task_heads": {"stream.head": "multi_train_test", "backbone.heads": "per_task"},
}
PERMUTED: Settings = {
    "stream._target_": "cl_lightning.data.streams.permuted", "stream.tasks": 10,
    "stream.first_identity": True, "stream.permutations": None, "stream.order": None,
}  # fmt: skip
SPLIT: Settings = {
    "stream._target_": "cl_lightning.data.streams.split", "stream.tasks": 5, "stream.classes_per_task": 2,
    "stream.class_order": "native",
}  # fmt: skip
ENTROPY: Settings = {  # all images, 120 epochs, a variance of 1e-6
    **SPLIT, "stream.tasks": 2, "stream.n_train": None, "stream.head": "single", "trainer.max_epochs": 120,
    "trainer.evaluate": "all", "trainer.measures": ["entropy", "entropy_median"],
    "backbone._target_": "cl_lightning.backbones.Bayesian", "backbone.log_var": -13.8,
    "backbone.sampling": "local",
}  # fmt: skip
ROBUST: dict[str, Settings] = {
    "robust_split_mnist": {**SPLIT, "stream.head": "single"},
    "robust_split_fashion": {**SPLIT, "stream.head": "single", "stream.source": "fashion_mnist"},
    "robust_permuted": {**PERMUTED, "stream.head": "domain"},
    "robust_entropy": ENTROPY,
    "robust_uncertainty": {**SPLIT, "stream.head": "single", "trainer.evaluate": "all",
                           "trainer.measures": ["mutual_information"]},
    "robust_timed": {**SPLIT, "stream.head": "single"},
    "robust_gradients": {**ENTROPY, "trainer.batch_size": 16, "trainer.max_steps": 15,
                         "trainer.measures": [], "trainer.evaluate": "final"},
}  # fmt: skip


def of_robust(experiment: str, learner: str) -> Settings:
    plain = {
        **EVERYWHERE, **NO_PROBES, **AS_THEY_ARE,
        "stream.source": "mnist", "stream.n_train": 2000, "stream.n_test": None, "stream.balanced": False,
        "backbone._target_": "cl_lightning.backbones.MLP", "backbone.sizes": [100, 100],
        "backbone.dropout": 0.0, "backbone.input_dropout": 0.0, "backbone.init": "torch",
        "trainer.single_pass": False, "trainer.eval_batch_size": 1000, "trainer.optimizer": "adam",
        "trainer.lr": 0.001, **of_learner(learner),
    }  # fmt: skip
    if experiment in HEADS:
        searched = {"selection.grid.lr": [0.01, 0.001], "selection.grid.weight_decay": [0.0, 0.00001, 0.0001]}
        trained = {"trainer.max_epochs": 10, "trainer.batch_size": 64, "trainer.patience": 300}
        return {
            **plain, **SPLIT, **searched, **trained, "trainer.evaluate": "all", "stream.n_val": 500,
            **HEADS[experiment],
        }  # fmt: skip
    found = {
        **plain, "stream.n_val": 0, "trainer.max_epochs": 20, "trainer.batch_size": 256,
        "trainer.patience": None, "trainer.evaluate": "seen", "selection.grid": {}, **ROBUST[experiment],
    }  # fmt: skip
    if experiment == "robust_gradients" and learner in ("vcl", "vcl_coreset", "coreset_only"):
        found["learner.logged"] = 15
    if experiment in ("robust_entropy", "robust_gradients"):
        return found
    of_permuted = experiment == "robust_permuted"
    if learner in ("finetune", "si", "ewc"):
        found |= {"trainer.optimizer": "sgd", "trainer.lr": 0.01}
    if learner == "ewc":
        found |= {"learner.strength": 10.0, "learner.penalty": "huszar", "learner.examples": 200,
                  "learner.drawn": True}  # fmt: skip
    if learner in ("vcl_coreset", "coreset_only"):
        found |= {"learner.coreset_epochs": 100 if of_permuted else 120}
        found |= {"learner.size": 200} if of_permuted else {}
    if learner in ("vgr", "dgr"):
        found["learner.generator_epochs"] = 200 if of_permuted else 50
    if learner in ("vgr", "dgr") and not of_permuted:  # of the reduced size
        found |= {"learner.generator_lr": 0.001, "learner.generator_batch_size": 32}
    if learner == "vgr" and of_permuted:
        found["learner.batch_per_task"] = 256
    return found


# ---- what conf/ composes -----------------------------------------------------------------------------------


# ---- Pfuelb et al. 2018, Pfuelb and Gepperth 2019 ----------------------------------------------------------

TOPOLOGIES = [[S] * L for L in (2, 3) for S in (200, 400, 800)]
TWO_TASKS: Settings = {  # FC; batches of 100, a momentum of 0.99 that is carried on; all test images
    **EVERYWHERE, **NO_PROBES, **AS_THEY_ARE,
    "stream._target_": "cl_lightning.data.streams.two_tasks", "stream.source": "mnist",
    "stream.kind": "D5-5a", "stream.n_train": None, "stream.n_val": 0, "stream.val_share": 0.0833333333,
    "stream.n_test": None,
    "stream.head": "single", "stream.class_order": "native", "stream.first_identity": True,
    "stream.balanced": False,
    "backbone._target_": "cl_lightning.backbones.MLP", "backbone.sizes": [200, 200],
    "backbone.dropout": 0.0, "backbone.input_dropout": 0.0, "backbone.init": "fan_in",
    "trainer.single_pass": False, "trainer.batch_size": 100, "trainer.eval_batch_size": 1000,
    "trainer.optimizer": "sgd", "trainer.momentum": 0.99, "trainer.optimizer_state": "carry",
    "trainer.max_epochs": 1000, "trainer.max_steps": 2500, "trainer.patience": None,
    "trainer.restore": "best", "trainer.score_every": 28, "trainer.probe": "all", "trainer.probe_at": [0],
    "trainer.probe_every": 28, "trainer.evaluate": "all",
}  # fmt: skip
STAGES = [  # of the first task with each topology, and of the second
    {"lr": [0.01, 0.001], "backbone.sizes": TOPOLOGIES}, {"lr": [0.001, 0.0001, 0.00001]},
]  # fmt: skip
OF_TWO_TASKS: dict[str, Settings] = {
    "icann18": {},
    "icann18_reduced": {"trainer.max_steps": 600, "trainer.score_every": 20, "trainer.probe_every": 20,
                        "trainer.probe_examples": 1000},
    "iclr19": {"trainer.max_epochs": 10, "trainer.max_steps": None, "trainer.score_every": 30,
               "trainer.probe_every": 30, "reference": "joint"},
    "iclr19_reduced": {"trainer.max_epochs": 10, "trainer.max_steps": 600, "trainer.score_every": 20,
                       "trainer.probe_every": 20, "trainer.probe_examples": 1000, "reference": "joint"},
}  # fmt: skip
MODELS: dict[str, Settings] = {  # what differs from FC
    "d_fc": {"backbone.dropout": 0.5, "backbone.input_dropout": 0.2},
    "lwta": {"backbone._target_": "cl_lightning.backbones.LWTA"},
    "ewc": {"backbone.dropout": 0.5, "backbone.input_dropout": 0.2, "backbone.init": "tenth",
            "trainer.optimizer": "adam", "trainer.optimizer_state": "reset", "learner.strength": 0.0},
}  # fmt: skip


def of_two_tasks(experiment: str, learner: str) -> Settings:
    stages = STAGES
    if experiment in ("icann18_reduced", "iclr19_reduced"):
        stages = [{**STAGES[0], "backbone.sizes": [[200, 200], [400, 400]]}, STAGES[1]]
    own = {**of_learner(learner), **OF_TWO_TASKS[experiment]}
    return {**TWO_TASKS, "selection.stages": stages, "trainer.lr": "grid", **own}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_a_network_and_a_learner_with_the_papers_settings(model: str) -> None:
    fc, other = (
        settings_of(relevant(configure("+experiment=icann18", f"dnn={name}", "trainer.precision=32")))
        for name in ("fc", model)
    )
    changed = {key for key in {*fc, *other} if fc.get(key) != other.get(key)}
    changed -= {key for key in changed if key.startswith("learner.") and model == "ewc"}
    written = {key for key in MODELS[model] if not key.startswith("learner.")}
    extra = {"trainer.momentum", "trainer.lr", "selection.stages"} if model == "ewc" else set()
    assert changed - extra == written
    assert all(other[key] == value for key, value in MODELS[model].items())


def test_ewcs_strength_is_one_over_the_rate_of_the_second_task() -> None:
    stages = configure("+experiment=icann18", "dnn=ewc").selection.stages
    assert [point.lr * point.strength for point in stages[1]] == pytest.approx([1.0, 1.0, 1.0])
    assert [point.lr for point in stages[1]] == [0.001, 0.0001, 0.00001]


def of_learner(learner: str) -> Settings:
    keys = LEARNERS[learner]
    target = {"learner._target_": f"cl_lightning.learners.{keys['_target_']}"}
    return {**{f"learner.{key}": value for key, value in keys.items()}, **target}


def shown(written: Settings) -> Settings:
    """Settings with ``grid`` in the place of a value of the trainer that a grid takes over."""
    searched = [key.removeprefix("selection.grid.") for key in written if "selection.grid." in key]
    return {**written, **{f"trainer.{key}": "grid" for key in searched}}


def different(composed: Settings, written: Settings) -> dict[str, tuple]:
    """Settings that are not the written ones: what is composed, and what is written."""
    written = shown(written)
    composed = {
        key: value
        for key, value in composed.items()
        if key not in NO_NUMBER_CHANGES and not key.startswith("data.")
    }
    missing = "no such key"
    return {
        key: pair
        for key in {*composed, *written}
        if (pair := (composed.get(key, missing), written.get(key, missing)))[0] != pair[1]
    }


@cache
def node(learner: str) -> DictConfig:
    """A choice as it is written, to be resolved beside an experiment."""
    loaded = OmegaConf.load(Path(conf_dir(), "learner", f"{learner}.yaml"))
    assert isinstance(loaded, DictConfig)
    for other in loaded.pop("defaults", []):
        loaded = OmegaConf.merge(node(other), loaded) if other != "_self_" else loaded
    return loaded


def quickly(*overrides: str) -> DictConfig:
    """What Hydra composes, where an experiment says nothing of ``learner`` but which one: the choice is put
    into what was composed without it."""
    choices = dict(override.split("=", 1) for override in overrides)
    if "learner" not in choices:
        return configure(*overrides)
    learner = choices.pop("learner")
    cfg = configure(*(f"{key}={value}" for key, value in choices.items() if not key.startswith("learner.")))
    OmegaConf.update(cfg, "learner", node(learner), merge=False)
    for key, value in choices.items():
        if key.startswith("learner."):
            OmegaConf.update(cfg, key, value)
    return cfg


EXPERIMENTS = sorted(path.stem for path in (Path(conf_dir()) / "experiment").glob("*.yaml"))
WRITTEN = {
    "gem": of_gem, "ctrl": of_ctrl, "robust": of_robust, "icann18": of_two_tasks, "iclr19": of_two_tasks,
}  # fmt: skip


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_what_is_written_here_with_every_learner(experiment: str) -> None:
    written = WRITTEN[experiment.partition("_")[0]]
    says = OmegaConf.load(Path(conf_dir(), "experiment", f"{experiment}.yaml"))
    assert "learner" not in says, "a learner's settings in an experiment are under tuned"
    cfg = configure(f"+experiment={experiment}", "trainer.precision=32")
    assert {path.stem for path in (Path(conf_dir()) / "learner").glob("*.yaml")} == set(LEARNERS)
    for learner in LEARNERS:
        OmegaConf.update(cfg, "learner", node(learner), merge=False)
        assert different(settings_of(relevant(cfg)), written(experiment, learner)) == {}, learner


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(name, marks=[pytest.mark.all] if name in ("ctrl_in", "ctrl_out", "ctrl_pl") else [])
        for name in sorted({experiment for experiment, *_ in ROWS})
    ],
)
def test_a_published_row_stands_beside_the_settings_of_its_paper(
    experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a report composes for a row is what is written here; a run with these settings gets its
    numbers."""
    monkeypatch.setattr("cl_lightning.config.compose.compose_config", quickly)
    for of, command, row in ROWS:
        if of != experiment:
            continue
        own, words = dict(row), (*command, *(f"{k}={v}" for k, v in row))
        composed, learner = as_published(experiment, words), own.pop("learner")
        if experiment.startswith("gem_"):
            assert command == ("data=real",)
            written = of_gem(experiment, learner)
        else:
            network = ALEXNET if own.pop("backbone", "resnet") == "alexnet" else RESNET
            written = of_ctrl(experiment, learner, {**PUBLISHED, **network})
        if "stream=ctrl_long_published" in command:
            assert digest(composed["stream.tasks"]) == PRINTED_TASKS
            tasks = {"stream.tasks": composed["stream.tasks"], "stream.show.val_copies": 4}
            written = {**{k: v for k, v in written.items() if k not in LONG}, **LISTED, **tasks}
        written |= own
        assert different(composed, written) == {}, row
        with_names = {**composed, **shown(written)}
        group = Group(experiment, learner_called(row), with_names, (0,), {})
        assert published(group) == PRINTED[experiment][key_of(row)]


# Of the 100 tasks of tables 5 and 6: source, classes, training and validation examples.
PRINTED_TASKS = "7630e824b304ba7d"


def digest(tasks: list[Settings]) -> str:
    listed = [[t["source"], list(t["classes"]), t["n_train"], t["n_val"]] for t in tasks]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


def test_strengths_of_ewc_are_chosen_by_whole_streams_among_the_papers_nine() -> None:
    for experiment in CTRL_TASKS | {"ctrl_long": []}:
        assert configure(f"+experiment={experiment}").tuned.ewc.stream == STRENGTHS


OF_HAT = {"trainer.lr": [0.05, 0.01, 0.005, 0.001], "trainer.weight_decay": [0.0, 1e-5, 1e-4]}


@pytest.mark.parametrize("table", [each["name"] for each in content("mntdp")["tables"]])
def test_every_row_that_whole_streams_chose_has_its_outer_grid_in_the_experiment(table: str) -> None:
    """So that the command that stands in its place runs: EWC's nine strengths, HAT's twelve points."""
    rows = next(each for each in tables("mntdp") if each.name == table).rows
    cells = [cell for row in rows.values() for cell in row.values()]
    searched = {
        (name, str(cell.overrides["learner"]))
        for cell in cells
        for name in cell.experiments
        if cell.overrides.get("selection") == "stream_level"
    }
    for name, learner in searched:
        grid = configure(f"+experiment={name}").tuned[learner].stream
        assert grid == (OF_HAT if learner == "hat" else STRENGTHS), (name, learner)
    assert searched, "each table has such rows"


def test_grids_of_gems_methods_are_their_outer_grids() -> None:
    rates = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
    own = {
        "finetune": {}, "multimodal": {}, "independent_gem": {"learner.start": ["random", "clone"]},
        "ewc": {"learner.strength": [2 * s * 10**e for e in range(4) for s in (1, 3)] + [20000, 60000]},
        "icarl_gem": {"learner.strength": [0.1, 0.3, 1, 3, 10, 30]},
        "gem": {"learner.margin": [n / 10 for n in range(11)]},
    }  # fmt: skip
    only = {"multimodal": ("gem_rotations", "gem_permutations"), "icarl_gem": ("gem_cifar100",)}
    for experiment in ("gem_rotations", "gem_permutations", "gem_cifar100"):
        tuned = configure(f"+experiment={experiment}").tuned
        for learner, keys in own.items():
            if experiment in only.get(learner, (experiment,)):
                wanted = {"trainer.lr": rates, "trainer.weight_decay": [0.0], **keys}
                assert tuned[learner].stream == wanted, (experiment, learner)


STUDIED = {
    "gem_passes": {
        "learner": "joint,finetune,independent_gem,multimodal,ewc,gem", "trainer.max_epochs": "1,2,5"},
    "gem_memory": {"learner.memories": "10,64,128,256", "learner.margin": "0.0,0.5"},
    "gem_table2": {"learner": "gem,icarl_gem", "learner.total": "200,1280,2560,5120"},
    "gem_table1": {"learner": "finetune,independent_gem,multimodal,ewc,gem"},
    "robust_timed": {"trainer.max_epochs": "5,20,60", "tuned.generator_epochs": "10,50"},
    "ctrl_ablation_k": {
        "stream": "ctrl_minus,ctrl_plus,ctrl_in,ctrl_out,ctrl_pl",
        "learner": "mntdp_s",
        "learner.k": "1,all",
    },
    "ctrl_long_figure": {"learner": "mntdp_d,mntdp_s,independent,new_head,finetune,online_ewc"},
    "ctrl_ablations": {
        "stream": "ctrl_minus,ctrl_out",
        "row": "mntdp_d,mntdp_d_random,mntdp_d_kall,mntdp_d_modules3,mntdp_d_modules10,mntdp_d_alexnet"},
}  # fmt: skip


@pytest.mark.parametrize("study", STUDIED)
def test_a_study_sweeps_what_its_paper_varies(study: str) -> None:
    file = OmegaConf.load(Path(conf_dir(), "experiment", f"{study}.yaml"))
    assert file.hydra.sweeper.params == STUDIED[study]


FIVE = ("ctrl_minus", "ctrl_plus", "ctrl_in", "ctrl_out", "ctrl_pl")
OF_TABLES = next(each for each in content("mntdp")["tables"] if each["name"] == "table 13")["cells"]


def test_the_first_papers_study_goes_through_its_streams_and_all_rows_that_are_not_searched() -> None:
    params = OmegaConf.load(Path(conf_dir(), "experiment", "ctrl_table1.yaml")).hydra.sweeper.params
    daggers = {"ewc", "online_ewc", "hat", "hat_wide"}
    assert set(params.stream.split(",")) == set(FIVE)
    assert set(params.row.split(",")) == set(OF_TABLES) - daggers - {"mntdp_s_kall"}


@pytest.mark.parametrize("row", OF_TABLES)
def test_a_row_of_the_first_papers_tables_is_a_choice(row: str) -> None:
    """With the paper's trainer it is what stands in print beside the row."""
    own = {**content("mntdp")["rows"][row]["overrides"], "selection": "task_level"}
    network = {"backbone": own.get("backbone", "resnet")}
    printed = {"trainer": "published", "trainer.precision": 32, **network, **own}
    words = ["selection=task_level", "trainer=published", "trainer.precision=32"]
    words += ["backbone=resnet"] if network == {"backbone": "resnet"} else []
    chosen = configure("+experiment=ctrl_table1", f"row={row}", "stream=ctrl_out", *words)
    named = configure("+experiment=ctrl_out", *(f"{key}={value}" for key, value in printed.items()))
    assert relevant(chosen) == relevant(named)
    assert chosen.name == named.name == "ctrl_out"


OF_CHOICES: dict[str, Settings] = {  # that no experiment takes
    "trainer=single_pass": {"trainer.lr": 0.03},  # on permutations
    "stream=incremental_cifar100": {
        "stream.source": "cifar100", "stream.tasks": 20, "stream.classes_per_task": 5,
        "stream.class_order": "native", "stream.n_train": None, "stream.n_val": 0,
        "stream.head": "multi_train_test", **AS_THEY_ARE},
    "stream=split_cifar100": {
        "stream.source": "cifar100", "stream.tasks": 10, "stream.classes_per_task": 10,
        "stream.class_order": "random", "stream.n_train": 4500, "stream.n_val": 500, "stream.balanced": True,
        "stream.head": "multi_train_test", "stream.show.normalise": True, "stream.show.flip": True,
        "stream.show.crop": 4, "stream.show.val_copies": 0},
    "stream=two_tasks": {"stream.head": "single", "stream.first_identity": True, **AS_THEY_ARE},
    "backbone=mlp_mntdp": {"backbone.sizes": [1000, 1000], "backbone.init": "torch",
                           "backbone.dropout": 0.0, "backbone.input_dropout": 0.0},
    "backbone=fc": {"backbone.sizes": [200, 200], "backbone.init": "fan_in", "backbone.dropout": 0.0,
                    "backbone.input_dropout": 0.0},
    "backbone=fc_dropout": {"backbone.sizes": [200, 200], "backbone.init": "fan_in",
                            "backbone.dropout": 0.5, "backbone.input_dropout": 0.2},
    "backbone=fc_ewc": {"backbone.sizes": [200, 200], "backbone.init": "tenth", "backbone.dropout": 0.5,
                        "backbone.input_dropout": 0.2},
    "backbone=lwta": {"backbone._target_": "cl_lightning.backbones.LWTA", "backbone.sizes": [200, 200],
                      "backbone.init": "fan_in", "backbone.dropout": 0.0},
    "backbone=conv": {"backbone.dropout": 0.0},
    "backbone=resnet18_gem": {"backbone.width": 20},
}  # fmt: skip


@pytest.mark.parametrize("choice", OF_CHOICES)
def test_a_choice_named_after_a_paper_has_its_values(choice: str) -> None:
    composed = settings_of(relevant(configure(choice)))
    written = OF_CHOICES[choice]
    assert different({key: composed.get(key) for key in written}, written) == {}


DIGITS = [str(digit) for digit in range(10)]
SOURCES = {  # classes in the order of their labels (dtd: how many), and images for training and test
    "mnist": (DIGITS, 60_000, 10_000),
    "svhn": (DIGITS, 73_257, 26_032),
    "fashion_mnist": (["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
                       "Bag", "Ankle boot"], 60_000, 10_000),
    "cifar10": (["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
                50_000, 10_000),
    "cifar100": (100, 50_000, 10_000),
    "dtd": (47, 47 * 80, 47 * 40),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_real_sources_have_the_papers_labels_and_sizes(name: str) -> None:
    source = configure("data=real").data.sources[name]
    labels, train, test = SOURCES[name]
    assert list(source.classes) == labels or len(source.classes) == labels
    if isinstance(labels, int):
        assert list(source.classes) == sorted(source.classes), "alphabetical"
    assert source.counts == {"train": train, "test": test}
    assert source.side == (32 if name == "dtd" else None)
    assert source.splits == {"train": ["train"], "test": ["test"]}
