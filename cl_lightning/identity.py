"""Where a run lives and what it is."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

import cl_lightning

if TYPE_CHECKING:
    from cl_lightning.data.streams.stream import Stream

IRRELEVANT = (
    "name",
    "outputs",
    "resume",
    "cache",
    "logger",
    "progress",
    "figures",
    "debug",
    "run",
    "from_task",
    "tuned",
    "checkpoints",
)

REMARKS = ("root", "licence", "citation", "counts", "tried")  # of a source


def run_folder(cfg: DictConfig, stream: Stream) -> Path:
    """``<outputs>/<experiment>/<learner>/<fingerprint>-s<seed>``: the same command finds its run again."""
    return Path(cfg.outputs) / cfg.name / learner_name(cfg) / f"{fingerprint(cfg, stream)}-s{cfg.seed}"


def learner_name(cfg: DictConfig) -> str:
    return cfg.learner.get("name") or cfg.learner._target_.rpartition(".")[2].lower()


def fingerprint(cfg: DictConfig, stream: Stream) -> str:
    """A hash of everything that can change a result but the seed, so that runs which differ in their seed
    alone share it: the configuration, the images that are used, the contents of files that the stream is
    given."""
    from cl_lightning.data.streams.stream import told, told_images

    cfg = cfg.copy()
    cfg.seed = "any"
    plain = relevant(cfg)
    plain["data"] = sorted(repr(told_images(images)) for images in stream.sources)
    plain["stream"] = {key: told(key, value) for key, value in plain["stream"].items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def relevant(cfg: DictConfig) -> dict[str, Any]:
    """The configuration, resolved, without what cannot change a result: places, looks, and where curves
    go."""
    plain = settled(cfg)
    for key in IRRELEVANT:
        plain.pop(key, None)
    for key in ("log_every", "checkpoint_minutes"):
        plain["trainer"].pop(key, None)
    plain["data"] = used_data(plain)
    if cfg.from_task is not None:
        plain["branched"] = [Path(str(cfg.run)).name, cfg.from_task]
    return plain


def settled(cfg: DictConfig) -> dict[str, Any]:
    """The configuration, resolved, with what is trained in the place of each null: the grid that is searched,
    the trainer's own values."""
    from cl_lightning.engine.settings import OPTIMIZER_KEYS, Hyperparameters
    from cl_lightning.selection.grid import searched

    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    plain["selection"] = {"grid": searched(plain["selection"], plain["trainer"])}
    for key in OPTIMIZER_KEYS:
        if plain["trainer"].get(key) is None:
            plain["trainer"][key] = getattr(Hyperparameters, key)
    return plain


def used_data(plain: dict[str, Any]) -> dict[str, dict]:
    """Of the data, what can change the stream: the sources that it names and what stands in for them, without
    places and remarks."""
    substitute = plain["data"].get("substitute") or {}
    known = {*plain["data"]["sources"], *substitute}
    named = sorted(
        set(texts(plain["stream"])) & known or known
    )  # a recipe of one's own may name none: then any may be used
    stand_ins = {name: substitute[name] for name in named if name in substitute}
    sources = {
        name: plain["data"]["sources"].get(name, {})
        for name in {substitute.get(name, name) for name in named}
    }
    kept = {
        name: {key: value for key, value in source.items() if key not in REMARKS}
        for name, source in sorted(sources.items())
    }
    asked = {name: plain["data"]["sources"].get(name, {}).get("classes") for name in stand_ins}
    return {"sources": kept, "substitute": stand_ins, "asked": asked}


def texts(node: Any) -> list[str]:
    """All texts in nested values."""
    if isinstance(node, dict):
        return [text for part in node.values() for text in texts(part)]
    if isinstance(node, list):
        return [text for part in node for text in texts(part)]
    return [node] if isinstance(node, str) else []


def versions(cfg: DictConfig) -> dict[str, str]:
    """What else decides the numbers: compared when a run is found again."""
    return {"package": cl_lightning.__version__, "source_hash": source_hash(cfg), "torch": installed("torch")}


def source_hash(cfg: DictConfig) -> str:
    """A hash of this package's code, and of the files of your own classes that the configuration names."""
    package = Path(__file__).resolve().parent
    files = [
        *sorted(package.rglob("*.py")),
        *(file for file in map(origin, sorted(targets(cfg))) if package not in file.parents),
    ]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def targets(node: Any) -> set[str]:
    """The modules of all ``_target_``s outside well-known libraries."""
    if isinstance(node, DictConfig):
        node = OmegaConf.to_container(node, resolve=False)
    if isinstance(node, dict):
        own = str(node.get("_target_") or "torch.nothing")
        found = (
            set() if own.startswith(("torch.", "pytorch_lightning.", "hydra.")) else {own.rpartition(".")[0]}
        )
        return found.union(*map(targets, node.values()))
    return set().union(*map(targets, node)) if isinstance(node, list) else set()


def origin(module: str) -> Path:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else Path(__file__)


def environment() -> dict[str, str]:
    """The machine, as far as it may explain a difference."""
    packages = ("pytorch-lightning", "hydra-core", "torchmetrics", "numpy")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        **{package: installed(package) for package in packages},
    }


def changed(then: Mapping[str, object], now: Mapping[str, str]) -> str | None:
    """A sentence where the program is not the one that made the run."""
    parts = [f"{key} {then.get(key)} (now {now[key]})" for key in now if then.get(key) != now[key]]
    return f"it was made with {', '.join(parts)}." if parts else None


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
