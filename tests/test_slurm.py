"""Sweeps on a real Slurm of one node, which the tests start."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from pytorch_lightning import Callback

from cl_lightning.cli.command import main
from cl_lightning.config.resolvers import conf_dir
from tests.slurm_node import slurm_node, why_not

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.all,
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"no Slurm can be started here: {WHY_NOT}"),
]
SMALL = (
    "stream=permuted", "stream.tasks=2", "stream.n_train=100", "stream.n_val=50", "stream.n_test=50",
    "data.sources.mnist.train=500", "data.sources.mnist.test=100", "trainer.batch_size=10",
    "trainer.max_epochs=1", "trainer.block=1", "trainer.checkpoint_minutes=0", "trainer.patience=null",
    "selection=none", "figures=false", "progress=false", "logger=none",
)  # fmt: skip
SLOW = "trainer.callbacks=[{_target_: tests.test_slurm.Slow}]"  # ten mini-batches a task: ten seconds in all
SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=10")
PATIENCE = 600  # seconds, on a machine that has much else to do
ROOT = Path(__file__).parents[1]


class Slow(Callback):
    """Half a second for each mini-batch, without work for the processor."""

    def on_train_batch_end(self, *_: Any) -> None:
        sleep(0.5)


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    with slurm_node() as env:
        yield {**env, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def begin(slurm: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a command in an empty folder; what still runs at the end of the test is ended."""
    started = []

    def start(*arguments: str, program: tuple[str, ...] = ("-m", "cl_lightning")) -> subprocess.Popen:
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, *program, *arguments], env=slurm, cwd=tmp_path, **pipes)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    subprocess.run(["scancel", "--user=root"], env=slurm)


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    until = monotonic() + seconds
    while not (found := what()):
        assert monotonic() < until, "it never came"
        sleep(0.3)
    return found


def squeue(env: dict[str, str], *options: str) -> list[str]:
    said = subprocess.run(["squeue", "-h", "--array", *options], env=env, capture_output=True, text=True)
    return said.stdout.split()


@contextmanager
def no_job_begins(env: dict[str, str]) -> Iterator[None]:
    """Jobs wait in Slurm's queue, however long what is done inside takes."""
    node = subprocess.run(["sinfo", "-h", "-o", "%n"], env=env, capture_output=True, text=True).stdout.strip()
    change = ["scontrol", "update", f"nodename={node}"]
    subprocess.run([*change, "state=drain", "reason=test"], env=env, check=True)
    try:
        yield
    finally:
        subprocess.run([*change, "state=resume"], env=env, check=True)


def training(folder: Path) -> dict[str, Path]:
    """The runs below a folder that train their first task, by learner."""
    begun = (json.loads(path.read_text()) for path in folder.glob("outputs/*/sweeps/*/jobs/*.json"))
    runs = [Path(job["folder"]) for job in begun if "folder" in job]
    return {
        run.parent.name: run for run in runs if (run / "status.json").is_file() and any(run.glob("work/*"))
    }


def matrices(folder: Path) -> dict[str, Any]:
    """What is learned, by learner: each run's accuracies and choices."""
    found = {}
    for path in folder.glob("*/*/*/results.json"):
        results = json.loads(path.read_text())
        found[path.parent.parent.name] = (results["accuracy_matrix"], results["selected"])
    return found


def alone(folder: Path, *learners: str, more: tuple[str, ...] = ()) -> dict[str, Any]:
    for learner in learners:
        assert main([*SMALL, *more, f"learner={learner}", f"outputs={folder}"]) == 0
    return matrices(folder)


def test_cancelled_preempted_and_left_alone(slurm: dict[str, str], begin, tmp_path: Path) -> None:
    """Of two jobs one is cancelled, which ends it alone; Slurm preempts the other and puts it back
    to go on. The same command then does what is missing, with the usual results."""
    command = ("--multirun", *SMALL, SLOW, *SLURM, "learner=finetune,ewc")
    sweep = begin(*command)
    wait_for(lambda: len(training(tmp_path)) == 2)
    cancelled, preempted = sorted(squeue(slurm, "--format=%i"))
    subprocess.run(["scancel", cancelled], env=slurm, check=True)
    wait_for(lambda: squeue(slurm, "--format=%i") == [preempted])
    subprocess.run(["srun", "-p", "high", "-c", "2", "true"], env=slurm, check=True)
    assert squeue(slurm, f"--jobs={preempted}", "--Format=RestartCnt") == ["1"], "it is put back"
    said = sweep.communicate(timeout=PATIENCE)[1]
    assert sweep.returncode == 2
    assert "1 of 2 jobs are done" in said
    assert "learner=finetune: It was killed" in said
    assert "sacct" not in said
    again = begin(*command)
    said = again.communicate(timeout=PATIENCE)[1]
    assert again.returncode == 0, said
    assert matrices(tmp_path / "outputs") == alone(tmp_path / "alone", "finetune", "ewc")


