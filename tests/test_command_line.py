"""The program as a user meets it."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

from cl_lightning.cli import sweeps
from cl_lightning.cli.help import GROUPS
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.errors import Refusal
from cl_lightning.report.reading import runs_in
from cl_lightning.selection.sweep import in_a_sweep
from tests import docs
from tests.commands import SMALL, command, process

NO_NETWORK = """
import socket
def refuse(*_, **__):
    raise AssertionError("the network was asked for")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


def spent_by_children() -> float:
    """Seconds of one processor, drawing the images included: other tests run beside this one."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.all
def test_the_default_run_takes_under_a_minute_needs_no_network_and_learns(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"} | {
        "PYTHONPATH": path
    }
    before = spent_by_children()
    result = command(f"outputs={tmp_path}", env=environment)
    assert spent_by_children() - before < 60
    results = json.loads(next(tmp_path.glob("*/*/*/results.json")).read_text())
    assert len(results["stream"]["tasks"]) >= 3
    assert results["metrics"]["average_accuracy"] > 0.4
    assert "average accuracy" in result.stdout
    assert str(tmp_path) in result.stdout
    said = result.stderr.splitlines()
    first, *lines = [line for line in said if not line.startswith("Making the images of ")]
    assert first in result.stdout, "the stream and its rules are said first, and again above the results"
    assert all(" of 5 tasks learned, " in line for line in lines), result.stderr
    for text in (docs.README.read_text(), docs.page("quickstart")):
        (picture,) = (block for block in docs.blocks(text, "text") if "Metrics" in block)
        assert words(picture) <= words(result.stdout), "the picture is of another output"
    assert docs.blocks(docs.page("quickstart"), "text")[0].strip() == first
    again = command(f"outputs={tmp_path}")
    assert again.stdout == result.stdout
    assert again.stderr == "Finished before: it is only shown. resume=false starts afresh.\n"


def words(text: str) -> set[str]:
    """What a table says in words: titles, heads, names of metrics and rules."""
    return set(re.findall(r"(?<![\w./=])[a-z_-]+(?![\w./=])", text, re.IGNORECASE))


def test_help_is_quick_and_lists_every_choice_with_a_line_and_five_commands() -> None:
    before = spent_by_children()
    text = process("--help").stdout
    assert spent_by_children() - before < 3
    for group in GROUPS:
        for path in (Path(conf_dir()) / group).glob("*.yaml"):
            assert re.search(rf"^  [* ] {path.stem} +\S.*\w", text, re.MULTILINE), f"{group}={path.stem}"
    assert text.count("  python -m cl_lightning") == 5
    assert command("-h").stdout == text


def test_the_table_of_groups_names_the_choices_there_are() -> None:
    for group in GROUPS:
        row = next(
            line
            for line in docs.page("quickstart").splitlines()
            if line.startswith((f"| `{group}`", f"| `+{group}`"))
        )
        for path in (Path(conf_dir()) / group).glob("*.yaml"):
            assert f"`{path.stem}`" in row


def test_a_run_after_a_command_line_in_one_process_is_no_job_of_it() -> None:
    command("--cfg", "job")
    assert not in_a_sweep()
    assert not HydraConfig.initialized()


def test_cfg_job_prints_the_configuration() -> None:
    cfg = yaml.safe_load(command("--cfg", "job", "learner=joint", "seed=3").stdout)
    assert cfg["learner"]["name"] == "joint"
    assert cfg["seed"] == 3


def write_own_learner(folder: Path, text: str) -> str:
    """A page's own learner, as somebody would copy it; returns its name."""
    code, name = (
        docs.block_after(text, "`my_learners.py`", "python"),
        re.search(r"`my_conf/learner/(\w+)\.yaml`", text)[1],
    )
    (folder / "my_conf" / "learner").mkdir(parents=True)
    (folder / "my_learners.py").write_text(code)
    (folder / "my_conf" / "learner" / f"{name}.yaml").write_text(
        docs.block_after(text, f"`my_conf/learner/{name}.yaml`", "yaml")
    )
    return name


