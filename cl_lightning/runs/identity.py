"""Where a run lives and what it is."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning.config.resolvers import WITHOUT_RESULT
from cl_lightning.config.trees import leaves, targets
from cl_lightning.config.version import VERSION
from cl_lightning.protocol import OWN, nearness

if TYPE_CHECKING:
    from cl_lightning.data.streams.stream import Stream

IRRELEVANT = (*WITHOUT_RESULT, "name", "run", "from_task", "tuned", "chosen", "checkpoints")

# What of this package can change a result, whatever the learner: rooms, and files.
OF_RESULTS = (
    "data",
    "backbones",
    "engine",
    "metrics",
    "evaluation",
    "learners/parts",
    "learners/base.py",
    "learners/finetune.py",  # the reference of the last task
    "selection/rules.py",
    "selection/grid.py",
    "config/settings.py",
    "config/build.py",
    "runs/loop.py",
    "runs/making.py",
    "runs/resume.py",
    "runs/final.py",
    "protocol.py",
    "randomness.py",
)
LEARNERS = "cl_lightning.learners"

REMARKS = ("root", "licence", "citation", "counts", "tried")  # of a source


def run_folder(cfg: DictConfig, stream: Stream) -> Path:
    """``<outputs>/<experiment>/<learner>/<fingerprint>-s<seed>``: the same command finds its run again."""
    return Path(cfg.outputs) / cfg.name / learner_name(cfg) / f"{fingerprint(cfg, stream)}-s{cfg.seed}"


def learner_name(cfg: DictConfig) -> str:
    return cfg.learner.get("name") or cfg.learner._target_.rpartition(".")[2].lower()


def fingerprint(cfg: DictConfig, stream: Stream) -> str:
    """A hash of everything that can change a result but the seed, so that runs which differ in their seed
    alone share it: the configuration, the images that are used, how they are drawn, the contents of files
    that the stream is given."""
    from cl_lightning.data.streams.stream import DRAWS, fingerprinted, identity_of_images, is_unused

    cfg = cfg.copy()
    cfg.seed = "any"
    settings = relevant(cfg)
    settings["data"] = sorted(repr(identity_of_images(images)) for images in stream.sources)
    recipe = settings["stream"]["_target_"].rpartition(".")[2]
    settings["stream"] = {
        key: fingerprinted(key, value)
        for key, value in settings["stream"].items()
        if not is_unused(recipe, key, value)
    }
    if stream.draws != DRAWS:
        settings["draws"] = stream.draws
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def relevant(cfg: DictConfig) -> dict[str, Any]:
    """The configuration, resolved, without what cannot change a result: places, looks, where curves go, and
    which processes share the work."""
    from cl_lightning.engine.devices import accelerator_of

    settings = effective_settings(cfg)
    for key in IRRELEVANT:
        settings.pop(key, None)
    if settings["grants"].get("boundaries", True):  # as in runs that were made before there was the key
        settings["grants"].pop("boundaries", None)
    for key in ("log_every", "checkpoint_minutes", "devices", "candidates_at_once"):
        settings["trainer"].pop(key, None)
    settings["trainer"]["accelerator"] = accelerator_of(settings["trainer"]["accelerator"])
    settings["data"] = used_data(settings)
    if cfg.from_task is not None:
        settings["branched"] = [Path(str(cfg.run)).name, cfg.from_task]
    return settings


def effective_settings(cfg: DictConfig) -> dict[str, Any]:
    """The configuration, resolved, with the value that is really used in the place of each null: the grid
    that is searched, the trainer's own values."""
    from cl_lightning.config.settings import OPTIMIZER_KEYS, Hyperparameters
    from cl_lightning.selection.grid import all_searched

    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    settings["selection"] = all_searched(settings["selection"], settings["trainer"])
    for key in OPTIMIZER_KEYS:
        if settings["trainer"].get(key) is None:
            settings["trainer"][key] = getattr(Hyperparameters, key)
    return settings


