"""What a search over whole streams leaves: a table of its points, a file that makes the winner again, a
record in the winner's run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from cl_lightning.cli.sweeps import Job, different, is_for, read_sweep, winning
from cl_lightning.conf_dir import LOOKS
from cl_lightning.identity import learner_name
from cl_lightning.report.layout import Column, new_console, tables, titled
from cl_lightning.report.results import mark_chosen
from cl_lightning.report.tables import metric_table, metrics_in
from cl_lightning.selection.stream_level import Choice, Scored
from cl_lightning.store.records import ChosenRecord
from cl_lightning.store.whole import write_whole


def write_choice(searched: Sequence[Job], chosen: Sequence[Job], choice: Choice) -> ChosenRecord:
    """Record in the runs that were chosen that they were, from how many, and what the search cost."""
    runs = [
        json.loads((Path(job.folder) / "results.json").read_text())
        for job in searched
        if job.folder and job.value is not None
    ]
    costs = [cost for run in runs for cost in run["costs"]]
    record = ChosenRecord(
        points=len(searched) // len(choice.seeds),
        seeds=list(choice.seeds),
        score=choice.score,
        flops=sum(cost["flops_executed"] for cost in costs),
        seconds=sum(cost["seconds"].get("cpu", 0.0) for cost in costs),
    )
    for job in chosen:
        mark_chosen(folder_of(job), record)
    return record


def take_back(folder: Path, winners: Sequence[Sequence[Job]]) -> None:
    """Unmark runs that this sweep chose before and does not choose now: jobs that were missing have ended."""
    now = {folder_of(job).resolve() for chosen in winners for job in chosen}
    for before in read_sweep(folder).get("chosen", []):
        for run in before.get("runs", []):  # older sweeps do not say
            if (folder / run).resolve() not in now and (folder / run / "run.json").is_file():
                mark_chosen(folder / run, None)


def folder_of(job: Job) -> Path:
    assert job.folder is not None, "it has a score"
    return Path(job.folder)


def from_here(folder: Path) -> Path:
    """A folder as one would type it: without the path to where the command was given."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def write_best(
    folder: Path,
    chosen: Sequence[Job],
    choice: Choice,
    record: ChosenRecord,
    over_seeds: bool,
    loader: Any,
    master: DictConfig,
    also: Sequence[str] = (),
) -> Path:
    """``best/<learner>-s<seed>.yaml``: a choice for ``+best=`` that makes the winner again. ``also`` are the
    overrides of this choice that not all have; but for the learner's, they are part of the name."""
    job = chosen[0]
    cfg = loader.load_sweep_config(master, job.overrides)
    run = json.loads((folder_of(job) / "results.json").read_text())
    values_of = [
        re.sub(r"\W+", "_", each.partition("=")[2]) for each in also if not each.startswith("learner=")
    ]
    name = "-".join([learner_name(cfg), *values_of, *([] if over_seeds else [f"s{choice.seeds[0]}"])])
    choices, values, rest = [], OmegaConf.create({}), []
    left_out = (*LOOKS, "hydra", "chosen", *["seed"] * over_seeds)
    for override in OverridesParser.create(config_loader=loader).parse_overrides(list(job.overrides)):
        key, value = override.key_or_group, override.value()
        if override.is_delete():
            rest.append(f"~{key}")
        elif loader.repository.group_exists(key):
            choices.append({f"/{key}" if override.is_add() else f"override /{key}": value})
        elif key.partition(".")[0] not in left_out:
            OmegaConf.update(values, key, value, force_add=True)
    head = [
        "# @package _global_",
        "# Chosen by selection=stream_level: the best mean validation accuracy over all tasks at the end of "
        "the stream",
        f"# score {choice.score:.6f}; seeds {', '.join(map(str, choice.seeds))}; stream "
        f"{run['stream']['fingerprint']}; "
        f"program {run['version']['package']} ({run['version']['source_hash']}); sweep {folder.name}",
        f"# python -m cl_lightning --config-dir {shlex.quote(str(from_here(folder)))} "
        f"+best={name}{''.join(f' {each!r}' for each in rest)}",
    ]
    plain: Any = OmegaConf.to_container(values)
    by = {"fingerprint": run["fingerprint"], **asdict(record)}
    body = yaml.safe_dump({"defaults": [*choices, "_self_"], **dict(plain), "chosen": by}, sort_keys=False)
    path = folder / "best" / f"{name}.yaml"
    with write_whole(path) as building:
        building.write_text("\n".join([*head, body]))
    return path


def show_choices(
    jobs: Sequence[Job],
    scored: Sequence[Scored],
    choices: Sequence[Choice],
    console: Console | None = None,
) -> None:
    """Every point with its score; of the winners alone what they came to on test data."""
    rows = []
    names = [job.overrides for job in jobs]
    for job, each in zip(jobs, scored):
        won = any(is_for(choice, each) and choice.number == each.number for choice in choices)
        score = "-" if each.score is None else f"{each.score:.4f}"
        rows.append([" ".join(different(job.overrides, names) or job.overrides), score, "yes" if won else ""])
    console = console or new_console()
    columns = [Column("run", text=True), Column("validation"), Column("chosen", text=True)]
    title = "Mean validation accuracy over all tasks at the end of the stream"
    console.print(*titled(title, *tables(columns, rows, console.width)), sep="\n")
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}  # results of the winners, by what else was swept
    for choice in choices:
        for job in winning(choice, jobs, scored):
            results = json.loads((folder_of(job) / "results.json").read_text())
            found.setdefault(choice.others, []).append(results)
            name = " ".join(different(job.overrides, names) or job.overrides)
            console.print(f"Chosen: {name}", highlight=False, markup=False, soft_wrap=True)
            console.print(metric_table(metrics_in(results)))
            console.print(f"Results: {folder_of(job) / 'results.json'}", highlight=False, soft_wrap=True)
    for others, runs in found.items():
        if len(runs) > 1:
            own = " ".join(different(others, list(found))) + ": " if len(found) > 1 else ""
            console.print(f"{own}{mean_of(runs)}", highlight=False, markup=False, soft_wrap=True)


def mean_of(runs: Sequence[dict[str, Any]]) -> str:
    """What the winners of all seeds came to together: the row of a paper's table."""
    parts = []
    for name in ("average_accuracy", "backward_transfer"):
        values = [run["metrics"][name] for run in runs]
        if None not in values:
            parts.append(f"{name.replace('_', ' ')} {fmean(values):.4f} ± {stdev(values):.4f}")
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return f"As chosen, over seeds {seeds}: {', '.join(parts)}"
