"""A run, made in this process, or in others that are started and watched: one for each device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

import cl_lightning.termination as termination
from cl_lightning.config.compose import check_config
from cl_lightning.errors import Diverged, Refusal
from cl_lightning.parallel.rendezvous import STARTER, rank_from_env
from cl_lightning.store.atomic import read_json

TO_SAVE = 40.0  # seconds that ranks have to save what they train, when they are asked to end
KEPT = "What was trained is kept, and the same command goes on where it was."


def run(cfg: DictConfig, command: Sequence[str] = ()) -> float | None:
    """Make, resume or only show the run that ``cfg`` describes; returns what ``experiment.run`` does.

    A process that only starts others imports little, so that they begin soon.
    """
    check_config(cfg)  # before torch is imported
    if cfg.trainer.devices != 1 and rank_from_env() is None:
        from cl_lightning.engine.devices import count_of

        if (count := count_of(cfg.trainer.devices, cfg.trainer.accelerator)) > 1:
            return on_several(cfg, count, command)
    from cl_lightning.runs import run as experiment

    return experiment.run(cfg, command)


def on_several(cfg: DictConfig, count: int, command: Sequence[str]) -> float | None:
    """Run ``cfg`` in so many processes, a device each; returns what rank 0 returns.

    They are new processes of this program, and never forks: CUDA may be initialised here.
    """
    import torch.distributed as dist

    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with TemporaryDirectory(prefix="cl_lightning-") as name:
        folder = Path(name)
        OmegaConf.save(cfg, folder / "config.yaml")  # with its references, as fingerprints want it
        (folder / "job.json").write_text(json.dumps({"command": list(command), "sweep": sweep_job()}))
        env = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(meeting.port),
            "WORLD_SIZE": str(count),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # as under torchrun: the store is there already
            STARTER: str(os.getpid()),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with termination.handled(), termination.deferred(), children(folder, env, count) as ranks:
            while not is_over(ranks) and not termination.requested():
                sleep(0.05)
            by_themselves = [number for number, rank in enumerate(ranks) if rank.poll() is not None]
            end(ranks)
            termination.exit_if_requested()
            return outcome(folder, ranks, by_themselves)


def sweep_job() -> dict[str, Any] | None:
    """Where this process is a job of a sweep: what its ranks need to know of it."""
    if not HydraConfig.initialized():
        return None
    hydra: Any = HydraConfig.get()
    number = OmegaConf.select(hydra, "job.num")
    return {
        "mode": hydra.mode.name if hydra.mode else None,
        "sweeper": {"_target_": hydra.sweeper._target_},
        "callbacks": {"sweep": OmegaConf.to_container(hydra.callbacks.sweep)},
        "sweep": {"dir": str(hydra.sweep.dir)},
        "job": {"num": number},
    }


@contextmanager
def children(folder: Path, env: dict[str, str], count: int) -> Iterator[list[subprocess.Popen]]:
    """The ranks. Those that still run at the end of the block are killed: after a second Ctrl-C, or where one
    could not be started."""
    ranks: list[subprocess.Popen] = []
    try:
        for number in range(count):
            of_rank = {**env, "RANK": str(number), "LOCAL_RANK": str(number)}
            program = [sys.executable, "-m", "cl_lightning.parallel.rank", str(folder)]
            # In a session of its own, since Ctrl-C comes to this process, which asks the ranks to end.
            ranks.append(subprocess.Popen(program, env=of_rank, start_new_session=True))
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.wait()


def is_over(ranks: Sequence[subprocess.Popen]) -> bool:
    """True once all ranks have ended, or one has failed."""
    codes = [rank.poll() for rank in ranks]
    return None not in codes or any(codes)


def end(ranks: Sequence[subprocess.Popen]) -> None:
    """Ask those that are still running to end; those that do not are killed."""
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(signal.SIGTERM)
    until = monotonic() + TO_SAVE
    for rank in ranks:
        try:
            rank.wait(max(0.0, until - monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def outcome(folder: Path, ranks: Sequence[subprocess.Popen], by_themselves: Sequence[int]) -> float | None:
    """What rank 0 returned; or the error of the rank that failed first. What ended ``by_themselves`` comes
    first: the others were asked to end."""
    told = [read_json(folder / f"rank{rank}.json") for rank in range(len(ranks))]
    for rank, said in enumerate(told):
        if "failed" in said and not said["follows"]:
            of_one = rank > 0 and said["met"]  # before ranks meet, what one cannot do none can
            words = f"Rank {rank}: {said['failed']}" if of_one else said["failed"]
            raise (Diverged if said["diverged"] else Refusal)(words)
    for rank in sorted(range(len(ranks)), key=lambda rank: rank not in by_themselves):
        code = ranks[rank].returncode
        if code < 0:
            number = signal.Signals(-code).name
            raise Refusal(f"Rank {rank} of {len(ranks)} was ended by {number}, so all have ended.\n{KEPT}")
        if code in termination.EXIT_CODES:
            raise SystemExit(code)
        if code:
            raise Refusal(f"Rank {rank} of {len(ranks)} ended with code {code}.\n{KEPT}")
    return told[0].get("value")