def test_a_time_limit_shorter_than_the_run(slurm: dict[str, str], begin, tmp_path: Path) -> None:
    """Slurm's signal comes first, up to half a minute early; the job is put back and goes on from its last
    checkpoint."""
    limits = ("hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=10")
    longer = "stream.tasks=10"
    again = "hydra.launcher.max_num_timeout=10"
    sweep = begin("--multirun", *SMALL, longer, SLOW, *SLURM, *limits, again, "learner=finetune")
    said = sweep.communicate(timeout=PATIENCE)[1]
    assert sweep.returncode == 0, said
    logs = [path.read_text() for path in tmp_path.glob("outputs/*/sweeps/*/.submitit/*/*_log.err")]
    assert any("this job is timed-out" in log for log in logs)
    assert matrices(tmp_path / "outputs") == alone(tmp_path / "alone", "finetune", more=(longer,))


def test_ctrl_c_at_the_sweep_cancels_its_jobs(slurm: dict[str, str], begin, tmp_path: Path) -> None:
    sweep = begin("--multirun", *SMALL, SLOW, *SLURM, "learner=finetune,ewc")
    runs = wait_for(lambda: len(found := training(tmp_path)) == 2 and found)
    sweep.send_signal(signal.SIGINT)
    said = sweep.communicate(timeout=PATIENCE)[1]
    assert sweep.returncode == 130
    assert "0 of 2 jobs are done" in said
    assert "to go on: python -m cl_lightning --multirun" in said
    wait_for(lambda: not squeue(slurm, "--format=%i"))
    states = {json.loads((run / "status.json").read_text())["state"] for run in runs.values()}
    assert states == {"interrupted"}, "they have saved what they had"


@pytest.mark.parametrize("how", [(), ("--submit",)])
def test_what_slurm_does_not_take_is_a_sentence(how: tuple[str, ...], begin) -> None:
    sweep = begin("--multirun", *SMALL, *SLURM, "learner=finetune", "hydra.launcher.partition=nowhere", *how)
    said = sweep.communicate(timeout=PATIENCE)[1]
    assert sweep.returncode == 2
    assert re.search("Slurm took no job: .*nvalid partition.*nowhere", said)
    assert "hydra.launcher.partition, " in said


def test_rounds_on_slurm_end_as_one_process(begin, tmp_path: Path) -> None:
    grid = ("+selection.grid.lr=[0.1,0.01,0.001]", "stream.tasks=1")
    cut = ("hydra/sweeper=cl_task_level", "trainer.candidates_at_once=2")
    sweep = begin(*SMALL, *grid, *cut, *SLURM, "learner=finetune")
    said = sweep.communicate(timeout=PATIENCE)[1]
    assert sweep.returncode == 0, said
    assert matrices(tmp_path / "outputs") == alone(tmp_path / "alone", "finetune", more=grid)


def test_srun_starts_ranks_that_end_as_one_process(slurm: dict[str, str], tmp_path: Path) -> None:
    grid = ("+selection.grid.lr=[0.1,0.01,0.001]", "stream.tasks=1")
    own = (*SMALL, *grid, "learner=finetune", "progress=true", f"outputs={tmp_path / 'outputs'}")
    command = ["srun", "-n2", sys.executable, "-m", "cl_lightning", *own, "trainer.accelerator=cpu"]
    done = subprocess.run(command, env=slurm, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "2 ranks sent" in done.stderr
    assert matrices(tmp_path / "outputs") == alone(tmp_path / "alone", "finetune", more=grid)


def test_the_documented_command_leaves_its_sweep_to_slurm(
    slurm: dict[str, str], begin, tmp_path: Path
) -> None:
    """Word for word; ``report status`` tells the rest."""
    page = (Path(conf_dir()).parent / "docs" / "devices.md").read_text().replace("\\\n", "")
    (submit,) = (line for line in page.splitlines() if re.match("python -m cl_lightning .*--submit", line))
    words = shlex.split(submit)[3:]
    with no_job_begins(slurm):
        left = begin(*words)
        said = left.communicate(timeout=PATIENCE)[1]
        assert left.returncode == 0, said
        assert "2 of 2 jobs are with Slurm" in said
        status = begin("status", program=("-m", "cl_lightning.report"))
        assert "with Slurm" in status.communicate(timeout=PATIENCE)[0]
        twice = begin(*words)
        assert "still with Slurm" in twice.communicate(timeout=PATIENCE)[1]
        assert twice.returncode == 2
    wait_for(lambda: not squeue(slurm, "--format=%i"))
    status = begin("status", program=("-m", "cl_lightning.report"))
    assert "sweep done: 2 done" in status.communicate(timeout=PATIENCE)[0]
