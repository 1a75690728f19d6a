"""Where training curves go."""

from cl_lightning.loggers.csv_file import CSVLogger
from cl_lightning.loggers.tensorboard import TensorBoard
from cl_lightning.loggers.wandb_run import open_wandb

__all__ = ["CSVLogger", "TensorBoard", "open_wandb"]
