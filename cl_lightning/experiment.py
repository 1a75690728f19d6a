"""One run, from its configuration to its results: the page to read first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning import faults, termination
from cl_lightning.errors import Refusal
from cl_lightning.report.tables import show
from cl_lightning.resume import changed, discard, held, open_journal, restore, stored
from cl_lightning.runs import fingerprint, learner_name, run_folder, versions

if TYPE_CHECKING:
    from cl_lightning.data.streams import Stream
    from cl_lightning.engine.settings import Training
    from cl_lightning.learners.base import Learner


def run(cfg: DictConfig, command: Sequence[str] = ()) -> float | None:
    """Train, resume or only show the run that ``cfg`` describes. Returns the mean validation accuracy, for sweepers."""
    folder = run_folder(cfg)
    results = folder / "results.json"
    if results.is_file() and cfg.resume is not False:
        show(folder, note=changed(json.loads(results.read_text())["version"], versions(cfg)))
    else:
        faults.arm(cfg.debug.fault)
        with termination.handled(), held(folder):
            if cfg.resume is False:
                discard(folder)
            train(cfg, folder, command)
        show(folder)
    chosen = [s["val_accuracy"] for s in json.loads(results.read_text())["selected"] if s["val_accuracy"] is not None]
    return sum(chosen) / len(chosen) if chosen else None


def train(cfg: DictConfig, folder: Path, command: Sequence[str]) -> None:
    """Learn every task that the journal does not hold yet, and write the results."""
    import torch

    from cl_lightning.data.module import StreamDataModule
    from cl_lightning.engine.phases import Engine
    from cl_lightning.engine.settings import Training
    from cl_lightning.evaluation.evaluator import Evaluator
    from cl_lightning.report.loggers import open_loggers
    from cl_lightning.report.results import write_results

    settings = Training(**OmegaConf.to_container(cfg.trainer, resolve=True))  # type: ignore[arg-type]
    torch.set_num_threads(settings.threads)
    stream = build_stream(cfg)
    learner = build_learner(cfg, stream)
    callbacks = build_callbacks(cfg)
    journal = open_journal(cfg, folder, stream, command)
    learned = restore(learner, journal)
    loggers = open_loggers(cfg.logger, folder, cfg)
    data = StreamDataModule(stream)
    engine = Engine(data, journal, settings, loggers, callbacks)
    evaluator = Evaluator(stream, settings, device_of(settings))

    def tell(hook: str, *arguments: Any) -> None:
        for callback in callbacks:
            getattr(callback, hook, lambda *_: None)(*arguments)

    def evaluate(learned: int) -> None:
        if journal.find("evaluated", learned=learned):
            return
        faults.reached("evaluate")
        began = perf_counter()
        predictors = engine.drive(learner.predictors(learned), learner, stream.closed(max(learned - 1, 0)), f"predictors{learned}")
        rows = evaluator.measure(predictors, learned)
        first = next(iter(rows.values()))
        journal.append("evaluated", learned=learned, rows=rows, costs=engine.settle().plain(), seconds=perf_counter() - began)
        measured = [accuracy for accuracy in first if accuracy is not None]
        for logger in loggers:
            mean = {"test/mean_accuracy": sum(measured) / len(measured)} if measured else {}
            tasks = {f"test/task{j}": accuracy for j, accuracy in enumerate(first) if accuracy is not None}
            logger.log_metrics({"learned": learned, **mean, **tasks}, step=engine.step)
        tell("on_evaluated", learner, learned, first)

    tell("on_stream_start", cfg.stream.get("name", stream.name), len(stream), learned)
    try:
        evaluate(learned)
        for index in range(learned, len(stream)):
            with data.open(index, past=learner.needs.past_data, to=learner) as task:
                tell("on_task_start", learner, task)
                engine.learn(learner, task)
                tell("on_task_end", learner, task)
            with engine.costs.timed("checkpoint"):
                state = learner.state_dict()
                saved = journal.save(f"task{index}", partial(torch.save, state))
            spent = engine.settle().plain()
            journal.append("boundary", task=index, saved=saved, held=learner.held(), stored=stored(state), costs=spent)
            for row in journal.all("share"):
                journal.drop(row["weights"])  # the boundary has taken their place
            if cfg.debug.fresh_learner:
                learner = build_learner(cfg, stream)
                learner.load_state_dict(journal.load(saved))
            evaluate(index + 1)
    finally:
        tell("on_stream_end")
        for logger in loggers:
            logger.finalize("success")
    write_results(
        folder / "results.json",
        journal,
        config=OmegaConf.to_container(cfg, resolve=True),
        fingerprint=fingerprint(cfg),
        learner=learner_name(cfg),
        seed=cfg.seed,
        stream={"name": cfg.stream.get("name", stream.name), "fingerprint": stream.fingerprint, "tasks": stream.describe()},
    )


def build_stream(cfg: DictConfig) -> Stream:
    """The stream; its images are decoded now if this machine never did."""
    from cl_lightning.data.cache import open_images

    source = cfg.stream.source
    if source not in cfg.data.sources:
        raise Refusal(
            f"stream.source={source} is not among the sources of this data configuration: {', '.join(cfg.data.sources)}. "
            "Choose one of these, or data=real."
        )
    images = open_images(source, partial_of(cfg.data.sources[source])(), cfg.cache)
    return partial_of(cfg.stream, "name", "source")(images=images)


def build_learner(cfg: DictConfig, stream: Stream) -> Learner:
    """The learner, with the networks that it may build and the grid that it may choose from."""
    from hydra.utils import get_class

    from cl_lightning.selection.grid import check_grid, grid_points

    learner: Any = get_class(cfg.learner._target_)
    build = partial(partial_of(cfg.backbone), input_shape=stream.images.shape, head=stream.head)
    grid: Any = OmegaConf.to_container(cfg.selection.grid, resolve=True)
    check_grid(grid, learner.tunes, learner.__name__)
    return partial_of(cfg.learner, "name")(build=build, grid=grid_points(grid), seed=cfg.seed)


def build_callbacks(cfg: DictConfig) -> list:
    from cl_lightning.report.progress import ProgressDisplay

    return [partial_of(callback)() for callback in cfg.trainer.callbacks] + [ProgressDisplay()] * bool(cfg.progress)


def partial_of(node: DictConfig, *but: str) -> Any:
    """What ``_target_`` names, waiting to be called with the rest: so that it raises its own errors, and gets objects as they are."""
    from hydra.utils import instantiate

    plain: Any = OmegaConf.to_container(node, resolve=True)
    return instantiate({key: value for key, value in plain.items() if key not in but}, _partial_=True, _convert_="all")


def device_of(settings: Training) -> Any:
    """The device on which Lightning trains."""
    from cl_lightning.engine.phases import new_trainer

    return new_trainer(settings, [], []).strategy.root_device
