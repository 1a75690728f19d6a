"""One run on several devices: the same results, whoever trains which candidate, and whoever dies."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from cl_lightning import termination
from cl_lightning.cli.command import main
from cl_lightning.engine.phases import Phases
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import Candidate
from cl_lightning.parallel import ranks as ranks_module
from cl_lightning.parallel import rendezvous as meeting
from cl_lightning.parallel import starter
from cl_lightning.parallel.shares import dealt, divided
from cl_lightning.store.folder import open_store
from cl_lightning.store.records import InsideRecord
from cl_lightning.store.status import status_of
from tests import commands, toys
from tests.commands import SMALL, but_what_may_differ, configure, process, results_in, run
from tests.dying import in_a_child
from tests.ranks import on_ranks, started

GRID = ("selection.grid.lr=[0.001,0.01]", "selection.grid.weight_decay=[0.0,0.001]")
SEQUENCE = ("stream.tasks=3", *GRID, "trainer.block=2")


def folder_of(outputs: Path, *overrides: str) -> Path:
    return commands.folder_of(configure(f"outputs={outputs}", *SMALL, *overrides))


# ---- who trains what ---------------------------------------------------------------------------------------


def test_each_candidate_is_trained_by_one_rank_and_winners_come_from_all(tmp_path: Path) -> None:
    original = Phases.train_group

    def noted(self: Phases, learner, phase, numbers, task, place):
        with (tmp_path / f"rank{self.ranks.rank}").open("a") as file:
            file.write(f"{json.dumps([place.name, numbers])}\n")
        return original(self, learner, phase, numbers, task, place)

    with patch.object(Phases, "train_group", noted):
        on_ranks(2, tmp_path / "out", "learner=mntdp_d", *SEQUENCE)
    by_rank = [
        {
            (task, number)
            for task, numbers in map(json.loads, path.read_text().splitlines())
            for number in numbers
        }
        for path in sorted(tmp_path.glob("rank*"))
    ]
    found = results_in(tmp_path / "out")
    proposed = {(f"task{s['task']}", i) for s in found["selected"] for i in range(s["candidates"])}
    assert len(by_rank) == 2
    assert by_rank[0] | by_rank[1] == proposed
    assert not by_rank[0] & by_rank[1]
    sizes = [sum(task == "task2" for task, _ in numbers) for numbers in by_rank]
    assert abs(sizes[0] - sizes[1]) <= 1
    names = {
        s["task"]: [c["candidate"] for c in s["compared"]].index(s["candidate"]) for s in found["selected"]
    }
    owners = {rank for rank in (0, 1) for task, i in names.items() if (f"task{task}", i) in by_rank[rank]}
    assert 1 in owners, "rank 0 won all: the sending of weights is not tested"


def test_candidates_that_train_much_and_little_are_dealt_out_evenly() -> None:
    candidates = [Candidate(torch.nn.Linear(10, 10 * (i // 2 + 1)), name=str(i)) for i in range(8)]
    shares = divided(candidates, range(8), None, devices=2)
    weights = [sum(p.numel() for i in share for p in candidates[i].parameters) for share in shares]
    assert sorted(i for share in shares for i in share) == list(range(8))
    assert weights[0] == weights[1]
    assert sorted(len(share) for share in divided(candidates, range(7), 2, devices=2)) == [1, 2, 2, 2]
    assert divided(candidates, [3, 5], None, devices=4) == [[5], [3]]
    assert dealt([4, 1], 1) == [[1, 4]]


# ---- ends --------------------------------------------------------------------------------------------------

LONG = (*SEQUENCE, "stream.tasks=2", "trainer.batch_size=16", "trainer.max_epochs=6", "trainer.patience=1000",
        "trainer.checkpoint_minutes=0", "backbone.dropout=0.2")  # fmt: skip


def killed_at_block(victim: int, block: int, number: int):
    """A rank's program, in which one rank is sent a signal at the beginning of a block."""
    from cl_lightning.engine import phases
    from cl_lightning.runs.run import run as run_config

    def program(cfg):
        def as_rank(rank: int) -> None:
            original, left = phases.train_block, [block]

            def counted(*arguments) -> None:
                left[0] -= 1
                if rank == victim and left[0] == 0:
                    os.kill(os.getpid(), number)
                original(*arguments)

            phases.train_block = counted
            run_config(cfg, [])

        return as_rank

    return program


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Results of the undisturbed run."""
    return but_what_may_differ(run(tmp_path_factory.mktemp("whole"), *LONG))


@pytest.mark.parametrize(
    ("victim", "block", "number", "again"),
    [
        (1, 5, signal.SIGKILL, 1),
        pytest.param(0, 9, signal.SIGKILL, 2, marks=pytest.mark.all),
        (1, 3, signal.SIGTERM, 3),
        pytest.param(0, 4, signal.SIGINT, 2, marks=pytest.mark.all),
    ],
)
def test_where_a_rank_dies_all_end_and_any_number_of_ranks_goes_on(
    victim: int, block: int, number: int, again: int, tmp_path: Path, whole: dict, monkeypatch
) -> None:
    monkeypatch.setattr(ranks_module, "SILENT", 2.0)  # seconds
    cfg = configure(f"outputs={tmp_path}", *SMALL, *LONG)
    with started(2, killed_at_block(victim, block, number)(cfg)) as processes:
        for each in processes:
            each.join(60)
        codes = [each.exitcode for each in processes]
    assert codes[victim] == (-number if number == signal.SIGKILL else 128 + number)
    assert codes[1 - victim] not in (0, None)
    store, _ = open_store(folder_of(tmp_path, *LONG))
    begun = store.records("work/inside", InsideRecord)
    assert begun, "nothing of the open phase was kept"
    if number != signal.SIGKILL:
        assert sorted(n for record in begun for n in record.numbers) == [0, 1, 2, 3], "both ranks save theirs"
    assert on_ranks(again, tmp_path, *LONG) == [0] * again if again > 1 else run(tmp_path, *LONG)
    assert but_what_may_differ(results_in(tmp_path)) == whole


class FailsOnRank1(toys.Coreset):
    def after_backward(self, c, batch) -> None:
        if ranks_module.current().rank == 1:
            raise ValueError("no luck")


class DiesOnRank1(toys.Coreset):
    def after_backward(self, c, batch) -> None:
        if ranks_module.current().rank == 1 and self.phase_run.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)


class InterruptsTheCommand(toys.Coreset):
    """Its rank 1 presses Ctrl-C once, in the fourth mini-batch, when rank 0 is as far."""

    def after_backward(self, c, batch) -> None:
        run, as_far = self.phase_run, Path(os.environ["RANK_0_TRAINS"])
        if run.step == 3 and c is run.candidates[run.trainable[0]]:
            if ranks_module.current().rank == 0:
                as_far.touch()
                return
            until = time.monotonic() + 120
            while not as_far.exists():
                assert time.monotonic() < until, "rank 0 does not train"
                time.sleep(0.1)
            os.kill(os.getppid(), signal.SIGINT)


class SavesForEver(toys.Coreset):
    """Its rank 1 presses Ctrl-C twice, and then takes longer to end than the command waits."""

    def after_backward(self, c, batch) -> None:
        if ranks_module.current().rank == 1 and self.phase_run.step == 3:
            Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
            for _ in range(2):
                os.kill(os.getppid(), signal.SIGINT)
                time.sleep(3)  # two signals at one instant would be one
            time.sleep(2 * starter.TO_SAVE)


class OutOfMemory(toys.Coreset):
    def after_backward(self, c, batch) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


class OutOfMemoryAtTheEnd(toys.Coreset):
    def on_task_end(self, task) -> None:
        raise RuntimeError("MPS backend out of memory (MPS allocated: 9 GiB)")


def test_a_rank_that_waits_for_others_has_saved_what_it_trained(tmp_path: Path, whole: dict) -> None:
    original, calls = Phases.exchanged, []

    def killed_with_its_first(self: Phases, *arguments):
        calls.append(None)
        if self.ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *arguments)

    with patch.object(ranks_module, "SILENT", 2.0), patch.object(Phases, "exchanged", killed_with_its_first):
        assert on_ranks(2, tmp_path, *LONG, "trainer.checkpoint_minutes=5")[1] == -signal.SIGKILL
    store, _ = open_store(folder_of(tmp_path, *LONG))
    steps = [record.step for record in store.records("work/inside", InsideRecord)]
    assert len(steps) == 2
    assert min(steps) > 20, "nearly all mini-batches of a task"
    assert on_ranks(2, tmp_path, *LONG) == [0, 0]
    assert but_what_may_differ(results_in(tmp_path)) == whole


def commanded(rank: int, *arguments: str) -> None:
    """A rank as torchrun and srun start it: the command itself, without anybody who watches it."""
    sys.exit(main([*SMALL, *SEQUENCE, "stream.tasks=2", *arguments]))


def test_a_rank_says_that_another_has_failed_and_so_does_the_status(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    learner = ("learner._target_=tests.test_devices.FailsOnRank1", "learner.name=fails")
    with started(2, lambda rank: commanded(rank, *learner, f"outputs={tmp_path}")) as processes:
        for each in processes:
            each.join(60)
        assert [each.exitcode for each in processes] == [2, 2]
    said = capfd.readouterr().err
    assert "Rank 1 has ended: FailsOnRank1.after_backward raised ValueError: no luck, so this rank" in said
    status = status_of(next(tmp_path.rglob("run.json")).parent)
    assert status.state == "failed"
    assert "no luck" in str(status.said)


def test_a_rank_that_is_asked_to_end_has_not_failed(tmp_path: Path) -> None:
    cfg = configure(f"outputs={tmp_path}", *SMALL, *LONG)
    with started(2, killed_at_block(1, 3, signal.SIGTERM)(cfg)) as processes:
        for each in processes:
            each.join(60)
        assert [each.exitcode for each in processes] == [143, 143]
    assert status_of(folder_of(tmp_path, *LONG)).state == "interrupted"


def test_rank_0_waits_for_those_that_take_longer(tmp_path: Path) -> None:
    """Under srun it serves the store that holds all together."""
    cfg = configure(f"outputs={tmp_path}", *SMALL, *SEQUENCE, "stream.tasks=2")

    def as_rank(rank: int) -> None:
        from cl_lightning.runs.run import run as run_config

        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
        if rank == 1:
            original = Evaluator.validate
            Evaluator.validate = lambda *given: (time.sleep(3), original(*given))[1]
        run_config(cfg, [])

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started(2, as_rank, port) as processes:
        for each in processes:
            each.join(60)
        assert [each.exitcode for each in processes] == [0, 0]


def test_a_rank_ends_with_the_command_that_started_it(monkeypatch) -> None:
    nowhere = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9", meeting.STARTER: "1"}
    for name, value in nowhere.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Refusal, match="has ended, so the rank ends, too"):
        meeting.join_store(1, 2)


def test_a_rank_can_be_interrupted_while_it_looks_for_the_others(tmp_path: Path) -> None:
    def looking(rank: int) -> None:
        os.environ["MASTER_PORT"] = "9"
        with termination.handled():
            (tmp_path / "looks").touch()
            meeting.join_store(1, 2)

    with started(1, looking) as (process,):
        while not (tmp_path / "looks").exists():
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGTERM)
        process.join(60)
        assert process.exitcode == 143


def test_sweeps_are_for_one_process(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["--multirun", "seed=0,1", f"outputs={tmp_path}"]) == 2
    assert "A sweep is for one process, and torchrun or srun has started 2" in capsys.readouterr().err


DEVICES = ("trainer.devices=2", "trainer.accelerator=cpu")


def test_the_command_starts_ranks_and_ends_as_one_process(tmp_path: Path) -> None:
    options = [*SMALL, *SEQUENCE, "stream.tasks=2", "progress=true"]
    ended = process(*options, *DEVICES, f"outputs={tmp_path / 'many'}")
    assert ended.stdout.count("Results: ") == 1
    assert re.search(r"2 ranks sent \d\.\d MB, and waited \d+\.\d to \d+\.\d s", ended.stderr)
    assert "Traceback" not in ended.stderr
    many = results_in(tmp_path / "many")
    assert many["command"] == [*options, *DEVICES, f"outputs={tmp_path / 'many'}"]
    assert but_what_may_differ(many) == but_what_may_differ(run(tmp_path / "one", *options, small=False))


@pytest.mark.all
def test_torchruns_ranks_are_taken_as_found(tmp_path: Path) -> None:
    options = [*SMALL, *SEQUENCE, "stream.tasks=2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, "-m", "cl_lightning", *options, f"outputs={tmp_path / 'many'}"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Results: ") == 1
    alone = run(tmp_path / "one", *options, small=False)
    assert but_what_may_differ(results_in(tmp_path / "many")) == but_what_may_differ(alone)


@pytest.mark.all
def test_a_rank_that_fails_is_named(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    learner = ("learner._target_=tests.test_devices.FailsOnRank1", "learner.name=fails")
    began = time.monotonic()
    assert main([*SMALL, *SEQUENCE, *learner, *DEVICES, f"outputs={tmp_path}"]) == 2
    assert "Rank 1: FailsOnRank1.after_backward raised ValueError: no luck" in capfd.readouterr().err
    assert time.monotonic() - began < 60


def test_a_device_whose_memory_is_used_up_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"(?s)memory.*4 candidates.*trainer\.candidates_at_once=2"):
        run(tmp_path, *SEQUENCE, "learner._target_=tests.test_devices.OutOfMemory", "learner.name=large")


def test_between_phases_too(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    learner = ("learner._target_=tests.test_devices.OutOfMemoryAtTheEnd", "learner.name=large")
    assert main([*SMALL, *SEQUENCE, *learner, f"outputs={tmp_path}"]) == 2
    said = capfd.readouterr().err
    assert "The memory is too small: MPS backend out of memory" in said
    assert "trainer.candidates_at_once" in said


@pytest.mark.all
def test_a_rank_that_is_killed_is_named(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    learner = ("learner._target_=tests.test_devices.DiesOnRank1", "learner.name=dies")
    assert main([*SMALL, *SEQUENCE, *learner, *DEVICES, f"outputs={tmp_path}"]) == 2
    assert "Rank 1 of 2 was ended by SIGKILL, so all have ended." in capfd.readouterr().err


@pytest.mark.all
def test_ctrl_c_saves_what_all_ranks_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK_0_TRAINS", str(tmp_path / "trains"))
    learner = ("learner._target_=tests.test_devices.InterruptsTheCommand", "learner.name=interrupts")
    long = ("trainer.max_epochs=500", "trainer.patience=null")
    assert main([*SMALL, *SEQUENCE, *long, *learner, *DEVICES, f"outputs={tmp_path}"]) == 130
    folder = next(tmp_path.rglob("run.json")).parent
    begun = open_store(folder)[0].records("work/inside", InsideRecord)
    assert sorted(n for record in begun for n in record.numbers) == [0, 1, 2, 3]
    assert status_of(folder).state == "interrupted"


@pytest.mark.all
def test_a_second_ctrl_c_does_not_wait_and_leaves_no_rank_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    learner = ("learner._target_=tests.test_devices.SavesForEver", "learner.name=saves")
    began = time.monotonic()
    assert main([*SMALL, *SEQUENCE, *learner, *DEVICES, f"outputs={tmp_path / 'runs'}"]) == 130
    assert time.monotonic() - began < starter.TO_SAVE
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.all
def test_ranks_whose_starter_was_killed_clear_up_behind_it(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    long = ("trainer.max_epochs=5000", "trainer.patience=null")
    arguments = [*SMALL, *SEQUENCE, *long, *DEVICES, f"outputs={tmp_path / 'runs'}"]
    starting = subprocess.Popen(
        [sys.executable, "-m", "cl_lightning", *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + 120
    while not list(tmp_path.rglob("run.json")):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert list((tmp_path / "tmp").glob("cl_lightning-*/job.json"))
    starting.kill()
    starting.communicate(timeout=120)  # the ranks have its stderr, too: to its end, which is theirs
    assert not list((tmp_path / "tmp").glob("cl_lightning-*/job.json"))


def test_a_learner_with_one_candidate_says_that_more_devices_do_not_help(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    assert on_ranks(2, tmp_path, "learner=gem", "selection=none") == [0, 0]
    assert capfd.readouterr().err.count("one candidate") == 1


# ---- what is asked for and what is found -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, (1, 4, 1)),
        # A job script of Slurm's sees how many tasks srun could start; srun's own tasks are ranks.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
    ],
)
def test_ranks_are_those_that_torchrun_or_srun_started(variables: dict, expected, monkeypatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", *(n for n in os.environ if n.startswith("SLURM_"))):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert meeting.rank_from_env() == expected


def test_inside_slurm_lightning_neither_requeues_nor_takes_ranks(tmp_path: Path, monkeypatch) -> None:
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "x", "SLURM_PROCID": "3", "SLURM_LOCALID": "3",
                        "SLURM_JOB_ID": "7", "SLURM_NODELIST": "n1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGUSR1)
    assert run(tmp_path, *SEQUENCE)["metrics"]["average_accuracy"] > 0
    assert signal.getsignal(signal.SIGUSR1) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="here there is CUDA")
def test_accelerators_that_are_not_there_are_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="Here there is: cpu"):
        run(tmp_path, "trainer.accelerator=cuda")
    with pytest.raises(Refusal, match=r"trainer\.devices=2.*trainer\.accelerator=cpu"):
        starter.run(configure(f"outputs={tmp_path}", "trainer.accelerator=gpu", "trainer.devices=2"))


@pytest.mark.all
def test_what_no_rank_can_do_is_said_once_and_names_no_rank(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    assert main([*SMALL, "learner=ewc", "learner.strength=-1", *DEVICES, f"outputs={tmp_path}"]) == 2
    said = capfd.readouterr().err
    assert said.count("learner.strength=-1") == 1
    assert "Rank" not in said


def test_the_process_that_starts_ranks_imports_neither_lightning_nor_the_learners(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from cl_lightning.parallel import starter\n"
        "starter.on_several = lambda *_: print(sorted({'torch', 'pytorch_lightning', "
        "'cl_lightning.learners', 'cl_lightning.runs.run'} & set(sys.modules)))\n"
        "from cl_lightning.cli.command import main\n"
        "main(sys.argv[1:])\n"
    )
    words = [*SMALL, *DEVICES, f"outputs={tmp_path}"]
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert ended.stdout.strip() == "['torch']", ended.stderr


def test_ranks_of_different_runs_do_not_mix(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with started(2, lambda rank: commanded(rank, f"seed={rank}", f"outputs={tmp_path}")) as processes:
        for each in processes:
            each.join(60)
        assert [each.exitcode for each in processes] == [2, 2]
    said = capfd.readouterr().err
    assert re.search(r"Rank 1 has another run or program than rank 0: run \w+-s1, not \w+-s0", said)
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SLURM_NODELIST": "gpu[07-12]", "SLURM_JOB_ID": "770123"}, ("gpu07", 15_000 + 7_701_230 % 15_000)),
        (
            {"SLURM_NODELIST": "a,b", "SLURM_STEP_NODELIST": "b", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "3"},
            ("b", 15_053),
        ),
        ({"SLURM_NODELIST": "a", "SLURM_JOB_ID": "5", "MASTER_ADDR": "m", "MASTER_PORT": "9"}, ("m", 9)),
    ],
)  # fmt: skip
def test_sruns_tasks_meet_on_the_first_node_of_their_step(variables: dict, expected, monkeypatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", *(n for n in os.environ if n.startswith("SLURM_"))):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "python", **variables}.items():
        monkeypatch.setenv(name, value)
    assert meeting.meeting_place() == expected
    assert "MASTER_ADDR" not in os.environ or "MASTER_ADDR" in variables


def test_inside_slurm_lightning_finds_no_checkpoint_to_go_on_from(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes(b"somebody else's")
    monkeypatch.chdir(tmp_path)
    for name, value in {"SLURM_NTASKS": "1", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    assert run(tmp_path / "out", *SEQUENCE)["metrics"]["average_accuracy"] > 0


class SilentStore:
    """Takes the first word, and then neither takes nor answers anything."""

    def __init__(self) -> None:
        self.set = lambda *_: setattr(self, "set", self.check)

    def check(self, *_) -> bool:
        threading.Event().wait()
        return False


@pytest.mark.parametrize("hears", [True, False])
def test_a_rank_ends_where_the_store_is_there_and_does_not_answer(hears: bool, monkeypatch) -> None:
    for name, seconds in {"BEAT": 0.05, "SILENT": 0.3, "TO_SAVE": 0.3, "TO_ANSWER": 0.3}.items():
        monkeypatch.setattr(ranks_module, name, seconds)

    def rank() -> None:
        watch = ranks_module.SignsOfLife(ranks_module.SeveralRanks(1, 2, 1, SilentStore()))
        signal.signal(signal.SIGTERM, (lambda *_: sys.exit(143)) if hears else signal.SIG_IGN)
        for thread in watch.threads:
            thread.start()
        try:
            time.sleep(30)
        finally:
            watch.end("")

    assert in_a_child(rank) == (143 if hears else 2)


@pytest.mark.parametrize(
    ("codes", "by_themselves", "expected"),
    [
        ([-15, 143], [1], "143"),  # rank 1 was asked to end; rank 0, later, by the starter
        ([143, -9], [1], "Rank 1 of 2 was ended by SIGKILL"),
        ([143, 7], [1], "Rank 1 of 2 ended with code 7"),
    ],
)
def test_the_rank_that_ended_by_itself_says_why_all_have_ended(
    codes: list[int], by_themselves: list[int], expected: str, tmp_path: Path
) -> None:
    ended = [SimpleNamespace(returncode=code) for code in codes]
    with pytest.raises((Refusal, SystemExit), match=expected):
        starter.outcome(tmp_path, ended, by_themselves)
