"""Killed at any instant, the same command goes on and ends with the same results."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from cl_lightning.callbacks import StreamCallback
from cl_lightning.engine.phases import Phases
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune
from cl_lightning.store.files import Store
from cl_lightning.store.folder import open_store
from cl_lightning.store.records import InsideRecord, TaskRecord
from tests import commands
from tests.commands import SMALL, but_what_may_differ, configure, finished, made, run, thinned
from tests.dying import POINTS, dying, forked, in_a_child, killed

# Small mini-batches and blocks, a checkpoint after each, dropout and Adam: there is something to lose.
FRAGILE = (
    "trainer.batch_size=16", "trainer.block=2", "trainer.checkpoint_minutes=0", "backbone.dropout=0.2",
    "trainer.max_epochs=3", "stream.tasks=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> Callable[..., dict]:
    """Results of the uninterrupted run."""
    return lambda *overrides: but_what_may_differ(made(*FRAGILE, *overrides)[1])


def folder_of(outputs: Path, *overrides: str) -> Path:
    return commands.folder_of(configure(f"outputs={outputs}", *SMALL, *FRAGILE, *overrides))


def once(point: str) -> int:
    """How often a point comes at most in the run of two tasks, where that is less than five times."""
    return {"task end": 2, "phase done": 2, "results": 1, "test": 3}.get(point, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "count"), thinned(POINTS, [2, 1, 5], each=3))
def test_killed_at_a_named_point(
    point: str, count: int, tmp_path: Path, whole, capfd: pytest.CaptureFixture
) -> None:
    count = min(count, once(point))
    killed(f"{point}:{count}", lambda: run(tmp_path, *FRAGILE))
    results = run(tmp_path, *FRAGILE)
    if point == "block" and count > 1:
        assert "It goes on inside" in capfd.readouterr().err
    assert but_what_may_differ(results) == whole()
    folder = folder_of(tmp_path)
    assert sorted(path.name for path in (folder / "tasks").iterdir()) == [
        "000.json",
        "000.pt",
        "001.json",
        "001.pt",
    ]
    assert not (folder / "work").exists()
    assert not list(folder.rglob("*.building"))


def interrupted(tmp_path: Path, fault: str = "block:8") -> Path:
    """The folder of a run that was killed."""
    shutil.copytree(killed_at(fault), tmp_path, dirs_exist_ok=True)
    return folder_of(tmp_path)


@cache
def killed_at(fault: str) -> Path:
    outputs = Path(tempfile.mkdtemp())  # goes with the tests' temporary folder
    killed(fault, lambda: run(outputs, *FRAGILE))
    return outputs


# ---- damage ------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGES = [truncate, empty, flip_a_bit, Path.unlink]
FILES = [
    "run.json", "tasks/000.json", "tasks/000.pt", "tasks/001.json", "tasks/001.pt", "rows/000.json",
    "rows/001.json", "rows/002.json",
]  # fmt: skip


BEFORE_OTHERS = ("tasks/000.json", "tasks/001.json", "rows/000.json", "rows/001.json")


@pytest.mark.parametrize(
    ("file", "damage"), thinned([*FILES, "validation.json", "results.json"], DAMAGES, each=3)
)
def test_a_damaged_file_is_made_again_or_refused_and_never_changes_a_result(
    damage, file: str, tmp_path: Path, whole
) -> None:
    finished(tmp_path, *FRAGILE)
    damage(folder_of(tmp_path) / file)
    if file == "run.json":
        with pytest.raises(Refusal, match=r"run\.json.*(damaged|gone)"):
            run(tmp_path, *FRAGILE)
        assert but_what_may_differ(run(tmp_path, *FRAGILE, "resume=false")) == whole(), "the remedy"
        return
    if damage is Path.unlink and file in BEFORE_OTHERS:
        with (
            pytest.warns(UserWarning, match="done again"),
            pytest.raises(Refusal, match="what was written after it does"),
        ):
            run(tmp_path, *FRAGILE)
        assert but_what_may_differ(run(tmp_path, *FRAGILE, "resume=false")) == whole(), "the remedy"
        return
    if file == "tasks/000.pt" or (file, damage) in (
        ("tasks/001.pt", Path.unlink),
        ("results.json", Path.unlink),
    ):
        results = run(tmp_path, *FRAGILE)  # nothing needs it any more, or it is derived
    elif file == "tasks/001.pt":
        results = run(tmp_path, *FRAGILE)
    else:
        with pytest.warns(UserWarning, match=r"damaged|gone|made again|done again"):
            results = run(tmp_path, *FRAGILE)
    assert but_what_may_differ(results) == whole()


LAST = (*FRAGILE, "checkpoints=last")


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*.*") if path.name not in ("lock", "holder.json", "status.json")}


def test_one_look_that_misses_a_record_undoes_nothing(tmp_path: Path, whole, monkeypatch) -> None:
    """NFS says for up to a minute that a name which was not there still is not."""
    killed("test:3", lambda: run(tmp_path, *LAST))
    original, missed = Path.is_file, []

    def misses_once(path: Path) -> bool:
        if path.name == "001.json" and path.parent.name == "tasks" and not missed:
            return bool(missed.append(path))
        return original(path)

    monkeypatch.setattr(Path, "is_file", misses_once)
    monkeypatch.setattr(Phases, "learn", lambda *_: pytest.fail("a task is learned again"))
    assert but_what_may_differ(run(tmp_path, *LAST)) == whole()
    assert missed


@pytest.mark.parametrize("fault", ["results:1", "test:3"])
def test_where_a_record_does_not_show_and_later_files_do_nothing_is_removed(
    fault: str, tmp_path: Path, whole
) -> None:
    killed(fault, lambda: run(tmp_path, *LAST))
    record, aside = folder_of(tmp_path) / "tasks" / "001.json", tmp_path / "aside"
    record.rename(aside)
    before = files_in(folder_of(tmp_path))
    with pytest.raises(Refusal, match=r"tasks/001\.json does not show"):
        run(tmp_path, *LAST)
    assert files_in(folder_of(tmp_path)) >= before
    aside.rename(record)
    assert but_what_may_differ(run(tmp_path, *LAST)) == whole()


@pytest.mark.parametrize("number", [2, 6, *(pytest.param(n, marks=pytest.mark.all) for n in (1, 3, 4, 5, 7))])
def test_a_run_that_is_killed_while_it_goes_back_goes_on(number: int, tmp_path: Path, whole) -> None:
    finished(tmp_path, *LAST)
    truncate(folder_of(tmp_path) / "tasks" / "001.pt")
    (folder_of(tmp_path) / "rows" / "002.json").unlink()  # else nothing would ask for it
    unlink, left = Path.unlink, [number]

    def dies(path: Path, **options: bool) -> None:
        left[0] -= path.parent.name in ("tasks", "rows") or path.stem in ("validation", "work")
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        unlink(path, **options)

    def run_and_die() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "unlink", dies)
            run(tmp_path, *LAST)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert in_a_child(run_and_die) == -signal.SIGKILL
        assert but_what_may_differ(run(tmp_path, *LAST)) == whole()


@pytest.mark.parametrize(
    ("fault_and_file", "damage"),
    thinned(
        [("test:2", "tasks/000.pt"), ("test:3", "tasks/001.pt"), ("task end:2", "tasks/000.pt")],
        DAMAGES,
        each=3,
    ),
)
def test_a_damaged_learner_is_learned_again(
    fault_and_file: tuple[str, str], damage, tmp_path: Path, whole
) -> None:
    fault, file = fault_and_file
    folder = interrupted(tmp_path, fault)
    damage(folder / file)
    with pytest.warns(UserWarning, match=r"damaged|gone"):
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


@pytest.mark.parametrize(("damage", "kind"), thinned(DAMAGES, ["json", "pt"]))
def test_a_damaged_checkpoint_inside_a_phase_is_noticed_and_the_phase_trained_again(
    damage, kind, tmp_path, whole, capfd
) -> None:
    folder = interrupted(tmp_path)
    (path,) = (folder / "work" / "inside").glob(f"*.{kind}")
    damage(path)
    if (damage, kind) == (Path.unlink, "json"):
        results = run(tmp_path, *FRAGILE)
    else:
        with pytest.warns(UserWarning, match="done again"):
            results = run(tmp_path, *FRAGILE)
    assert "It goes on inside" not in capfd.readouterr().err
    assert but_what_may_differ(results) == whole()


@pytest.mark.parametrize("file", FILES[1:])
def test_a_file_of_another_run_is_not_taken_for_ones_own(file: str, tmp_path: Path, whole) -> None:
    finished(tmp_path, *FRAGILE)
    finished(tmp_path, *FRAGILE, "trainer.max_epochs=1")
    shutil.copy(folder_of(tmp_path, "trainer.max_epochs=1") / file, folder_of(tmp_path) / file)
    if file.endswith(".pt"):
        (folder_of(tmp_path) / "rows" / "002.json").unlink()  # else nothing would ask for it
    if file == "tasks/000.pt":
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()
        return
    with pytest.warns(UserWarning, match=r"from another place or run|damaged"):
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


def test_records_that_changed_places_are_not_taken(tmp_path: Path, whole) -> None:
    finished(tmp_path, *FRAGILE)
    one, other = (folder_of(tmp_path) / "tasks" / name for name in ("000.json", "001.json"))
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1])
    other.write_bytes(texts[0])
    with pytest.warns(UserWarning, match="from another place or run"):
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


def test_the_start_of_another_run_is_refused(tmp_path: Path) -> None:
    for overrides in ((), ("trainer.max_epochs=1",)):
        killed("test:2", lambda overrides=overrides: run(tmp_path, *FRAGILE, *overrides))
    shutil.copy(folder_of(tmp_path, "trainer.max_epochs=1") / "run.json", folder_of(tmp_path) / "run.json")
    with pytest.raises(Refusal, match="is that of another run"):
        run(tmp_path, *FRAGILE)


def test_a_changed_digit_of_the_results_is_noticed(tmp_path: Path, whole) -> None:
    finished(tmp_path, *FRAGILE)
    path = folder_of(tmp_path) / "results.json"
    results = json.loads(path.read_text())
    results["accuracy_matrix"][2][0] = 0.999
    path.write_text(json.dumps(results, indent=1))
    with pytest.warns(UserWarning, match="is not what the run's records say"):
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


class Malicious:
    def __reduce__(self):
        return (os.system, ("echo broken into",))


def test_a_checkpoint_that_would_run_code_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch
) -> None:
    folder = interrupted(tmp_path, "test:2")
    store, _ = open_store(folder)
    record = store.load("tasks/000", TaskRecord)
    code = pickle.dumps(Malicious())
    monkeypatch.setattr(
        "cl_lightning.store.files.write_tensors",
        lambda value, path: (path.write_bytes(code), f"{zlib.crc32(code):08x}"),
    )
    store.save("tasks/000", record, store.save_tensors("tasks/000", None))
    with pytest.raises(Refusal, match="more than tensors and plain values"):
        run(tmp_path, *FRAGILE)
    assert "broken into" not in capfd.readouterr().out


def test_every_checkpoint_loads_as_plain_values(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, "block:15")
    files = list(folder.rglob("*.pt"))
    assert len(files) >= 2
    for path in files:
        torch.load(path, weights_only=True)


def test_a_checkpoint_that_replaces_another_leaves_it_until_it_is_whole(
    tmp_path: Path, whole, capfd: pytest.CaptureFixture
) -> None:
    """Killed after the tensors of the second are renamed, and before its record: the first is gone on
    from."""
    saves: list[str] = []

    def run_and_die() -> None:
        original = Store.save

        def save(self, key, record, *more):
            saves.extend([key] * isinstance(record, InsideRecord))
            if len(saves) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, key, record, *more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "save", save)
            run(tmp_path, *FRAGILE)

    assert in_a_child(run_and_die) == -signal.SIGKILL
    assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()
    assert "It goes on inside task 0, after 2 mini-batches." in capfd.readouterr().err


# ---- signals -----------------------------------------------------------------------------------------------


def start(outputs: Path, *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "cl_lightning", *SMALL, *FRAGILE, f"outputs={outputs}", *overrides]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c
    )


def hears_ctrl_c() -> None:
    """Also where these tests run in the background of a shell, which makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(path: Path, content: str) -> None:
    for _ in range(2400):  # two minutes: other work may be going on
        if path.is_file() and content in path.read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"{content} did not appear in {path}")


