"""Runs from Python: make one, look at it as frames, and predict with its learner."""

from __future__ import annotations

import json
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cl_lightning.cli.sentences import from_hydra, is_list_of_choices
from cl_lightning.config.build import build_learner, build_stream
from cl_lightning.config.compose import compose_config
from cl_lightning.errors import Refusal
from cl_lightning.metrics.accuracy_matrix import predicted
from cl_lightning.metrics.measures import averaged
from cl_lightning.parallel import starter
from cl_lightning.report.results import results_of
from cl_lightning.report.schema import Results
from cl_lightning.runs.identity import run_folder
from cl_lightning.runs.resume import restore
from cl_lightning.store.folder import learned_tasks, open_store, row_key

if TYPE_CHECKING:
    from cl_lightning.data.streams.stream import Stream
    from cl_lightning.learners.base import Learner


class Run:
    """A run in its folder, finished or not."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        found = open_store(self.folder)
        if found is None:
            raise Refusal(
                f"{folder} holds no run. Give the folder of a run: the one that has run.json in it."
            )
        self.store, self.start = found

    @property
    def results(self) -> Results:
        """All that ``results.json`` says, or will say."""
        return results_of(self.store, self.start)

    @property
    def accuracy(self) -> pd.DataFrame:
        """Test accuracy on each task (columns) after so many tasks (rows)."""
        return frame_of(self.results["accuracy_matrix"])

    @property
    def measures(self) -> dict[str, pd.DataFrame]:
        """What else was measured (``trainer.measures``), by name: frames as that of accuracies."""
        return {name: frame_of(matrix) for name, matrix in self.results["measures"].items()}

    def predictions(self, after: int | None = None) -> pd.DataFrame:
        """A row for each test image, after so many tasks (None: all that are tested): the right output, the
        predicted one, its probability and the entropy. There with ``trainer.keep_predictions``."""
        learned = learned_tasks(self.store) if after is None else after
        key = row_key(learned)
        kept = self.store.tensors(key).get("predictions") if self.store.saved(key) else None
        if kept is None:
            raise Refusal(
                f"{self.folder} keeps no predictions after {learned} tasks. Make the run with "
                "trainer.keep_predictions=true."
            )
        frames = [
            pd.DataFrame({"predictor": name, "task": task, **{k: v.numpy() for k, v in columns.items()}})
            for name, tasks in kept.items()
            for task, columns in tasks.items()
        ]
        return pd.concat(frames, ignore_index=True)

    @property
    def metrics(self) -> pd.Series:
        return pd.Series(dict(self.results["metrics"]), dtype=float)

    @property
    def costs(self) -> pd.DataFrame:
        """A row a task: bytes held, operations, examples, seconds by part."""
        return pd.json_normalize([dict(cost) for cost in self.results["costs"]]).set_index("task")

    @property
    def candidates(self) -> pd.DataFrame:
        """A row for each candidate of each phase, and whether it was chosen."""
        rows = [
            {"task": phase["task"], "where": phase["where"], "phase": phase["phase"], **one,
             "chosen": one["candidate"] == phase["candidate"]}
            for phase in self.results["selected"] for one in phase["compared"]
        ]  # fmt: skip
        return pd.json_normalize(rows)

    @property
    def own(self) -> pd.DataFrame:
        """A row for each number that the learner and callbacks logged, and where."""
        curves = [(axis, *each) for axis, of in self.results["own"].items() for each in of.items()]  # type: ignore[attr-defined]
        rows = [(name, axis, at, value) for axis, name, curve in curves for at, value in curve]
        return pd.DataFrame(rows, columns=["name", "by", "at", "value"])

    @property
    def config(self) -> DictConfig:
        """The configuration that the run was last started with."""
        path, own = self.folder / "config.yaml", {}
        with suppress(Exception):  # whatever damaged files raise
            cfg = DictConfig(OmegaConf.load(path))
            own = json.loads(json.dumps(OmegaConf.to_container(cfg)))
        known, made_by = self.start.config, ("seed", "learner", "backbone", "stream")
        if not {*known, "cache", "progress"} <= {*own} or any(own[key] != known[key] for key in made_by):
            raise Refusal(
                f"{path} is damaged, or not what the run was made with. Put it back, or make the run again "
                "with resume=false."
            )
        return cfg

    def stream(self) -> Stream:
        """Its tasks, with their images."""
        return build_stream(self.config)

    def learner(self, after: int | None = None) -> Learner:
        """The learner after so many tasks (None: after the last that is learned)."""
        learned = learned_tasks(self.store) if after is None else after
        learner = build_learner(self.config, self.stream())
        if not 0 <= learned <= len(self.start.stream.tasks):
            raise Refusal(
                f"after={after} is no number of tasks of this stream: it has {len(self.start.stream.tasks)}."
            )
        if learned and self.store.saved(f"tasks/{learned - 1:03d}") is None:
            raise Refusal(
                f"{self.folder} has no learner after {learned} tasks: it has not learned so many, or kept "
                "only the newest (checkpoints=last)."
            )
        restore(learner, self.store, learned)
        return learner.eval()

    def predict(self, x: torch.Tensor, task: int, after: int | None = None) -> torch.Tensor:
        """Output numbers (n,) for images of a task, as the evaluator takes them: the learner is told the task
        only if it declared so, and outputs of other tasks are masked where the stream's head says so."""
        tasks = len(self.start.stream.tasks)
        if not 0 <= task < tasks:
            raise Refusal(f"task={task} is no task of this stream: it has {tasks}, counted from 0.")
        learner = self.learner(after)
        with torch.no_grad():
            logits = learner.samples(x, task if learner.needs.task_id_at_test else None)
        if learner.head.masks_test:
            logits = learner.head.mask(logits, torch.full((len(x),), task))
        return predicted(averaged(logits))

    def __repr__(self) -> str:
        start = self.start
        return f"Run({str(self.folder)!r}): {start.learner} on {start.stream.name}, seed {start.seed}"


def frame_of(matrix: list) -> pd.DataFrame:
    return pd.DataFrame(matrix, dtype=float).rename_axis("learned").rename_axis("task", axis=1)


def run(*overrides: str, quiet: bool = False) -> Run:
    """Make the run of a command line, or find it: ``run("learner=ewc", "stream=permuted", "seed=1")``.
    ``quiet``: it prints nothing; what is refused is raised all the same."""
    for override in overrides:
        refuse_no_run(override)
    try:
        cfg = compose_config(*overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise from_hydra(error, overrides) from None
    with ExitStack() as streams:
        for redirect in (redirect_stdout, redirect_stderr) if quiet else ():
            streams.enter_context(redirect(StringIO()))
        starter.run(cfg, list(overrides))
    return Run(run_folder(cfg, build_stream(cfg)))


def refuse_no_run(override: str) -> None:
    """Refuse an argument that is about more than one run, or about Hydra's command line."""
    if override.startswith("-"):
        raise Refusal(f"{override} is for the command line: run takes group=choice and key=value alone.")
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        raise Refusal(f"{override} cannot be read: arguments are group=choice or key=value.") from None
    if parsed.is_sweep_override() or is_list_of_choices(override):
        raise Refusal(
            f"{override} names several values: that is a sweep, and run makes a single run. Call it once for "
            "each, or start the sweep from the command line."
        )


def load(folder: str | Path) -> Run:
    """A run that was made before: ``load("outputs/quickstart/ewc/1234abcd-s0")``."""
    return Run(folder)


__all__ = ["Run", "load", "run"]
