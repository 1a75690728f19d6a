"""The processes of one run on several devices, and what they tell one another.

Every rank runs the whole run. What they exchange goes through the key-value store of torch's rendezvous:
waiting there can be interrupted, which waiting in a collective call of a process group cannot, and ranks may
take different numbers of mini-batches. Rank 0 alone writes, logs and prints.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from threading import Event, Thread
from time import monotonic, perf_counter, sleep
from typing import Any

from cl_lightning import termination
from cl_lightning.errors import Refusal

PIECE = 4 << 20  # bytes of one message: torch's store takes up to 8 MB
BEAT = 0.5  # seconds between two signs of life
SILENT = 30.0  # seconds without one after which a rank counts as dead
FIRST = 3.0  # seconds in which rank 0 says why it ends, before others do
TO_START = 300.0  # seconds in which all ranks must have come


class Ranks:
    """A process that is the only one of its run: rank 0 of 1."""

    rank, size, local_rank = 0, 1, 0
    sent, waited = 0, 0.0  # bytes, seconds

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the run's folder, logs and prints."""
        return self.rank == 0

    def first(self, value: Any) -> Any:
        """Rank 0's value, on all ranks. Only rank 0's is read."""
        return value

    def gathered(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order, on rank 0; elsewhere nothing."""
        return [value]


class SeveralRanks(Ranks):
    """One process of several, each with a device of its own."""

    def __init__(self, rank: int, size: int, local_rank: int, store: Any) -> None:
        self.rank, self.size, self.local_rank, self.store = rank, size, local_rank, store
        self.number = 0  # of the last exchange; the same on all ranks, since all run the same program
        self.read_by_all: list[str] = []  # keys of messages of rank 0's, until the others have read them

    def first(self, value: Any) -> Any:
        self.number += 1
        if not self.is_writer:
            return self.get(f"{self.number}")
        self.read_by_all += self.put(f"{self.number}", value)
        return value

    def gathered(self, value: Any) -> list[Any]:
        self.number += 1
        if not self.is_writer:
            self.put(f"{self.number}-{self.rank}", value)
            return []
        found = [self.get(f"{self.number}-{rank}", last=True) for rank in range(1, self.size)]
        self.remove(self.read_by_all)  # who has come this far has read them
        self.read_by_all = []
        return [value, *found]

    def put(self, name: str, value: Any) -> list[str]:
        """Send a message; returns the keys that it takes."""
        content = packed(value)
        pieces = [content[i : i + PIECE] for i in range(0, len(content), PIECE)]
        keys = [f"{name}/{i}" for i in range(len(pieces))]
        for key, piece in zip(keys, pieces):
            self.store.set(key, piece)
        self.store.set(name, str(len(pieces)))
        self.sent += len(content)
        return [*keys, name]

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.store.delete_key(key)

    def get(self, name: str, last: bool = False) -> Any:
        """Wait for a message, as long as all ranks live. ``last``: nobody reads it after this."""
        began, pause = perf_counter(), 1e-4
        while not self.store.check([name]):
            termination.exit_if_requested()
            sleep(pause)
            pause = min(2 * pause, 0.02)
        keys = [f"{name}/{i}" for i in range(int(self.store.get(name)))]
        content = b"".join(self.store.get(key) for key in keys)
        if last:
            self.remove([*keys, name])
        self.waited += perf_counter() - began
        return unpacked(content)


class OtherRankEnded(Refusal):
    """This rank ends because another one does."""


class Watch:
    """Signs of life between ranks, in a thread: where one is dead, failed or was asked to end, all end."""

    def __init__(self, ranks: SeveralRanks) -> None:
        self.ranks, self.store = ranks, ranks.store
        self.over = Event()
        self.thread = Thread(target=self.run, daemon=True)
        self.seen = {rank: (b"", monotonic()) for rank in range(ranks.size)}
        self.reason: str | None = None
        self.store.set(f"alive/{ranks.rank}", "0")

    def run(self) -> None:
        beat = 0
        while not self.over.wait(BEAT):
            beat += 1
            try:
                self.store.set(f"alive/{self.ranks.rank}", str(beat))
                self.reason = self.trouble()
            except RuntimeError:  # torch's errors of the network are of this kind
                self.reason = "The process that holds the ranks together has ended"
            if self.reason is not None and not self.over.is_set():
                os.kill(os.getpid(), signal.SIGTERM)  # saves what is being trained, and ends
                return

    def trouble(self) -> str | None:
        """Why this rank cannot go on."""
        if self.store.check(["ended"]):
            return self.store.get("ended").decode()
        for rank, (last, since) in self.seen.items():
            key = f"alive/{rank}"
            now = self.store.get(key) if self.store.check([key]) else b""
            if now != last:
                self.seen[rank] = now, monotonic()
            elif now != b"left" and monotonic() - since > (SILENT if last else TO_START):
                return f"Rank {rank} has given no sign of life for {monotonic() - since:.0f} seconds"
        return None

    def end(self, reason: str | None) -> None:
        """Leave in peace, or tell the others why they must end. Rank 0 goes first where all have the same
        reason: what it says is recorded."""
        self.over.set()
        self.thread.join()
        with suppress(RuntimeError):
            if reason is None:
                self.store.set(f"alive/{self.ranks.rank}", "left")
                return
            until = monotonic() + (0 if self.ranks.is_writer else FIRST)
            while not self.store.check(["ended"]) and monotonic() < until:
                sleep(0.05)
            if not self.store.check(["ended"]):
                self.store.set("ended", reason)


_current: Ranks = Ranks()
_store: list[Any] = []  # torch's, once this process has found the others
_runs = count(1)  # of this process: each has keys of its own


def current() -> Ranks:
    """The ranks of the run that is going on in this process."""
    return _current


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other processes of this run, if whoever started this one says that there are some."""
    global _current
    where = found()
    if where is None or _current.size > 1:
        yield _current
        return
    ranks = SeveralRanks(*where, connected(*where[:2]))
    watch, reason = Watch(ranks), None
    watch.thread.start()
    _current = ranks
    try:
        with quiet(not ranks.is_writer):
            yield ranks
    except BaseException as error:
        words = str(error).splitlines()[0] if isinstance(error, Refusal) else type(error).__name__
        reason = watch.reason or f"Rank {ranks.rank} has ended: {words}"
        if watch.reason is not None and isinstance(error, SystemExit | RuntimeError):
            raise OtherRankEnded(
                f"{watch.reason}, so this rank has ended, too.\nWhat was trained is kept, and the same "
                "command goes on where it was."
            ) from error
        raise
    finally:
        _current = Ranks()
        watch.end(reason)


def found() -> tuple[int, int, int] | None:
    """Rank, number of ranks and rank on this machine, as torchrun, ``trainer.devices`` or srun tell them;
    None where this process is alone."""
    env = os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        where = int(env["RANK"]), int(env["WORLD_SIZE"]), int(env.get("LOCAL_RANK", 0))
    elif int(env.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # set by srun, and not by sbatch
        where = (
            int(env["SLURM_PROCID"]),
            int(env["SLURM_STEP_NUM_TASKS"]),
            int(env.get("SLURM_LOCALID", 0)),
        )
    else:
        return None
    return where if where[1] > 1 else None


def connected(rank: int, size: int) -> Any:
    """The key-value store that all ranks share."""
    import torch.distributed as dist

    if not _store:
        _store.append(rendezvous(rank, size))
    return dist.PrefixStore(f"run{next(_runs)}", _store[0])


def rendezvous(rank: int, size: int) -> Any:
    import torch.distributed as dist

    if "MASTER_ADDR" not in os.environ:
        from lightning_fabric.plugins.environments import SLURMEnvironment

        slurm = SLURMEnvironment(auto_requeue=False)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = slurm.main_address, str(slurm.main_port)
    try:
        store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=timedelta(seconds=TO_START)))
    except (RuntimeError, ValueError) as reason:
        raise Refusal(
            f"Rank {rank} of {size} did not find the others at {os.environ.get('MASTER_ADDR')}, port "
            f"{os.environ.get('MASTER_PORT')}: {str(reason).splitlines()[0]}\n"
            "Start all ranks together: trainer.devices=N on one machine, torchrun or srun over several."
        ) from reason
    return store


@contextmanager
def quiet(silent: bool) -> Iterator[None]:
    """Print nothing inside, where ``silent``."""
    if not silent:
        yield
        return
    out, err = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nothing:
        sys.stdout = sys.stderr = nothing
        try:
            yield
        finally:
            sys.stdout, sys.stderr = out, err


def packed(value: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def unpacked(content: bytes) -> Any:
    """Tensors and plain values; anything that would run code is refused."""
    import torch

    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