LONG = ("trainer.max_epochs=4000", "trainer.patience=null", "selection=none")
BOTH = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["sigterm", "ctrl_c"]
)


@BOTH
def test_a_signal_saves_the_open_phase(
    number: int, code: int, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    options = (*LONG, "trainer.checkpoint_minutes=60", "logger=csv", "trainer.log_every=1")
    child, folder = running(tmp_path, *options), folder_of(tmp_path, *options)
    wait_for(folder / "logs.csv", "loss/")  # it trains
    os.kill(child.pid, number)
    child.join(120)
    assert child.exitcode == code
    assert "Traceback" not in capfd.readouterr().err
    store, _ = open_store(folder)
    assert store.load("work/inside/0", InsideRecord).step > 0
    assert store.saved("work/inside/0")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.all)]
)
def test_a_signal_before_training_ends_the_program_and_the_command_goes_on(
    number: int, code: int, tmp_path: Path, whole
) -> None:
    process, holder = start(tmp_path), folder_of(tmp_path) / "holder.json"
    while not holder.is_file():
        assert process.poll() is None, "it ended before it held its folder"
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(120) == code
    assert "Traceback" not in process.stderr.read()
    assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


@pytest.mark.slow
@pytest.mark.parametrize(("point", "how"), thinned(POINTS, ["term", "int"]))
def test_a_signal_in_any_state_ends_the_program_and_the_command_goes_on(
    point: str, how: str, tmp_path: Path, whole, capfd: pytest.CaptureFixture
) -> None:
    code = {"term": 143, "int": 130}[how]
    fault = f"{point}:{min(2, once(point))}:{how}"
    assert (
        in_a_child(lambda: os._exit(exit_code(lambda: dying(fault, lambda: run(tmp_path, *FRAGILE))))) == code
    )
    assert "Traceback" not in capfd.readouterr().err
    assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


