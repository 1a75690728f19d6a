"""A run as a whole: the same bits, found again, resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from PIL import Image

from cl_lightning.config.build import build_stream
from cl_lightning.data.streams.recipes import split
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune, Independent, Phase
from cl_lightning.report.schema import schema
from cl_lightning.runs import making
from cl_lightning.runs import run as experiment
from cl_lightning.store.files import Store
from tests import growth, toys
from tests.commands import (
    SMALL,
    but_what_may_differ,
    configure,
    fingerprint_of,
    finished,
    folder_of,
    made,
    returned_and_results,
    run,
    thinned,
)

LEARNERS = ["finetune", "independent", "independent_gem", "joint"]
SCHEMA = schema()


@pytest.mark.parametrize(("learner", "stream"), thinned(LEARNERS, ["permuted", "split"]))
def test_results_follow_their_documented_schema(learner: str, stream: str) -> None:
    _, results = made(f"learner={learner}", f"stream={stream}")
    jsonschema.validate(results, SCHEMA)
    assert results["learner"] == learner
    assert results["stream"]["name"] == f"{stream}_mnist"
    assert [len(row) for row in results["accuracy_matrix"]] == [3] * 4
    assert len(results["costs"]) == 3
    for cost in results["costs"]:
        held = sum(cost["held"].values())
        assert held < cost["checkpoint"] < 1.05 * held + 4096 + 1024 * 40
        assert cost["flops"] >= cost["flops_executed"] > 0


def test_what_mntdp_tells_of_its_paths_follows_the_schema(tmp_path: Path) -> None:
    results = run(tmp_path, "learner=mntdp_d", "reference=true", "trainer.probe_at=[0,1,2,3,4,5]")
    jsonschema.validate(results, SCHEMA)
    for task, note in enumerate(results["notes"]):
        (chosen,) = (s for s in results["selected"] if s["where"] == f"task{task}")
        assert note["prefixes"].keys() == {each["candidate"] for each in chosen["compared"]}
        assert note["prefixes"][chosen["candidate"]] == note["path"][: note["reused"]]
        assert len(note["scores"]) == task
    assert results["reference"]["task"] == 2
    assert results["metrics"]["learning_curve_area"] > 0


@pytest.mark.parametrize(
    "learner", ["finetune", *(pytest.param(name, marks=pytest.mark.all) for name in LEARNERS[1:])]
)
def test_the_same_seed_gives_the_same_results_wherever_they_lie(learner: str, tmp_path: Path) -> None:
    options = (f"learner={learner}", "backbone.dropout=0.2")
    torch.manual_seed(1)
    one = run(tmp_path / "one", *options)
    torch.manual_seed(2)
    other = run(tmp_path / "other", *options)
    assert but_what_may_differ(one) == but_what_may_differ(other)
    assert run(tmp_path / "third", *options, "seed=1")["accuracy_matrix"] != one["accuracy_matrix"]


def test_the_stream_does_not_depend_on_the_learner() -> None:
    fingerprints = {made(f"learner={learner}")[1]["stream"]["fingerprint"] for learner in LEARNERS}
    assert len(fingerprints) == 1


def test_results_tell_the_digests_of_the_images_that_the_stream_is_made_of(tmp_path: Path) -> None:
    def images(*options: str) -> dict[str, str]:
        results = run(tmp_path, "selection=none", *options)
        jsonschema.validate(results, SCHEMA)
        return results["stream"]["images"]

    plain = images()
    assert list(plain) == ["mnist"]
    assert images("seed=1", "stream=permuted") == plain, "whatever is drawn from them"
    assert images("data.sources.mnist.seed=1")["mnist"] != plain["mnist"]
    few = [
        f"data.sources.{name}.{part}={count}"
        for name in ("mnist", "svhn")
        for part, count in (("train", 2000), ("test", 300))
    ]
    listed = "stream.tasks=[{source: svhn, n_train: 60}, {source: mnist, n_train: 60}]"
    short = (
        "selection=none",
        "trainer.max_epochs=1",
        "stream.n_val=20",
        "backbone.sizes=[16]",
        "progress=false",
    )
    both = run(tmp_path, "learner=finetune", "stream=transfer", listed, *few, *short, small=False)["stream"][
        "images"
    ]
    assert set(both) == {"mnist", "svhn"}
    assert both["mnist"] == plain["mnist"]


class Contrary(Independent):
    """Learns as Independent does, and answers with what it thinks the least likely."""

    def forward(self, x, task=None):
        return -super().forward(x, task)


def test_transfer_is_what_the_stream_gave_less_what_the_task_alone_gave(tmp_path: Path) -> None:
    """The reference learns as Independent does; of two classes who answers the other one is right wherever
    the reference is not."""
    contrary = ("learner=independent", "learner._target_=tests.test_experiment.Contrary", "reference=true")
    results = run(tmp_path, *contrary)
    own, alone = results["accuracy_matrix"][-1][-1], results["reference"]["accuracy"]
    assert own == pytest.approx(1 - alone)
    assert alone > 0.6
    assert results["reference"]["transfer"] == pytest.approx(own - alone)
    assert results["reference"]["transfer"] < -0.2


def test_without_validation_data_and_selection_a_run_works(tmp_path: Path) -> None:
    returned, results = returned_and_results(
        tmp_path, "selection=none", "stream.n_val=0", "trainer.patience=null"
    )
    jsonschema.validate(results, SCHEMA)
    assert [s["val_accuracy"] for s in results["selected"]] == [None] * 3
    assert results["validation_at_end"] == {"accuracies": [None] * 3, "mean": None}
    assert returned is None


# ---- what a run returns ------------------------------------------------------------------------------------


class SaysTheLatest(Finetune):
    """Learns as finetune does; of any image it says the first class of the task that it learned last."""

    def on_task_end(self, task):
        self.memory["says"] = task.head.owned[task.index][0]

    def predictors(self, seen):
        return {
            "first": self,
            "second": Finetune(build=self.build, head=self.head, grid=self.grid, seed=self.seed),
        }
        yield

    def forward(self, x, task):
        logits = torch.zeros(len(x), self.head.num_outputs)
        logits[:, self.memory.get("says", 0)] = 1.0
        return logits


def test_a_run_returns_the_mean_validation_accuracy_on_all_tasks_at_the_end_of_the_stream(
    tmp_path: Path,
) -> None:
    latest = ("learner._target_=tests.test_experiment.SaysTheLatest", "stream.head=single")
    returned, results = returned_and_results(tmp_path, *latest)
    last = build_stream(configure(*SMALL)).task(2)
    share = (
        last.val.y.tolist().count(last.head.owned[2][0]) / 30
    )  # of the last task; nothing is left of the others
    assert results["validation_at_end"]["accuracies"] == [0, 0, share]
    assert returned == results["validation_at_end"]["mean"] == share / 3
    assert 0 < share != results["accuracy_matrix"][-1][-1], "a test accuracy is another number"
    when_learned = [s["val_accuracy"] for s in results["selected"]]
    assert sum(when_learned) / 3 > returned + 0.1, "what each task had when it was learned is another number"
    assert returned_and_results(tmp_path, *latest)[0] == returned, "of a finished run, too"


def test_what_a_run_returns_prefers_who_keeps_all_tasks_to_who_learns_each_best(tmp_path: Path) -> None:
    end, when_learned, options = {}, {}, ("stream.head=single", "trainer.max_epochs=10")
    for learner in ("finetune", "joint"):
        end[learner], results = returned_and_results(tmp_path, f"learner={learner}", *options)
        when_learned[learner] = sum(s["val_accuracy"] for s in results["selected"]) / 3
    assert when_learned["finetune"] > when_learned["joint"] + 0.05
    assert end["joint"] > end["finetune"] + 0.1


def test_validation_at_the_end_is_measured_once_when_all_is_learned(tmp_path: Path, monkeypatch) -> None:
    saved: list[str] = []
    original = Store.save
    monkeypatch.setattr(
        Store, "save", lambda self, key, *more: saved.append(key) or original(self, key, *more)
    )
    results = run(tmp_path)
    assert saved[-1] == "validation"
    assert saved.count("validation") == 1
    record = json.loads(
        (folder_of(configure(f"outputs={tmp_path}", *SMALL)) / "validation.json").read_text()
    )["record"]
    assert record["accuracies"] == results["validation_at_end"]["accuracies"]


def test_a_phase_with_a_score_of_its_own_is_told_as_a_score_and_not_as_an_accuracy(tmp_path: Path) -> None:
    returned, results = returned_and_results(
        tmp_path, "learner._target_=tests.test_experiment.ScoredOtherwise", "trainer.patience=1000"
    )
    jsonschema.validate(results, SCHEMA)
    for each in (standing for chosen in results["selected"] for standing in (chosen, *chosen["compared"])):
        assert each["val_accuracy"] is None
        assert each["score"] == (2.5 if "lr=0.001" in each["candidate"] else -40.0)
    assert {s["hparams"]["lr"] for s in results["selected"]} == {0.001}, "the highest score wins"
    assert 0 <= returned <= 1
    curves = next(tmp_path.glob("*/*/*/logs.csv")).read_text()
    assert "val/best_score,2.5" in curves
    assert "val/best," not in curves
    assert "score" not in run(tmp_path)["selected"][0]


class ScoredOtherwise(Finetune):
    """Its scores are no accuracies."""

    def learn(self, task):
        best = yield Phase(
            self.candidates(task), score=lambda c, val: 2.5 if c.hparams["lr"] == 0.001 else -40.0
        )
        assert best.score == 2.5
        self.adopt(best.candidate, task)


def test_the_grid_is_searched_a_task_and_its_winner_recorded(tmp_path: Path) -> None:
    results = finished(tmp_path)
    assert all(s["candidates"] == 6 for s in results["selected"])
    assert all(set(s["hparams"]) == {"lr", "weight_decay"} for s in results["selected"])
    assert results["config"]["selection"]["grid"]["lr"] == [0.01, 0.001]


def garbled(monkeypatch: pytest.MonkeyPatch, pool: str) -> None:
    """From now on, the labels of all tasks' ``val`` or ``test`` images are those of other classes."""
    original = Stream.split

    def split(self, index, images, rows, *more):
        made = original(self, index, images, rows, *more)
        if rows is getattr(self.recipe(index), pool):
            own = self.head.owned[index]
            made.y.copy_(torch.tensor([own[(own.index(y) + 1) % len(own)] for y in made.y.tolist()]))
        return made

    monkeypatch.setattr(Stream, "split", split)


