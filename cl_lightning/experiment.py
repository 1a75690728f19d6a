"""One run, from its configuration to its results: the page to read first."""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning import faults, termination
from cl_lightning.errors import Refusal
from cl_lightning.protocol import Grants
from cl_lightning.ranges import check_keys
from cl_lightning.report.tables import show
from cl_lightning.resume import changed, discard, held, open_journal, restore
from cl_lightning.runs import fingerprint, learner_name, relevant, run_folder, settled, sweeper_that_chooses, versions
from cl_lightning.selection.grid import taken_out

if TYPE_CHECKING:
    import torch.nn as nn

    from cl_lightning.data.module import StreamDataModule
    from cl_lightning.data.sources import Sources
    from cl_lightning.data.stream import Stream
    from cl_lightning.data.task import Task
    from cl_lightning.engine.forecast import Forecast
    from cl_lightning.engine.phases import Engine
    from cl_lightning.engine.settings import Training
    from cl_lightning.learners.base import Learner


def run(cfg: DictConfig, command: Sequence[str] = ()) -> float | None:
    """Train, resume or only show the run that ``cfg`` describes. Returns, for sweepers that choose, the mean accuracy on the
    validation examples of all tasks at the end of the stream; None where no task has any."""
    folder = run_folder(cfg)
    if said := taken_out(cfg.selection, cfg.trainer):
        print(said, file=sys.stderr)
    results = folder / "results.json"
    if results.is_file() and cfg.resume is not False:
        draw_missing(cfg, folder)
        show(folder, note=changed(json.loads(results.read_text())["version"], versions(cfg)))
    else:
        faults.arm(cfg.debug.fault)
        with termination.handled(), held(folder):
            if cfg.resume is False:
                discard(folder)
            train(cfg, folder, command)
        draw_missing(cfg, folder)
        show(folder)
    at_end = json.loads(results.read_text()).get("validation_at_end")  # from schema 4 on
    if at_end is None:
        refuse_to_choose("was made by a version that did not measure it.\nMake it again with resume=false.")
        return None
    if at_end["mean"] is None:
        refuse_to_choose(NO_VALIDATION)
    return at_end["mean"]


NO_VALIDATION = (
    "has no validation data.\nSet n_val of the stream or its tasks above 0; "
    "with trainer.single_pass, which has none, use hydra/sweeper=basic."
)


def refuse_to_choose(reason: str) -> None:
    """Raise where a sweeper would choose by what ``run`` returns, and this run returns None."""
    if sweeper := sweeper_that_chooses():
        raise Refusal(f"{sweeper} chooses by the validation accuracy at the end of the stream, but this run {reason}")


def draw_missing(cfg: DictConfig, folder: Path) -> None:
    """The figures, where they are asked for and not there: of a run that was killed before, too."""
    from cl_lightning.report.figures import draw

    if cfg.figures and not (folder / "figures").is_dir() and json.loads((folder / "results.json").read_text())["schema"] >= 3:
        draw(folder)


