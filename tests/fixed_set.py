"""A fixed set of commands whose results a refactoring may not change.

``python -m tests.fixed_set record FOLDER`` makes them; ``python -m tests.fixed_set compare BEFORE AFTER``
ends with 0 where both folders have the same results but for command, environment, versions, and seconds. Each
command is a process of its own, so that the set of one revision can be compared with that of another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TINY = (
    "progress=false", "figures=false", "logger=none", "stream=permuted", "stream.tasks=3",
    "stream.n_train=200", "stream.n_val=60", "data.sources.mnist.train=2000",
    "data.sources.mnist.test=300", "backbone=mlp", "backbone.sizes=[20]",
    "trainer.max_epochs=3", "trainer.batch_size=20",
)  # fmt: skip
MODULAR = ("progress=false", "figures=false", "logger=none", "learner=mntdp_d", "stream=ctrl_short")
ONE_PASS = (
    *TINY, "selection=none", "stream.n_val=0", "trainer=single_pass", "trainer.optimizer=sgd",
    "trainer.lr=0.05",
)  # fmt: skip
COMMANDS: dict[str, tuple[str, ...]] = {
    "default": ("progress=false", "figures=false", "logger=none"),
    "finetune_rotated": (*TINY, "learner=finetune", "stream=rotated"),
    "split_class": (*TINY, "learner=finetune", "stream=split"),
    "new_head": (*TINY, "learner=new_head", "stream=split", "stream.head=multi_train_test"),
    "ewc_grid": (*TINY, "learner=ewc", "+selection.grid.strength=[0.0,100.0]"),
    "ewc_multi": (*TINY, "learner=ewc", "stream=split", "stream.head=multi_test", "selection=none"),
    "er": (*TINY, "learner=er"),
    "gem": (*ONE_PASS, "learner=gem"),
    "agem": (*ONE_PASS, "learner=agem"),
    "independent": (*TINY, "learner=independent"),
    "independent_gem": (*ONE_PASS, "learner=independent_gem"),
    "joint": (*TINY, "learner=joint", "selection=none"),
    "multimodal": (*ONE_PASS, "learner=multimodal"),
    "k_of_2": (*MODULAR, "learner.k=2", "selection=none"),
    "reference": (*MODULAR, "reference=true", "trainer.max_epochs=2", "selection=none"),
    "resnet_bf16": (
        *MODULAR, "backbone=resnet_small", "backbone.width=4", "selection=none", "trainer.max_steps=12",
        "trainer.precision=bf16-mixed", "stream.test_per_class=10",
    ),
    "shares": (*TINY, "learner=finetune", "trainer.candidates_at_once=3"),
    "carry": (*TINY, "learner=finetune", "selection=none", "trainer.optimizer_state=carry"),
    "clip_sgd": (
        *TINY, "learner=finetune", "selection=none", "trainer.optimizer=sgd", "trainer.momentum=0.9",
        "trainer.clip=1.0", "trainer.lr=0.05",
    ),
    "dropout": (*TINY, "learner=finetune", "backbone.dropout=0.2"),
    "probes": (*TINY, "learner=er", "trainer.probe_every=7", "trainer.probe_at=[0,1]"),
    "probes_of_all": (*TINY, "learner=finetune", "trainer.probe=all", "trainer.probe_every=9"),
    "two_ranks": (*MODULAR, "trainer.devices=2", "trainer.max_epochs=2"),
    "rounds": (
        *MODULAR, "hydra/sweeper=cl_task_level", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2",
        "trainer.max_epochs=2", "trainer.candidates_at_once=4",
    ),
    "stream_level": (
        *TINY, "learner=ewc", "selection=stream_level", "selection.stream={learner.strength:[1,100]}",
    ),
    "two_seeds": (*TINY, "--multirun", "seed=0,1", "learner=finetune,joint", "selection=none"),
}  # fmt: skip
BRANCH = (*TINY, "learner=finetune", "selection=none", "from_task=1")
MAY_DIFFER = {"crc", "command", "environment", "version", "seconds", "outputs", "run"}


def record(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        make(folder / name, *COMMANDS[name])
    if "branch" in names or len(names) == len(COMMANDS):
        first = make(folder / "branch_from", *(part for part in BRANCH if part != "from_task=1"))
        make(folder / "branch", *BRANCH, f"run={first}", "trainer.lr=0.003")


def make(folder: Path, *overrides: str) -> Path:
    """Run one command, and return the folder of its first run."""
    ended = subprocess.run(
        [sys.executable, "-m", "cl_lightning", *overrides, f"outputs={folder}"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found = sorted(folder.rglob("results.json"))
    print(f"{folder.name}: exit {ended.returncode}, {len(found)} results", flush=True)
    if ended.returncode or not found:
        print(ended.stdout[-2000:] + ended.stderr[-2000:])
    return found[0].parent.resolve() if found else folder


def compare(before: Path, after: Path) -> int:
    """How many results differ, each named with the first values that do."""
    different = 0
    for name in folders(before):
        old, new = runs(before / name), runs(after / name)
        for key in sorted({*old, *new}):
            differences = list(differing(old.get(key), new.get(key), ""))
            different += bool(differences)
            if differences:
                print(f"{name}, {key}: {len(differences)} values differ")
                for line in differences[:6]:
                    print(f"  {line}")
    print(f"{different} results differ")
    return different


def folders(folder: Path) -> list[str]:
    return sorted(part.name for part in folder.iterdir() if part.is_dir())


def runs(folder: Path) -> dict[str, Any]:
    """Results by the place of their run, with a number in the place of the fingerprint, which may change."""
    files = sorted(folder.rglob("results.json"), key=lambda file: settings_of(file.read_text()))
    return {
        f"{file.relative_to(folder).parts[-3]} {n}": json.loads(file.read_text())
        for n, file in enumerate(files)
    }


def settings_of(results: str) -> str:
    return json.dumps(json.loads(results)["config"], sort_keys=True)


def differing(old: Any, new: Any, place: str) -> Iterator[str]:
    """Places of nested values that are not equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in MAY_DIFFER and not str(key).endswith("seconds"):
                yield from differing(old.get(key), new.get(key), f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new)):
            yield from differing(one, other, f"{place}[{number}]")
    elif old != new:
        yield f"{place}: {str(old)[:80]} -> {str(new)[:80]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", nargs="*", default=list(COMMANDS))
    given = parser.parse_args()
    if given.what == "record":
        record(given.folders[0], given.only)
    else:
        sys.exit(bool(compare(*given.folders)))