@pytest.mark.parametrize("pool", ["test", "val"])
def test_sweepers_are_handed_what_validation_says_and_nothing_of_test_labels(
    pool, tmp_path, monkeypatch
) -> None:
    """With the labels of the other class of two, every wrong answer is right."""
    sizes = {"n_train": 20, "n_val": 15, "n_test": None}
    s = split(toys.images(), seed=0, tasks=2, classes_per_task=2, head="multi_train_test", **sizes)
    monkeypatch.setattr(experiment, "build_stream", lambda cfg: s)
    values, matrices = [], []
    for name in ("as it is", "garbled"):
        learns = ("selection=none", "trainer.patience=null", "trainer.lr=0.02", "trainer.batch_size=5")
        cfg = configure(*SMALL, f"outputs={tmp_path / name}", *learns)
        values.append(experiment.run(cfg))
        matrices.append(json.loads((folder_of(cfg) / "results.json").read_text())["accuracy_matrix"])
        garbled(monkeypatch, pool)
    other_way_round = [[1 - accuracy for accuracy in row] for row in matrices[0]]
    assert matrices[0][-1] != other_way_round[-1], "right as often as wrong: the test shows nothing"
    assert matrices[1] == ([pytest.approx(row) for row in other_way_round] if pool == "test" else matrices[0])
    assert values[1] == (values[0] if pool == "test" else pytest.approx(1 - values[0]))