def train(cfg: DictConfig, folder: Path, command: Sequence[str]) -> None:
    """Learn every task that the journal does not hold yet, and write the results."""
    import torch

    from cl_lightning.data.copies import copies_of
    from cl_lightning.data.module import StreamDataModule
    from cl_lightning.engine.forecast import Forecast
    from cl_lightning.engine.phases import Engine
    from cl_lightning.engine.settings import Training
    from cl_lightning.evaluation.card import card_of
    from cl_lightning.evaluation.evaluator import Evaluator
    from cl_lightning.evaluation.resemblance import resemblance
    from cl_lightning.report.loggers import close_loggers, open_loggers
    from cl_lightning.report.results import write_results

    plain: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    check_keys(plain, [field.name for field in fields(Training)], "trainer")
    settings = Training(**plain)
    torch.set_num_threads(settings.threads)
    stream = build_stream(cfg)
    if sweeper_that_chooses() and not any(len(stream.recipe(index).val) for index in range(len(stream))):
        refuse_to_choose(NO_VALIDATION)
    learner, grants = build_learner(cfg, stream), Grants(**cfg.grants)
    grants.check(learner)
    if cfg.reference and stream.head.mode in ("single", "multi_test"):
        raise Refusal(
            f"reference=true compares with a network that learns the last task alone; with stream.head={stream.head.mode} it would "
            "have the outputs of all tasks. Use stream.head=domain or multi_train_test, or reference=false."
        )
    callbacks = build_callbacks(cfg, Forecast(stream, settings, learner.needs.past_data))
    journal = open_journal(cfg, folder, stream, command)
    learned = restore(learner, journal)
    loggers = open_loggers(cfg.logger, folder, cfg)
    data = StreamDataModule(stream, passes=settings.max_epochs if settings.single_pass else None)
    evaluator = Evaluator(stream, settings, device_of(settings), grants)

    def tell(hook: str, *arguments: Any) -> None:
        for callback in callbacks:
            getattr(callback, hook, lambda *_: None)(*arguments)

    def probe(copied: Learner, task: Task, phase: int, step: int) -> None:
        row = evaluator.probe(copied, task.index + 1)
        journal.append("probe", task=task.index, phase=phase, step=step, accuracies=row)
        tell("on_probe", copied, task, step, row)

    engine = Engine(data, journal, settings, loggers, callbacks, probe)

    def predictors_after(learned: int) -> dict[str, Learner]:
        return engine.predictors(learner, learned, stream.closed(max(learned - 1, 0)))

    def evaluate(learned: int) -> None:
        if journal.find("evaluated", learned=learned):
            return
        faults.reached("evaluate")
        began = perf_counter()
        predictors = predictors_after(learned)
        rows = evaluator.measure(predictors, learned)
        first = next(iter(rows.values()))
        journal.append("evaluated", learned=learned, rows=rows, costs=engine.settle().plain(), seconds=perf_counter() - began)
        of_learned = [accuracy for accuracy in first[:learned] if accuracy is not None]
        for logger in loggers:
            mean = {"test/mean_learned": sum(of_learned) / len(of_learned)} if of_learned else {}
            tasks = {f"test/task{j}": accuracy for j, accuracy in enumerate(first) if accuracy is not None}
            logger.log_metrics({"learned": learned, **mean, **tasks}, step=engine.step)
        tell("on_evaluated", learner, learned, first)

    def examine() -> None:
        """What the card needs to know and cannot read off the journal."""
        if not journal.find("examined"):
            examination = evaluator.examine(next(iter(predictors_after(len(stream)).values())))
            alike = resemblance(stream)
            journal.append("examined", examination=asdict(examination), resemblance=asdict(alike) if alike else None)

    def validate() -> None:
        """The last look at the learner: what a search over whole streams may choose by."""
        if not journal.find("validated"):
            main = next(iter(predictors_after(len(stream)).values()))
            journal.append("validated", accuracies=evaluator.validate(main))

    tell("on_stream_start", cfg.stream.get("name", stream.name), len(stream), learned)
    try:
        evaluate(learned)
        for index in range(learned, len(stream)):
            grants.check(learner)
            with data.open(index, past=learner.needs.past_data, to=learner) as task:
                tell("on_task_start", learner, task)
                engine.learn(learner, task)
                tell("on_task_end", learner, task)
                lent = [each.index for each in (*task.past, task)]
                copies = copies_of([split for split in (task.train, task.val) if split], learner, stream.show)
            saved = boundary(learner, engine, index, lent=lent, copies=copies)
            if cfg.debug.fresh_learner:
                learner = build_learner(cfg, stream)
                learner.load_state_dict(journal.load(saved))
            evaluate(index + 1)
        examine()
        validate()
        if cfg.reference and not journal.find("reference"):
            journal.append("reference", **reference(cfg, stream, engine, data, settings))
    except BaseException:
        close_loggers(loggers, "failed")
        raise
    finally:
        with suppress(Exception):  # of what is told already, or of no more use
            journal.settle()
        tell("on_stream_end")
    close_loggers(loggers, "success")
    write_results(
        folder / "results.json",
        journal,
        name=cfg.name,
        config=relevant(cfg),
        needs=asdict(learner.needs),
        card=[asdict(finding) for finding in card_of(journal.rows, stream, learner.needs.past_data, data.passes)],
        fingerprint=fingerprint(cfg),
        learner=learner_name(cfg),
        seed=cfg.seed,
        stream={
            "name": cfg.stream.get("name", stream.name),
            "fingerprint": stream.fingerprint,
            "images": {images.name: images.digest for images in stream.sources},
            "tasks": stream.describe(),
        },
    )


