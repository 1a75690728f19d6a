"""A Slurm of one node on this machine, up in seconds: all of it lies in one folder, and ends with the block.

It needs root, and Debian's packages ``slurm-wlm`` and ``munge``. ``python -m tests.slurm_node`` starts one to
try commands on.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=20
SchedulerParameters=sched_interval=2,batch_sched_delay=1
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str | None:
    """Why no node can be started here; None if one can."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurm-wlm munge"
    return "Slurm's daemons need root" if os.geteuid() != 0 else None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for_node(env: dict[str, str], folder: Path) -> None:
    state, until = "", monotonic() + 60
    while "idle" not in state:
        if monotonic() > until:
            raise TimeoutError("\n".join(log.read_text()[-2000:] for log in folder.glob("*.log")))
        state = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True).stdout
        sleep(0.2)


@contextmanager
def slurm_node(cpus: int = 2) -> Iterator[dict[str, str]]:
    """The environment in which ``sbatch`` finds the node."""
    with TemporaryDirectory(prefix="slurm-") as name:
        folder, host = Path(name), socket.gethostname().partition(".")[0]
        folder.chmod(0o755)
        conf, key = folder / "slurm.conf", folder / "munge.key"
        ports = {"controller": free_port(), "node": free_port()}
        conf.write_text(CONF.format(host=host, folder=folder, cpus=cpus, **ports))
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        env = {**os.environ, "SLURM_CONF": str(conf)}
        names = ("key-file=munge.key", "socket=munge.socket", "log-file=munge.log", "pid-file=munge.pid")
        munge = [f"--{name}".replace("=", f"={folder}/") for name in (*names, "seed-file=munge.seed")]
        munged = ["munged", "--force", "--foreground", *munge]
        running = []
        try:
            for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", host]):
                with (folder / f"{command[0]}.out").open("w") as out:
                    running.append(subprocess.Popen(command, env=env, stdout=out, stderr=out))
                sleep(0.3)
            wait_for_node(env, folder)
            yield env
        finally:
            subprocess.run(["scancel", "--full", "--user=root"], env=env, capture_output=True)
            for daemon in reversed(running):
                daemon.terminate()
            for daemon in reversed(running):
                try:
                    daemon.wait(30)
                except subprocess.TimeoutExpired:  # it waits for a job's last words
                    daemon.kill()
                    daemon.wait()


if __name__ == "__main__":
    if refused := why_not():
        sys.exit(refused)
    with slurm_node() as env:
        print("A shell in which sbatch finds the node; exit ends it.")
        subprocess.run([os.environ.get("SHELL", "bash")], env=env)