@pytest.fixture
def a_users_folder(tmp_path: Path) -> Path:
    """With the learner that docs/learners.md shows."""
    write_own_learner(tmp_path, docs.page("learners"))
    return tmp_path


OWN = {"README": docs.README.read_text(), "docs/learners": docs.page("learners")}


@pytest.mark.parametrize("page", OWN)
def test_the_pages_learners_run_from_outside_the_package(page: str, tmp_path: Path) -> None:
    name = write_own_learner(tmp_path, OWN[page])
    (line,) = [
        line for line in docs.statements(docs.block_after(OWN[page], f"{name}.yaml`", "bash")) if name in line
    ]
    arguments = [argument.strip("'") for argument in re.findall(r"'[^']*'|\S+", line)[3:]]
    quick = ("trainer.max_epochs=1", "selection.default.lr=[0.01]", "stream.test_per_class=20")
    ends = [f"{arguments[-1].partition('[')[0]}[0,10]}}"] * (page == "README")  # of its grid: two of four
    command(*arguments, *ends, *quick, "figures=false", cwd=tmp_path)
    made = [
        json.loads(path.read_text()) for path in tmp_path.glob(f"outputs/quickstart/{name}/*/results.json")
    ]
    for results in made:
        held = results["costs"][0]["held"].items()
        assert any(key.startswith("memory.") and size > 0 for key, size in held)
    if page == "README":  # whose grid chooses a learner that does something
        runs = runs_in([tmp_path])
        (chosen,) = [each["config"]["learner"]["strength"] for each in runs.results if runs.choice(each)]
        assert len(made) == 2
        assert chosen == 10
    else:
        assert {s["hparams"]["strength"] for results in made for s in results["selected"]} == {10.0}
    shown = command("--config-dir", "my_conf", "--help", cwd=tmp_path).stdout
    assert re.search(rf"  {name} +Held near the last task's weights", shown)


def test_the_pages_learner_with_strength_zero_is_finetune(a_users_folder: Path) -> None:
    common = (*SMALL, "seed=2")
    command(
        "--config-dir",
        "my_conf",
        *common,
        "learner=l2_anchor",
        "selection=none",
        "+selection.grid.strength=[0.0]",
        cwd=a_users_folder,
    )
    command("selection=none", *common, cwd=a_users_folder)
    one, other = (
        json.loads(next(a_users_folder.glob(f"outputs/quickstart/{name}/*/results.json")).read_text())
        for name in ("l2_anchor", "finetune")
    )
    assert one["accuracy_matrix"] == other["accuracy_matrix"]


def test_a_change_of_a_users_own_code_is_noticed(a_users_folder: Path) -> None:
    arguments = ("--config-dir", "my_conf", *SMALL, "learner=l2_anchor")
    command(*arguments, cwd=a_users_folder)
    path = a_users_folder / "my_learners.py"
    path.write_text(path.read_text().replace("/ 2 *", "/ 3 *"))
    assert "source_hash" in command(*arguments, cwd=a_users_folder).stdout


FAILS = """
import os, signal
from cl_lightning.learners import Finetune

class Mine(Finetune):
    def on_task_start(self, task):
        if task.index == {task}:
            {how}
"""
ERROR, KILL = "raise ValueError('mend me')", "os.kill(os.getpid(), signal.SIGKILL)"
INFINITE = "self.network.head.weight.data.fill_(float('inf'))"


@pytest.mark.parametrize(
    ("task", "how", "afresh"), [(0, ERROR, True), (0, INFINITE, True), (1, ERROR, False), (0, KILL, False)]
)
def test_a_run_that_failed_in_its_first_task_starts_afresh_when_its_code_was_mended(
    task: int, how: str, afresh: bool, tmp_path: Path
) -> None:
    file = tmp_path / "my_learner.py"
    file.write_text(FAILS.format(task=task, how=how))
    arguments = (*SMALL, "learner._target_=my_learner.Mine", "selection=none", "stream.tasks=2")
    make = process if how == KILL else command
    first = make(*arguments, cwd=tmp_path, check=False)
    file.write_text(FAILS.format(task=task, how="pass"))
    again = command(*arguments, cwd=tmp_path, check=False)
    assert first.returncode != 0
    assert ("starts afresh" in again.stderr, again.returncode == 0) == (afresh, afresh), again.stderr
    assert ("cannot go on" in again.stderr and "source_hash" in again.stderr) != afresh


