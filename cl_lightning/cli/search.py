"""The search among whole streams: the jobs that it is made of, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf

from cl_lightning.cli.sentences import from_hydra
from cl_lightning.cli.sweeps import batches, combinations, read_sweep, sweep_lock, write_sweep
from cl_lightning.config.resolvers import WITHOUT_RESULT, sweep_name
from cl_lightning.errors import Refusal
from cl_lightning.runs.identity import learner_name
from cl_lightning.selection.stream_level import Choice, Point, Scored, choose, outer_points, winning
from cl_lightning.selection.sweep import OURS, as_override, different, key_of

AS_A_JOB = (  # of a search over whole streams: a run as by hand, which tells that sweep how it fares
    "selection=task_level",
    "hydra.mode=MULTIRUN",
    f"hydra.sweeper._target_={OURS}sweepers.StreamLevel",
)
NO_OTHER_RUN = (*WITHOUT_RESULT, "checkpoints", "hydra")  # keys with which a run is the same


def refuse_another_sweeper(settings: Mapping[str, Any]) -> None:
    if settings:
        raise Refusal(
            "selection=stream_level is a sweep of its own, and hydra/sweeper= names another. Leave one out."
        )


def sweep_streams(sweeper: Any, arguments: list[str]) -> Any:
    """Learn whole streams, one a point of the outer grid, seed and combination; choose by validation data at
    the end."""
    from cl_lightning.cli.choice import show_choices, test_accuracy

    jobs, scored, over_seeds, by = jobs_of_search(sweeper, arguments)
    sweeper.validate_batch_is_legal(jobs)
    returns = []
    with sweep_lock(sweeper):
        ended = sweeper.launcher.jobs
        for part in batches(sweeper, jobs):
            returns.append(sweeper.launcher.launch(part, initial_job_idx=len(ended)))
        if sweeper.launcher.leaves:  # the command without --submit chooses
            return returns
        scores = [job.value if by == "validation" else test_accuracy(job) for job in ended]
        found = [replace(each, score=score) for each, score in zip(scored, scores)]
        choices = choose(found, over_seeds)
        before = chosen_runs(sweeper.launcher.folder)
        leave(sweeper, arguments, found, choices, over_seeds, by)
    tag_chosen(sweeper, before)
    show_choices(sweeper.launcher.jobs, found, choices, by)
    return returns


def jobs_of_search(sweeper: Any, arguments: list[str]) -> tuple[list[list[str]], list[Scored], bool, str]:
    """The jobs of a search over whole streams, what each is in it, whether all seeds choose together, and
    which data choose."""
    loader = sweeper.hydra_context.config_loader
    jobs, scored = [], []
    for combination in combinations(sweeper, arguments):
        cfg = loader.load_sweep_config(sweeper.config, combination)
        base = [override for override in combination if not of_the_search(override)]
        others = tuple(o for o in base if key_of(o).partition(".")[0] not in ("seed", *WITHOUT_RESULT))
        if cfg.selection.by not in ("validation", "test"):
            raise Refusal(f"selection.by={cfg.selection.by} is no kind of data. It is validation or test.")
        points = points_for(cfg)
        for number, point in enumerate(points):
            values = [f"{key}={as_override(value)}" for key, value in point.items()]
            jobs.append([*base, *AS_A_JOB, f"hydra.callbacks.sweep.by={cfg.selection.by}", *values])
            scored.append(Scored(others, int(cfg.seed), number, None))
        try:  # before any job starts: a key of the grid may not be there
            loader.load_sweep_config(sweeper.config, jobs[-1])
        except ConfigCompositionException as error:
            reason = from_hydra(error, jobs[-1])
            raise Refusal(f"selection.stream with learner={learner_name(cfg)}: {reason}") from error
    refuse_twice(jobs)
    return jobs, scored, bool(cfg.selection.over_seeds), str(cfg.selection.by)


def refuse_twice(jobs: Sequence[list[str]]) -> None:
    """Refuse two jobs that would be the same run: a choice among them means nothing, and side by side one
    would keep the other out."""
    known: dict[frozenset[tuple[str, str]], list[str]] = {}
    for job in jobs:
        last = {key_of(each): each for each in job if key_of(each).partition(".")[0] not in NO_OTHER_RUN}
        before = known.setdefault(frozenset(last.items()), job)
        if before is not job:
            unlike = [*different(before, [job]), *different(job, [before])]
            why = f"{' and '.join(unlike)} make no difference" if unlike else "a value is named twice"
            raise Refusal(
                f"Two jobs of this sweep would make the same run: {why}. Name each value once, and sweep "
                "over no key that selection.stream goes through or that changes no result."
            )


def leave(
    sweeper: Any,
    arguments: list[str],
    found: Sequence[Scored],
    choices: Sequence[Choice],
    over_seeds: bool,
    by: str,
) -> None:
    """What a search over whole streams leaves: its record and the winners' files."""
    from cl_lightning.cli.best import write_best
    from cl_lightning.cli.choice import chosen_of

    folder, jobs, name = sweeper.launcher.folder, sweeper.launcher.jobs, sweep_name(sweeper.config)
    write_sweep(sweeper, "stream_level", arguments, found, choices)
    written = set()
    for choice in choices:
        also = different(choice.others, [other.others for other in choices])
        winner = winning(choice, jobs, found)[0]
        chosen = replace(chosen_of(name, jobs, found, winner, choice), by=by)
        written.add(write_best(sweeper, winner, chosen, over_seeds, also))
    for path in {*folder.glob("best/*.yaml")} - written:  # of a choice that is not made any more
        path.unlink()


def chosen_runs(folder: Path) -> set[Path]:
    """Folders of the runs that a search chose, as its record has them."""
    choices = read_sweep(folder).get("chosen", [])
    return {(folder / run).resolve() for choice in choices for run in choice.get("runs", [])}


def tag_chosen(sweeper: Any, before: set[Path]) -> None:
    """Where the runs log to Weights & Biases: move the tag of chosen runs from those of ``before`` to those
    that are chosen now."""
    from cl_lightning.loggers.wandb_run import options_in
    from cl_lightning.loggers.wandb_service import mark_chosen

    now, first = chosen_runs(sweeper.launcher.folder), sweeper.launcher.jobs[0].overrides
    cfg = sweeper.hydra_context.config_loader.load_sweep_config(sweeper.config, first)
    loggers: Any = OmegaConf.to_container(cfg.logger, resolve=True)
    if options := options_in(loggers):
        mark_chosen(options["mode"], {run: run in now for run in sorted(before | now)})


def of_the_search(override: str) -> bool:
    """Whether an override is for the search over streams, and not for its jobs."""
    name = key_of(override)
    return name in ("selection", "selection.over_seeds", "selection.by") or (
        name.partition(".stream")[0] == "selection" and ".stream" in name
    )


def points_for(cfg: DictConfig) -> list[Point]:
    """The outer grid of a configuration: the command's, else that of the experiment for its learner."""
    selection: Any = OmegaConf.to_container(cfg.selection, resolve=True)
    tuned: Any = OmegaConf.to_container(cfg.tuned, resolve=True)
    of_experiment = tuned.get(learner_name(cfg), {}).get("stream")
    grid = of_experiment if selection["stream"] is None else selection["stream"]
    points = [] if grid is None else outer_points(grid)
    if not points:
        raise Refusal(
            f"selection=stream_level has no outer grid for learner {learner_name(cfg)}: the experiment "
            "names none. "
            "Give one, as in 'selection.stream={learner.strength:[1,10,100]}', or use selection=task_level."
        )
    return points
