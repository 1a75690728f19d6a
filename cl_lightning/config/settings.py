"""How training goes, as ``conf/trainer`` says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from cl_lightning.config.checking import Count, Fulfils, NotNegative, Positive, Rate, Size, check_arguments
from cl_lightning.errors import Refusal
from cl_lightning.metrics.measures import MEASURES


@dataclass(frozen=True, kw_only=True)
class LightningKeys:
    """What is passed on to Lightning's Trainer."""

    profiler: Literal["simple", "advanced", "pytorch"] | None = None
    detect_anomaly: bool = False
    deterministic: bool | Literal["warn"] | None = None
    benchmark: bool | None = None


LIGHTNINGS = tuple(field.name for field in fields(LightningKeys))


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What an optimizer is given by the trainer or a grid; where neither has a value, the one here."""

    lr: Positive = 1e-3
    weight_decay: NotNegative = 0.0
    momentum: Rate = 0.0


# Keys that the trainer and a grid may name.
OPTIMIZER_KEYS = tuple(field.name for field in fields(Hyperparameters))
OF_A_GRID = (*OPTIMIZER_KEYS, "restore")  # which the trainer has, and a grid may have

OF_A_PHASE = (
    *OPTIMIZER_KEYS, "max_steps", "batch_size", "eval_batch_size", "optimizer", "betas", "schedule", "clip",
    "patience", "restore", "score_at", "score_every",
)  # fmt: skip


MeasureName = Annotated[str, Fulfils(MEASURES.__contains__, f"one of {', '.join(MEASURES)}")]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the learning rates of a phase fall: they are divided by ``by``, after each epoch; or after the
    epochs ``at``; or, for each candidate by itself, when ``after`` epochs brought no better score. Then it
    stops where its rate is below ``until``."""

    by: Annotated[float, Field(gt=1)]
    at: Sequence[Count] = ()
    after: Positive | None = None
    until: Positive | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(self.at))
        if (self.at and self.after is not None) or (self.until is not None and self.after is None):
            raise Refusal(
                "trainer.schedule takes one way: {by: 1.05} after each epoch, {at: [49, 63], by: 5} after "
                "these, or {after: 5, by: 3, until: 1e-4} when 5 epochs brought no better score."
            )


@dataclass(frozen=True, kw_only=True)
class Training:
    """``conf/trainer/*.yaml`` says what each key is for, and has the defaults. Null for ``lr``, ``momentum``
    or ``weight_decay`` becomes the value that ``Hyperparameters`` has."""

    max_epochs: Count
    max_steps: Count | None
    single_pass: bool
    batch_size: Count
    eval_batch_size: Count
    optimizer: Literal["adam", "sgd"]
    lr: Positive | None
    momentum: Rate | None
    weight_decay: NotNegative | None
    betas: Annotated[Sequence[Rate], Field(min_length=2, max_length=2)] | None
    schedule: Mapping[str, Any] | Schedule | None
    optimizer_state: Literal["reset", "carry"]
    clip: Positive | None
    patience: Annotated[float, Field(ge=1)] | None
    restore: Literal["best", "last"] | None
    score_at: Sequence[Size]
    score_every: Count | None
    block: Count
    stack: bool
    candidates_at_once: Count | None
    probe: Literal["winner", "all"]
    probe_every: Count | None
    probe_at: Sequence[Size]
    probe_examples: Count | None
    evaluate: Literal["all", "seen", "final"]
    measures: Sequence[MeasureName]
    keep_predictions: bool
    precision: Literal[32, "32", "bf16-mixed"]  # 16-mixed would have one loss scaler for all candidates
    accelerator: Literal["cpu", "gpu", "cuda", "mps", "auto"]
    devices: Count | Literal["auto"]
    # Beyond, the operating system may refuse them and end the process.
    threads: Annotated[int, Field(ge=1, le=1024)]
    checkpoint_minutes: NotNegative
    log_every: Size
    lightning: Mapping[str, Any]
    callbacks: Sequence[Mapping[str, Any]]

    @property
    def falls(self) -> Schedule | None:
        """How its learning rates fall."""
        return self.schedule if isinstance(self.schedule, Schedule) else None

    @property
    def waits(self) -> float | None:
        """Epochs without a better score after which the learning rate of a candidate falls."""
        return self.falls.after if self.falls else None

    @property
    def passes(self) -> int | None:
        """How often a single pass may see each example; None where it is no single pass."""
        return self.max_epochs if self.single_pass else None

    def __post_init__(self) -> None:
        for key in OPTIMIZER_KEYS:
            if getattr(self, key) is None:
                object.__setattr__(self, key, getattr(Hyperparameters, key))
        object.__setattr__(self, "precision", str(self.precision))
        object.__setattr__(self, "score_at", tuple(self.score_at))
        object.__setattr__(self, "probe_at", tuple(self.probe_at))
        if isinstance(self.schedule, Mapping):
            check_arguments(Schedule, self.schedule, "trainer.schedule")
            object.__setattr__(self, "schedule", Schedule(**self.schedule))
        if self.momentum and self.optimizer == "adam":
            raise Refusal(
                "trainer.momentum is for trainer.optimizer=sgd; Adam has moments of its own. Leave it at 0."
            )
        if self.betas is not None and self.optimizer == "sgd":
            raise Refusal("trainer.betas is for trainer.optimizer=adam. Leave it at null, or set momentum.")
        if self.single_pass and self.patience is not None:
            raise Refusal(
                "trainer.single_pass has no validation data to stop by. Set trainer.patience=null, or "
                "trainer=single_pass."
            )
        for key in sorted(set(self.lightning) - set(LIGHTNINGS)):
            raise Refusal(
                f"trainer.lightning.{key} is not passed on: the engine trains several candidates in one "
                "Lightning step and has keys of its own under trainer for precision, clipping, stopping and "
                f"devices. Lightning gets {', '.join(LIGHTNINGS)}."
            )
        check_arguments(LightningKeys, self.lightning, "trainer.lightning")
