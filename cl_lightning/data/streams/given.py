"""Parts of a stream that are given as files, so that another program's exact stream can be replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from cl_lightning.data.sources.encoded import regular
from cl_lightning.errors import Refusal


def given(key: str, file: str, *shape: int | None) -> torch.Tensor:
    """The numbers in a ``.npy`` file or a text file (one row a line, separated by commas or blanks); None in
    ``shape`` is any size."""
    path = Path(file).expanduser()
    try:
        if regular(path).suffix == ".npy":
            numbers = np.load(path, allow_pickle=False)
        else:
            lines = [line for line in path.read_text().replace(",", " ").splitlines() if line.strip()]
            numbers = np.array([line.split() for line in lines], dtype=float)
            if len(shape) == 1 and numbers.shape[1:] == (1,):
                numbers = numbers[:, 0]
    except (OSError, ValueError) as reason:
        raise Refusal(
            f"stream.{key}={file} cannot be read: {str(reason).splitlines()[0]}\nGive a .npy file, or a "
            "text file with one row a line."
        ) from reason
    fits = len(numbers.shape) == len(shape) and all(a in (b, None) for b, a in zip(numbers.shape, shape))
    if numbers.dtype.kind not in "iuf" or not fits:
        wanted = " x ".join("any" if size is None else str(size) for size in shape)
        raise Refusal(
            f"stream.{key}={file} holds {numbers.dtype} of shape {numbers.shape}, but must hold {wanted} "
            "numbers."
        )
    return torch.from_numpy(numbers.astype(np.float64))


def given_whole(key: str, file: str, below: int, *shape: int | None, least: int = 0) -> torch.Tensor:
    """Whole numbers in [least, below)."""
    numbers = given(key, file, *shape)
    if not (numbers == numbers.round()).all() or not ((numbers >= least) & (numbers < below)).all():
        raise Refusal(f"stream.{key}={file} must hold whole numbers from 0 to {below - 1}.")
    return numbers.long()
