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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from itertools import count
from threading import Event, Thread
from time import monotonic, perf_counter, sleep
from typing import Any

import cl_lightning.termination as termination
from cl_lightning.errors import Refusal
from cl_lightning.parallel.rendezvous import TO_START, join_store, rank_from_env

PIECE = 4 << 20  # bytes of one message: torch's store takes up to 8 MB
BEAT = 0.5  # seconds between two signs of life
SILENT = 30.0  # seconds without one after which a rank counts as dead
TO_SAVE = 20.0  # seconds for a rank to save and end, where waiting for torch's store cannot be interrupted
TO_ANSWER = 5.0  # seconds for torch's store to answer at the end
FIRST = 3.0  # seconds in which rank 0 says why it ends, before others do
GONE = "The process that holds the ranks together has ended"


class Ranks:
    """A process that is the only one of its run: rank 0 of 1."""

    rank, size, local_rank = 0, 1, 0
    sent, waited = 0, 0.0  # bytes, seconds

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the run's folder, logs and prints."""
        return self.rank == 0

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on all ranks. Only rank 0's is read."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order, on rank 0; elsewhere nothing."""
        return [value]

    def agree(self, about: Mapping[str, str]) -> None:
        """Refuse ranks that would make another run, or by another program."""

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Raise a sentence inside where this rank ends because another one has ended."""
        yield

    def tell(self) -> None:
        """Say how much ranks have sent, and how long they have waited for one another."""


class SeveralRanks(Ranks):
    """One process of several, each with a device of its own."""

    def __init__(self, rank: int, size: int, local_rank: int, store: Any) -> None:
        self.rank, self.size, self.local_rank, self.store = rank, size, local_rank, store
        self.number = 0  # of the last exchange; the same on all ranks, since all run the same program
        self.read_by_all: list[str] = []  # keys of messages of rank 0's, until the others have read them
        self.trouble: str | None = None  # why another rank has ended; "": it was interrupted

    def broadcast(self, value: Any) -> Any:
        self.number += 1
        if not self.is_writer:
            return self.get(f"{self.number}")
        self.read_by_all += self.put(f"{self.number}", value)
        return value

    def gather(self, value: Any) -> list[Any]:
        self.number += 1
        if not self.is_writer:
            self.put(f"{self.number}-{self.rank}", value)
            return []
        found = [self.get(f"{self.number}-{rank}", last=True) for rank in range(1, self.size)]
        self.remove(self.read_by_all)  # who has come this far has read them
        self.read_by_all = []
        return [value, *found]

    def agree(self, about: Mapping[str, str]) -> None:
        for rank, its in enumerate(self.gather(dict(about))):
            other = [f"{key} {its[key]}, not {value}" for key, value in about.items() if its[key] != value]
            if other:
                raise Refusal(
                    f"Rank {rank} has another run or program than rank 0: {'; '.join(other)}.\n"
                    "Start all ranks with the same settings, seed and program, on machines that are alike."
                )

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

    @contextmanager
    def as_one(self) -> Iterator[None]:
        try:
            yield
        except (SystemExit, RuntimeError) as error:  # torch's errors of the network are of the second kind
            if self.trouble is None and is_of_the_network(error):
                self.trouble = GONE
            if not self.trouble:
                raise
            termination.withdraw()
            raise OtherRankEnded(
                f"{self.trouble}, so this rank has ended, too.\nWhat was trained is kept, and the same "
                "command goes on where it was."
            ) from error

    def tell(self) -> None:
        found = self.gather([self.sent, self.waited])
        if self.is_writer:
            sent, waited = sum(of_one[0] for of_one in found), [of_one[1] for of_one in found]
            print(
                f"{self.size} ranks sent {sent / 1e6:.1f} MB, and waited {min(waited):.1f} to "
                f"{max(waited):.1f} s for one another.",
                file=sys.stderr,
            )


def is_of_the_network(error: BaseException) -> bool:
    from torch.distributed import DistNetworkError

    return isinstance(error, DistNetworkError)


class OtherRankEnded(Refusal):
    """This rank ends because another one does."""


class SignsOfLife:
    """A thread in which ranks tell one another that they live: if one is dead, failed or was asked to end,
    all end.

    A second thread watches the first: torch waits without end for a store that is there and does not answer.
    """

    def __init__(self, ranks: SeveralRanks) -> None:
        self.ranks, self.store = ranks, ranks.store
        self.over = Event()
        self.threads = [Thread(target=function, daemon=True) for function in (self.run, self.guard)]
        self.seen = {rank: (b"", monotonic()) for rank in range(ranks.size)}
        self.beat, self.looked = 0, monotonic()
        self.store.set(f"alive/{ranks.rank}", "0")

    def run(self) -> None:
        while not self.over.wait(BEAT):
            try:
                self.store.set(f"alive/{self.ranks.rank}", str(self.beat + 1))
                self.ranks.trouble = self.trouble()
            except RuntimeError:  # torch's errors of the network are of this kind
                self.ranks.trouble = GONE
            self.beat += 1
            if self.ranks.trouble is not None and not self.over.is_set():
                os.kill(os.getpid(), signal.SIGTERM)  # saves what is being trained, and ends
                return

    def guard(self) -> None:
        last, rounds = -1, 0  # counted, since a process that was suspended has a clock that went on
        while not self.over.wait(BEAT):
            last, rounds = self.beat, rounds + 1 if self.beat == last else 0
            if rounds * BEAT > SILENT and self.threads[0].is_alive():
                self.ranks.trouble = GONE
                os.kill(os.getpid(), signal.SIGTERM)
                if not self.over.wait(TO_SAVE):
                    os._exit(2)  # the main thread waits for the store, too, and hears no signal
                return

    def trouble(self) -> str | None:
        """Why this rank cannot go on."""
        if self.store.check(["ended"]):
            return self.store.get("ended").decode()
        before, self.looked = self.looked, monotonic()
        if self.looked - before > SILENT / 2:  # this process was suspended, and has not seen the others
            self.seen = {rank: (last, self.looked) for rank, (last, _) in self.seen.items()}
        for rank, (last, since) in self.seen.items():
            key = f"alive/{rank}"
            now = self.store.get(key) if self.store.check([key]) else b""
            if now != last:
                self.seen[rank] = now, monotonic()
            elif now != b"left" and monotonic() - since > (SILENT if last else TO_START):
                return f"Rank {rank} has given no sign of life for {monotonic() - since:.0f} seconds"
        return None

    def all_left(self) -> bool:
        keys = [f"alive/{rank}" for rank in self.seen]
        return self.store.check(keys) and all(self.store.get(key) == b"left" for key in keys)

    def end(self, reason: str | None) -> None:
        """Say that this rank is done, or why it failed. Rank 0 leaves last, since it may serve the store; of
        ranks that fail for the same reason it speaks first, since what it says is recorded."""
        self.over.set()
        self.threads[0].join(TO_ANSWER)
        if self.threads[0].is_alive():  # it waits for a store that does not answer
            return
        with suppress(RuntimeError):
            if reason is None:
                self.store.set(f"alive/{self.ranks.rank}", "left")
                while self.ranks.is_writer and not self.all_left() and self.trouble() is None:
                    termination.exit_if_requested()
                    sleep(0.02)
                return
            until = monotonic() + (0 if self.ranks.is_writer or not reason else FIRST)
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
    where = rank_from_env()
    if where is None or _current.size > 1:
        yield _current
        return
    ranks = SeveralRanks(*where, connected(*where[:2]))
    watch, reason = SignsOfLife(ranks), None
    for thread in watch.threads:
        thread.start()
    _current = ranks
    try:
        with quiet(not ranks.is_writer), ranks.as_one():
            yield ranks
    except BaseException as error:
        reason = ranks.trouble
        if reason is None and not termination.is_interruption(error):
            words = str(error).splitlines()[0] if isinstance(error, Refusal) else type(error).__name__
            reason = f"Rank {ranks.rank} has ended: {words}"
        reason = reason or ""
        raise
    finally:
        _current = Ranks()
        watch.end(reason)


def have_met() -> bool:
    """Whether this process has found the other ranks."""
    return bool(_store)


def connected(rank: int, size: int) -> Any:
    """The key-value store that all ranks share."""
    import torch.distributed as dist

    if not _store:
        _store.append(join_store(rank, size))
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)  # torchrun keeps its store over starts
    step = [os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]  # ports may be the same
    return dist.PrefixStore(f"{'.'.join(step)}/start{start}/run{next(_runs)}", _store[0])


@contextmanager
def quiet(silent: bool) -> Iterator[None]:
    """Print nothing inside, where ``silent``."""
    with ExitStack() as streams:
        if silent:
            nothing = streams.enter_context(open(os.devnull, "w"))
            streams.enter_context(redirect_stdout(nothing))
            streams.enter_context(redirect_stderr(nothing))
        yield


def packed(value: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def unpacked(content: bytes) -> Any:
    """Tensors and plain values; anything that would run code is refused."""
    import torch

    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
