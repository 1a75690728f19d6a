"""Beginning a run, or going on where it was left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf

from cl_lightning.config.settings import Training
from cl_lightning.data.streams.stream import Stream
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.engine.restartable import give_back
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.parallel.ranks import Ranks
from cl_lightning.parallel.rounds import learned_in_time, open_for_share
from cl_lightning.protocol import Grants
from cl_lightning.report.reading import as_chosen
from cl_lightning.report.schema import Results
from cl_lightning.runs.announce import say
from cl_lightning.runs.identity import (
    as_used,
    changed,
    environment,
    fingerprint,
    learner_name,
    relevant,
    versions,
)
from cl_lightning.selection.stream_level import Chosen
from cl_lightning.selection.sweep import in_a_sweep, sweeper_that_chooses
from cl_lightning.store.files import Store, adapter
from cl_lightning.store.folder import branch, go_back_to, learned_tasks, row_key, start_run, task_key
from cl_lightning.store.records import FORMAT, RowRecord, StartRecord, StreamRecord, TaskRecord, mini_batches
from cl_lightning.store.shared import SharedStore

NO_VALIDATION = (
    "has no validation data.\nSet n_val of the stream or its tasks above 0; with trainer.single_pass, which "
    "has none, use a sweep that does not choose: hydra/sweeper=cl_grid, and not selection=stream_level."
)


def refuse_to_choose(reason: str) -> None:
    """Refuse a run that returns None, in a sweep that chooses by what runs return."""
    if sweeper := sweeper_that_chooses():
        raise Refusal(
            f"{sweeper} chooses by the validation accuracy at the end of the stream, but this run {reason}"
        )


def check_run(cfg: DictConfig, stream: Stream, settings: Training, learner: Learner, grants: Grants) -> None:
    """Refuse what cannot work, before anything of the run is recorded."""
    if sweeper_that_chooses() and not any(len(stream.recipe(index).val) for index in range(len(stream))):
        refuse_to_choose(NO_VALIDATION)
    grants.check(learner)
    if not str(cfg.backbone._target_).startswith("cl_lightning."):
        refuse_unseeded(learner)
    if not grants.boundaries:
        check_hidden(stream, settings, learner)
    if cfg.reference == "joint" and len(stream) != 2:
        raise Refusal(
            f"reference=joint is about two tasks, and {stream.name} has {len(stream)}. Leave it out; "
            "learner=joint learns all tasks of any stream together."
        )
    if cfg.reference is True and stream.head.mode in ("single", "multi_test"):
        raise Refusal(
            "reference=true compares with a network that learns the last task alone; with "
            f"stream.head={stream.head.mode} it would "
            "have the outputs of all tasks. Use stream.head=domain or multi_train_test, or reference=false."
        )
    if (cfg.run is None) != (cfg.from_task is None):
        raise Refusal(
            "A branch needs run=, the folder of a run, and from_task=, the first task to learn anew. Give "
            "both or neither."
        )
    if settings.probe == "all" and (settings.probe_at or settings.probe_every):
        say("trainer.probe=all: every probe tests every candidate of the task, not the chosen one alone.")


def refuse_unseeded(learner: Learner) -> None:
    """Refuse a network of one's own whose first weights are others each time."""
    one, other = (weights_key(learner.fresh("look").parameters()) for _ in range(2))
    if one != other:
        raise Refusal(
            "The network that backbone._target_ makes begins with other weights each time: the same command "
            "would give other results. Draw them with torch, which is seeded where a network is made, and "
            "not with numpy or random."
        )


TOLD = ("on_task_start", "learn", "candidates", "adopt", "on_task_end", "predictors")


def check_hidden(stream: Stream, settings: Training, learner: Learner) -> None:
    """Refuse what would tell a learner where tasks begin and end, or needs to be told."""
    who, given = type(learner).__name__, "which grants.boundaries=false does not give"
    hooks = [name for name in TOLD if getattr(type(learner), name) is not getattr(Learner, name)]
    if hooks:
        raise Refusal(
            f"{who} needs to know where tasks begin and end (it has {', '.join(hooks)} of its own), "
            f"{given}.\nChoose another learner, as finetune or mc_dropout, or set grants.boundaries=true."
        )
    if stream.head.masks_test or learner.needs.task_id_at_test:
        raise Refusal(
            f"This network or stream.head={stream.head.mode} needs the ids of tasks, {given}. Take "
            "backbone.heads=shared and stream.head=single or domain."
        )
    if settings.optimizer_state != "carry":
        raise Refusal(
            "Where boundaries are hidden the optimizer cannot start anew at them. Set "
            "trainer.optimizer_state=carry, or grants.boundaries=true."
        )


def begin_or_resume(
    cfg: DictConfig,
    folder: Path,
    stream: Stream,
    learner: Learner,
    command: Sequence[str],
    ranks: Ranks,
    share: str | None,
) -> tuple[Store, int]:
    """The store of a new run, or that of an interrupted one of the same program; and how many tasks it
    holds. Ranks share one store."""
    if ranks.size == 1:
        return begun(cfg, folder, stream, learner, command, share)
    about = None
    if ranks.is_writer:
        store, learned = begun(cfg, folder, stream, learner, command, share)
        about = [store.run, learned]
    run, learned = ranks.broadcast(about)
    return SharedStore(folder, run, ranks), learned