def reference(cfg: DictConfig, stream: Stream, engine: Engine, data: StreamDataModule, settings: Training) -> dict[str, Any]:
    """A fresh network that learns the last task by itself, as Independent would: what T(S) of Veniat et al. 2021 compares with."""
    from cl_lightning.evaluation.evaluator import Evaluator
    from cl_lightning.learners import Finetune
    from cl_lightning.selection.grid import OPTIMIZER_KEYS

    journal, last = engine.journal, len(stream) - 1
    points = [{key: value for key, value in point.items() if key in OPTIMIZER_KEYS} for point in build_learner(cfg, stream).grid]
    alone = Finetune(build=builder(cfg, stream), grid=[p for i, p in enumerate(points) if p not in points[:i]], seed=cfg.seed)
    alone.network = alone.fresh(last)
    with data.open(last, to=alone) as task:
        engine.learn(alone, task, where=f"reference:task{last}")
    for row in journal.all("share"):
        journal.drop(row["weights"])
    accuracy = Evaluator(stream, settings, device_of(settings), Grants()).row(alone, last + 1, range(last, last + 1))[last]
    assert accuracy is not None
    rows = next(row for row in reversed(journal.all("evaluated")) if row["learned"] == len(stream))["rows"]
    own = next(iter(rows.values()))[last]
    return {"task": last, "accuracy": accuracy, "transfer": None if own is None else own - accuracy, "costs": engine.settle().plain()}


def boundary(learner: Learner, engine: Engine, index: int, **witnessed: Any) -> dict[str, Any]:
    """Save what the learner is after a task, and record what it keeps and has cost. Returns the name of its checkpoint."""
    import torch

    from cl_lightning.data.lease import tensors_of
    from cl_lightning.learners.base import tensor_bytes
    from cl_lightning.metrics.costs import published_memory

    journal = engine.journal
    with engine.costs.timed("checkpoint"):
        state = learner.state_dict()
        saved = journal.save(f"task{index}", partial(torch.save, state))
    costs, held, stored = engine.settle().plain(), learner.held(), journal.place(saved).stat().st_size
    weigh(learner, held, stored, len(state))
    in_reach = tensor_bytes([tensor for _, tensor in tensors_of(learner)])
    learned = {"notes": learner.account(), "published_memory": None if learner.memory else published_memory(learner)}
    journal.append("boundary", task=index, saved=saved, held=held, stored=stored, costs=costs, kept=in_reach, **learned, **witnessed)
    for row in journal.all("share"):  # the boundary has taken their place
        journal.drop(row["weights"])
    for row in journal.all("once"):
        journal.drop(row["saved"])
    return saved


def build_stream(cfg: DictConfig) -> Stream:
    """The stream; the images of its sources are decoded now if this machine never did."""
    from cl_lightning.data.show import Show

    sources = build_sources(cfg)
    shown: Any = OmegaConf.to_container(cfg.stream.show, resolve=True) if "show" in cfg.stream else {}
    check_keys(shown, [field.name for field in fields(Show)], "stream.show")
    make, show = partial_of(cfg.stream, "stream", "name", "source", "show"), Show(**shown)
    return make(images=sources[cfg.stream.source], show=show) if "source" in cfg.stream else make(sources=sources, show=show)


def build_sources(cfg: DictConfig) -> Sources:
    """All data sets of the configuration, none of them opened yet."""
    from cl_lightning.data.cache import Images, open_images
    from cl_lightning.data.sources import Sources

    def opened(name: str) -> Images:
        return open_images(name, partial_of(cfg.data.sources[name], f"data.sources.{name}")(), cfg.cache)

    known = {str(name): classes_of(cfg.data.sources[name]) for name in cfg.data.sources}
    return Sources(known, opened, cfg.data.get("substitute") or {})