def exit_code(function: Callable[[], object]) -> int:
    try:
        function()
    except SystemExit as end:
        return end.code
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 2
    return 0


def running(outputs: Path, *overrides: str) -> BaseProcess:
    """A process that makes a run, and ends with the program's exit code."""

    def run_and_end() -> None:
        hears_ctrl_c()
        os._exit(exit_code(lambda: run(outputs, *FRAGILE, *overrides)))

    return forked(run_and_end)


# ---- the lock ----------------------------------------------------------------------------------------------


def test_a_second_process_on_one_folder_says_who_holds_it(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    first = running(tmp_path, *LONG)
    wait_for(folder_of(tmp_path, *LONG) / "rows" / "000.json", "crc")
    second = running(tmp_path, *LONG)
    second.join(120)
    assert second.exitcode == 2
    assert f"in use by process {first.pid}" in capfd.readouterr().err
    first.kill()
    first.join()


def test_the_hold_of_a_killed_process_is_over_and_its_lock_stays_where_it_is(tmp_path: Path) -> None:
    killed("block:8", lambda: run(tmp_path, *FRAGILE))
    folder = folder_of(tmp_path)
    assert (folder / "holder.json").is_file()
    before = (folder / "lock").stat().st_ino
    run(tmp_path, *FRAGILE)
    assert not (folder / "holder.json").exists()
    assert (folder / "lock").stat().st_ino == before, "who unlinks a lock lets two others in"


def test_several_processes_show_one_finished_run_and_its_figures_are_drawn_once(tmp_path: Path) -> None:
    finished(tmp_path, *FRAGILE)
    children = [running(tmp_path, "figures=true") for _ in range(4)]
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * 4
    assert (folder_of(tmp_path) / "figures" / "over_tasks.png").is_file()


def test_a_finished_run_in_a_folder_that_cannot_be_written_to_is_shown(
    tmp_path: Path, whole, monkeypatch
) -> None:
    finished(tmp_path, *FRAGILE)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    monkeypatch.setattr(
        "cl_lightning.store.folder.FileLock", lambda path: pytest.fail("a lock cannot be made there")
    )
    assert but_what_may_differ(run(tmp_path, *FRAGILE, "figures=true")) == whole()


# ---- what a learner and a callback keep that no tensor holds -----------------------------------------------


class FreezesAtTheEnd(Finetune):
    def on_task_end(self, task):
        self.network.trunk.requires_grad_(False)


class Counts(StreamCallback):
    """Changes the learner by what it has counted, so that a lost count changes results."""

    def __init__(self) -> None:
        self.counts = {"blocks": 0, "tasks": 0, "tests": 0}

    def on_train_batch_end(self, *_) -> None:
        self.counts["blocks"] += 1

    def on_task_end(self, learner, task) -> None:
        self.counts["tasks"] += 1

    def on_evaluated(self, *_) -> None:
        self.counts["tests"] += 1

    def on_task_start(self, learner, task) -> None:
        for i, count in enumerate(self.counts.values()):
            learner.network.head.bias.data[i] += 0.1 * count

    def on_stream_end(self) -> None:
        print(self.counts)

    def state_dict(self) -> dict:
        return self.counts

    def load_state_dict(self, state: dict) -> None:
        self.counts = dict(state)


class KeepsAnObject(Counts):
    def state_dict(self) -> dict:
        return {"since": Path()}


def with_callback(cls: type) -> str:
    return f"trainer.callbacks=[{{_target_: {__name__}.{cls.__name__}}}]"


HIDDEN = {
    "callback": (with_callback(Counts), "trainer.candidates_at_once=2"),
    "callback, not saved inside a phase": (
        with_callback(Counts),
        "trainer.candidates_at_once=2",
        "trainer.checkpoint_minutes=30",
    ),
}


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("callback, not saved inside a phase", "record written:7"),  # the row of the first task
        *(pytest.param("callback", fault, marks=pytest.mark.all) for fault in ("block:8", "test:2")),
        ("callback", "task end:1"),
    ],
)
def test_what_a_callback_holds_is_there_again_after_a_kill(
    what: str, fault: str, tmp_path: Path, whole, capfd: pytest.CaptureFixture
) -> None:
    options = HIDDEN[what]
    expected, plain = whole(*options), whole("trainer.candidates_at_once=2")
    assert expected["accuracy_matrix"] != plain["accuracy_matrix"], "there is something to lose"
    killed(fault, lambda: run(tmp_path, *FRAGILE, *options))
    capfd.readouterr()
    assert but_what_may_differ(run(tmp_path, *FRAGILE, *options)) == expected
    counted = capfd.readouterr().out
    run(tmp_path / "whole", *FRAGILE, *options)
    assert next(line for line in counted.splitlines() if "blocks" in line) in capfd.readouterr().out