def begun(
    cfg: DictConfig, folder: Path, stream: Stream, learner: Learner, command: Sequence[str], share: str | None
) -> tuple[Store, int]:
    if share is not None:
        return open_for_share(folder)
    store, start = start_run(folder, lambda: start_record(cfg, stream, learner, command))
    if (start.fingerprint, start.seed) != (fingerprint(cfg, stream), cfg.seed):
        raise Refusal(
            f"{folder / 'run.json'} is that of another run. Put back its own, or start afresh with "
            "resume=false."
        )
    difference = changed(start.version, versions(cfg))
    if difference and cfg.resume != "anyway":
        raise Refusal(
            f"The interrupted run in {folder} cannot go on: {difference}\nStart afresh with resume=false, "
            "or go on with resume=anyway."
        )
    OmegaConf.save(cfg, folder / "config.yaml", resolve=True)
    learned = learned_in_time(store)
    if cfg.run is not None and learned < cfg.from_task:
        branch(store, start.stream, Path(cfg.run), int(cfg.from_task))
        learned = learned_tasks(store)
    go_back_to(store, learned)
    return store, learned


def start_record(cfg: DictConfig, stream: Stream, learner: Learner, command: Sequence[str]) -> StartRecord:
    return StartRecord(
        format=FORMAT,
        version=versions(cfg),
        command=list(command),
        environment=environment(),
        name=cfg.name,
        config=as_used(relevant(cfg)),
        fingerprint=fingerprint(cfg, stream),
        learner=learner_name(cfg),
        seed=cfg.seed,
        needs=asdict(learner.needs),
        stream=stream_record(stream, cfg.stream.get("name", stream.name)),
        passes=cfg.trainer.max_epochs if cfg.trainer.single_pass else None,
        callbacks=[str(callback._target_).rpartition(".")[2] for callback in cfg.trainer.callbacks],
        of_a_sweep=in_a_sweep(),
    )


def stream_record(stream: Stream, name: str) -> StreamRecord:
    recipes = map(stream.recipe, range(len(stream)))
    permuted, sources, tasks, prints = [], [], [], []
    for index, recipe in enumerate(recipes):  # one at a time: a long stream holds few
        permuted.append(recipe.permuted)
        sources.append(stream.images(recipe).source)
        tasks.append(stream.describe_task(recipe, stream.head.owned[index]))
        prints.append(stream.print_of(index))
    return StreamRecord(
        name=name,
        fingerprint=stream.fingerprint,
        images={images.name: images.digest for images in stream.sources},
        tasks=tasks,
        prints=prints,
        head=stream.head.mode,
        permuted=any(permuted),
        sources=sources,
        stand_ins={images.name: images.source for images in stream.sources if images.substitute},
    )


def of_a_search(cfg: DictConfig, results: Results) -> Results:
    """The results of a run whose settings a search over whole streams chose (``+best=``): they say so."""
    chosen = adapter(Chosen).validate_python(OmegaConf.to_container(cfg.chosen, resolve=True))
    if chosen.fingerprint == results["fingerprint"] and cfg.seed in chosen.seeds:
        return as_chosen(results, chosen)
    say(
        "This is not the run that the search over whole streams chose: some settings, or the seed, are "
        "others. The head of the best= file has its command."
    )
    return results


def restore(learner: Learner, store: Store, learned: int, branches: bool = False) -> Any:
    """Load the learner as it was after so many tasks, in another run if this one ``branches``; returns the
    optimizer's moments there."""
    if learned == 0:
        return {}
    state, device = store.tensors(task_key(learned - 1)), learner.device
    try:
        learner.load_state_dict(state["learner"])
    except RuntimeError as reason:
        remedy = (
            "A branch needs the outputs, the backbone and the learner of the run that it begins with."
            if branches
            else f"{type(learner).__name__}.__init__ must make what it made then. Start afresh with "
            "resume=false."
        )
        raise Refusal(
            f"The learner after task {learned - 1} does not fit this run's network: "
            f"{str(reason).splitlines()[-1].strip()}\n{remedy}"
        ) from reason
    learner.to(device)  # its memory, and modules that were made again
    record = store.load(task_key(learned - 1), TaskRecord)
    frozen = None if record is None else record.frozen
    for name, p in learner.named_parameters() if frozen is not None else ():
        p.requires_grad_(name not in (frozen or ()))
    return state["moments"]


def restore_callbacks(callbacks: Sequence[pl.Callback], store: Store, learned: int) -> None:
    """Give callbacks what they had after so many tasks, or after the test then."""
    for key in (task_key(learned - 1), row_key(learned)):
        if callbacks and store.own.saved(key):
            give_back(callbacks, store.own.tensors(key))


def steps_until(store: Store, learned: int) -> int:
    """Mini-batches of the whole run until the learner after so many tasks, and its test if that is done."""
    tasks = (store.load(task_key(index), TaskRecord) for index in range(learned))
    rows = (store.load(row_key(index), RowRecord) for index in range(learned + 1))
    return sum(mini_batches(record.phases) for record in (*tasks, *rows) if record is not None)
