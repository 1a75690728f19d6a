"""Which runs stand beside which printed cell, and where they are not as in print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from cl_lightning.config.resolvers import conf_dir
from cl_lightning.report.groups import COLUMNS, Group, settings_of
from cl_lightning.report.printed import Cell, Table, names, tables
from cl_lightning.runs.identity import relevant

HARMLESS = (  # settings that do not change what a number means
    "learner.name", "stream.name", "reference", "trainer.eval_batch_size", "trainer.block",
    "trainer.stack",
    "trainer.probe_every", "trainer.probe_at", "trainer.probe_examples", "trainer.evaluate",
    "trainer.measures", "trainer.keep_predictions", "learner.draws",
)  # fmt: skip
SPEED = {"trainer.accelerator", "trainer.threads"}  # settings that change seconds, and no other number
KIND = "stream.kind"  # the key of which a cell may name several values: it is the least over these
OVER_WAYS = "prescient"  # a result that is the highest over all ways to learn the first task, a run each
GROUPS = ("learner", "dnn", "selection")  # of which a cell's command names a choice
Away = Mapping[str, Any]  # settings that are not as in print, each with the value here and there


# ---- the settings of a cell --------------------------------------------------------------------------------


@cache
def as_published(experiment: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    """All settings of a command."""
    from cl_lightning.config.compose import compose_config

    return settings_of(relevant(compose_config(f"+experiment={experiment}", *overrides)))


def away_from(group: Group, cell: Cell, experiment: str) -> Away:
    """Settings of runs that are not those of a cell's command. An older run knows fewer: those are as they
    were."""
    wanted = as_published(experiment, tuple(f"{key}={value}" for key, value in cell.overrides.items()))
    found = {key: [here, wanted.get(key)] for key, here in group.settings.items() if key not in HARMLESS}
    return {key: found[key] for key in sorted(found) if key not in wanted or found[key][0] != wanted[key]}


@cache
def file_of(group: str, choice: str) -> Any:
    """A file of the configuration, as it stands."""
    return OmegaConf.load(Path(conf_dir(), group, f"{choice}.yaml"))


@cache
def learner_called(overrides: tuple[tuple[str, Any], ...]) -> str:
    """The name that a learner has in results, read from its file alone."""
    own = dict(overrides)
    cfg = file_of("learner", own["learner"] if "learner" in own else learner_of(own["dnn"])).copy()
    for key, value in own.items():
        if key.startswith("learner."):
            OmegaConf.update(cfg, key.removeprefix("learner."), value)
    return str(cfg.name)


def learner_of(dnn: str) -> str:
    """The learner that a choice of ``conf/dnn`` has."""
    defaults = file_of("dnn", dnn).defaults
    return next(each["override /learner"] for each in defaults if "override /learner" in each)


def class_of(group: str, choice: str) -> str:
    """The class of a choice, or of the one that it is made of."""
    cfg = file_of(group, choice)
    others = (each for each in cfg.get("defaults", []) if each != "_self_")
    return str(cfg._target_) if "_target_" in cfg else class_of(group, next(others))


def missing(cell: Cell) -> str | None:
    """What a cell's command names and this version does not have."""
    named = [("experiment", each) for each in cell.experiments]
    named += [(key, str(value)) for key, value in cell.overrides.items() if key in GROUPS]
    for group, name in named:
        if not Path(conf_dir(), group, f"{name}.yaml").is_file():
            return f"no {group} {name} yet"
    return None


# ---- the cells of runs -------------------------------------------------------------------------------------


def published(group: Group) -> dict[str, float]:
    """What papers print for these learner, images and settings, whatever the run is called: all settings that
    can matter, not those that somebody thought of. The fingerprint of a run's stream is made of nothing else,
    but for its seed."""
    found: dict[str, Any] = {}
    for table, cell, away in near(group):
        other_seconds = away and cell.result == "cpu_seconds"
        if away.keys() <= SPEED and not other_seconds and not other_images(group, table):
            found[str(cell.result)] = cell.value
    return found


def why_nothing_published(group: Group) -> str:
    """Why no printed number stands beside runs: what keeps the nearest row away."""
    known, data = list(near(group)), group.settings.get("data")
    if data != "real":
        return f"the data are {data}"
    if not known:
        return "none are known of this learner on this stream"
    table, _, away = min(known, key=lambda each: len(each[2]))
    if away.keys() <= SPEED:
        return f"images of {', '.join(other_images(group, table))} are not the original ones in their order"
    told = [f"{key}={there} (here {here})" for key, (here, there) in away.items()]
    return f"{table.paper}, {table.name} has {', '.join(told[:3])}{', ...' * (len(told) > 3)}"