def test_multirun_makes_a_run_for_every_combination(tmp_path: Path) -> None:
    command("--multirun", *SMALL, "seed=0,1", "learner=finetune,joint", cwd=tmp_path)
    found = {(p.parts[-3], p.parts[-2][-3:]) for p in tmp_path.glob("outputs/quickstart/*/*/results.json")}
    assert found == {(learner, seed) for learner in ("finetune", "joint") for seed in ("-s0", "-s1")}
    assert {p.name for p in tmp_path.iterdir()} == {"outputs"}


class Choosing(Sweeper):
    """Looks at what runs return, as Optuna's sweeper does: it makes one, and notes that."""

    returned: list[float] = []

    def __init__(self, **options: object) -> None:
        pass

    def setup(self, *, hydra_context, task_function, config) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments) -> None:
        (job,) = self.launcher.launch([[*arguments, "seed=0"]], initial_job_idx=0)
        self.returned.append(job.return_value)


Choosing.__module__ = "hydra_plugins.choosing"  # where Hydra looks for plugins
OPTUNA = type("Choosing", (Choosing,), {"__module__": "hydra_plugins.optuna_stub"})
CHOOSES = ("--multirun", "hydra.sweeper._target_=hydra_plugins.choosing.Choosing")
WITHOUT_VALIDATION = ("stream.n_val=0", "selection=none", "trainer.patience=null")


