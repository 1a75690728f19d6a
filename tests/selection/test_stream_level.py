"""A search over whole streams: what is chosen, by what, and what is left of it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from cl_lightning.cli.command import main
from cl_lightning.cli.report import main as report
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal
from cl_lightning.report.results import mark_chosen
from cl_lightning.report.schema import schema
from cl_lightning.selection.grid import grid_points
from cl_lightning.selection.stream_level import Choice, Scored, choose, outer_points
from cl_lightning.store.records import ChosenRecord
from tests.commands import command, process, run
from tests.dying import dying, in_a_child
from tests.soak import soak_sweeps

# Two tasks whose pixels are permuted: learning the second well forgets the first.
FORGETS = (
    "learner=ewc", "stream=permuted", "stream.tasks=2", "stream.n_train=600", "stream.n_val=300",
    "stream.n_test=300", "trainer.max_epochs=5", "data.sources.mnist.train=4000",
    "data.sources.mnist.test=600", "figures=false", "progress=false", "logger=none", "backbone.sizes=[64]",
    "~selection.grid.weight_decay", "selection.grid.lr=[0.01]",
)  # fmt: skip
SEARCH = ("selection=stream_level", "selection.stream={learner.strength:[0,100000,30]}")  # the last is best


def sweep_of(outputs: Path) -> Path:
    (path,) = outputs.glob("*/sweeps/*/sweep.json")
    return path


# ---- the choice --------------------------------------------------------------------------------------------


def jobs(scores: dict[tuple[int, int], float | None], others: tuple[str, ...] = ()) -> list[Scored]:
    return [Scored(others, seed, number, score) for (seed, number), score in scores.items()]


def test_each_seed_chooses_for_itself_and_of_equals_the_first() -> None:
    found = jobs({(0, 0): 0.5, (0, 1): 0.7, (0, 2): 0.7, (1, 0): 0.9, (1, 1): 0.1, (1, 2): 0.2})
    assert choose(found, over_seeds=False) == [Choice((), (0,), 1, 0.7), Choice((), (1,), 0, 0.9)]


def test_all_seeds_choose_together_by_their_mean() -> None:
    found = jobs({(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.6})
    assert choose(found, over_seeds=True) == [Choice((), (0, 1), 0, pytest.approx(0.7))]


def test_a_point_that_lacks_a_run_is_not_chosen_and_without_any_run_nothing_is() -> None:
    assert choose(jobs({(0, 0): None, (0, 1): 0.1}), over_seeds=False) == [Choice((), (0,), 1, 0.1)]
    assert choose(jobs({(0, 0): 0.9, (0, 1): 0.1, (1, 0): None, (1, 1): 0.2}), over_seeds=True)[0].number == 1
    assert choose(jobs({(0, 0): None}), over_seeds=False) == []


def test_learners_of_one_sweep_choose_each_for_itself() -> None:
    found = jobs({(0, 0): 0.5, (0, 1): 0.7}, ("learner=a",)) + jobs(
        {(0, 0): 0.9, (0, 1): 0.1}, ("learner=b",)
    )
    assert [(c.others, c.number) for c in choose(found, over_seeds=False)] == [
        (("learner=a",), 1),
        (("learner=b",), 0),
    ]


@pytest.mark.parametrize(
    "grid", [{"learner.strength": []}, {"x": "1,("}, [], [{}], [{"a": 1}, {"b": 2}], [3]]
)
def test_an_outer_grid_that_is_none_is_refused(grid: object) -> None:
    with pytest.raises(Refusal, match=r"selection\.stream"):
        outer_points(grid)


@pytest.mark.parametrize("grid", [{"seed": [0, 1]}, [{"seed": 0}, {"seed": 1}]])
def test_a_seed_is_nothing_to_choose(grid: object) -> None:
    with pytest.raises(Refusal, match="the best of several seeds is luck"):
        outer_points(grid)


@pytest.mark.parametrize("values", ["1,10", [1, 10], "range(1,11,9)"])
def test_values_of_an_outer_grid_are_written_as_those_of_an_inner_one(values: object) -> None:
    points = outer_points({"learner.strength": values, "trainer.lr": 0.1})
    assert points == [{"learner.strength": 1, "trainer.lr": 0.1}, {"learner.strength": 10, "trainer.lr": 0.1}]
    assert [point["learner.strength"] for point in points] == [
        point["strength"] for point in grid_points({"strength": values})
    ]


# ---- through the command line ------------------------------------------------------------------------------


def test_the_end_of_the_stream_chooses_and_not_what_each_task_had_when_learned(
    tmp_path: Path, capsys
) -> None:
    """The paper's claim in small: by each task's own validation data no penalty at all is best, and it
    forgets."""
    assert main([*FORGETS, *SEARCH, f"outputs={tmp_path}"]) == 0
    sweep = json.loads(sweep_of(tmp_path).read_text())
    jsonschema.validate(sweep, schema("sweep"))
    runs = [
        json.loads((sweep_of(tmp_path).parent / job["run"] / "results.json").read_text())
        for job in sweep["jobs"]
    ]
    at_end = [results["validation_at_end"]["mean"] for results in runs]
    when_learned = [sum(s["val_accuracy"] for s in results["selected"]) / 2 for results in runs]
    assert at_end.index(max(at_end)) == 2
    assert when_learned.index(max(when_learned)) == 0, "the example shows nothing"
    assert [job["validation"] for job in sweep["jobs"]] == at_end
    assert [(c["number"], c["seeds"], c["score"]) for c in sweep["chosen"]] == [(2, [0], max(at_end))]
    said = capsys.readouterr().out
    assert said.count("average accuracy") == 1, "test results of the winner alone"
    assert "learner.strength=30" in said
    # ---- what is left
    winner, *others = runs[2], runs[0], runs[1]
    assert winner["chosen"]["points"] == 3
    assert winner["chosen"]["flops"] == sum(
        cost["flops_executed"] for results in runs for cost in results["costs"]
    )
    assert [other["chosen"] for other in others] == [None, None]
    card = {finding["rule"]: finding for finding in winner["card"]}
    assert card["causality"]["verdict"] == "violated"
    assert "past and future" in card["causality"]["evidence"]
    assert report([str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert table.count("ewc†") == 1
    assert "† chosen by validation data of whole streams" in table
    # ---- had another won before, which is so where a job was missing, it would not be marked any more
    folders = [sweep_of(tmp_path).parent / job["run"] for job in sweep["jobs"]]
    mark_chosen(folders[0], ChosenRecord(**winner["chosen"]))
    before = sweep_of(tmp_path).read_text()
    sweep["chosen"][0]["runs"] = [sweep["jobs"][0]["run"]]
    sweep_of(tmp_path).write_text(json.dumps(sweep))
    assert main([*FORGETS, *SEARCH, f"outputs={tmp_path}"]) == 0
    marked = [json.loads((folder / "results.json").read_text())["chosen"] for folder in folders]
    assert marked == [None, None, winner["chosen"]]
    assert sweep_of(tmp_path).read_text() == before


def test_a_job_is_the_run_by_hand_and_the_winners_file_finds_it_again(
    tmp_path: Path, capfd, monkeypatch
) -> None:
    by_hand = [*FORGETS, f"outputs={tmp_path}", "selection=task_level"]
    assert main([*by_hand, "learner.strength=30"]) == 0
    assert main([*FORGETS, *SEARCH, f"outputs={tmp_path}"]) == 0
    assert len(list(tmp_path.glob("*/ewc/*/results.json"))) == 3, "the run by hand is one of them"
    folder = sweep_of(tmp_path).parent
    assert [path.name for path in (folder / "best").iterdir()] == ["ewc-s0.yaml"]
    capfd.readouterr()
    again = ["--config-dir", str(folder), "+best=ewc-s0", "~selection.grid.weight_decay"]
    assert main([*again, f"outputs={tmp_path / 'elsewhere'}"]) == 0
    assert "This is not the run" not in capfd.readouterr().err
    (results,) = tmp_path.glob("elsewhere/*/*/*/results.json")
    assert "chose this run among 3 over whole streams" in results.read_text()
    monkeypatch.setattr("cl_lightning.experiment.train", lambda *_: pytest.fail("another run"))
    assert main([*again, f"outputs={tmp_path}"]) == 0
    winner = (folder / json.loads((folder / "sweep.json").read_text())["jobs"][2]["run"]).resolve()
    assert f"Results: {winner / 'results.json'}" in capfd.readouterr().out
    assert main([*again, f"outputs={tmp_path}", "learner.strength=0"]) == 0
    assert "This is not the run that the search over whole streams chose" in capfd.readouterr().err


def test_tied_values_and_seeds_together(tmp_path: Path, monkeypatch) -> None:
    points = [
        f"{{learner.strength:{strength},trainer.max_epochs:{epochs},learner.gamma:1e-05,backbone:{network}}}"
        for strength, epochs, network in ((0, 1, "fc"), (30, 5, "mlp"))
    ]
    tied = f"selection.stream=[{','.join(points)}]"
    together = "selection.over_seeds=true"
    assert main([*FORGETS, "selection=stream_level", tied, together, "seed=0,1", f"outputs={tmp_path}"]) == 0
    sweep = json.loads(sweep_of(tmp_path).read_text())
    assert [c["seeds"] for c in sweep["chosen"]] == [[0, 1]]
    assert len(sweep["jobs"]) == 4
    own = [job["validation"] for job in sweep["jobs"] if "learner.strength=30" in job["overrides"]]
    assert sweep["chosen"][0]["score"] == pytest.approx(sum(own) / 2)
    assert [path.name for path in (sweep_of(tmp_path).parent / "best").iterdir()] == ["ewc.yaml"]
    # ---- the winner's file has small numbers and the choices of groups as they were
    monkeypatch.setattr("cl_lightning.experiment.train", lambda *_: pytest.fail("another run"))
    again = ["--config-dir", str(sweep_of(tmp_path).parent), "+best=ewc", "~selection.grid.weight_decay"]
    assert main([*again, "seed=1", f"outputs={tmp_path}"]) == 0


def test_two_streams_of_one_sweep_leave_a_winners_file_each(tmp_path: Path) -> None:
    short = (*FORGETS, "stream=permuted,rotated", "trainer.max_epochs=1", f"outputs={tmp_path}")
    assert main([*short, "selection=stream_level", "selection.stream={learner.strength:[0,30]}"]) == 0
    names = sorted(path.name for path in (sweep_of(tmp_path).parent / "best").iterdir())
    assert names == ["ewc-permuted-s0.yaml", "ewc-rotated-s0.yaml"]


def test_garbled_test_labels_change_nothing_of_a_sweep(tmp_path: Path, monkeypatch) -> None:
    texts = []
    for name in ("plain", "garbled"):
        assert main([*FORGETS, *SEARCH, f"outputs={tmp_path / name}"]) == 0
        texts.append(sweep_of(tmp_path / name).read_text().replace(str(tmp_path / name), ""))
        original = Stream.test

        def test(self, index, original=original):
            split = original(self, index)
            split.y.copy_((split.y + 1) % 10)
            return split

        monkeypatch.setattr(Stream, "test", test)
    assert texts[0] == texts[1]


def test_a_sweep_without_an_outer_grid_or_with_another_sweeper_is_refused(tmp_path: Path, capfd) -> None:
    assert main(["learner=finetune", "selection=stream_level", f"outputs={tmp_path}"]) == 2
    assert "has no outer grid for learner finetune" in capfd.readouterr().err
    with pytest.raises(Refusal, match="that is a sweep, and this is a single run"):
        run(tmp_path, "selection=stream_level", "selection.stream={learner.strength:[1]}", "learner=ewc")
    for plus in ("", "+"):
        assert main([f"{plus}best=ewc-s0", f"outputs={tmp_path}"]) == 2
        assert "--config-dir" in capfd.readouterr().err
    search = [*FORGETS, *SEARCH, f"outputs={tmp_path}"]
    assert main([*search, "+hydra.sweeper.n_trials=3"]) == 2  # as Optuna's
    assert "hydra/sweeper= names another" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_search_without_validation_data_chooses_nothing_and_says_so(tmp_path: Path, capfd) -> None:
    nothing = ("stream.n_val=0", "trainer.patience=null", "hydra/sweeper=basic")  # whose jobs tell it, too
    assert main([*FORGETS, *SEARCH, *nothing, f"outputs={tmp_path}"]) == 2
    assert "selection=stream_level chooses by the validation accuracy" in capfd.readouterr().err
    assert not list(tmp_path.rglob("best"))
    assert not list(tmp_path.rglob("run.json")), "said before training"


def test_the_papers_strengths_of_ewc_are_the_outer_grid_of_its_experiments() -> None:
    from cl_lightning.cli.search import points_for
    from cl_lightning.config import compose_config

    for stream in ("minus", "plus", "in", "out", "pl", "long"):
        points = points_for(
            compose_config(f"+experiment=ctrl_{stream}", "learner=ewc", "selection=stream_level")
        )
        assert [point["learner.strength"] for point in points] == [1, 5, 10, 50, 100, 500, 1000, 5000, 10000]


SHORT = ("trainer.max_epochs=2", "stream.n_train=100", "stream.n_val=60", "stream.n_test=60")
KILLS = ["block:3", "record written:3", "after a rename:9", "record written:5", "block:2", "test:2"]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [KILLS[::3], pytest.param(KILLS, marks=pytest.mark.all)], ids=len)
def test_a_sweep_that_is_killed_comes_to_the_same_end(kills: list[str], tmp_path: Path) -> None:
    end = {}
    for name, faults in (("whole", []), ("killed", kills)):
        sweep = (*FORGETS, *SEARCH, *SHORT, f"outputs={tmp_path / name}", "trainer.checkpoint_minutes=0.001")
        ends = [in_a_child(lambda f=fault, s=sweep: dying(f, lambda: command(*s))) for fault in faults]
        assert ends.count(-signal.SIGKILL) >= len(faults) // 2
        command(*sweep)
        end[name] = sweep_of(tmp_path / name).read_text().replace(str(tmp_path / name), "")
    assert end["whole"] == end["killed"]


@pytest.mark.all
@pytest.mark.slow
def test_a_sweep_that_is_killed_again_and_again_comes_to_the_same_end(tmp_path: Path) -> None:
    """``python -m tests.soak --sweeps 20`` kills more often."""
    assert soak_sweeps(4, random.Random(0), tmp_path, victims=("sweeper",)) == 0


LAUNCHERS = [("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), ("hydra/launcher=submitit_local",)]


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_any_launcher_comes_to_the_same_choice_and_tells_a_line_a_job(
    launcher: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{launcher[0].partition('=')[2].partition('_')[0]}_launcher")
    here = command(*FORGETS, *SEARCH, *SHORT, f"outputs={tmp_path / 'basic'}")
    there = process(*FORGETS, *SEARCH, *SHORT, f"outputs={tmp_path / 'other'}", *launcher)
    texts = [json.loads(sweep_of(tmp_path / name).read_text()) for name in ("basic", "other")]
    assert texts[0]["chosen"] == texts[1]["chosen"]
    assert [job["validation"] for job in texts[0]["jobs"]] == [job["validation"] for job in texts[1]["jobs"]]
    assert here.stderr.count(" done") == there.stderr.count(" done") == 3


def test_torch_is_not_imported_to_find_the_sweepers() -> None:
    """Every start of Hydra imports all plugins."""
    code = "import hydra_plugins.cl_lightning.sweepers, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