def near(group: Group) -> Iterator[tuple[Table, Cell, Away]]:
    """What papers print of a learner on the stream of its runs, or in the experiment that they are called
    by."""
    for table, cell in beside_runs() if group.settings.get("data") == "real" else ():
        experiment = cell.experiments[0]
        if learner_called(tuple(cell.overrides.items())) == group.learner:
            away = away_from(group, cell, experiment)
            if experiment == group.experiment or not any(key.startswith("stream.") for key in away):
                yield table, cell, away


@cache
def beside_runs() -> list[tuple[Table, Cell]]:
    """The cells that stand in reports of runs, too, under each command that comes to them. What does not
    compare is left out, but for another machine's seconds."""
    return [
        (table, replace(cell, overrides={**cell.overrides, **variant}))
        for paper in names()
        for table in tables(paper)
        for variant in ({}, *table.variants)
        for name in table.beside
        for cell in table.rows[name].values()
        if cell.result in COLUMNS and cell.value is not None and cell.differs in (None, "machine")
    ]


def other_images(group: Group, table: Table) -> list[str]:
    """Sources whose images are not those that are known under their name."""
    return sorted({name for name, digest in group.images if table.images.get(name, digest) != digest})


# ---- the runs of a cell ------------------------------------------------------------------------------------


def runs_of(cell: Cell, groups: Sequence[Group]) -> list[Group]:
    """Of each experiment of a cell the group that came to it: on real data first, then the one that is most
    like what was printed, then the one with most seeds; of none where one is missing."""
    found = []
    for experiment in cell.experiments if cell.result and missing(cell) is None else ():
        name = cell.overrides.get("name", experiment)
        for part in parts_of(cell):
            own = [g for g in groups if g.experiment == name and is_of(g, part)]
            if not own:
                return []
            if cell.result == OVER_WAYS:
                found += own
                continue
            found.append(max(own, key=lambda group: how_like(group, part)))
    return found


def how_like(group: Group, cell: Cell) -> tuple[bool, int, int]:
    """What the runs of a cell are chosen by, the highest first."""
    is_real = str(group.settings.get("data")).startswith("real")
    return is_real, -len(departs(group, cell)), len(group.seeds)


def is_minimum(cell: Cell) -> bool:
    """Whether a cell is the least over several streams."""
    return "," in str(cell.overrides.get(KIND, ""))


def parts_of(cell: Cell) -> list[Cell]:
    """A cell for each of its streams."""
    if not is_minimum(cell):
        return [cell]
    kinds = str(cell.overrides[KIND]).split(",")
    return [replace(cell, overrides={**cell.overrides, KIND: kind}) for kind in kinds]


def is_of(group: Group, cell: Cell) -> bool:
    """Whether runs are of a cell's learner, network and stream with its own settings. What the whole table
    says (data, trainer, width) may be another: that is told beside."""
    if group.learner != learner_called(tuple(cell.overrides.items())):
        return False
    if group.departs is not None and cell.overrides.get("dnn", dnn_of(group)) != dnn_of(group):
        return False
    own = {key: value for key, value in cell.overrides.items() if "." in key}
    if group.departs is not None and "stream" in cell.overrides:  # of an extract: it has no more
        named = tuple(f"{key}={value}" for key, value in cell.overrides.items())
        own["stream.name"] = as_published(cell.experiments[0], named)["stream.name"]
    if "backbone" in cell.overrides:
        own["backbone._target_"] = class_of("backbone", str(cell.overrides["backbone"]))
    if any(group.settings.get(key, value) != value for key, value in own.items()):
        return False
    away = set(departs(group, cell)) - {"stream.on_shortage"}
    network = ("backbone.",) if "dnn" in cell.overrides else ("backbone._target_", "backbone.widen")
    return not any(key.startswith(("learner.", "stream.", *network)) for key in away)


def dnn_of(group: Group) -> str | None:
    """The choice of ``conf/dnn`` that the command of runs names: an extract has not all of its settings."""
    return next((word.removeprefix("dnn=") for word in group.command if word.startswith("dnn=")), None)


def departs(group: Group, cell: Cell) -> Away:
    """Settings that are not as in print, each with the value here and there."""
    if group.departs is not None:
        return group.departs
    cell = next((p for p in parts_of(cell) if p.overrides.get(KIND) == group.settings.get(KIND)), cell)
    experiment = next(e for e in cell.experiments if cell.overrides.get("name", e) == group.experiment)
    away = away_from(group, cell, experiment)
    return {key: pair for key, pair in away.items() if not key.startswith("data")}  # that is told by itself
