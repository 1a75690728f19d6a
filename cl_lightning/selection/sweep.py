"""Sweeps of Hydra, as a job in one sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.types import RunMode
from omegaconf import OmegaConf

from cl_lightning.config.resolvers import WITHOUT_RESULT
from cl_lightning.parallel.rendezvous import rank_from_env
from cl_lightning.store.atomic import read_json, write_json

OURS = "hydra_plugins.cl_lightning."
GOING_THROUGH = (f"{OURS}sweepers.Grid", f"{OURS}sweepers.TaskLevel")  # a grid: these choose among no runs
SUBMIT = "hydra.callbacks.sweep.submit=true"  # what --submit stands for
NO_WORDS = ("null", "true", "false", "inf", "nan")  # in any case: Hydra reads them as values
ON_ONE_MACHINE = (".BasicLauncher", ".JoblibLauncher", ".LocalLauncher", ".Devices")
LATE = 90.0  # NFS remembers for up to a minute that a name was not there
JOBS = "jobs"  # in a sweep's folder: where each job says which run it is


def as_override(value: Any) -> str:
    """A value in Hydra's grammar.

    >>> as_override([1, 2]), as_override("a=ü"), as_override("mlp"), as_override("null"), as_override(None)
    ('[1,2]', '"a=ü"', 'mlp', '"null"', 'null')
    >>> as_override([{"svhn": "dtd"}, {"a b": 1e-05}]), as_override({})
    ('[{svhn:dtd},{a\\\\ b:1e-05}]', '{}')
    """
    if isinstance(value, Mapping):
        pairs = (f"{escaped(str(key))}:{as_override(of)}" for key, of in value.items())
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_override, value))}]"
    if isinstance(value, str):
        return value if is_word(value) else QuotedString(value, Quote.double).with_quotes()
    return repr(value) if isinstance(value, float) else json.dumps(value)


def escaped(key: str) -> str:
    """A key of a mapping in Hydra's grammar, which has no quotes for it."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", key)


def is_word(text: str) -> bool:
    """True where Hydra reads a text without quotes as the same text."""
    return re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", text) is not None and text.lower() not in NO_WORDS


def in_a_sweep() -> bool:
    """Whether this is a job of a multirun."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def in_rounds() -> bool:
    """Whether this is a job of a sweep whose jobs share a task's candidates."""
    return in_a_sweep() and str(HydraConfig.get().sweeper._target_) == f"{OURS}sweepers.TaskLevel"


def told() -> Any:
    """What this job's sweep tells it."""
    hydra: Any = HydraConfig.get()
    return hydra.callbacks.sweep


def late_by() -> float:
    """Seconds to wait in a job for what other jobs of its sweep wrote; outside of sweeps, none."""
    if not in_a_sweep():
        return 0.0
    hydra: Any = HydraConfig.get()
    return lateness(OmegaConf.select(hydra, "launcher._target_"))  # which ranks are not told


def lateness(launcher: str | None) -> float:
    """Seconds after which jobs see what others wrote: none, where the launcher's jobs run on one machine."""
    return 0.0 if str(launcher).endswith(ON_ONE_MACHINE) else LATE


def sweeper_that_chooses() -> str | None:
    """The sweeper of this job's sweep if it may choose by what runs return: any but those that only go
    through a grid."""
    if not in_a_sweep():
        return None
    target = str(HydraConfig.get().sweeper._target_)
    if target == f"{OURS}sweepers.StreamLevel":
        return None if told().by == "test" else "selection=stream_level"
    return None if target.endswith(".BasicSweeper") or target in GOING_THROUGH else target


def tell_job(**about: Any) -> None:
    """Add to what a sweep's job says of itself (see ``read_job``), at once, so that the sweep can look on;
    outside of sweeps, nothing."""
    is_writer = (rank_from_env() or (0,))[0] == 0  # of several processes of one run the first speaks for all
    if is_writer and in_a_sweep():
        hydra = HydraConfig.get()
        sweep, number = Path(hydra.sweep.dir), hydra.job.num
        write_job(sweep, number, {**read_job(sweep, number), **about})


def write_job(sweep: Path, number: int, about: dict[str, Any]) -> None:
    write_json(sweep / JOBS / f"{number}.json", about)


def read_job(sweep: Path, number: int) -> dict[str, Any]:
    """What is known of a job: its ``overrides``, and what it has said of itself: the ``folder`` of its run
    when it has begun, then that it is ``done`` with its ``value``, or why it ``failed``."""
    return read_json(sweep / JOBS / f"{number}.json")


def read_jobs(sweep: Path) -> list[dict[str, Any]]:
    """What is known of each job of a sweep, in their order."""
    return [read_job(sweep, n) for n in sorted(int(path.stem) for path in (sweep / JOBS).glob("*.json"))]


# ---- what jobs are called ----------------------------------------------------------------------------------


def different(own: Sequence[str], jobs: Sequence[Sequence[str]]) -> list[str]:
    """The overrides of a job that not all jobs have."""
    return [override for override in own if not all(override in other for other in jobs)]


def name_of(own: Sequence[str], jobs: Sequence[Sequence[str]]) -> str:
    """A name for a job: the overrides in which it differs from the others; alone, all that say what it is.

    >>> name_of(["a=1", "seed=0"], [["a=1", "seed=0"], ["a=1", "seed=1"]])
    'seed=0'
    >>> name_of(["a=1", "progress=false", "hydra.mode=RUN"], [["a=1", "progress=false", "hydra.mode=RUN"]])
    'a=1'
    """
    return " ".join(different(own, jobs) or [each for each in own if says_what(each)] or own)


def says_what(override: str) -> bool:
    """True where an override says what is made; others say where, how, or that it is a job."""
    return not override.startswith("hydra") and key_of(override).partition(".")[0] not in WITHOUT_RESULT


def key_of(override: str) -> str:
    """
    >>> key_of("+learner.strength=3"), key_of("~seed")
    ('learner.strength', 'seed')
    """
    return override.lstrip("+~").partition("=")[0]