def test_the_same_command_again_finds_the_finished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    first = finished(tmp_path)
    monkeypatch.setattr("cl_lightning.runs.part.train", lambda *_: pytest.fail("trained again"))
    assert run(tmp_path) == first
    assert "average accuracy" in capsys.readouterr().out


def test_resume_false_starts_afresh(tmp_path: Path) -> None:
    finished(tmp_path)
    folder = folder_of(configure(f"outputs={tmp_path}", *SMALL))
    (folder / "left").write_text("over")
    run(tmp_path, "resume=false")
    assert not (folder / "left").exists()


def test_what_failed_before_it_began_can_be_started_afresh(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(making, "build_learner", lambda *_: 1 / 0)
        run(tmp_path)
    assert [path.name for path in tmp_path.glob("*/*/*/*.json")] == ["status.json"]
    run(tmp_path, "resume=false")


@pytest.mark.parametrize("name", ["thesis.tex", "tasks", "tasks/notes.txt"])
def test_resume_false_removes_no_folder_that_holds_no_run(name: str, tmp_path: Path) -> None:
    folder = folder_of(configure(f"outputs={tmp_path}", *SMALL))
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("years of work")
    with pytest.raises(Refusal, match="not empty and holds no run"):
        run(tmp_path, "resume=false")
    assert (folder / name).exists()


def test_a_finished_run_of_another_version_is_shown_and_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    finished(tmp_path)
    monkeypatch.setattr("cl_lightning.runs.identity.version", lambda package: "1.0")
    run(tmp_path)
    assert "(now 1.0)" in " ".join(capsys.readouterr().out.split())


class Stop(Exception):
    pass


def cut_after(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill just after a record was written, or as good as one."""
    original = Store.save

    def save(self, name, *more):
        record = original(self, name, *more)
        if name == key:
            raise Stop
        return record

    monkeypatch.setattr(Store, "save", save)


KEYS = ["run", "rows/000", "work/task1-0/0", "tasks/001", "rows/002", "rows/003", "validation"]


@pytest.mark.parametrize(("learner", "key"), thinned(LEARNERS, KEYS))
def test_an_interrupted_run_goes_on_and_ends_with_the_same_results(
    learner, key, tmp_path: Path, monkeypatch
) -> None:
    _, whole = made(f"learner={learner}")
    with monkeypatch.context() as patch, pytest.raises(Stop):
        cut_after(key, patch)
        run(tmp_path / "cut", f"learner={learner}")
    resumed = run(tmp_path / "cut", f"learner={learner}")
    assert but_what_may_differ(resumed) == but_what_may_differ(whole)
    folder = folder_of(configure(f"outputs={tmp_path / 'cut'}", *SMALL, f"learner={learner}"))
    assert sorted(path.name for path in (folder / "rows").iterdir()) == [
        f"{learned:03d}.json" for learned in range(4)
    ]
    assert not (folder / "work").exists()


def test_an_unfinished_run_of_another_version_goes_on_only_when_told(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Stop):
        cut_after("tasks/000", patch)
        run(tmp_path)
    monkeypatch.setattr("cl_lightning.runs.identity.VERSION", "9.9")
    with pytest.raises(Refusal, match=r"package 0\.\d.*now 9\.9.*\n.*resume=anyway"):
        run(tmp_path)
    assert run(tmp_path, "resume=anyway")["accuracy_matrix"]


def test_other_images_than_before_are_another_run(tmp_path: Path, monkeypatch) -> None:
    """Those of a cache made anew of a folder whose files were replaced."""
    finished(tmp_path)
    original = experiment.build_stream

    def changed(cfg):
        s = original(cfg)
        return replace(s, sources=tuple(replace(images, digest="other") for images in s.sources))

    monkeypatch.setattr(experiment, "build_stream", changed)
    run(tmp_path)
    assert len(list(tmp_path.glob("*/*/*/results.json"))) == 2


def draw_images(folder: Path, brightest: int) -> None:
    """Files of images in a folder a class, as many and under the same names whatever they show."""
    draws = np.random.default_rng(brightest)
    for part, count in (("train", 12), ("test", 4)):
        for label in range(4):
            place = folder / part / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = draws.integers(0, brightest, (5, 5), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")


def test_a_run_is_not_gone_on_with_other_images_that_took_the_place_of_its_own(
    tmp_path: Path, monkeypatch
) -> None:
    own = f"{{_target_: cl_lightning.data.sources.ImageFolder, folder: own, root: {tmp_path}}}"
    sizes = ("stream.tasks=2", "stream.n_train=12", "stream.n_val=6", "stream.n_test=null")
    options = (f"+data.sources.own={own}", "stream.source=own", "selection=none", *sizes)
    draw_images(tmp_path / "own", 100)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        cut_after("tasks/000", patch)
        run(tmp_path / "out", *options)
    (begun,) = (path.parent for path in tmp_path.glob("out/*/*/*/run.json"))
    before = sorted(path.name for path in (begun / "tasks").iterdir())
    draw_images(tmp_path / "own", 200)
    results = run(tmp_path / "out", *options)
    assert results["finished"]
    assert len(list(tmp_path.glob("out/*/*/*/run.json"))) == 2
    assert sorted(path.name for path in (begun / "tasks").iterdir()) == before
    digests = [json.loads(path.read_text())["record"]["stream"]["images"]["own"]
               for path in tmp_path.glob("out/*/*/*/run.json")]  # fmt: skip
    assert len(set(digests)) == 2


def test_the_folder_holds_configuration_records_learners_results_and_curves(tmp_path: Path) -> None:
    finished(tmp_path)
    folder = folder_of(configure(f"outputs={tmp_path}", *SMALL))
    assert folder.parent == tmp_path / "quickstart" / "finetune"
    assert folder.name.endswith("-s0")
    assert {p.name for p in folder.iterdir()} == {
        "config.yaml",
        "run.json",
        "tasks",
        "rows",
        "validation.json",
        "results.json",
        "logs.csv",
        "lock",
        "status.json",
    }
    assert sorted(p.name for p in (folder / "tasks").iterdir()) == [
        f"00{i}.{kind}" for i in range(3) for kind in ("json", "pt")
    ]
    assert (folder / "logs.csv").read_text().startswith("step,name,value\n")


CHANGES = ["trainer.lr=0.5", "trainer.threads=3", "trainer.precision=bf16-mixed", "stream.tasks=4",
    "learner=joint", "selection=none",
           "backbone.sizes=[7]", "data.sources.mnist.seed=1", "trainer.evaluate=seen"]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_everything_that_can_change_a_result_changes_the_fingerprint(change: str) -> None:
    assert fingerprint_of(*SMALL, change) != fingerprint_of(*SMALL)


@pytest.mark.parametrize(
    "change",
    [
        "logger=none",
        "resume=false",
        "name=other",
        "outputs=elsewhere",
        "cache=/tmp",
        "progress=false",
        "trainer.log_every=5",
        "seed=7",
    ],
)
def test_what_cannot_change_a_result_of_a_seed_leaves_the_fingerprint(change: str) -> None:
    assert fingerprint_of(*SMALL, change) == fingerprint_of(*SMALL)


def test_seeds_share_a_fingerprint_and_not_a_folder() -> None:
    one, other = configure(*SMALL, "seed=0"), configure(*SMALL, "seed=1")
    assert folder_of(one) != folder_of(other)
    assert folder_of(one).name.split("-")[0] == folder_of(other).name.split("-")[0]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["stream.n_val=0"], "no validation data"),
        (["stream.source=cifar11"], "not among data.sources"),
        (["stream.n_train=100000"], "only"),
        (["selection.grid.strength=[1]"], "has no 'strength' in its grid"),
        (["trainer.batch_size=0"], "at least 1"),
        (["backbone.heads=per_task", "stream.head=single"], "per_task"),
        (["learner.start=warm", "learner=independent"], "start=warm"),
        (["trainer.lightning.max_steps=4"], "max_steps"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(overrides: list[str], says: str, tmp_path: Path) -> None:
    plus = [
        ("+" if o.startswith(("selection.grid.strength", "trainer.lightning.")) else "") + o
        for o in overrides
    ]
    with pytest.raises(Refusal, match=says):
        run(tmp_path, *plus)


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner", ["finetune", *(pytest.param(each, marks=pytest.mark.all) for each in growth.STEADY[1:])]
)
def test_a_task_costs_the_same_however_many_came_before_it(learner: str, tmp_path: Path) -> None:
    """Calls of functions in place of seconds: beside other work these were 1.0 to 1.2 of an early task's."""
    assert growth.calls(tmp_path, 30, 3, 28, f"learner={learner}") < 1.05
