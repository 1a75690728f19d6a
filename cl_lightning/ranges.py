"""What every key of the configuration may be. Checked before anything is imported that takes time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cl_lightning.errors import Refusal, nearest


@dataclass(frozen=True)
class Range:
    """A condition on a value, and the words for it."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Range) -> Range:
        return Range(f"{self.words}, or {other.words}", lambda value: self.holds(value) or other.holds(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(least: int) -> Range:
    return Range(f"a whole number of at least {least}", lambda value: is_whole(value) and least <= value < 2**63)


def one_of(*choices: Any) -> Range:
    def holds(value: Any) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in choices)

    return Range(f"one of {', '.join(map(written, choices))}", holds)


def each(item: Range, least: int = 0) -> Range:
    def holds(value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) >= least and all(map(item.holds, value))

    return Range(f"a list of {'at least one ' * bool(least)}values, each {item.words}", holds)


def each_split(item: Range, words: str) -> Range:
    def holds(value: Any) -> bool:
        return isinstance(value, Mapping) and set(value) == {"train", "test"} and all(map(item.holds, value.values()))

    return Range(f"a mapping of train and test to {words}", holds)


def null(meaning: str) -> Range:
    return Range(f"null ({meaning})", lambda value: value is None)


def written(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)


NUMBER = Range("a number", lambda value: is_number(value) and -math.inf < value < math.inf)
POSITIVE = Range("a positive number", lambda value: is_number(value) and 0 < value < math.inf)
NOT_NEGATIVE = Range("a number that is not negative", lambda value: is_number(value) and 0 <= value < math.inf)
FRACTION = Range("a number in [0, 1)", lambda value: is_number(value) and 0 <= value < 1)
TEXT = Range("a text that is not empty", lambda value: isinstance(value, str) and value.strip() != "" and "\0" not in value)
A_NAME = Range("a name without / and :", lambda value: TEXT.holds(value) and value[0] != "." and not set(value) & set('/\\:*?"<>|'))
SWITCH = one_of(True, False)
MAPPING = Range("a mapping", lambda value: isinstance(value, Mapping))
SEED = whole(0)
PAIR = Range(
    "two whole numbers of at least 1", lambda value: isinstance(value, list | tuple) and len(value) == 2 and all(map(whole(1).holds, value))
)
HEADS = one_of("single", "domain", "multi_test", "multi_train_test")
SPLITS = each_split(each(TEXT, least=1), "lists of names")
COUNTS = each_split(whole(0) | null("unknown"), "numbers of images, or null")
ANY_CLASS = TEXT  # a dotted name; what it is is seen when it is imported

RANGES: dict[str, Range] = {
    "name": A_NAME,
    "seed": SEED,
    "outputs": TEXT,
    "resume": one_of(True, False, "anyway"),
    "cache": TEXT,
    "progress": SWITCH,
    "reference": SWITCH,
    "figures": SWITCH,
    "run": TEXT | null("no branch"),
    "from_task": whole(1) | null("no branch"),
    "tuned": MAPPING,
    "grants.task_id_at_test": SWITCH,
    "grants.past_data": SWITCH,
    "debug.fault": TEXT | null("none"),
    "debug.fresh_learner": SWITCH,
    "debug.traceback": SWITCH,
    "learner.name": A_NAME,
    "learner.k": whole(1) | one_of("all"),
    "learner.prior": one_of("nearest", "random"),
    "learner.allow_head_reuse": SWITCH,
    "learner.neighbours": whole(1),
    "learner.searched": whole(1),
    "learner.trunk": one_of("freeze", "finetune"),
    "learner.start": one_of("random", "clone"),
    "learner.split_width": SWITCH,
    "learner.at": one_of("every_task", "last_task"),
    "learner.restart": SWITCH,
    "learner.memories": whole(1),
    "learner.total": whole(1) | null("learner.memories a task"),
    "learner.margin": NOT_NEGATIVE,
    "learner.memory_precision": one_of(32, "32", "bf16"),
    "learner.reference_batch": whole(1),
    "learner.policy": one_of("reservoir", "ring"),
    "learner.size": whole(0),
    "learner.strength": NOT_NEGATIVE,
    "learner.penalty": one_of("separate", "huszar", "online"),
    "learner.fisher": one_of("exact", "sample", "empirical", "predicted", "batch_squared"),
    "learner.examples": whole(1) | null("all"),
    "learner.gamma": Range("a number in [0, 1]", lambda value: is_number(value) and 0 <= value <= 1),
    "stream.name": A_NAME,
    "stream.source": TEXT,
    "stream.seed": SEED,
    "stream.tasks": whole(1) | each(MAPPING, least=1),
    "stream.kind": TEXT,
    "stream.names": each(TEXT, least=1),
    "stream.large": PAIR,
    "stream.small": PAIR,
    "stream.at_most": Range(
        "a mapping of sources to two numbers", lambda value: isinstance(value, Mapping) and all(map(PAIR.holds, value.values()))
    ),
    "stream.shares": each(Range("a number in [0, 1]", lambda value: is_number(value) and 0 <= value <= 1), least=1),
    "stream.balanced": SWITCH,
    "stream.on_shortage": one_of("error", "shrink"),
    "stream.test_per_class": whole(1) | null("all"),
    "stream.held_out": Range(
        "a mapping of sources to numbers", lambda value: isinstance(value, Mapping) and all(is_whole(n) and n > 0 for n in value.values())
    )
    | null("each task takes its own"),
    "stream.show": MAPPING,
    "stream.show.shape": each(whole(1), least=3) | null("the source's own"),
    "stream.show.fit": one_of("scale", "pad"),
    "stream.show.values": each(NUMBER, least=2),
    "stream.show.normalise": SWITCH,
    "stream.show.flip": SWITCH,
    "stream.show.crop": whole(0),
    "stream.show.val_copies": whole(0),
    "stream.classes_per_task": whole(1),
    "stream.class_order": one_of("native", "frequency", "random") | each(whole(0), least=1) | null("native"),
    "stream.n_train": whole(1) | null("all that validation leaves"),
    "stream.n_val": whole(0),
    "stream.n_test": whole(1) | null("all"),
    "stream.test_share": Range("a number greater than 0 and at most 1", lambda value: is_number(value) and 0 < value <= 1) | null("all"),
    "stream.head": HEADS,
    "stream.first_identity": SWITCH,
    "stream.permutations": TEXT | null("drawn"),
    "stream.order": TEXT | null("drawn"),
    "stream.angles": TEXT | each(NUMBER, least=1) | null("drawn"),
    "stream.degrees": NUMBER,
    "backbone.sizes": each(whole(1)),
    "backbone.dropout": FRACTION,
    "backbone.heads": one_of("shared", "per_task"),
    "backbone.init": one_of("torch", "torch_unbiased", "glorot", "fan_in", "tenth"),
    "backbone.input_dropout": FRACTION,
    "backbone.dropouts": each(FRACTION),
    "backbone.widen": POSITIVE,
    "backbone.width": whole(1),
    "backbone.modules": one_of(3, 6, 7, 10),
    "backbone.channels_last": SWITCH,
    "data.root": TEXT | null("look on the Hub"),
    "data.sources": MAPPING,
    "data.substitute": MAPPING | null("none"),
    "data.sources.*.train": whole(1),
    "data.sources.*.test": whole(1),
    "data.sources.*.seed": SEED,
    "data.sources.*.root": TEXT | null("look on the Hub"),
    "data.sources.*.folder": TEXT,
    "data.sources.*.file": TEXT,
    "data.sources.*.repository": TEXT | null("none is known"),
    "data.sources.*.config": TEXT | null("the repository's default"),
    "data.sources.*.revision": TEXT,
    "data.sources.*.splits": SPLITS | null("train and test"),
    "data.sources.*.image": TEXT | each(TEXT, least=1),
    "data.sources.*.label": TEXT | each(TEXT, least=1),
    "data.sources.*.side": whole(1) | null("as they are"),
    "data.sources.*.counts": COUNTS | null("unknown"),
    "data.sources.*.tried": SWITCH,
    "data.sources.*.licence": TEXT | null("unknown"),
    "data.sources.*.citation": TEXT | null("unknown"),
    "data.sources.*.classes": each(TEXT, least=1) | null("from the folders or labels"),
    "selection.grid": MAPPING,
    "selection.grid.lr": POSITIVE,
    "selection.grid.momentum": FRACTION,
    "selection.grid.weight_decay": NOT_NEGATIVE,
    "selection.default": MAPPING,
    "trainer.max_epochs": whole(1),
    "trainer.max_steps": whole(1) | null("no limit but the epochs"),
    "trainer.single_pass": SWITCH,
    "trainer.batch_size": whole(1),
    "trainer.eval_batch_size": whole(1),
    "trainer.optimizer": one_of("adam", "sgd"),
    "trainer.lr": POSITIVE | null("the grid's, else 0.001"),
    "trainer.momentum": FRACTION | null("the grid's, else 0"),
    "trainer.weight_decay": NOT_NEGATIVE | null("the grid's, else 0"),
    "trainer.optimizer_state": one_of("reset", "carry"),
    "trainer.clip": POSITIVE | null("no clipping"),
    "trainer.patience": Range("at least 1 mini-batch", lambda value: is_number(value) and value >= 1) | null("train to the end"),
    "trainer.score_at": each(whole(0)),
    "trainer.score_every": whole(1) | null("every epoch"),
    "trainer.block": whole(1),
    "trainer.stack": SWITCH,
    "trainer.candidates_at_once": whole(1) | null("all"),
    "trainer.probe_every": whole(1) | null("never"),
    "trainer.probe_at": each(whole(0)),
    "trainer.probe_examples": whole(1) | null("all"),
    "trainer.evaluate": one_of("all", "seen", "final"),
    "trainer.precision": one_of(32, "32", "bf16-mixed"),  # 16-mixed would have one loss scaler for all candidates
    "trainer.accelerator": one_of("cpu", "gpu", "cuda", "mps", "auto"),
    "trainer.threads": whole(1),
    "trainer.checkpoint_minutes": NOT_NEGATIVE,
    "trainer.log_every": whole(0),
    "trainer.lightning": MAPPING,
    "trainer.callbacks": each(MAPPING),
    "logger.project": TEXT,
    "logger.entity": TEXT | null("your default"),
    "logger.mode": one_of("online", "offline"),
    "logger.tags": each(TEXT),
    "logger.timeout": POSITIVE,
}

REQUIRED = (
    "name", "seed", "outputs", "resume", "cache", "progress", "reference", "figures",
    "run", "from_task", "debug.fault", "debug.fresh_learner", "debug.traceback",
    "grants.task_id_at_test", "grants.past_data",
    "data.sources", "selection.grid", "trainer.optimizer", "trainer.callbacks",
)  # fmt: skip
GROUPS = ("learner", "stream", "backbone", "data", "selection", "trainer", "logger")


def check(config: Mapping[str, Any]) -> None:
    """Refuse a configuration with a value outside its range."""
    for group in (*GROUPS, "grants", "debug"):
        if not isinstance(config.get(group), Mapping):
            raise Refusal(f"{group}={written(config.get(group))} is not a configuration. Choose one of the group: see --help.")
    for group in ("learner", "stream", "backbone"):
        if not TEXT.holds(config[group].get("_target_")):
            raise Refusal(f"{group}._target_={written(config[group].get('_target_'))} must be the dotted name of a class or function.")
    found = leaves(config)
    for path in sorted(set(REQUIRED) - {path for path, _ in found}):
        raise Refusal(f"{path} is missing. Leave it in the configuration: it must be {RANGES[path].words}.")
    check_keys(config["selection"], ["grid", "default"], "selection")
    check_keys(config["data"], ["root", "sources", "substitute"], "data")
    for path, value in found:
        check_value(path, value)
        if not finite(value):
            raise Refusal(f"{path}={written(value)} must be made of finite numbers: results could not hold it.")


def range_of(path: str) -> Range | None:
    parts = path.split(".")
    if parts[:2] == ["data", "sources"] and len(parts) == 4:
        parts[2] = "*"
    return RANGES.get(".".join(parts))


def finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def check_value(path: str, value: Any, shown: str | None = None) -> None:
    allowed = range_of(path)
    if allowed is not None and not allowed.holds(value):
        raise Refusal(f"{shown or path}={written(value)} must be {allowed.words}.")


def leaves(node: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values; lists and the mappings of RANGES are values themselves, too."""
    found: list[tuple[str, Any]] = []
    for key, value in node.items():
        path = f"{prefix}{key}"
        if not isinstance(value, Mapping) or range_of(path) is not None or not value:
            found.append((path, value))
        if isinstance(value, Mapping) and path not in ("selection.grid", "selection.default", "trainer.lightning", "tuned"):
            found += leaves(value, f"{path}.")
    return found


def check_keys(given: Mapping[str, Any], known: list[str], prefix: str) -> None:
    """Refuse keys that nothing would read."""
    for key in given:
        if key not in known:
            raise Refusal(f"{prefix}.{key} is not a key here.{nearest(key, known)}")
