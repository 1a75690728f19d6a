"""What the terminal shows at 80 and at 120 columns: hand-made records, nothing trained. ``tests/golden.py``
says how the texts are renewed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table

from cl_lightning.callbacks.progress import ProgressDisplay
from cl_lightning.cli import help as help_page
from cl_lightning.cli.choice import show_choices
from cl_lightning.cli.jobs import Job
from cl_lightning.cli.report import print_groups
from cl_lightning.cli.status import report_status
from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.groups import Code, Group
from cl_lightning.report.tables import parts_of, show, show_end
from cl_lightning.selection.stream_level import Choice, Scored
from cl_lightning.store.status import Status, write_status
from tests.golden import WIDTHS, assert_golden, new_console, printed

at_both_widths = pytest.mark.parametrize("width", WIDTHS)


# ---- the end of a run --------------------------------------------------------------------------------------


def matrix(tasks: int, fall: float = 0.02) -> list[list[float | None]]:
    """0.9 when a task is learned, and so much less with each task behind it; tasks ahead cannot be
    predicted."""
    rows = [[round(0.9 - fall * (i - j), 3) if j <= i else None for j in range(tasks)] for i in range(tasks)]
    return [[None] * tasks, *rows]


def phase(task: int, candidate: str, **more: Any) -> dict[str, Any]:
    return {
        "where": f"task{task}",
        "candidate": candidate,
        "val_accuracy": 0.875,
        "steps": 1200,
        "steps_to_best": 950,
        **more,
    }


def results(tasks: int, **more: Any) -> dict[str, Any]:
    """Results as reports read them."""
    return {
        "finished": True,
        "learner": "mntdp_d",
        "seed": 3,
        "config": {"stream": {"head": "domain"}},
        "needs": {"task_id_at_test": True},
        "stream": {
            "name": "ctrl_short",
            "tasks": [{"head": {"mode": "domain", "outputs": [0, 1]}}] * tasks,
        },
        "accuracy_matrix": matrix(tasks),
        "metrics": metrics_of(matrix(tasks)),
        "validation_at_end": None,
        "reference": None,
        "measures": {},
        "predictors": {},
        "notes": [],
        "card": [],
        "selected": [phase(task, "lr=0.01,weight_decay=0.0001") for task in range(tasks)],
        "costs": [
            {
                "task": task,
                "held": {"parameters": 358_560 * (task + 1)},
                "published_memory": 358_440 * (task + 1),
                "flops": 100_220_000_000,
                "flops_executed": 50_110_000_000,
                "seconds": {"train": 3.0, "test": 0.25, "cpu": 3.0},
            }
            for task in range(tasks)
        ],
        **more,
    }


MODULAR = results(
    5,
    selected=[
        phase(0, "reuse=0,lr=0.01,weight_decay=0.0001"),
        phase(1, "reuse=2,lr=0.001,momentum=0.9,weight_decay=1e-05,strength=100.0,memory_size=1000"),
        phase(2, "warm_up"),
        phase(2, "reuse=1,lr=0.01,weight_decay=0.0", val_accuracy=None, score=-2.5),
        phase(3, "reuse=3", steps=0, steps_to_best=0),
        phase(4, "a_name_without_any_place_to_break_it_" * 4),
    ],
    notes=[
        {"kind": "module_paths", "path": path, "reused": reused, "sources": sources}
        for path, reused, sources in [
            ([0, 1, 2], 0, []),
            ([3, 4, 5], 0, [0]),
            ([6, 7, 8], 0, [1]),
            ([0, 1, 2], 3, [0]),
            ([0, 1, 9], 2, [3]),
        ]
    ],
    validation_at_end={"mean": 0.875},
    reference={"transfer": -0.125},
    card=[
        {"rule": "no task label at test", "verdict": "violated", "evidence": "it is told the task's number"},
        {"rule": "more than two tasks", "verdict": "satisfied", "evidence": "5 tasks"},
        {
            "rule": "low memory",
            "verdict": "unknown",
            "evidence": "12 training examples were found in memory.images, memory.labels, memory.a_name; "
            "300 examples were added to mini-batches, and where they are from the program cannot know",
        },
    ],
)  # fmt: skip


SEARCHED = [phase(task, "lr=0.01", compared=[{}, {}]) for task in range(10)]
ENDS = {
    "end_of_a_run": MODULAR,
    "end_of_10_tasks": results(10, selected=SEARCHED, card=MODULAR["card"]),
    "end_of_13_tasks": results(13),
}


@at_both_widths
@pytest.mark.parametrize("name", ENDS)
def test_a_run_ends_in_at_most_25_lines(name: str, width: int) -> None:
    console = new_console(width)
    folder = Path("outputs/quickstart/mntdp_d/0123456789ab-s3")
    show_end(ENDS[name], folder, note="it was made with torch 2.6 (now 2.7).", console=console)
    assert len(printed(console).splitlines()) <= 25
    assert_golden(printed(console), f"short_{name}", width)


@at_both_widths
@pytest.mark.parametrize(("name", "run"), [("end_of_a_run", MODULAR), ("end_of_13_tasks", results(13))])
def test_the_report_of_a_run(name: str, run: dict[str, Any], width: int) -> None:
    console = new_console(width)
    folder = Path("outputs/quickstart/mntdp_d/0123456789ab-s3")
    show(run, folder, note="it was made with torch 2.6 (now 2.7).", console=console)
    assert_golden(printed(console), name, width)


@pytest.mark.parametrize("width", [34, 40, 59])
def test_nothing_of_a_run_is_cut_on_a_narrow_terminal(width: int) -> None:
    made = [part for part in parts_of(MODULAR, width) if isinstance(part, Table)]
    columns = [column for table in made for column in table.columns]
    shown = ["".join(str(cell).split()) for column in columns for cell in column.cells]
    said = [finding[key] for finding in MODULAR["card"] for key in ("evidence", "verdict")]
    for text in (*said, *(name.replace("_", " ") for name in MODULAR["metrics"])):
        assert "".join(text.split()) in shown
    for table in made:
        assert all(column.width for column in table.columns)
        assert sum((column.width or 0) + 3 for column in table.columns) + 1 <= width


# ---- runs side by side -------------------------------------------------------------------------------------


def group(learner: str, experiment: str = "ctrl_minus", seeds: int = 3, **settings: Any) -> Group:
    common = {
        "stream.name": "ctrl_minus",
        "data": "synthetic",
        "trainer.lr": 0.1,
        "learner.k": 1,
        "backbone.k": 3,
    }
    values = {
        column: [value + 0.01 * seed for seed in range(seeds)]
        for column, value in {
            "validation": 0.7, "average_accuracy": 0.65, "average_incremental_accuracy": 0.6,
            "backward_transfer": -0.1, "forward_transfer": 0.05, "forgetting_from_best": 0.125,
            "transfer": 0.25, "learning_curve_area": 0.5, "memory": 1.5, "cpu_seconds": 5638.4,
        }.items()
    }  # fmt: skip
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    made = {Code("0.1.0", "2.6", "0123456789ab", ()): tuple(range(seeds))}
    return Group(experiment, learner, common | dotted, tuple(range(seeds)), values, code=made)


SEVERAL = [
    group("finetune"),
    group("a_learner_of_a_rather_long_name_from_a_users_folder", seeds=1),
    group("ewc", learner__k=3),
    group("ewc", backbone__k=7, selection__grid__lr=[0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001]),
]
EXPERIMENTS = [
    *SEVERAL,
    group("ewc", experiment="gem_permutations", trainer__lr=0.03, learner__strength=100.0),
    group("ewc", experiment="gem_permutations", trainer__lr=0.03, learner__strength=1000.0),
]


PLAIN = [group("finetune"), group("independent_gem"), group("ewc", learner__strength=1)]
REPORTS = {"report": PLAIN, "report_of_settings": SEVERAL, "report_of_experiments": EXPERIMENTS}


@at_both_widths
@pytest.mark.parametrize(("name", "groups"), REPORTS.items())
def test_runs_side_by_side(
    name: str, groups: list[Group], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = new_console(width)
    monkeypatch.setattr("cl_lightning.cli.report.new_console", lambda: console)
    print_groups(groups, ["Not finished, and not above: x y (seed 0), 2 of 5 tasks learned."])
    text = printed(console)
    assert_golden(text, name, width)
    for word in ("learner", "ewc", "val", "ACC", "AIA", "BWT", "FWT", "LCA", "Mem MB", "CPU s", "seeds"):
        assert word in text, "nothing is missing"


@at_both_widths
def test_the_end_of_a_search_over_streams(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs, scored = [], []
    for number, strength in enumerate((1, 1000)):
        for seed in (0, 1):
            folder = Path(f"outputs/ewc/{number}-s{seed}")
            folder.mkdir(parents=True)
            own = results(3, seed=seed, metrics=metrics_of(matrix(3, fall=0.02 + 0.04 * seed)))
            (folder / "results.json").write_text(json.dumps(own))
            overrides = ["stream=permuted", f"seed={seed}", f"learner.strength={strength}"]
            value = 0.5 + 0.25 * number + 0.125 * seed
            jobs.append(Job(overrides, None, value, str(folder)))
            scored.append(Scored(("stream=permuted",), seed, number, value))
    console = new_console(width)
    monkeypatch.setattr("cl_lightning.cli.choice.new_console", lambda: console)
    show_choices(jobs, scored, [Choice(("stream=permuted",), (0, 1), 1, 0.8125)], "validation")
    assert_golden(printed(console), "search", width)
    # 0.88 and 0.84 deviate by 0.02 from their mean, -0.03 and -0.09 by 0.03: times sqrt(2 / (2 - 1))
    assert "average accuracy 0.8600 ± 0.0283, backward transfer -0.0600 ± 0.0424" in printed(console)


def test_winners_are_marked_for_their_own_seed_and_learner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two learners, two seeds and three points each has another winner, and none is the first."""
    monkeypatch.chdir(tmp_path)
    won = {("ewc", 0): 1, ("ewc", 1): 2, ("gem", 0): 2, ("gem", 1): 1}
    jobs, scored = [], []
    for learner, seed in won:
        for number in range(3):
            folder = Path(f"outputs/{learner}/{number}-s{seed}")
            folder.mkdir(parents=True)
            (folder / "results.json").write_text(json.dumps(results(3, seed=seed)))
            overrides = [f"learner={learner}", f"seed={seed}", f"trainer.lr={number}"]
            jobs.append(Job(overrides, None, 0.5, str(folder)))
            scored.append(Scored((f"learner={learner}",), seed, number, 0.5))
    choices = [Choice((f"learner={learner}",), (seed,), n, 0.5) for (learner, seed), n in won.items()]
    console = new_console(120)
    monkeypatch.setattr("cl_lightning.cli.choice.new_console", lambda: console)
    show_choices(jobs, scored, choices, "validation")
    lines = printed(console).splitlines()
    names = {f"learner={learner} seed={seed} trainer.lr={n}" for (learner, seed), n in won.items()}
    assert {line.split("│")[1].strip() for line in lines if "│ yes" in line} == names
    assert {line.removeprefix("Chosen: ") for line in lines if line.startswith("Chosen: ")} == names


