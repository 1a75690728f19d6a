"""How training goes, as ``conf/trainer`` says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cl_lightning.errors import Refusal
from cl_lightning.ranges import check_value
from cl_lightning.selection.grid import OPTIMIZER_KEYS

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


@dataclass(frozen=True)
class Training:
    """``conf/trainer/*.yaml`` describes every key. None for ``lr``, ``momentum`` or ``weight_decay`` means the value here."""

    max_epochs: int = 1
    max_steps: int | None = None
    single_pass: bool = False
    batch_size: int = 64
    eval_batch_size: int = 1000
    optimizer: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer_state: str = "reset"
    clip: float | None = None
    patience: float | None = None
    score_at: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 10)
    score_every: int | None = None
    block: int = 25
    stack: bool = True
    candidates_at_once: int | None = None
    probe_every: int | None = None
    probe_at: tuple[int, ...] = ()
    probe_examples: int | None = None
    evaluate: str = "all"
    precision: str = "32"
    accelerator: str = "cpu"
    threads: int = 1
    checkpoint_minutes: float = 5.0
    log_every: int = 0
    lightning: Mapping = field(default_factory=dict)
    callbacks: Sequence = ()

    def __post_init__(self) -> None:
        for key in OPTIMIZER_KEYS:
            if getattr(self, key) is None:
                object.__setattr__(self, key, getattr(Training, key))
        object.__setattr__(self, "precision", str(self.precision))
        object.__setattr__(self, "score_at", tuple(self.score_at))
        object.__setattr__(self, "probe_at", tuple(self.probe_at))
        for key, value in vars(self).items():
            check_value(f"trainer.{key}", value)
        if self.momentum and self.optimizer == "adam":
            raise Refusal("trainer.momentum is for trainer.optimizer=sgd; Adam has moments of its own. Leave it at 0.")
        if self.single_pass and self.patience is not None:
            raise Refusal("trainer.single_pass has no validation data to stop by. Set trainer.patience=null, or trainer=single_pass.")
        for key in sorted(set(self.lightning) & set(REFUSED)):
            raise Refusal(f"trainer.lightning.{key} would work against the engine; {REFUSED[key]}.")
