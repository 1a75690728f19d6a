"""Every random number comes from a key, never from global state.

A key names what is drawn, for example ``(seed, task, "permutation")``. The same key gives the same numbers on
every device and in every order of execution; another key gives independent ones.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch

Key = tuple  # of ints, strings and nested tuples of them: their repr is the key


def seed_of(*key: object) -> int:
    """A 56-bit seed from a key.

    >>> seed_of(0, 3, "permutation") == seed_of(0, 3, "permutation") != seed_of(0, 4, "permutation")
    True
    """
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "little")


def rng(*key: object) -> torch.Generator:
    """A generator on the CPU. Draw there, then use ``moved``: the same numbers on every device."""
    return torch.Generator().manual_seed(seed_of(*key))


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """What was drawn, or looked up, on the CPU, on the device that computes with it. A GPU does not wait for
    it: it is copied, from pinned memory, while earlier work goes on."""
    if tensor.device == device or device.type == "mps":
        return tensor.to(device)
    source = tensor.pin_memory() if device.type == "cuda" else tensor
    return source.to(device, non_blocking=True)


def seed_default_generators(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout, noise and initialisation draw from on ``device``."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def seed_numpy_and_python(seed: int) -> None:
    """Seed the default generators of both. It takes longer than to seed torch's."""
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def own_draws() -> AbstractContextManager[None]:
    """Draws inside leave no trace outside in the default generators of torch."""
    return torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_initialized() else [])


@contextmanager
def forked() -> Iterator[None]:
    """Draws inside leave no trace outside in the default generators of torch, NumPy and Python."""
    of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002
    with own_draws():
        try:
            yield
        finally:
            np.random.set_state(of_numpy)  # noqa: NPY002
            random.setstate(of_python)


@contextmanager
def seeded(*key: object) -> Iterator[None]:
    """Draws from the default generators depend on the key alone inside, and leave no trace outside."""
    with forked():
        seed = seed_of(*key)
        seed_default_generators(seed, torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))
        seed_numpy_and_python(seed)
        yield