def classes_of(source: DictConfig) -> tuple[str, ...] | None:
    """Names of a source's classes, as far as they can be told without opening it."""
    from hydra.utils import get_class

    named = source.get("classes")
    if named is None:
        with suppress(Exception):  # said when it is opened
            named = getattr(get_class(source._target_), "classes", None)
    return tuple(map(str, named)) if isinstance(named, Sequence) and not isinstance(named, str) else None


def build_learner(cfg: DictConfig, stream: Stream) -> Learner:
    """The learner, with the networks that it may build and the grid that it may choose from."""
    from cl_lightning.learners.base import Learner
    from cl_lightning.selection.grid import check_grid, grid_points

    learner: Any = partial_of(cfg.learner, "learner", "name").func
    if not (isinstance(learner, type) and issubclass(learner, Learner)):
        raise Refusal(f"learner._target_={cfg.learner._target_} is not a learner. Derive a class from cl_lightning.learners.Learner.")
    grid = settled(cfg)["selection"]["grid"]
    check_grid(grid, learner.tunes, learner.__name__)
    if "momentum" in grid and cfg.trainer.optimizer == "adam":
        raise Refusal("selection.grid.momentum is for trainer.optimizer=sgd; Adam has moments of its own.")
    return partial_of(cfg.learner, "learner", "name")(build=builder(cfg, stream), grid=grid_points(grid), seed=cfg.seed)


def builder(cfg: DictConfig, stream: Stream) -> Callable[..., nn.Module]:
    """Makes networks for the stream's images and outputs."""
    return partial(partial_of(cfg.backbone, "backbone"), input_shape=stream.shape, head=stream.head)


def build_callbacks(cfg: DictConfig, forecast: Forecast) -> list:
    """The user's, and what keeps him informed."""
    from cl_lightning.engine.progress import ProgressDisplay

    own = [partial_of(callback, "trainer.callbacks")() for callback in cfg.trainer.callbacks]
    return [*own, *([ProgressDisplay(), forecast] if cfg.progress else [])]


def partial_of(node: DictConfig, path: str, *but: str) -> Any:
    """What ``_target_`` names, waiting to be called with the rest: so that it raises its own errors, and gets objects as they are."""
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    plain: Any = OmegaConf.to_container(node, resolve=True)
    try:
        made = instantiate({key: value for key, value in plain.items() if key not in but}, _partial_=True, _convert_="all")
    except InstantiationException as reason:
        raise Refusal(
            f"{path}._target_={plain.get('_target_')} cannot be imported: {str(reason.__cause__ or reason).splitlines()[0]}\n"
            "Check its spelling, and run the command where Python finds the module (python -m adds the current folder)."
        ) from reason
    known = accepted(made.func)
    if known is not None:
        check_keys(made.keywords, list(known), path)
        for name in sorted(name for name, required in known.items() if required and name not in (*made.keywords, *HANDED)):
            raise Refusal(f"{path}.{name} is missing: {plain['_target_']} cannot do without it.")
    return made


HANDED = ("images", "sources", "show", "input_shape", "head", "build", "grid", "seed", "folder", "run")  # by this program


def accepted(function: Any) -> dict[str, bool] | None:
    """The keyword arguments of a function or class, its bases' included, and which it requires; None where it takes any."""
    names: dict[str, bool] = {}
    for each in function.__mro__ if isinstance(function, type) else (function,):
        own = each.__dict__.get("__init__") if isinstance(function, type) else each
        if own is None:
            continue
        parameters = inspect.signature(own).parameters.values()
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]
        names = {p.name: p.default is p.empty for p in named} | names
        if not any(p.kind == p.VAR_KEYWORD for p in parameters):
            return names
    return None


def weigh(learner: Learner, held: dict[str, int], stored: int, tensors: int) -> None:
    """Say so where a learner stores more than it declares to hold (5 % and what a file needs for its names aside)."""
    declared = sum(held.values())
    if stored > 1.05 * declared + 4096 + 1024 * tensors:
        warnings.warn(
            f"{type(learner).__name__}.held() declares {declared} bytes, but its checkpoint has {stored}. Add what is missing to held().",
            stacklevel=2,
        )


def device_of(settings: Training) -> Any:
    """The device on which Lightning trains."""
    from cl_lightning.engine.phases import new_trainer

    return new_trainer(settings, [], []).strategy.root_device
