"""The card tells what happened, whatever a learner declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cl_lightning.callbacks.base import StreamCallback
from cl_lightning.data.copies import copies_in
from cl_lightning.data.streams.resemblance import resemblance
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.card import Finding, card_of
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import Finetune, Independent, Phase
from cl_lightning.metrics.costs import Costs
from cl_lightning.protocol import Grants, ProtocolError
from cl_lightning.store.records import (
    CandidateRecord,
    PhaseRecord,
    Place,
    RowRecord,
    StartRecord,
    StreamRecord,
    TaskRecord,
)
from tests import toys
from tests.commands import run
from tests.toys import builder, training

RULES = (
    "cross-task resemblance", "shared output head", "no task label at test", "no retraining on old tasks",
    "more than two tasks",
    "low memory", "causality", "constant update complexity",
)  # fmt: skip
STREAM = StreamRecord(
    name="split", fingerprint="", images={}, prints=[], head="single", permuted=False,
    tasks=[], sources=["mnist"] * 3, stand_ins={},
)  # fmt: skip
OF_STREAM = ("head", "permuted", "sources", "stand_ins")
HONEST = StartRecord(
    format=0, version={}, command=[], environment={}, name="", config={}, fingerprint="", learner="", seed=0,
    needs={"task_id_at_test": False, "past_data": False}, stream=STREAM, passes=None, callbacks=[],
)  # fmt: skip


def lesson(task: int, **facts) -> TaskRecord:
    """What happened while a task was learned: ``step_cost`` operations of a mini-batch an example and
    candidate, ``held`` bytes of the checkpoint at its end, ``seen`` examples in mini-batches."""
    fact = {"lent": [task], "copies": {}, "replayed": 0, "held": 1000, "step_cost": 10.0, "compared": 6,
            "seen": 0} | facts  # fmt: skip
    trained = (
        Costs() if fact["step_cost"] is None else Costs(step_flops=fact["step_cost"], candidate_examples=1)
    )
    candidates = [CandidateRecord("", {}, None, None, 1, 1)] * fact["compared"]
    return TaskRecord(
        task, [PhaseRecord(Place("task", task), "", candidates, 0, 1, trained)], [],
        Costs(replayed=fact["replayed"], examples=fact["seen"]), fact["lent"], fact["copies"], {}, None,
        fact["held"],
    )  # fmt: skip


def lessons(*each: dict) -> list[TaskRecord]:
    return [lesson(i, **facts) for i, facts in enumerate(each)]


def findings(of=None, masks=False, needs=(), sizes=(60, 60, 40, 40), **facts) -> dict[str, Finding]:
    tasks = [{"head": {"outputs": [2 * i, 2 * i + 1]}, "n_train": size} for i, size in enumerate(sizes)]
    stream = replace(STREAM, tasks=tasks, **{key: facts.pop(key) for key in OF_STREAM if key in facts})
    needed = {key: key in needs for key in HONEST.needs}
    start = replace(HONEST, stream=stream, needs=needed, **facts)
    rows = [RowRecord(1, {"": [0.5]}, masks, [], Costs(), 0.0)]
    return {finding.rule: finding for finding in card_of(start, of or lessons({}, {}, {}), rows)}


def violated(**facts) -> set[str]:
    return {rule for rule, finding in findings(**facts).items() if finding.verdict == "violated"}


def test_all_rules_are_decided_and_an_honest_single_headed_run_keeps_them() -> None:
    assert {rule: finding.verdict for rule, finding in findings().items()} == dict.fromkeys(
        RULES, "satisfied"
    )


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        ({"permuted": True}, {"cross-task resemblance"}),
        ({"head": "multi_test"}, {"shared output head", "no task label at test"}),
        ({"head": "multi_train_test"}, {"shared output head", "no task label at test"}),
        ({"needs": {"task_id_at_test"}}, {"no task label at test"}),
        ({"needs": {"task_id_at_test"}, "masks": True}, {"no task label at test", "shared output head"}),
        ({"of": lessons({}, {"copies": {"memory.x": 4}}, {})}, {"no retraining on old tasks", "low memory"}),
        (
            {"of": lessons({}, {"lent": [0, 1]}, {}), "needs": {"past_data"}},
            {"no retraining on old tasks", "low memory", "constant update complexity"},
        ),
        ({"of": lessons({}, {"lent": [2]}, {})}, {"causality"}),
        ({"of": lessons({}, {})}, {"more than two tasks"}),
        ({"of": lessons({}, {}, {"held": 2000})}, {"constant update complexity"}),
        ({"of": lessons({}, {}, {"step_cost": 20.0})}, {"constant update complexity"}),
        ({"stand_ins": {"svhn": "street_chars"}}, {"named data"}),
    ],
)
def test_what_breaks_which_rule(facts: dict, rules: set[str]) -> None:
    assert violated(**facts) == rules


@pytest.mark.parametrize(
    ("seen", "kept"), [((120, 120, 80), True), ((120, 119, 80), False), ((60, 180, 80), False)]
)
def test_each_task_is_seen_as_often_as_there_are_passes_by_itself(seen: tuple[int, ...], kept: bool) -> None:
    """The third would have the right number over all tasks: one took the passes that another left out."""
    of = lessons(*({"seen": count} for count in seen))
    found = findings(of, passes=2)["single pass"]
    assert found.verdict == ("satisfied" if kept else "violated")
    assert found.evidence.startswith(f"examples seen: {sum(seen)} of 160, in 2 passes")


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"sources": ["mnist"]}, "cross-task resemblance"),
        ({"sources": ["mnist", "dtd", "svhn"]}, "cross-task resemblance"),
        ({"needs": {"task_id_at_test"}}, "shared output head"),
        ({"of": lessons(*[{"compared": 1}] * 3)}, "causality"),
        ({"of": lessons({}, {})}, "constant update complexity"),
        ({"callbacks": ["Mine"]}, "own callbacks"),
    ],
)
def test_what_cannot_be_known_is_said_to_be_unknown(facts: dict, rule: str) -> None:
    assert findings(**facts)[rule].verdict == "unknown"


def test_tasks_are_counted_from_0_in_what_is_said_of_growth() -> None:
    said = findings(of=lessons({}, {"step_cost": None}, {}, {"step_cost": 11.0}))[
        "constant update complexity"
    ]
    assert said.evidence == (
        "it holds 1,000 bytes after task 1, 1,000 after task 3; "
        "a training example costs 10 operations in task 2, 11 in task 3"
    )


def test_where_nothing_was_found_the_evidence_says_so() -> None:
    for rule in ("no retraining on old tasks", "low memory"):
        assert findings()[rule].evidence.startswith("none found")


def test_replayed_examples_that_are_no_copies_are_told() -> None:
    found = findings(of=lessons({}, {"replayed": 32}, {}))
    for rule in ("no retraining on old tasks", "low memory"):
        assert found[rule].verdict == "unknown"
        assert "32 examples were added" in found[rule].evidence


# ---- from what happened in a run ---------------------------------------------------------------------------


class Replays(Finetune):
    """Keeps images, trains on them, and counts calls at test to find out the task."""

    calls = 0

    def extend(self, batch):
        return batch.cat(*self.memory["kept"]) if self.memory else batch

    def on_task_end(self, task):
        new = [part[:20].clone() for part in task.train.parts]
        self.memory["kept"] = (
            [torch.cat(both) for both in zip(self.memory["kept"], new)] if self.memory else new
        )

    def forward(self, x, task):
        self.calls += 1
        return self.network(x, task).roll(self.calls, dims=1)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    options = ("learner._target_=tests.evaluation.test_card.Replays", "stream.head=single", "selection=none")
    return run(tmp_path_factory.mktemp("replays"), *options)


def evidence(results: dict) -> dict[str, tuple[str, str]]:
    return {finding["rule"]: (finding["verdict"], finding["evidence"]) for finding in results["card"]}


def test_images_in_memory_are_found_and_those_that_are_replayed_counted(replayed: dict) -> None:
    batches = 2 * 2  # epochs of 100 examples in batches of 64
    for rule in ("no retraining on old tasks", "low memory"):
        verdict, told = evidence(replayed)[rule]
        assert verdict == "violated"
        assert "60 training examples were found in memory.kept.0" in told
        assert f"{batches * (0 + 20 + 40)} examples were added" in told


def test_a_learner_that_is_not_told_the_task_cannot_find_out_from_the_mini_batches(replayed: dict) -> None:
    """Counting calls tells it nothing: each mini-batch has images of all tasks, and the copy that counted is
    thrown away."""
    assert evidence(replayed)["no task label at test"][0] == "satisfied"
    last = replayed["accuracy_matrix"][-1]
    assert max(last) < 0.5, "rolled logits are wrong on all tasks alike"


def test_mini_batches_of_the_test_mix_images_of_all_tasks() -> None:
    s = toys.stream(tasks=3)
    tasks = []

    class Spy(Evaluator):
        def predict(self, tested, x, y, task_of, told, asked):
            tasks.append(task_of.unique().tolist())
            assert told is not None or not torch.equal(task_of, task_of.sort().values), (
                "the place in it tells the task"
            )
            return super().predict(tested, x, y, task_of, told, asked)

    Spy(s, training(), torch.device("cpu"), Grants()).row(Finetune(build=builder(s), head=s.head), 3)
    assert tasks == [[0, 1, 2]]
    tasks.clear()
    learner = Independent(build=builder(s), head=s.head)
    learner.predicts, learner.networks = (
        lambda task: True,
        torch.nn.ModuleList(learner.fresh(i) for i in range(3)),
    )
    Spy(s, training(), torch.device("cpu"), Grants()).row(learner, 3)
    assert tasks == [[0], [1], [2]]


# ---- examples found in a learner's checkpoint --------------------------------------------------------------


@given(
    kept=st.lists(st.integers(0, 59), min_size=1, max_size=10, unique=True),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    flat=st.booleans(),
    empty=st.integers(0, 5),
)
def test_copies_are_found_in_any_precision_and_shape(
    kept: list[int], dtype: torch.dtype, flat: bool, empty: int
) -> None:
    task = toys.stream().task(0)
    rows = torch.cat([task.train.x[kept], torch.zeros(empty, *toys.SHAPE)]).to(dtype)
    state = {"_extra_state": {"memory": {"images": [rows.flatten() if flat else rows]}}}
    assert copies_in(state, task) == {"memory.images.0": len(kept)}


def test_validation_images_are_found_as_well() -> None:
    task = toys.stream().task(0)
    assert copies_in({"x": task.val.x[:7]}, task) == {"x": 7}


def test_weights_and_other_images_are_not_taken_for_copies() -> None:
    task, learner = toys.stream().task(0), Finetune(build=builder(toys.stream()), head=toys.stream().head)
    learner.memory = {
        "others": toys.stream().task(1).train.x,
        "labels": task.train.y,
        "mean": task.train.x.mean(0),
    }
    assert copies_in(learner.state_dict(), task) == {}


def test_black_images_are_no_evidence() -> None:
    task = toys.stream().task(0)
    task.train.x.zero_()
    assert copies_in({"memory": torch.zeros(10, 36)}, task) == {}


# ---- resemblance -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_train", [100, 1000])
def test_permuted_digits_do_not_resemble_each_other_and_split_digits_do(n_train: int) -> None:
    from cl_lightning.config.build import build_stream
    from tests.commands import configure

    few = (
        "data.sources.mnist.train=6000",
        "data.sources.mnist.test=500",
        f"stream.n_train={n_train}",
        "stream.n_val=0",
        "stream.tasks=5",
    )
    apart = resemblance(build_stream(configure("stream=permuted", *few)))
    near = resemblance(build_stream(configure("stream=split", *few)))
    turned = resemblance(build_stream(configure("stream=rotated", *few)))
    assert near.alike
    assert turned.alike
    assert not apart.alike
    assert apart.permuted
    assert near.entropy < apart.entropy


def test_resemblance_is_a_function_of_the_stream_and_needs_two_tasks() -> None:
    torch.manual_seed(1)
    one = resemblance(toys.stream())
    torch.manual_seed(2)
    assert resemblance(toys.stream()) == one
    assert resemblance(toys.stream(tasks=1)) is None


@pytest.mark.parametrize("degrees", [0.0, 90.0, 180.0])
def test_a_turn_that_loses_no_pixel_is_no_permutation(degrees: float) -> None:
    from cl_lightning.data.streams.recipes import rotated

    s = rotated(toys.images(), seed=0, tasks=2, n_train=60, n_val=40, n_test=None, angles=[45.0, degrees])
    assert not any(s.recipe(index).permuted for index in range(2))


# ---- grants ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "need"),
    [
        (("learner=independent",), "task_id_at_test"),
        (("backbone.heads=per_task",), "task_id_at_test"),
        (("learner=joint",), "past_data"),
    ],
)
def test_a_learner_that_needs_what_is_not_given_is_refused_before_training(
    options: tuple, need: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=rf"declares that it needs .*grants\.{need}=false"):
        run(tmp_path, *options, f"grants.{need}=false")
    assert not list(tmp_path.rglob("run.json"))


def test_a_predictor_may_not_need_more_than_is_granted() -> None:
    s = toys.stream()
    evaluator = Evaluator(s, training(), torch.device("cpu"), Grants(task_id_at_test=False))
    with pytest.raises(Refusal, match="the task's number at test"):
        evaluator.measure([("", Independent(build=builder(s), head=s.head))], 0)


# ---- learners that are taken for what they are -------------------------------------------------------------


class McDropout(Finetune):
    """Drops units at test too, and averages few draws."""

    def forward(self, x, task):
        self.network.train()
        return torch.stack([self.network(x, task).softmax(1) for _ in range(3)]).mean(0).log()


def test_learners_that_draw_at_test_are_measured_the_same_again() -> None:
    s = toys.stream()
    learner = McDropout(build=builder(s, dropout=0.5), head=s.head)
    evaluator = Evaluator(s, training(), torch.device("cpu"), Grants())
    assert evaluator.row(learner, 3) == evaluator.row(learner, 3)


class MasksByItself(Independent):
    fill = -torch.inf

    def forward(self, x, task):
        return super().forward(x, task).index_fill(1, torch.tensor([0]), self.fill)


class MasksByALargeNumber(MasksByItself):
    fill = -1e9


@pytest.mark.parametrize("cls", [MasksByItself, MasksByALargeNumber])
def test_a_learner_that_masks_outputs_itself_has_no_shared_head(
    cls: type[Independent], tmp_path: Path
) -> None:
    results = run(
        tmp_path,
        "learner=independent",
        f"learner._target_=tests.evaluation.test_card.{cls.__name__}",
        "stream.head=domain",
        "selection=none",
    )
    assert evidence(results)["shared output head"][0] == "violated"


class TrainsOnItsOwn(Finetune):
    """Trains on normalised images of the task before, which it keeps."""

    def learn(self, task):
        own = Split(*self.memory["own"]) if self.memory else task.train
        best = yield Phase(self.candidates(task), train=own)
        self.adopt(best.candidate, task)
        x, y, index = task.train.parts
        self.memory["own"] = ((x - 0.1) / 0.3, y.clone(), index.clone())


def test_examples_of_a_phases_own_that_are_none_of_the_tasks_are_counted(tmp_path: Path) -> None:
    results = run(tmp_path, "learner._target_=tests.evaluation.test_card.TrainsOnItsOwn", "selection=none")
    verdict, told = evidence(results)["no retraining on old tasks"]
    assert verdict == "unknown"
    assert "200 examples were added" in told  # 100 in each of two later tasks


class Grows(Finetune):
    def on_task_end(self, task):
        self.memory["more"] = [*self.memory.get("more", []), "x" * 1_000_000]


def test_growth_is_measured_of_texts_too(tmp_path: Path) -> None:
    results = run(tmp_path, "learner._target_=tests.evaluation.test_card.Grows", "selection=none")
    assert evidence(results)["constant update complexity"][0] == "violated"
    assert [cost["held"]["memory.more"] for cost in results["costs"]] == [1_000_000, 2_000_000, 3_000_000]


class Watches(StreamCallback):
    def on_task_start(self, learner, task):
        learner.network.head.bias.data.zero_()


def test_callbacks_of_ones_own_are_named_on_the_card(tmp_path: Path) -> None:
    results = run(
        tmp_path, "trainer.callbacks=[{_target_: tests.evaluation.test_card.Watches}]", "selection=none"
    )
    verdict, told = evidence(results)["own callbacks"]
    assert verdict == "unknown"
    assert told.startswith("Watches ran beside the learner")


class PeeksAtTestData(StreamCallback):
    def on_task_end(self, learner, task):
        self.stream.test(0)

    def on_fit_start(self, trainer, learner):
        self.stream = trainer.datamodule.stream


def test_callbacks_are_guarded_between_phases_too(tmp_path: Path) -> None:
    with pytest.raises(
        ProtocolError, match=r"PeeksAtTestData\.on_task_end: the test data of task 0 were asked for"
    ):
        run(
            tmp_path,
            "trainer.callbacks=[{_target_: tests.evaluation.test_card.PeeksAtTestData}]",
            "selection=none",
        )


class FailsInLightning(StreamCallback):
    def on_train_batch_end(self, *_):
        raise ValueError("its own")


class TakesTooLittle(StreamCallback):
    def on_task_end(self, task):
        pass


class CannotBeMade(StreamCallback):
    def __init__(self):
        raise ValueError("its own")


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (FailsInLightning, r"\.on_train_batch_end raised ValueError: its own"),
        (TakesTooLittle, r"\.on_task_end raised TypeError: "),
        (CannotBeMade, r"\.__init__ raised ValueError: its own"),
    ],
)
def test_a_callbacks_mistake_is_told_with_its_name_and_line(cls: type, words: str, tmp_path: Path) -> None:
    callback = f"trainer.callbacks=[{{_target_: {__name__}.{cls.__name__}}}]"
    with pytest.raises(Refusal, match=rf"{cls.__name__}{words}.*\nat .*test_card\.py, line"):
        run(tmp_path, callback, "selection=none")


class ReadsTheSeed(Independent):
    seeds: set[int] = set()

    def forward(self, x, task):
        self.seeds.add(torch.initial_seed())
        return self.networks[0](x, task)

    def predicts(self, task):
        return True


def test_draws_at_test_tell_nothing_of_the_task() -> None:
    s = toys.stream()
    ReadsTheSeed.seeds.clear()
    learner = ReadsTheSeed(build=builder(s), head=s.head)
    learner.networks.append(learner.fresh(0))
    Evaluator(s, training(), torch.device("cpu"), Grants()).row(learner, 3)
    assert len(ReadsTheSeed.seeds) == 1
