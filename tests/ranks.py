"""Several processes that make one run, forked from this one, which has everything imported."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch.distributed as dist

from cl_lightning.runs.run import run as run_config
from tests.commands import SMALL, configure


@contextmanager
def started(
    count: int, function: Callable[[int], object], port: int | None = None
) -> Iterator[list[BaseProcess]]:
    """So many ranks that call ``function`` with their number; killed at the end if they still run. They meet
    at a store that is there already, or at a port."""
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def as_rank(rank: int) -> None:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(count),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port or meeting.port),
            TORCHELASTIC_USE_AGENT_STORE="True",
        )
        function(rank)

    fork = multiprocessing.get_context("fork")
    ranks: list[BaseProcess] = [fork.Process(target=as_rank, args=(rank,)) for rank in range(count)]
    for rank in ranks:
        rank.start()
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def on_ranks(count: int, outputs: Path, *overrides: str, small: bool = True) -> list[int | None]:
    """Make one run on so many ranks; their exit codes."""
    cfg = configure(f"outputs={outputs}", *(SMALL if small else ()), *overrides)
    with started(count, lambda rank: run_config(cfg, list(overrides))) as ranks:
        for rank in ranks:
            rank.join(600)
        return [rank.exitcode for rank in ranks]
