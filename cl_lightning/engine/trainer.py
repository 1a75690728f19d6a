"""Lightning's Trainer, without what the engine does itself."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from cl_lightning.config.settings import Training
from cl_lightning.engine.devices import device_of
from cl_lightning.errors import Refusal
from cl_lightning.parallel.ranks import Ranks


class OwnCandidates(SingleDeviceStrategy):
    """Trains on this rank's device what this rank has to train.

    To Lightning each rank is alone (``world_size`` 1), and it makes no collective call: ranks train other
    candidates, which stop at other steps. What ranks exchange goes through ``Ranks``, once a phase. Between
    phases the learner stays on the device.
    """

    strategy_name = "own_candidates"

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        super().__init__(device=device)
        self.ranks = ranks

    @property
    def is_global_zero(self) -> bool:
        return self.ranks.is_writer

    def teardown(self) -> None:
        """Lightning's, but that it does not move the learner to the CPU."""
        self.precision_plugin.teardown()
        assert self.accelerator is not None
        self.accelerator.teardown()
        self.checkpoint_io.teardown()


def new_trainer(
    settings: Training,
    loggers: list[Logger],
    callbacks: list[pl.Callback],
    ranks: Ranks | None = None,
    folder: Path | None = None,
) -> pl.Trainer:
    """A Trainer for one phase, on this rank's device. What Lightning would do a second time (validation,
    checkpoints, clipping) is the engine's. ``folder`` is the run's."""
    quiet_lightning()
    for callback in callbacks:
        if isinstance(
            callback,
            pl.callbacks.EarlyStopping
            | pl.callbacks.ModelCheckpoint
            | pl.callbacks.GradientAccumulationScheduler,
        ):
            raise Refusal(
                f"trainer.callbacks holds {type(callback).__name__}, which looks at one model a step, while "
                "the engine trains several. "
                "Use trainer.patience for early stopping; checkpoints are kept by the run itself."
            )
    try:
        return pl.Trainer(**arguments(settings, loggers, callbacks, ranks or Ranks(), folder))
    except (TypeError, MisconfigurationException) as reason:
        raise Refusal(
            f"Lightning makes no Trainer of trainer.accelerator={settings.accelerator} and "
            f"trainer.lightning={dict(settings.lightning)}: "
            f"{str(reason).splitlines()[0]}\nCheck these two keys."
        ) from reason


def arguments(
    settings: Training,
    loggers: list[Logger],
    callbacks: list[pl.Callback],
    ranks: Ranks,
    folder: Path | None,
) -> dict[str, Any]:
    device = device_of(settings, ranks)
    return dict(
        max_epochs=1,
        accelerator=device.type,
        devices=1,
        strategy=OwnCandidates(device, ranks),
        plugins=[LightningEnvironment()],  # else it would take torchrun's and Slurm's variables for its own
        logger=loggers or False,
        callbacks=callbacks,
        default_root_dir=folder,  # in Slurm it goes on from any hpc_ckpt_* there: a folder has none of them
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings.lightning,
    )


def quiet_lightning() -> None:
    """A Trainer a phase must not greet each time."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
