"""A search over whole streams: what is chosen, by what, and what is left of it."""

from __future__ import annotations

import json
import math
import random
import shlex
import signal
import subprocess
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from cl_lightning.cli.best import write_best
from cl_lightning.cli.choice import costs_in, not_chosen
from cl_lightning.cli.command import main
from cl_lightning.cli.jobs import Job
from cl_lightning.cli.report import main as report
from cl_lightning.config.compose import without_deleted
from cl_lightning.config.resolvers import RULES, conf_dir
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.card import chosen_over_streams
from cl_lightning.report.schema import schema
from cl_lightning.runs.identity import relevant
from cl_lightning.runs.resume import of_a_search
from cl_lightning.selection.grid import grid_points
from cl_lightning.selection.stream_level import Choice, Chosen, Scored, choose, outer_points
from cl_lightning.selection.sweep import as_override
from tests.commands import command, finished, process, run
from tests.dying import dying, in_a_child
from tests.report.whole import whole_results
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


def test_each_seed_chooses_for_itself() -> None:
    found = jobs({(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.1})
    assert choose(found, over_seeds=False) == [Choice((), (0,), 1, 0.7), Choice((), (1,), 0, 0.9)]


def test_all_seeds_choose_together_by_their_mean() -> None:
    found = jobs({(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.6, (0, 2): 1.0})  # point 2 lacks seed 1
    assert choose(found, over_seeds=True) == [Choice((), (0, 1), 0, pytest.approx(0.7))]
    assert choose(jobs({(0, 0): None}), over_seeds=True) == []


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
    (best,) = sweep_of(tmp_path).parent.glob("best/*.yaml")
    chosen = yaml.safe_load(best.read_text())["chosen"]
    assert (chosen["points"], chosen["fingerprint"]) == (3, runs[2]["fingerprint"])
    assert chosen["flops"] == sum(cost["flops_executed"] for results in runs for cost in results["costs"])
    assert report([str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert table.count("ewc†") == 1
    assert "† chosen by validation data of whole streams" in table
    assert report([str(next(tmp_path.glob("*/ewc")))]) == 0
    assert "ewc†" in capsys.readouterr().out, "the sweep lies beside the runs"
    # ---- had another won before, which is so where a job was missing, it would not be marked any more
    stale = best.with_name("ewc-s7.yaml")
    stale.write_text(best.read_text().replace(runs[2]["fingerprint"], runs[0]["fingerprint"]))
    before = sweep_of(tmp_path).read_text()
    assert main([*FORGETS, *SEARCH, f"outputs={tmp_path}"]) == 0
    assert sorted(best.parent.iterdir()) == [best]
    assert sweep_of(tmp_path).read_text() == before


def test_a_search_writes_to_no_run_that_is_finished(tmp_path: Path) -> None:
    """Each run by hand, then the search that finds them: every file of theirs is as it was."""
    base = ["learner=ewc", "stream=permuted", *TINY, f"outputs={tmp_path}"]
    for strength in (0, 30):
        assert main([*base, f"learner.strength={strength}"]) == 0
    files = {path: path.read_bytes() for path in tmp_path.glob("*/ewc/*/**/*") if path.is_file()}
    files = {path: content for path, content in files.items() if path.name != "status.json"}
    assert main([*base, *TWO]) == 0
    assert {path: path.read_bytes() for path in files} == files


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
    again = ["--config-dir", str(folder), "+best=ewc-s0"]
    assert main([*again, f"outputs={tmp_path / 'elsewhere'}"]) == 0
    said = capfd.readouterr()
    assert "This is not the run" not in said.err
    told = " ".join(said.out.replace("│", " ").split())
    assert "chose this run among 3 over whole streams" in told
    assert report([str(tmp_path / "elsewhere")]) == 0
    assert "ewc†" in capfd.readouterr().out, "made from the winner's file, without a sweep beside it"
    monkeypatch.setattr("cl_lightning.runs.part.train", lambda *_: pytest.fail("another run"))
    assert main([*again, f"outputs={tmp_path}"]) == 0
    winner = (folder / json.loads((folder / "sweep.json").read_text())["jobs"][2]["run"]).resolve()
    assert f"Results: {winner / 'results.json'}" in capfd.readouterr().out
    assert main([*again, f"outputs={tmp_path}", "learner.strength=0"]) == 0
    assert "This is not the run that the search over whole streams chose" in capfd.readouterr().err


TINY = (
    "stream.tasks=2", "stream.n_train=50", "stream.n_val=30", "stream.n_test=30", "trainer.max_epochs=1",
    "data.sources.mnist.train=500", "data.sources.mnist.test=100", "progress=false", "figures=false",
    "logger=none", "trainer.single_pass=false",
)  # fmt: skip
TWO = ("selection=stream_level", "selection.stream={learner.strength:[0,30]}")


@pytest.mark.parametrize(
    "choices",
    [
        ("learner=mine", "+experiment=gem_passes"),  # a study, with a sweep of its own
        pytest.param(("+experiment=gem_passes", "learner=mine"), marks=pytest.mark.all),
        pytest.param(("learner=ewc", "stream=permuted"), marks=pytest.mark.all),
    ],
)
def test_the_winners_file_and_its_command_find_the_winner_whatever_the_search_was(
    choices: tuple[str, ...], tmp_path: Path, monkeypatch, capfd
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "of_ones_own" / "learner" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("_target_: cl_lightning.learners.EWC\nname: mine\nstrength: 3.0\n")
    own = ["--config-dir", "of_ones_own"] if "learner=mine" in choices else []
    assert main([*own, *choices, *TINY, *TWO, "outputs=runs"]) == 0
    said = capfd.readouterr().out
    assert "hydra" not in said
    sweep = json.loads(sweep_of(tmp_path / "runs").read_text())
    (best,) = (sweep_of(tmp_path / "runs").parent / "best").iterdir()
    winner = (sweep_of(tmp_path / "runs").parent / sweep["chosen"][0]["runs"][0]).resolve()
    monkeypatch.setattr("cl_lightning.runs.part.train", lambda *_: pytest.fail("another run"))
    (of_the_head,) = (line for line in best.read_text().splitlines() if line.startswith("# python"))
    assert main(["--multirun", *shlex.split(of_the_head)[4:], "seed=0"]) == 0, "and not the study's sweep"
    for sweeps in ("sweeps.sweep_grid", "search.sweep_streams"):
        monkeypatch.setattr(f"cl_lightning.cli.{sweeps}", lambda *_: pytest.fail("a sweep"))
    of_the_run = json.loads((winner / "results.json").read_text())["command"]
    for arguments in (shlex.split(of_the_head)[4:], of_the_run):
        shown = []
        monkeypatch.setattr("cl_lightning.runs.run.show_end", lambda _, folder, **__: shown.append(folder))  # noqa: B023
        assert main(arguments) == 0
        assert [folder.resolve() for folder in shown] == [winner]
        assert "This is not the run" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("~selection.grid.weight_decay",),
        ("~selection.grid.weight_decay", "~selection.grid.lr", "+selection.grid.momentum=[0.5,0.9]"),
        ("selection.grid={lr:[0.02]}", "+learner.examples=20", "++trainer.clip=1.0"),
        ("~learner.gamma", "trainer.lr=0.05", "backbone=fc"),
        ("stream/show=plain", "backbone.sizes=[9]", "~selection.grid", "+selection.grid.lr=[0.5]"),
    ],
)
def test_the_winners_file_alone_makes_the_very_configuration_whatever_the_command_of_the_sweep(
    command: tuple[str, ...], tmp_path: Path, monkeypatch
) -> None:
    job = ["learner=ewc", "stream=permuted", *command, "learner.strength=30"]
    monkeypatch.setattr("cl_lightning.cli.best.head_of", lambda *_: ["# @package _global_"])
    chosen = Chosen("f", [0], points=2, scored=2, score=0.5, flops=1, seconds=0.0, sweep="s")
    with initialize_config_dir(conf_dir(), **RULES):
        by_hand = compose("config", job, return_hydra_config=True)
        loader: Any = SimpleNamespace(**vars(GlobalHydra.instance().config_loader()))
        loader.load_configuration = loader.load_sweep_config = lambda *_: by_hand
        sweeper = SimpleNamespace(
            hydra_context=SimpleNamespace(config_loader=loader), config=by_hand,
            launcher=SimpleNamespace(folder=tmp_path),
        )  # fmt: skip
        path = write_best(sweeper, Job(job, None, 0.5, None), chosen, False, [])
        again = compose("config", [f"+best={path.stem}", f"hydra.searchpath=[{tmp_path}]"])
    del by_hand.hydra
    assert relevant(without_deleted(again)) == relevant(by_hand)


def test_the_head_of_a_winners_file_says_under_which_rules_it_was_chosen(tmp_path: Path) -> None:
    assert main(["learner=ewc", "stream=permuted", *TINY, *TWO, f"outputs={tmp_path}"]) == 0
    folder = sweep_of(tmp_path).parent
    head = (folder / "best" / "ewc-s0.yaml").read_text()
    sweep = json.loads((folder / "sweep.json").read_text())
    run_of = json.loads((folder / sweep["chosen"][0]["runs"][0] / "results.json").read_text())
    for part in (
        f"score {sweep['chosen'][0]['score']:.6f}; seeds 0; 2 of 2 points have a score",
        "protocol: head domain; domain-incremental (all tasks share the outputs, no task ids at test)",
        f"stream {run_of['stream']['fingerprint']}",
        f"({run_of['version']['source_hash']}); commit {run_of['environment']['commit']}",
        f"sweep {sweep['name']}",
    ):
        assert f"{part}\n" in head


def test_the_chosen_run_with_another_seed_is_not_the_one_that_was_chosen(capsys) -> None:
    chosen = Chosen("f", [0, 2], points=2, scored=2, score=0.5, flops=1, seconds=0.0, sweep="s")
    cfg = {"chosen": asdict(chosen)}
    results = whole_results(card=[{"rule": "causality", "verdict": "unknown", "evidence": ""}])
    for seed in (0, 1, 2):
        shown = of_a_search(OmegaConf.create({**cfg, "seed": seed}), results)
        assert ("This is not the run" in capsys.readouterr().err) == (seed == 1)
        assert shown["card"][0]["verdict"] == ("unknown" if seed == 1 else "violated")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("figures=true,false",), "figures=True and figures=False make no difference"),
        (("logger=csv,none",), "logger=csv and logger=none make no difference"),
        (("seed=0,0",), "a value is named twice"),
        (("selection.stream={learner.strength:[1,1]}",), "a value is named twice"),
        (("learner.strength=3,4",), "learner.strength=3 and learner.strength=4 make no difference"),
        (("learner=ewc,er",), "selection.stream with learner=er: learner.strength is not a key here."),
        (("selection.stream={learner.strenth:[1,2]}",), "Did you mean learner.strength=2?"),
        (("selection.stream=5",), "selection.stream=5 is neither values by name"),
        (("selection.stream={}",), "has no outer grid"),
        (("selection=task_level",), "Say selection=stream_level, or leave"),
        (("--multirun", "selection=stream_level,task_level"), "without another selection beside it"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_any_job(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capfd
) -> None:
    search = ["learner=ewc", "stream=permuted", *TINY, *TWO]
    named = {argument.partition("=")[0] for argument in arguments}
    kept = [argument for argument in search if argument.partition("=")[0] not in named]
    assert main([*kept, *arguments, f"outputs={tmp_path}"]) == 2
    said = capfd.readouterr().err
    assert says in said
    assert "jobs failed" not in said
    assert not list(tmp_path.rglob("run.json"))


def test_where_nothing_was_chosen_a_line_says_so() -> None:
    others = [("learner=a",), ("learner=b",)]
    found = [
        Scored(other, seed, 0, 0.5 if (other, seed) == (others[0], 0) else None)
        for other in others
        for seed in (0, 1)
    ]
    why = "each point lacks a run that came to the end of the stream."
    assert not_chosen(found, choose(found, over_seeds=False)) == [
        f"Nothing was chosen for learner=a seed=1: {why}",
        f"Nothing was chosen for learner=b seed=0, 1: {why}",
    ]
    assert not_chosen(found[:1], choose(found[:1], over_seeds=False)) == []


def test_points_without_a_score_are_counted_and_not_compared(tmp_path: Path) -> None:
    grid = "selection.stream={learner.strength:[-1,30]}"  # the first is refused
    assert main(["learner=ewc", "stream=permuted", *TINY, TWO[0], grid, f"outputs={tmp_path}"]) == 2
    folder = sweep_of(tmp_path).parent
    chosen = yaml.safe_load((folder / "best" / "ewc-s0.yaml").read_text())["chosen"]
    assert (chosen["points"], chosen["scored"]) == (2, 1)
    evidence = chosen_over_streams(chosen["points"], chosen["scored"]).evidence
    assert "chose this run among 1 over whole streams" in evidence
    assert "1 of 2 points have no score" in evidence
    assert "1 of 2 points have a score" in (folder / "best" / "ewc-s0.yaml").read_text()


def test_a_run_that_came_to_no_end_costs_what_its_tasks_cost(tmp_path: Path) -> None:
    costs = finished(tmp_path)["costs"]
    (run_json,) = tmp_path.glob("*/*/*/run.json")
    for name in ("results.json", "tasks/002.json", "rows/003.json"):
        (run_json.parent / name).unlink()
    assert costs_in(run_json.parent) == costs[:2]
    assert costs_in(tmp_path) == []


@pytest.mark.parametrize(
    "value",
    [{"svhn": "dtd", "a b": [1, {"c:d": None}]}, ["a,b", "null", "x", 'a"b', "a\\"], 1e-05, math.inf, True],
)
def test_a_value_of_a_point_is_read_by_hydra_as_what_it_is(value: Any) -> None:
    override = OverridesParser.create().parse_override(f"a={as_override(value)}")
    assert override.value() == value
    assert not override.is_sweep_override()


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
    monkeypatch.setattr("cl_lightning.runs.part.train", lambda *_: pytest.fail("another run"))
    again = ["--config-dir", str(sweep_of(tmp_path).parent), "+best=ewc"]
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
    said = capfd.readouterr()
    assert "selection=stream_level chooses by the validation accuracy" in said.err
    assert "Nothing was chosen for seed=0: each point lacks a run" in said.out
    assert not list(tmp_path.rglob("best"))
    assert not list(tmp_path.rglob("run.json")), "said before training"


def test_the_papers_strengths_of_ewc_are_the_outer_grid_of_its_experiments() -> None:
    from cl_lightning.cli.search import points_for
    from cl_lightning.config.compose import compose_config

    for stream, learner in product(("minus", "plus", "in", "out", "pl", "long"), ("ewc", "online_ewc")):
        cfg = compose_config(f"+experiment=ctrl_{stream}", f"learner={learner}", "selection=stream_level")
        points, ewc = points_for(cfg), cfg.learner
        assert (ewc.fisher, ewc.examples, ewc.drawn, ewc.free_heads) == ("predicted", 1024, True, True)
        assert [point["learner.strength"] for point in points] == [1, 5, 10, 50, 100, 500, 1000, 5000, 10000]


SHORT = ("trainer.max_epochs=2", "stream.n_train=100", "stream.n_val=60", "stream.n_test=60")
KILLS = ["block:3", "record written:3", "after a rename:9", "record written:5", "block:2", "test:2"]


@pytest.mark.all
def test_a_sweep_that_is_killed_comes_to_the_same_end(tmp_path: Path) -> None:
    end = {}
    for name, faults in (("whole", []), ("killed", KILLS)):
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
    assert soak_sweeps(4, random.Random(0), tmp_path, victims=("sweeper",)).different == 0


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
    assert here.stderr.count(") done") == there.stderr.count(") done") == 3


def test_torch_is_not_imported_to_find_the_sweepers() -> None:
    """Every start of Hydra imports all plugins."""
    code = "import hydra_plugins.cl_lightning.sweepers, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_test_data_choose_where_one_says_so_and_the_card_calls_it_violated(tmp_path: Path, capfd) -> None:
    """In a single pass, which has no validation data; without ``by`` it is refused."""
    single = (
        "learner=gem", "stream=permuted", "stream.tasks=2", "stream.n_train=100", "stream.n_val=0",
        "stream.n_test=200", "trainer=single_pass", "data.sources.mnist.train=1000",
        "data.sources.mnist.test=300", "figures=false", "progress=false", "logger=none",
        "backbone.sizes=[16]", "selection=stream_level", "~selection.grid.weight_decay",
        "selection.stream={trainer.lr:[0.0001,0.1]}", f"outputs={tmp_path}",
    )  # fmt: skip
    assert main([*single, "selection.by=test"]) == 0
    told = json.loads(sweep_of(tmp_path).read_text())
    files = [sweep_of(tmp_path).parent / job["run"] / "results.json" for job in told["jobs"]]
    accuracies = [json.loads(file.read_text())["metrics"]["average_accuracy"] for file in files]
    assert accuracies[1] > accuracies[0]
    (file,) = tmp_path.glob("*/sweeps/*/best/*.yaml")
    best = yaml.safe_load(file.read_text())
    assert (best["chosen"]["by"], best["chosen"]["score"]) == ("test", accuracies[1])
    assert best["trainer"]["lr"] == 0.1
    evidence = chosen_over_streams(2, 2, best["chosen"]["by"])
    assert evidence.verdict == "violated"
    assert evidence.evidence.startswith("test data of all tasks, past and future, chose this run among 2")
    assert "Mean test accuracy over all tasks" in capfd.readouterr().out
