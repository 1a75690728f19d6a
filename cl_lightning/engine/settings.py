"""How training goes, as ``conf/trainer`` says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from cl_lightning.checking import Count, NotNegative, Positive, Rate, Size
from cl_lightning.errors import Refusal

REFUSED = {
    "precision": "set trainer.precision (32 or bf16-mixed): 16-mixed has one loss scaler for all candidates",
    "gradient_clip_val": "set trainer.clip: the engine clips each candidate's own gradient norm",
    "gradient_clip_algorithm": "set trainer.clip: the engine clips each candidate's own gradient norm",
    "accumulate_grad_batches": "set trainer.batch_size: a Lightning step is a block of mini-batches, each with a step of its own",
    "limit_val_batches": "the engine scores candidates itself; lower stream.n_val",
    "val_check_interval": "set trainer.score_every: the engine scores candidates itself",
    "check_val_every_n_epoch": "set trainer.score_every: the engine scores candidates itself",
    "max_epochs": "set trainer.max_epochs: each phase is one pass of Lightning's loop",
    "max_steps": "set trainer.max_steps, in mini-batches: Lightning's steps are blocks",
    "enable_checkpointing": "the run's journal keeps checkpoints",
    "accelerator": "set trainer.accelerator",
    "num_sanity_val_steps": "the engine scores candidates itself",
    "enable_progress_bar": "set progress: one line shows stream, task and candidates",
    "enable_model_summary": "a phase trains several networks; results.json has their costs",
    "devices": "one device a run for now",
    "logger": "choose a logger with logger=csv, wandb or none",
    "callbacks": "list callbacks under trainer.callbacks",
}


OPTIMIZER_KEYS = ("lr", "weight_decay", "momentum")  # which a grid may name, too


@dataclass(frozen=True, kw_only=True)
class Training:
    """``conf/trainer/*.yaml`` says what each key is for, and has the defaults."""

    max_epochs: Count
    max_steps: Count | None
    single_pass: bool
    batch_size: Count
    eval_batch_size: Count
    optimizer: Literal["adam", "sgd"]
    lr: Positive
    momentum: Rate
    weight_decay: NotNegative
    optimizer_state: Literal["reset", "carry"]
    clip: Positive | None
    patience: Annotated[float, Field(ge=1)] | None
    score_at: Sequence[Size]
    score_every: Count | None
    block: Count
    stack: bool
    candidates_at_once: Count | None
    probe_every: Count | None
    probe_at: Sequence[Size]
    probe_examples: Count | None
    evaluate: Literal["all", "seen", "final"]
    precision: Literal[32, "32", "bf16-mixed"]  # 16-mixed would have one loss scaler for all candidates
    accelerator: Literal["cpu", "gpu", "cuda", "mps", "auto"]
    threads: Annotated[int, Field(ge=1, le=1024)]  # beyond, the operating system may refuse them and end the process
    checkpoint_minutes: NotNegative
    log_every: Size
    lightning: Mapping[str, Any]
    callbacks: Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", str(self.precision))
        object.__setattr__(self, "score_at", tuple(self.score_at))
        object.__setattr__(self, "probe_at", tuple(self.probe_at))
        if self.momentum and self.optimizer == "adam":
            raise Refusal("trainer.momentum is for trainer.optimizer=sgd; Adam has moments of its own. Leave it at 0.")
        if self.single_pass and self.patience is not None:
            raise Refusal("trainer.single_pass has no validation data to stop by. Set trainer.patience=null, or trainer=single_pass.")
        for key in sorted(set(self.lightning) & set(REFUSED)):
            raise Refusal(f"trainer.lightning.{key} would work against the engine; {REFUSED[key]}.")
