"""Every random number comes from a key, never from global state.

A key names what is drawn, for example ``(seed, task, "permutation")``. The same key gives the same numbers on
every device and in every order of execution; another key gives independent ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def seeded(*key: object) -> Iterator[None]:
    """Draws from torch's default generators depend on the key alone inside, and leave no trace outside."""
    own = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=own):
        torch.default_generator.manual_seed(seed_of(*key))
        if own:
            torch.cuda.manual_seed(seed_of(*key))
        yield
