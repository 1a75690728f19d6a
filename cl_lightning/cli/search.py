"""The search among whole streams: the jobs that it is made of, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from cl_lightning.cli.jobs import different
from cl_lightning.cli.sweeps import held, show_on_wandb, write_sweep
from cl_lightning.conf_dir import LOOKS
from cl_lightning.errors import Refusal
from cl_lightning.selection.stream_level import (
    Choice,
    Point,
    Scored,
    choose,
    is_for,
    outer_points,
    winning,
)
from cl_lightning.selection.sweep import OURS, as_override

AS_A_JOB = (  # of a search over whole streams: a run as by hand, which tells that sweep how it fares
    "selection=task_level",
    "hydra.mode=MULTIRUN",
    f"hydra.sweeper._target_={OURS}sweepers.StreamLevel",
)


def refuse_another_sweeper(settings: Mapping[str, Any]) -> None:
    if settings:
        raise Refusal(
            "selection=stream_level is a sweep of its own, and hydra/sweeper= names another. Leave one out."
        )


def sweep_streams(sweeper: Any, arguments: list[str]) -> Any:
    """Learn whole streams, one a point of the outer grid, seed and combination; choose by validation data at
    the end."""
    from cl_lightning.cli.choice import show_choices

    jobs, scored, over_seeds = jobs_of_search(sweeper, arguments)
    sweeper.validate_batch_is_legal(jobs)
    size, returns = sweeper.max_batch_size or len(jobs), []
    with held(sweeper):
        for first in range(0, len(jobs), size):
            returns.append(sweeper.launcher.launch(jobs[first : first + size], initial_job_idx=first))
        found = [replace(each, score=job.value) for each, job in zip(scored, sweeper.launcher.jobs)]
        choices = choose(found, over_seeds)
        leave(sweeper, arguments, found, choices, over_seeds)
    show_choices(sweeper.launcher.jobs, found, choices)
    show_on_wandb(sweeper)
    return returns


def jobs_of_search(sweeper: Any, arguments: list[str]) -> tuple[list[list[str]], list[Scored], bool]:
    """The jobs of a search over whole streams, what each is in it, and whether all seeds choose together."""
    loader = sweeper.hydra_context.config_loader
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*given, *arguments])
    jobs, scored = [], []
    for combination in sweeper.split_arguments(parsed, None)[0]:
        cfg = loader.load_sweep_config(sweeper.config, combination)
        base = [override for override in combination if not of_the_search(override)]
        others = tuple(
            override
            for override in base
            if override.lstrip("+~").partition("=")[0].partition(".")[0] not in ("seed", *LOOKS)
        )
        for number, point in enumerate(points_for(cfg)):
            values = [f"{key}={as_override(value)}" for key, value in point.items()]
            jobs.append([*base, *AS_A_JOB, *values])
            scored.append(Scored(others, int(cfg.seed), number, None))
    return jobs, scored, bool(cfg.selection.over_seeds)


def leave(
    sweeper: Any, arguments: list[str], found: Sequence[Scored], choices: Sequence[Choice], over_seeds: bool
) -> None:
    """What a search over whole streams leaves: its record, the winners' files, a mark in their runs."""
    from cl_lightning.cli.best import write_best
    from cl_lightning.cli.choice import take_back, write_choice

    folder, loader = sweeper.launcher.folder, sweeper.hydra_context.config_loader
    jobs = sweeper.launcher.jobs
    winners = [winning(choice, jobs, found) for choice in choices]
    take_back(folder, winners)
    write_sweep(sweeper, "stream_level", arguments, found, choices)
    for choice, chosen in zip(choices, winners):
        own = [job for job, each in zip(jobs, found) if is_for(choice, each)]
        also = different(choice.others, [other.others for other in choices])
        record = write_choice(own, chosen, choice)
        write_best(folder, chosen, choice, record, over_seeds, loader, sweeper.config, also)


def of_the_search(override: str) -> bool:
    """Whether an override is for the search over streams, and not for its jobs."""
    name = override.lstrip("+~").partition("=")[0]
    return name in ("selection", "selection.over_seeds") or (
        name.partition(".stream")[0] == "selection" and ".stream" in name
    )


def points_for(cfg: DictConfig) -> list[Point]:
    """The outer grid of a configuration: the command's, else that of the experiment for its learner."""
    from cl_lightning.identity import learner_name

    selection: Any = OmegaConf.to_container(cfg.selection, resolve=True)
    grid = selection["stream"] or tuned_grid(cfg)
    points = outer_points(grid) if grid else []
    if not points:
        raise Refusal(
            f"selection=stream_level has no outer grid for learner {learner_name(cfg)}: the experiment "
            "names none. "
            "Give one, as in 'selection.stream={learner.strength:[1,10,100]}', or use selection=task_level."
        )
    return points


def tuned_grid(cfg: DictConfig) -> Any:
    from cl_lightning.identity import learner_name

    tuned: Any = OmegaConf.to_container(cfg.tuned, resolve=True)
    return tuned.get(learner_name(cfg), {}).get("stream")
