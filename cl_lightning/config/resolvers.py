"""Where the shipped configuration lies, and what its files may ask for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from omegaconf import DictConfig, OmegaConf


def bf16_if_fast() -> str:
    """The precision that is fastest on this CPU, as far as Linux tells."""
    flags = Path("/proc/cpuinfo")
    return "bf16-mixed" if flags.is_file() and "avx512_bf16" in flags.read_text() else "32"


# Keys that say where and how, not what.
WITHOUT_RESULT = (
    "outputs", "cache", "resume", "logger", "progress", "figures", "debug",
)  # fmt: skip


OF_SWEEPER = ("hydra/sweeper", "hydra.sweeper")
AT_ONCE = ("hydra.sweeper.max_batch_size", "hydra.sweeper.n_jobs")  # how many jobs, not which


def sweep_name(_root_: DictConfig) -> str:
    """A name for the sweep of a command line: the same for the same sweep."""
    hydra = _root_.hydra
    what = [
        each
        for each in hydra.overrides.task
        if each.partition("=")[0].partition(".")[0] not in WITHOUT_RESULT
    ]
    how = [each for each in hydra.overrides.hydra if each.lstrip("+~").startswith(OF_SWEEPER)]
    swept = [*sorted(what), *sorted(each for each in how if not each.startswith(AT_ONCE))]
    return hashlib.sha256(json.dumps([swept, str(hydra.sweeper.get("params"))]).encode()).hexdigest()[:8]


def mode_of(sweeper: str) -> str | None:
    """Hydra's mode with a sweeper, where the command line does not say it."""
    return "MULTIRUN" if sweeper.endswith((".TaskLevel", ".StreamLevel")) else None


OmegaConf.register_new_resolver("mode_of", mode_of, replace=True)
OmegaConf.register_new_resolver("bf16_if_fast", bf16_if_fast, replace=True)
OmegaConf.register_new_resolver("sweep_name", sweep_name, replace=True)


def conf_dir() -> str:
    """The shipped configuration: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "conf", package.parent / "conf"):
        if (place / "config.yaml").is_file():
            return str(place)
    raise FileNotFoundError(
        f"no configuration directory beside or inside {package}; the installation is incomplete"
    )