def test_a_callbacks_state_that_no_checkpoint_can_hold_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        Refusal, match=r"state_dict of the callback KeepsAnObject\['since'\] is of type pathlib"
    ):
        run(tmp_path, *FRAGILE, with_callback(KeepsAnObject))


# ---- branching ---------------------------------------------------------------------------------------------


def test_a_branch_takes_over_what_was_learned_before_and_goes_on_with_other_settings(
    tmp_path: Path, whole
) -> None:
    finished(tmp_path, *FRAGILE)
    old = folder_of(tmp_path)
    same = run(tmp_path, *FRAGILE, f"run={old}", "from_task=1")
    assert same["accuracy_matrix"] == whole()["accuracy_matrix"]
    assert same["selected"] == whole()["selected"]
    assert [cost["flops"] for cost in same["costs"]] == [cost["flops"] for cost in whole()["costs"]]
    other = run(tmp_path, *FRAGILE, f"run={old}", "from_task=1", "trainer.optimizer=sgd", "selection=none")
    assert other["accuracy_matrix"][:2] == whole()["accuracy_matrix"][:2]
    assert other["accuracy_matrix"][2] != whole()["accuracy_matrix"][2]
    assert len(list(tmp_path.glob("*/*/*/results.json"))) == 3


def logged(folder: Path) -> list[str]:
    return (folder / "logs.csv").read_text().splitlines()