@pytest.fixture
def choosing(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the sweeper that chooses is handed."""
    for sweeper in (Choosing, OPTUNA):
        monkeypatch.setitem(sys.modules, sweeper.__module__, SimpleNamespace(Choosing=sweeper))
        Plugins.instance().register(sweeper)
    Choosing.returned.clear()
    return Choosing.returned


def test_a_sweeper_that_chooses_gets_the_mean_validation_accuracy_at_the_end(
    tmp_path: Path, choosing: list[float]
) -> None:
    command(*CHOOSES, *SMALL, f"outputs={tmp_path}")
    results = json.loads(next(tmp_path.glob("*/*/*/results.json")).read_text())
    assert choosing == [sum(results["validation_at_end"]["accuracies"]) / 3]
    assert len(list(tmp_path.glob("*/sweeps/*"))) == 1, "a job has the folder of its sweep"


@pytest.mark.usefixtures("choosing")
def test_a_sweep_of_another_sweeper_ends_as_ours_do(tmp_path: Path) -> None:
    """A study ends in a table of its runs, and in lines that say how far it came and what shows it."""
    study = (*CHOOSES, *SMALL, f"outputs={tmp_path}")
    for _ in range(2):  # what jobs said in an earlier start is forgotten
        done = command(*study)
        results = json.loads(next(tmp_path.glob("*/*/*/results.json")).read_text())
        row = next(line.split() for line in done.stdout.splitlines() if line.startswith("│"))
        assert row[3] == f"{results['validation_at_end']['mean']:.3f}"
        (folder,) = tmp_path.glob("*/sweeps/*")
        assert f"1 of 1 jobs are done. The sweep lies in {folder}" in done.stderr
        assert f"to see it: python -m cl_lightning.report {folder.parent.parent} --validation" in done.stderr
        assert "to go on" not in done.stderr
    (folder / "jobs" / "7.json").write_text("{}")
    assert "1 of 1 jobs are done" in command(*study).stderr


@pytest.mark.usefixtures("choosing")
@pytest.mark.parametrize(("how", "code"), [("interrupted", 130), ("refused", 2)])
def test_a_sweep_of_another_sweeper_that_comes_to_no_end_says_how_far_it_came(
    how: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_three(sweeper: Choosing, arguments: list[str]) -> None:
        sweeper.launcher.launch([[*arguments, "seed=0"]], initial_job_idx=0)
        if how == "refused":
            raise Refusal("too many failed")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Choosing, "sweep", one_of_three)
    study = [*CHOOSES, "+hydra.sweeper.n_trials=3", *SMALL, f"outputs={tmp_path}"]
    ended = command(*study, check=False)
    assert ended.returncode == code
    (folder,) = tmp_path.glob("*/sweeps/*")
    assert f"1 of 3 jobs are done. The sweep lies in {folder}" in ended.stderr
    assert f"to go on: python -m cl_lightning {shlex.join(study)}\n" in ended.stderr
    assert f"to see it: python -m cl_lightning.report {folder.parent.parent} --validation" in ended.stderr
    assert "jobs are done" not in command(*SMALL, f"outputs={tmp_path}").stderr, "it is told once"


@pytest.mark.usefixtures("choosing")
@pytest.mark.parametrize(("own", "draws"), [("seed=0", False), ("seed=null", True), ("kind=grid", False)])
def test_a_study_goes_on_with_the_same_values_but_where_its_sampler_draws_without_a_seed(
    own: str, draws: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(sweeper: Choosing, arguments: list[str]) -> None:
        sweeper.launcher.launch([[*arguments, "seed=0"]], initial_job_idx=0)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Choosing, "sweep", one)
    study = [*CHOOSES, "+hydra.sweeper.n_trials=3", f"+hydra.sweeper.sampler.{own}", *SMALL]
    said = command(*study, f"outputs={tmp_path}", check=False).stderr
    assert ("  to go on: python -m cl_lightning " in said) != draws
    assert ("to try other values (with hydra.sweeper.sampler.seed=0" in said) == draws


@pytest.mark.usefixtures("choosing")
def test_a_study_that_ended_has_had_all_of_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler may find fewer than the number of trials that it may make."""

    def one(sweeper: Choosing, arguments: list[str]) -> None:
        sweeper.launcher.launch([[*arguments, "seed=0"]], initial_job_idx=0)

    monkeypatch.setattr(Choosing, "sweep", one)
    said = command(*CHOOSES, "+hydra.sweeper.n_trials=3", *SMALL, f"outputs={tmp_path}").stderr
    assert "1 of 1 jobs are done" in said
    assert "to go on" not in said


@pytest.mark.skipif(not find_spec("hydra_plugins.hydra_optuna_sweeper"), reason="Optuna's plugin is not here")
def test_a_study_of_optuna_that_is_interrupted_says_how_far_it_came(tmp_path: Path) -> None:
    study = (
        "--multirun", "hydra/sweeper=optuna", "hydra.sweeper.direction=maximize", "hydra.sweeper.n_trials=3",
        "hydra.sweeper.n_jobs=1", "hydra.sweeper.sampler.seed=0", *SMALL, f"outputs={tmp_path}",
        "learner=ewc", "learner.strength=interval(1,1000)",
    )  # fmt: skip
    begun = subprocess.Popen(
        [sys.executable, "-m", "cl_lightning", *study], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    jobs = "*/sweeps/*/jobs/1.json"
    while begun.poll() is None and not any(b"folder" in p.read_bytes() for p in tmp_path.glob(jobs)):
        time.sleep(0.05)
    begun.send_signal(signal.SIGINT)
    said = begun.communicate()[1].decode()
    assert begun.returncode == 130, said
    assert re.search("[12] of 3 jobs are done", said), said
    done = command(*study)
    assert "3 of 3 jobs are done" in done.stderr
    assert len(list(tmp_path.glob("*/ewc/*/results.json"))) == 3, "the first one's was not made again"


def test_a_sweep_that_is_broken_off_behind_its_jobs_says_what_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More jobs may come, as in rounds, or a choice may be left to make."""

    def interrupted(*_: object) -> None:
        raise SystemExit(130)

    monkeypatch.setattr(sweeps, "write_sweep", interrupted)
    before = HydraConfig.instance().cfg
    ended = command("--multirun", "seed=0", *SMALL, f"outputs={tmp_path}", check=False)
    assert ended.returncode == 130
    assert "1 of 1 jobs are done" in ended.stderr
    assert f"to go on: python -m cl_lightning --multirun seed=0 {SMALL[0]}" in ended.stderr
    assert HydraConfig.instance().cfg is before


@pytest.mark.usefixtures("choosing")
def test_optuna_is_refused_where_it_would_look_for_the_lowest_accuracy(tmp_path: Path) -> None:
    options = ("--multirun", "hydra.sweeper._target_=hydra_plugins.optuna_stub.Choosing", *SMALL)
    refused = command(*options, f"outputs={tmp_path / 'out'}", check=False)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "Add hydra.sweeper.direction=maximize." in line
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("choosing")
@pytest.mark.parametrize("finished", [False, True])
def test_a_sweep_that_chooses_without_validation_data_is_refused(finished: bool, tmp_path: Path) -> None:
    options = (*SMALL, *WITHOUT_VALIDATION, f"outputs={tmp_path}")
    if finished:
        command("--multirun", *options)  # Hydra's own sweeper runs all combinations, and chooses nothing
    refused = command(*CHOOSES, *options, check=False)
    assert refused.returncode == 2
    assert re.search(
        r"Choosing chooses by the validation accuracy .* no validation data\.\nSet n_val of the stream",
        refused.stderr,
    )
    assert "Traceback" not in refused.stderr
    assert finished or not list(tmp_path.glob("**/run.json")), "said before training"


def test_a_run_leaves_nothing_outside_its_folder(tmp_path: Path) -> None:
    command(*SMALL, cwd=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["outputs"]
    assert len(list(tmp_path.glob("outputs/*/*/*"))) == 1


@pytest.mark.parametrize(
    "arguments",
    [("trainer.max_epochs=0",), ("stream=split", "stream.n_val=0"), ("data=real", "data.root=/nowhere")],
)
def test_what_cannot_work_is_a_sentence_and_exit_code_2(arguments: tuple, tmp_path: Path) -> None:
    result = command(*arguments, check=False, cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert 1 <= len(result.stderr.strip().splitlines()) <= 5


@pytest.mark.parametrize("number", range(5))
def test_the_commands_of_the_help_page_are_valid(number: int) -> None:
    lines = [
        line for line in command("--help").stdout.splitlines() if line.startswith("  python -m cl_lightning")
    ]
    words = re.findall(r"'[^']*'|\S+", lines[number].split("   ")[0])[3:]
    words = [word.strip("'") for word in words if word != "--multirun"]
    command("--cfg", "job", *(word.split(",")[0] if "[" not in word else word for word in words))


def test_multirun_may_stand_anywhere(tmp_path: Path) -> None:
    from tests.commands import SMALL

    done = command(
        *SMALL, f"outputs={tmp_path}", "--multirun", "seed=0,1", "selection=none", "stream.tasks=1"
    )
    assert "2 of 2 (seed=1) done" in done.stderr


PRINTS = [
    "cl_lightning --help",
    pytest.param("cl_lightning.report --schema", marks=pytest.mark.all),
    pytest.param("cl_lightning.data list", marks=pytest.mark.all),
]


def written_to(output: int, line: str) -> tuple[int, str]:
    """The exit code of a command, and what it says on standard error."""
    module, *arguments = line.split()
    words = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("line", PRINTS)
def test_a_program_whose_output_nobody_reads_says_nothing_of_it(line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert written_to(writer, line) == (0, "")
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", PRINTS)
def test_output_that_cannot_be_written_is_a_sentence(line: str) -> None:
    with open("/dev/full", "w") as full:
        code, said = written_to(full.fileno(), line)
    assert code == 2
    assert said.startswith("A file cannot be written: the disk is full.")


@pytest.mark.all
def test_a_run_whose_output_nobody_reads_goes_on_to_its_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _ = written_to(writer, f"cl_lightning {' '.join(SMALL)} outputs={tmp_path}")
    os.close(writer)
    assert code == 0
    assert list(tmp_path.glob("*/*/*/results.json"))
