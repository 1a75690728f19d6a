"""Where the shipped configuration lies, and what its files may ask for."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

BEFORE_1_4 = hydra.__version__.startswith("1.3.")  # where the rules of a version are asked for by its number
RULES: dict[str, Any] = {"version_base": "1.3"} if BEFORE_1_4 else {}
# 1.4 would rather be told what may be made: here its blocklist holds, since learners may be anybody's own.
warnings.filterwarnings("ignore", message=r"hydra\.utils\.instantiate\(\) resolved _target_")


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
    about = _root_.hydra
    what = [
        each
        for each in about.overrides.task
        if each.partition("=")[0].partition(".")[0] not in WITHOUT_RESULT
    ]
    how = [each for each in about.overrides.hydra if each.lstrip("+~").startswith(OF_SWEEPER)]
    swept = [*sorted(what), *sorted(each for each in how if not each.startswith(AT_ONCE))]
    return hashlib.sha256(json.dumps([swept, str(about.sweeper.get("params"))]).encode()).hexdigest()[:8]


def mode_of(sweeper: str) -> str | None:
    """Hydra's mode with a sweeper, where the command line does not say it."""
    return "MULTIRUN" if sweeper.endswith((".TaskLevel", ".StreamLevel")) else None


for resolver in (mode_of, bf16_if_fast, sweep_name):
    register: Any = OmegaConf.register_new_resolver if BEFORE_1_4 else OmegaConf.register_resolver
    register(resolver.__name__, resolver, replace=True)


def conf_dir() -> str:
    """The shipped configuration: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "conf", package.parent / "conf"):
        if (place / "config.yaml").is_file():
            return str(place)
    raise FileNotFoundError(
        f"no configuration directory beside or inside {package}; the installation is incomplete"
    )