def test_steps_of_a_branch_are_those_of_the_whole_run(tmp_path: Path) -> None:
    options = (*FRAGILE, "trainer.log_every=1")
    finished(tmp_path, *options)
    old = folder_of(tmp_path, "trainer.log_every=1")
    run(tmp_path, *options, f"run={old}", "from_task=1")
    branched = logged(folder_of(tmp_path, "trainer.log_every=1", f"run={old}", "from_task=1"))
    assert set(branched) <= set(logged(old))
    assert int(branched[1].split(",")[0]) > 10


def test_a_branch_may_go_on_with_other_tasks(tmp_path: Path) -> None:
    tasks = ("stream=permuted", "stream.tasks=2")
    first = run(tmp_path / "p", *FRAGILE, *tasks)
    old = folder_of(tmp_path / "p", *tasks)
    more = run(tmp_path / "p", *FRAGILE, "stream=permuted", "stream.tasks=3", f"run={old}", "from_task=2")
    assert [row[:2] for row in more["accuracy_matrix"][:3]] == first["accuracy_matrix"]
    assert [row[2] for row in more["accuracy_matrix"][:3]] == [None] * 3, (
        "what was not measured then is not known"
    )
    assert None not in more["accuracy_matrix"][3]
    straight = run(tmp_path / "q", *FRAGILE, "stream=permuted", "stream.tasks=3")
    assert more["accuracy_matrix"][3] == straight["accuracy_matrix"][3]