def as_used(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, where the word ``grid`` stands for the trainer's values that a grid has taken over.
    (A fingerprint is made without: runs that are finished are found again.)"""
    from cl_lightning.selection.grid import values_of

    selection = settings.get("selection", {})
    names = {
        name for grid in selection.get("stages") or [selection.get("grid", {})] for name in values_of(grid)
    }
    taken = {key: "grid" for key in settings.get("trainer", {}) if key in names}
    return {**settings, "trainer": {**settings["trainer"], **taken}} if taken else dict(settings)


def used_data(settings: dict[str, Any]) -> dict[str, dict]:
    """The part of the data's configuration that can change the stream: the sources that it names and what
    stands in for them, without places and remarks."""
    substitute = settings["data"].get("substitute") or {}
    known = {*settings["data"]["sources"], *substitute}
    # A recipe of one's own may name none: then any may be used.
    texts = {value for _, value in leaves(settings["stream"]) if isinstance(value, str)}
    named = sorted(texts & known or known)
    stand_ins = {name: substitute[name] for name in named if name in substitute}
    sources = {
        name: settings["data"]["sources"].get(name, {})
        for name in {substitute.get(name, name) for name in named}
    }
    kept = {
        name: {key: value for key, value in source.items() if key not in REMARKS}
        for name, source in sorted(sources.items())
    }
    asked = {name: settings["data"]["sources"].get(name, {}).get("classes") for name in stand_ins}
    return {"sources": kept, "substitute": stand_ins, "asked": asked}


def versions(cfg: DictConfig) -> dict[str, str]:
    """What else decides the numbers: compared when a run is found again."""
    return {"package": VERSION, "source_hash": source_hash(cfg), "torch": version("torch")}


def source_hash(cfg: DictConfig) -> str:
    """Two hashes with a point between them: of this package's code that can change a result whatever the
    learner, and of the learner's and your own that the configuration leads to (``own_sources``). Loggers have
    no part: they change no result, and one that failed can be mended or left out."""
    package = Path(__file__).resolve().parents[1]
    of_results: Any = OmegaConf.to_container(cfg, resolve=False)
    of_results.pop("logger", None)
    files = (file for name in OF_RESULTS for file in files_in(package / name))
    of_package = {file.relative_to(package).as_posix(): file.read_bytes() for file in files}
    return f"{hash_of(of_package)}.{hash_of(own_sources(targets(of_results)))}"


def files_in(path: Path) -> list[Path]:
    """The code in a room, and what it reads: the shapes that are drawn."""
    return [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*.yaml")]


def hash_of(sources: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, source in sorted(sources.items()):
        digest.update(name.encode() + b"\0" + source)
    return digest.hexdigest()[:12]


def own_sources(names: Iterable[str]) -> dict[str, bytes]:
    """The files of your own modules and of this package's learners, by name, in which these classes lie, or
    that are imported from there, anywhere in a file and on and on: modules of bases, helpers, what a package
    re-exports. They are read and not run: what a process has imported before does not matter. Installed
    libraries are not followed."""
    found: dict[str, bytes] = {}
    left = list(names)
    while left:
        name = left.pop()
        for module, file in modules_on(name):
            if module == LEARNERS:  # which imports all of them: only those that are asked for
                asked = name.removeprefix(module).strip(".*").partition(".")[0]
                all_of_them = imported_names(file.read_bytes(), module)
                left += (each for each in all_of_them if not asked or each.endswith(f".{asked}"))
            elif module not in found and (nearness(str(file)) == OWN or module.startswith(f"{LEARNERS}.")):
                found[module] = file.read_bytes()
                inside = module if file.stem == "__init__" else module.rpartition(".")[0]
                left += imported_names(found[module], inside)
    return found


def modules_on(name: str) -> Iterator[tuple[str, Path]]:
    """The modules that a dotted name leads through, and their files. It may end with classes."""
    parts = name.split(".")
    with suppress(ImportError, ValueError):  # ValueError: __main__, a notebook or script
        spec = importlib.util.find_spec(parts[0])
        folders = spec and (spec.submodule_search_locations or [str(spec.origin)])
        for root in {Path(folder).parent for folder in folders or ()}:
            for n in range(1, len(parts) + 1):
                path = root.joinpath(*parts[:n])
                files = (path / "__init__.py", path.with_suffix(".py"))
                yield from ((".".join(parts[:n]), file) for file in files if file.is_file())


@cache
def imported_names(source: bytes, package: str) -> set[str]:
    """All that a module of a package imports, by absolute names."""
    found: set[str] = set()
    with suppress(SyntaxError, ValueError):  # it is no Python
        imports = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom))
        for node in imports:
            level = getattr(node, "level", 0)
            outside = package.split(".")[: 1 - level or None] if level else []
            base = ".".join(filter(None, [*outside, getattr(node, "module", None)]))
            found.update(f"{base}.{alias.name}".lstrip(".") for alias in node.names)
    return found


def environment() -> dict[str, str]:
    """What of the machine may explain a difference between results."""
    packages = ("pytorch-lightning", "hydra-core", "torchmetrics", "numpy")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        "commit": commit(),
        **{package: version(package) for package in packages},
    }


def commit() -> str:
    """The commit of this package's checkout; ``unknown`` where it is installed otherwise."""
    root = Path(__file__).resolve().parents[2]
    command = ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return said[1] if len(said) > 1 and Path(said[0]).resolve() == root else "unknown"


def changed(then: Mapping[str, object], now: Mapping[str, str]) -> str | None:
    """A sentence where the program is not the one that made the run."""
    parts = [f"{key} {then.get(key)} (now {now[key]})" for key in now if then.get(key) != now[key]]
    return f"it was made with {', '.join(parts)}." if parts else None
