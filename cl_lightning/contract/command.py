"""``python -m cl_lightning.contract learner=x``: a line a check."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning.cli.help import PLACE, user_folders
from cl_lightning.cli.sentences import from_hydra, sentence
from cl_lightning.errors import Refusal

if TYPE_CHECKING:
    from cl_lightning.contract.checks import Case
    from cl_lightning.learners.base import Learner

USAGE = """python -m cl_lightning.contract learner=NAME [KEY=VALUE ...] [--config-dir DIR]

Tests whether a learner keeps what every learner promises, on a small network and stream: those that
its class names (contract = ("backbone=conv", ...)), or the arguments; else an MLP on permuted images.
"""
TOY = {  # arguments by group; those of a group that the learner or the command names itself are left out
    "stream": ("stream=permuted", "stream.tasks=3", "stream.n_train=60", "stream.n_val=40",
               "stream.n_test=100"),
    "data": ("data.sources.mnist.train=600", "data.sources.mnist.test=200"),
    "backbone": ("backbone=mlp", "backbone.sizes=[16]"),
    "trainer": ("trainer.max_epochs=3", "trainer.batch_size=10", "trainer.block=4", "trainer.patience=10",
                "trainer.lr=0.01"),
    "": ("selection=none", "figures=false", "progress=false", "logger=none"),
}  # fmt: skip
RANKS = "two devices give what one gives"


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not any(word.startswith("learner") for word in words):
        print(USAGE, end="")
        return 0 if {"-h", "--help"} & {*words} else 2
    try:
        return tested(words)
    except Exception as error:
        print(sentence(from_hydra(error, words)), file=sys.stderr)
        return 2


def tested(words: Sequence[str]) -> int:
    """The exit code: 2 where a promise is not kept."""
    from cl_lightning.contract.checks import CHECKS, learns

    said, (arguments, case) = dict[str, str](), case_of(words)  # what was found, and under which name
    with TemporaryDirectory() as folder:
        two = partial(two_ranks, arguments, case.is_compared, Path(folder))
        for name, check in [*CHECKS.items(), (RANKS, lambda _: two())]:
            verdict, found = said_by(partial(check, case))
            words_of_it = f"{name}: {found}" if found else name
            if verdict == "FAIL" and found in said:
                words_of_it = f"{name}: as under {said[found]!r}"
            print(f"{verdict:<5} {words_of_it}", flush=True)
            if verdict == "FAIL":
                said.setdefault(found, name)
                if check is learns:
                    print("      All other checks learn it, too: they wait for this one.")
                    break
    return 2 if said else 0


def case_of(words: Sequence[str]) -> tuple[list[str], Case]:
    """The arguments of a run of the learner on its toy, and what they make."""
    from hydra.utils import get_class

    from cl_lightning.config.build import build_learner, build_stream
    from cl_lightning.config.compose import check_config, compose_config
    from cl_lightning.config.settings import Training
    from cl_lightning.contract.checks import Case

    folders = [folder.resolve() for folder in user_folders(words)]
    paths = {words[i + 1] for i, word in enumerate(words[:-1]) if word in PLACE}
    own = [word for word in words if not word.startswith("-") and word not in paths]
    if folders:
        own.append(f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in folders)}]")
    own = [*getattr(get_class(compose_config(*own).learner._target_), "contract", ()), *own]
    groups = {word.lstrip("+").partition("=")[0] for word in own}
    arguments = [*(word for group, part in TOY.items() if group not in groups for word in part), *own]
    cfg = compose_config(*arguments)
    check_config(cfg)
    stream, trainer = build_stream(cfg), OmegaConf.to_container(cfg.trainer, resolve=True)

    def make(**keys: Any) -> Learner:
        changed = OmegaConf.merge(cfg, {"learner": keys})
        assert isinstance(changed, DictConfig)
        return build_learner(changed, stream)

    return arguments, Case(make, stream, Training(**trainer))  # type: ignore[arg-type]


def said_by(check: Callable[[], str | None]) -> tuple[str, str]:
    """The verdict on a promise, and why: ``FAIL`` where it is not kept, ``-`` where there was nothing to
    try."""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nothing_to_try = check()
    except Exception as error:
        said = sentence(error) if isinstance(error, Refusal) else str(error) or type(error).__name__
        return "FAIL", said
    return ("-", nothing_to_try) if nothing_to_try else ("ok", "")


def two_ranks(arguments: Sequence[str], compared: bool, folder: Path) -> None:
    """Runs of the command line, in one process and in two."""
    from cl_lightning.contract.checks import GRID, Broken, equal
    from cl_lightning.data.task import tensors_in
    from cl_lightning.store.files import load_plain

    rates = ",".join(str(point["lr"]) for point in GRID)
    found, grid = [], [f"++selection.grid.lr=[{rates}]", "trainer.lr=null"]
    for count in (1, 2):
        outputs = folder / str(count)
        own = [*grid * compared, f"trainer.devices={count}", "trainer.accelerator=cpu"]
        program = [sys.executable, "-m", "cl_lightning", *arguments, *own, f"outputs={outputs}"]
        ended = subprocess.run(program, capture_output=True, text=True)
        if ended.returncode:
            raise Broken(f"With trainer.devices={count}: " * (count > 1) + ended.stderr.strip())
        path = next(outputs.rglob("results.json"))
        results = json.loads(path.read_text())
        last = sorted((path.parent / "tasks").glob("*.pt"))[-1]
        state = tensors_in(load_plain(last)["learner"])
        found.append(([results["accuracy_matrix"], results["own"]], state))
    (one, of_one), (two, of_two) = found
    if one != two or not equal(of_one, of_two):
        raise Broken("Trained on two devices, it ends otherwise.\nIt keeps something in a class or module.")