def test_what_was_measured_on_tasks_that_a_branch_has_not_is_not_known_to_it(tmp_path: Path) -> None:
    """Its second task is another; the first and the third are the same, in their places."""
    short = (*FRAGILE, "stream.tasks=3", "trainer.max_epochs=1", "selection=none", "trainer.block=25")
    old, new = ((*short, f"stream.class_order=[0,1,{second},4,5]") for second in ("2,3", "6,7"))
    first = run(tmp_path, *old)["accuracy_matrix"]
    branch = run(tmp_path, *new, f"run={folder_of(tmp_path, *old)}", "from_task=1")["accuracy_matrix"]
    assert None not in first[0] + first[1]
    assert branch[:2] == [[row[0], None, row[2]] for row in first[:2]]
    assert None not in branch[2] + branch[3]


@pytest.mark.parametrize(
    "fault",
    [
        "before a record:2",
        "record written:3",
        *(
            pytest.param(fault, marks=pytest.mark.all)
            for fault in ("before a record:4", "record written:2", "after a rename:3")
        ),
    ],
)
def test_a_branch_that_was_killed_while_it_began_is_no_run_from_scratch(fault: str, tmp_path: Path) -> None:
    finished(tmp_path, *FRAGILE)
    options = (*FRAGILE, f"run={folder_of(tmp_path)}", "from_task=1", "trainer.optimizer=sgd")
    uncut = but_what_may_differ(run(tmp_path / "uncut", *options))
    killed(fault, lambda: run(tmp_path / "cut", *options))
    assert but_what_may_differ(run(tmp_path / "cut", *options)) == uncut


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["from_task=1", "run=/nowhere"], "holds no run"),
        (["from_task=7"], "has not learned the task before"),
        (["from_task=1", "stream.n_train=99"], "learned another task 0"),
        (["from_task=1", "run=null"], "needs run="),
    ],
)
def test_branches_that_cannot_be_are_refused_again_and_again(
    overrides: list[str], says: str, tmp_path: Path
) -> None:
    finished(tmp_path, *FRAGILE)
    for _ in range(2):
        with pytest.raises(Refusal, match=says):
            run(tmp_path, *FRAGILE, f"run={folder_of(tmp_path)}", *overrides)


