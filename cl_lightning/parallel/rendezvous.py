"""How the processes of one run find one another: who started them, and where they meet."""

from __future__ import annotations

import os
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import cl_lightning.termination as termination
from cl_lightning.errors import Refusal

TO_START = 300.0  # seconds in which all ranks must have come
ATTEMPT = 2.0  # seconds in which one attempt to meet the others cannot be interrupted
FIRST_PORT, PORTS = 15_000, 15_000  # of srun's tasks: a port for each step of a job
STARTER = "CL_LIGHTNING_STARTER"  # the process that has started this one as a rank


def rank_from_env() -> tuple[int, int, int] | None:
    """Rank, number of ranks and rank on this machine, as torchrun, ``trainer.devices`` or srun tell them;
    None where this process is alone."""
    env = os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        where = int(env["RANK"]), int(env["WORLD_SIZE"]), int(env.get("LOCAL_RANK", 0))
    elif int(env.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # set by srun, and not by sbatch
        where = (int(env["SLURM_PROCID"]), int(env["SLURM_STEP_NUM_TASKS"]), int(env.get("SLURM_LOCALID", 0)))
    else:
        return None
    return where if where[1] > 1 else None


def is_orphaned() -> bool:
    """Whether the process that has started this one as a rank has ended."""
    return os.environ.get(STARTER, str(os.getppid())) != str(os.getppid())


def join_store(rank: int, size: int) -> Any:
    """The store at the place where all ranks meet. Looked for in short attempts: signals are not handled
    while torch waits."""
    import torch.distributed as dist

    host, port = meeting_place()
    # Set by torchrun and by trainer.devices, which serve the store themselves.
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    until = monotonic() + TO_START
    while True:
        termination.exit_if_requested()
        if is_orphaned():
            raise Refusal("The command that has started this rank has ended, so the rank ends, too.")
        try:
            attempt = timedelta(seconds=ATTEMPT)
            store = dist.TCPStore(host, port, None, serves, attempt, False, multi_tenant=True)
        except (RuntimeError, ValueError) as reason:
            if monotonic() > until:
                raise Refusal(
                    f"Rank {rank} of {size} did not find the others at {host}, port {port}: "
                    f"{str(reason).splitlines()[0]}\n"
                    "Start all ranks together: trainer.devices=N on one machine, torchrun or srun over "
                    "several."
                ) from reason
            sleep(0.1)
        else:
            store.set_timeout(timedelta(seconds=TO_START))
            return store


def meeting_place() -> tuple[str, int]:
    """Host and port, as torchrun or ``trainer.devices`` say them, or of the first of srun's nodes."""
    env = os.environ
    if "MASTER_ADDR" in env and "MASTER_PORT" in env:
        return env["MASTER_ADDR"], int(env["MASTER_PORT"])
    from lightning_fabric.plugins.environments import SLURMEnvironment

    nodes = env.get("SLURM_STEP_NODELIST") or env["SLURM_NODELIST"]  # a step may have a part of a job's nodes
    number = 10 * int(env["SLURM_JOB_ID"]) + int(env.get("SLURM_STEP_ID", 0)) % 10
    return SLURMEnvironment.resolve_root_node_address(nodes), FIRST_PORT + number % PORTS


def refuse_several(what: str) -> None:
    """Refuse what one process must do, where torchrun or srun has started several."""
    if (where := rank_from_env()) is not None:
        raise Refusal(
            f"{what} is for one process, and torchrun or srun has started {where[1]} of this one. Start it "
            "once, with trainer.devices=N or a launcher: its runs then have several devices."
        )