@at_both_widths
def test_the_status_of_runs(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = "All candidates of task 2 were dropped, because their weights became infinite or no numbers."
    states = {
        "gem_permutations/independent_gem/0123456789ab-s0": Status("done", 20, 20),
        "gem_permutations/independent_gem/0123456789ab-s1": Status("interrupted", 3, 20),
        "gem_permutations/a_learner_of_a_rather_long_name_from_a_users_folder/0123456789ab-s0": Status(
            "diverged", 2, 20, said=said
        ),
    }
    for name, status in states.items():
        folder = Path("outputs") / name
        folder.mkdir(parents=True)
        write_status(folder, status)
        (folder / "tasks").write_bytes(b"0" * 1_500_000)
    Path("empty").mkdir()
    console = new_console(width)
    monkeypatch.setattr("cl_lightning.cli.status.new_console", lambda: console)
    assert report_status(["outputs", "empty"]) == 0
    assert_golden(printed(console), "status", width)


# ---- while it trains ---------------------------------------------------------------------------------------


@at_both_widths
def test_the_live_bars(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("cl_lightning.callbacks.progress.monotonic", lambda: now[0])
    console, lines = new_console(width, terminal=True), new_console(width)
    display = ProgressDisplay(console)

    def trained(task: int, name: str, best: float | None, step: int, seconds: float) -> None:
        run = phase_run(task=task, name=name, best=best, step=step)
        display.on_train_start(None, SimpleNamespace(phase_run=run))  # type: ignore[arg-type]
        run.step, now[0] = step, now[0] + seconds
        lines.print(display)

    def phase_run(task: int, name: str, best: float | None, step: int) -> SimpleNamespace:
        return SimpleNamespace(
            task=SimpleNamespace(index=task), step=0, blocks=SimpleNamespace(steps=1000), patience=200,
            best_accuracy=best, phase=SimpleNamespace(name=name, score=None), active=[1, 4],
            candidates=range(19), is_scored=True, standings=[SimpleNamespace(step=step - 50)] * 19,
        )  # fmt: skip

    display.on_stream_start("ctrl_long", 20, 10)
    lines.print(display)
    display.on_task_start(None, SimpleNamespace(index=10))  # type: ignore[arg-type]
    now[0] += 7
    lines.print(display)
    trained(10, "train", None, 1, 0.5)
    trained(10, "train", 0.8125, 500, 1800)
    trained(10, "a_phase_of_a_rather_long_name_in_a_users_learner", 0.8125, 1000, 1800)
    display.on_train_end(None, SimpleNamespace())  # type: ignore[arg-type]
    now[0] += 60
    lines.print(display)
    display.on_task_end(None, SimpleNamespace(index=10))  # type: ignore[arg-type]
    lines.print(display)
    display.on_evaluated(None, 11, [0.5] * 11)
    lines.print(display)
    display.on_evaluated(None, 20, [0.5] * 20)
    now[0] += 3
    lines.print(display)
    trained(19, "train", 0.25, 500, 300)
    display.on_stream_end()
    assert_golden(printed(lines), "live_bars", width)


# ---- what there is -----------------------------------------------------------------------------------------


@at_both_widths
def test_listings(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is all that a new choice needs."""
    monkeypatch.setattr(help_page, "conf_dir", lambda: str(tmp_path))
    (tmp_path / "config.yaml").write_text("defaults: [{learner: mntdp_d}]")
    for group, name, comment in [
        ("learner", "mntdp_d", "Modules of past tasks re-used as far as validation data say (Veniat et al. "
            "2021); needs the task id at test"),
        ("learner", "finetune", "One network through the whole stream; nothing protects what it knew"),
        ("experiment", "a_study_of_mine", "Every learner once"),
    ]:  # fmt: skip
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / f"{name}.yaml").write_text(
            f"# @package _global_\n# {comment}\nname: x  # in reports\n"
        )
    text = "\n\n".join(help_page.listing(name, [], width) for name in ("learners", "experiments"))
    assert max(map(len, text.splitlines())) <= width
    assert_golden(text, "listings", width)


def test_the_report_of_one_run_has_all_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from cl_lightning.cli.report import main as report
    from tests.commands import finished

    finished(tmp_path)
    (folder,) = (path.parent for path in tmp_path.glob("**/results.json"))
    assert report([str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.index("Choices, by task") < said.index("Costs, by task") < said.index("Card: what")
    assert report([str(tmp_path)]) == 0
    assert "Costs, by task" not in capsys.readouterr().out