def test_of_checkpoints_the_last_alone_is_kept_where_asked_and_a_branch_says_what_it_needs(
    tmp_path: Path, whole
) -> None:
    assert but_what_may_differ(finished(tmp_path, *FRAGILE, "checkpoints=last")) == whole()
    folder = folder_of(tmp_path)
    assert [path.name for path in (folder / "tasks").glob("*.pt")] == ["001.pt"]
    with (
        pytest.raises(Refusal, match=r"no whole learner after task 0\. .*checkpoints=all"),
        pytest.warns(UserWarning, match="gone"),
    ):
        run(tmp_path, *FRAGILE, f"run={folder}", "from_task=1")


@pytest.mark.parametrize("fault", ["test:3", "record written:9", "block:20"])
def test_a_run_that_keeps_the_last_checkpoint_alone_goes_on_after_a_kill(
    fault: str, tmp_path: Path, whole
) -> None:
    killed(fault, lambda: run(tmp_path, *FRAGILE, "checkpoints=last"))
    assert but_what_may_differ(run(tmp_path, *FRAGILE, "checkpoints=last")) == whole()


# ---- what else may go wrong --------------------------------------------------------------------------------


def test_results_are_written_whole(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, "results:1")
    assert not (folder / "results.json").exists()
    run(tmp_path, *FRAGILE)
    assert json.loads((folder / "results.json").read_text())["finished"] is True


def test_curves_lose_no_row_at_a_kill_and_have_none_twice(tmp_path: Path) -> None:
    options = (*FRAGILE, "trainer.log_every=1", "trainer.checkpoint_minutes=0.0002")
    run(tmp_path / "whole", *options)
    for fault in ("block:5", "block:9", "score:3", "test:2", "block:7"):
        in_a_child(lambda fault=fault: dying(fault, lambda: run(tmp_path / "killed", *options)))
    run(tmp_path / "killed", *options)
    one, other = (logged(next((tmp_path / name).glob("*/*/*"))) for name in ("whole", "killed"))
    assert len(other) == len(set(other))
    assert other == one


def test_checkpoints_go_straight_to_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    for _ in range(3):
        in_a_child(lambda: dying("block:4", lambda: run(tmp_path / "out", *FRAGILE)))
    assert not [path for path in scratch.rglob("*") if path.is_file()]


@pytest.mark.parametrize("where", ["memory", "once"])
def test_values_that_a_checkpoint_cannot_hold_are_refused_by_name_when_they_are_stored(
    where: str, tmp_path: Path
) -> None:
    says = {
        "memory": r"self\.memory\['mean'\] is of type numpy\.float64",
        "once": r"the result of self\.once\('mean', \.\.\.\) is of type",
    }
    with pytest.raises(Refusal, match=says[where]):
        run(tmp_path, *FRAGILE, f"learner._target_=tests.toys.Numpy{where.title()}")


@pytest.mark.parametrize("overrides", [[], ["resume=anyway"]])
def test_a_run_of_another_format_is_not_read(overrides: list[str], tmp_path: Path, monkeypatch) -> None:
    folder = interrupted(tmp_path)
    monkeypatch.setattr("cl_lightning.store.folder.FORMAT", 99)
    with pytest.raises(Refusal, match=r"kept its records in another way\. Start afresh"):
        run(tmp_path, *FRAGILE, *overrides)
    with pytest.raises(Refusal, match=r"kept its records in another way"):
        run(tmp_path / "branch", *FRAGILE, f"run={folder}", "from_task=1")
