"""The card tells what happened, whatever a learner declares."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from hypothesis import given
from hypothesis import strategies as st

from cl_lightning.data.copies import copies_of
from cl_lightning.data.streams import split
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.card import Lesson, card
from cl_lightning.evaluation.evaluator import Evaluator, Examination
from cl_lightning.evaluation.resemblance import Resemblance, resemblance
from cl_lightning.learners import Finetune, Independent, Needs, Phase
from cl_lightning.protocol import Grants
from tests import toys
from tests.commands import run
from tests.toys import builder, learn, training

RULES = (
    "cross-task resemblance", "shared output head", "no task label at test", "no retraining on old tasks", "more than two tasks",
    "low memory", "causality", "constant update complexity",
)  # fmt: skip
HONEST = Examination(told=False, tasks=3, images=150, changed=0, layers=1)
ALIKE = Resemblance(1, 0.7, 0.2)


def lesson(**facts) -> Lesson:
    return Lesson(**{"lent": [0], "copies": {}, "replayed": 0, "held": 1000, "step_cost": 10.0, "compared": 6, **facts})


def lessons(*each: dict) -> list[Lesson]:
    return [lesson(**{"lent": [i], **facts}) for i, facts in enumerate(each)]


def verdicts(mode: str = "single", past: bool = False, of=None, examined: Examination = HONEST, alike=ALIKE) -> dict[str, str]:
    of = lessons({}, {}, {}) if of is None else of
    return {finding.rule: finding.verdict for finding in card(mode, past, of, examined, alike)}


def violated(**facts) -> set[str]:
    return {rule for rule, verdict in verdicts(**facts).items() if verdict == "violated"}


def test_all_rules_are_decided_and_an_honest_single_headed_run_keeps_them() -> None:
    assert verdicts() == dict.fromkeys(RULES, "satisfied")


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        ({"alike": Resemblance(2, 0.01, 1.5)}, {"cross-task resemblance"}),
        ({"mode": "multi_test"}, {"shared output head", "no task label at test"}),
        ({"mode": "multi_train_test"}, {"shared output head", "no task label at test"}),
        ({"examined": Examination(True, 3, 150, 40, 1)}, {"no task label at test"}),
        ({"examined": Examination(True, 3, 150, 150, 3)}, {"no task label at test", "shared output head"}),
        ({"examined": Examination(False, 3, 150, 100, 1)}, {"no task label at test"}),
        ({"of": lessons({}, {"copies": {"self.memory['x']": 4}}, {})}, {"no retraining on old tasks", "low memory"}),
        (
            {"of": lessons({}, {"lent": [0, 1]}, {}), "past": True},
            {"no retraining on old tasks", "low memory", "constant update complexity"},
        ),
        ({"of": lessons({}, {"lent": [2]}, {})}, {"causality"}),
        ({"of": lessons({}, {})}, {"more than two tasks"}),
        ({"examined": Examination(False, 3, 150, 0, 1, masked=True)}, {"shared output head"}),
        ({"alike": Resemblance(2, 0.5, 1.5, permuted=True)}, {"cross-task resemblance"}),
        ({"of": lessons({}, {}, {"held": 2000})}, {"constant update complexity"}),
        ({"of": lessons({}, {}, {"step_cost": 20.0})}, {"constant update complexity"}),
    ],
)
def test_what_breaks_which_rule(facts: dict, rules: set[str]) -> None:
    assert violated(**facts) == rules


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"alike": None}, "cross-task resemblance"),
        ({"examined": Examination(False, 0, 0, 0, 0)}, "no task label at test"),
        ({"examined": Examination(True, 1, 50, 0, 1)}, "no task label at test"),
        ({"of": lessons(*[{"compared": 1}] * 3)}, "causality"),
        ({"of": lessons({}, {})}, "constant update complexity"),
    ],
)
def test_what_cannot_be_known_is_said_to_be_unknown(facts: dict, rule: str) -> None:
    assert verdicts(**facts)[rule] == "unknown"


def test_replayed_examples_that_are_no_copies_are_told() -> None:
    findings = {f.rule: f for f in card("single", False, lessons({}, {"replayed": 32}, {}), HONEST, ALIKE)}
    finding = findings["no retraining on old tasks"]
    assert finding.verdict == findings["low memory"].verdict == "unknown"
    assert "32 examples were added" in finding.evidence


# ---- a learner that lies -----------------------------------------------------------------------------------------


class Liar(Finetune):
    """Declares nothing. Keeps images in an attribute, trains on them, and counts test batches to know the task."""

    def __init__(self, **base) -> None:
        super().__init__(**base)
        self.notes, self.calls = [], 0

    def extend(self, batch):
        for parts in self.notes:
            batch = batch.cat(*parts)
        return batch

    def on_task_end(self, task):
        self.notes.append([part[:20].clone() for part in task.train.parts])

    def forward(self, x, task):
        self.calls += 1
        return self.network(x, task).roll(self.calls, dims=1)


@pytest.fixture(scope="module")
def liars_card(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    options = ("learner._target_=tests.evaluation.test_card.Liar", "stream.head=single", "selection=none")
    results = run(tmp_path_factory.mktemp("liar"), *options)
    assert results["needs"] == {"task_id_at_test": False, "past_data": False}
    return {finding["rule"]: finding for finding in results["card"]}


def test_the_images_that_a_lying_learner_keeps_are_found(liars_card: dict) -> None:
    for rule in ("no retraining on old tasks", "low memory"):
        assert liars_card[rule]["verdict"] == "violated"
        assert "60 training examples were found in self.notes[0][0]" in liars_card[rule]["evidence"]


def test_the_examples_that_a_lying_learner_replays_are_counted(liars_card: dict) -> None:
    batches = 2 * 2  # epochs of 100 examples in batches of 64
    assert f"{batches * (0 + 20 + 40)} examples were added" in liars_card["no retraining on old tasks"]["evidence"]


def test_a_learner_that_finds_out_the_task_by_itself_is_exposed(liars_card: dict) -> None:
    assert liars_card["no task label at test"]["verdict"] == "violated"
    assert "not told the task" in liars_card["no task label at test"]["evidence"]


# ---- examples found in a learner's state -------------------------------------------------------------------------


class Holder:
    pass


@given(
    kept=st.lists(st.integers(0, 59), min_size=1, max_size=10, unique=True),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int64]),
    flat=st.booleans(),
    empty=st.integers(0, 5),
)
def test_copies_are_found_in_any_type_and_shape(kept: list[int], dtype: torch.dtype, flat: bool, empty: int) -> None:
    train, holder = toys.stream().task(0).train, Holder()
    rows = train.x[kept] if dtype.is_floating_point else (train.x[kept] * 255).round()
    rows = torch.cat([rows.to(dtype), torch.zeros(empty, *rows.shape[1:], dtype=dtype)])
    holder.memory = {"images": [rows.flatten() if flat else rows]}
    assert copies_of([train], holder) == {"self.memory['images'][0]": len(kept)}


def test_copies_are_found_in_modules_at_any_depth() -> None:
    train, deep = toys.stream().task(0).train, nn.Linear(36, 2)
    deep.register_buffer("kept", train.x[:5].clone())
    deep.weight = nn.Parameter(train.x[5:7].flatten(1).clone())
    learner = Finetune(build=builder(toys.stream()))
    learner.more = deep
    for _ in range(9):
        learner.more = nn.Sequential(learner.more)
    place = "self.more" + ".0" * 9
    assert copies_of([train], learner) == {f"{place}.kept": 5, f"{place}.weight": 2}


def test_weights_and_other_images_are_not_taken_for_copies() -> None:
    train, holder = toys.stream().task(0).train, Finetune(build=builder(toys.stream()))
    holder.memory = {"others": toys.stream().task(1).train.x, "labels": train.y, "mean": train.x.mean(0)}
    assert copies_of([train], holder) == {}


def test_black_images_are_no_evidence() -> None:
    black, holder = Split(torch.zeros(3, 1, 6, 6), torch.zeros(3), torch.zeros(3)), Holder()
    holder.memory = torch.zeros(10, 36)
    assert copies_of([black], holder) == {}


# ---- predictions examined ----------------------------------------------------------------------------------------


def examine(learner, s) -> Examination:
    return Evaluator(s, training(), torch.device("cpu"), Grants()).examine(learn(learner, s).learner)


def test_finetune_is_told_nothing_and_predicts_the_same_in_any_company() -> None:
    s = toys.stream()
    assert examine(Finetune(build=builder(s)), s) == Examination(False, 3, 150, 0, 1)


def test_independent_networks_depend_on_the_number_and_have_a_layer_each() -> None:
    s = toys.stream()
    assert examine(Independent(build=builder(s)), s) == Examination(True, 3, 150, 150, 3)


def test_one_output_layer_a_task_is_seen() -> None:
    s = split(toys.images(), seed=0, tasks=2, classes_per_task=2, n_train=60, n_val=0, n_test=None, head="multi_train_test")
    examined = examine(Finetune(build=builder(s, heads="per_task")), s)
    assert (examined.told, examined.layers, examined.changed) == (True, 2, 100)


class DeclaresForNothing(Finetune):
    needs = Needs(task_id_at_test=True)


def test_a_declared_need_that_changes_no_prediction_is_no_violation() -> None:
    s = toys.stream()
    examined = examine(DeclaresForNothing(build=builder(s)), s)
    assert examined == Examination(True, 3, 150, 0, 1)
    assert verdicts(examined=examined)["no task label at test"] == "satisfied"


# ---- resemblance -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_train", [100, 1000])
def test_permuted_digits_do_not_resemble_each_other_and_split_digits_do(n_train: int) -> None:
    from cl_lightning.experiment import build_stream
    from tests.commands import configure

    few = ("data.sources.mnist.train=6000", "data.sources.mnist.test=500", f"stream.n_train={n_train}", "stream.n_val=0", "stream.tasks=5")
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
    from cl_lightning.data.streams import rotated

    s = rotated(toys.images(), seed=0, tasks=2, n_train=60, n_val=40, n_test=None, angles=[45.0, degrees])
    alike = resemblance(s)
    assert not alike.permuted
    assert "permutation" not in card("domain", False, lessons({}, {}), HONEST, alike)[0].evidence


# ---- grants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "need"),
    [
        (("learner=independent",), "task_id_at_test"),
        (("backbone.heads=per_task",), "task_id_at_test"),
        (("learner=joint",), "past_data"),
    ],
)
def test_a_learner_that_needs_what_is_not_given_is_refused_before_training(options: tuple, need: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=rf"declares that it needs .*grants\.{need}=false"):
        run(tmp_path, *options, f"grants.{need}=false")
    assert not list(tmp_path.rglob("journal.jsonl"))


class ChangesItsMind(Finetune):
    def on_task_start(self, task):
        self.needs = Needs(task_id_at_test=True, past_data=True)


@pytest.mark.parametrize("need", ["task_id_at_test", "past_data"])
def test_needs_that_appear_later_are_refused_as_well(need: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="does not give"):
        run(tmp_path, "learner._target_=tests.evaluation.test_card.ChangesItsMind", f"grants.{need}=false")


def test_a_predictor_may_not_need_more_than_is_granted() -> None:
    s = toys.stream()
    evaluator = Evaluator(s, training(), torch.device("cpu"), Grants(task_id_at_test=False))
    with pytest.raises(Refusal, match="the task's number at test"):
        evaluator.measure({"": Independent(build=builder(s))}, 0)


# ---- learners that are taken for what they are -------------------------------------------------------------------


class McDropout(Finetune):
    """Drops units at test too, and averages few draws."""

    def forward(self, x, task):
        self.network.train()
        return torch.stack([self.network(x, task).softmax(1) for _ in range(3)]).mean(0).log()


def test_predictions_that_differ_by_chance_are_no_sign_of_knowing_the_task() -> None:
    s = toys.stream()
    examined = examine(McDropout(build=builder(s, dropout=0.5)), s)
    assert examined.noise > 10
    assert verdicts(examined=examined)["no task label at test"] == "satisfied"


class MasksByItself(Independent):
    def forward(self, x, task):
        return super().forward(x, task).index_fill(1, torch.tensor([task]), -torch.inf)


def test_a_learner_that_masks_outputs_itself_has_no_shared_head() -> None:
    s = toys.stream()
    assert examine(MasksByItself(build=builder(s)), s).masked


class KeepsElsewhere(Finetune):
    """Copies of validation images with labels behind them, as an array in a deque."""

    def on_task_end(self, task):
        rows = torch.cat([task.val.x[:7].flatten(1), task.val.y[:7, None].float()], dim=1)
        self.heap = deque([{"rows": rows.numpy().copy()}])


def test_arrays_in_any_container_with_labels_behind_the_pixels_are_searched(tmp_path: Path) -> None:
    results = run(tmp_path, "learner._target_=tests.evaluation.test_card.KeepsElsewhere", "selection=none")
    evidence = {finding["rule"]: finding["evidence"] for finding in results["card"]}
    assert "21 training examples were found in self.heap[0]['rows']" in evidence["low memory"]


class TrainsOnItsOwn(Finetune):
    """Trains on normalised images of the task before, which it keeps."""

    def learn(self, task):
        own = getattr(self, "own", task.train)
        best = yield Phase(self.candidates(task), train=own)
        self.adopt(best.candidate, task)
        x, y, index = task.train.parts
        self.own = Split((x - 0.1) / 0.3, y.clone(), index.clone())


def test_examples_of_a_phases_own_that_are_none_of_the_tasks_are_counted(tmp_path: Path) -> None:
    results = run(tmp_path, "learner._target_=tests.evaluation.test_card.TrainsOnItsOwn", "selection=none")
    finding = {finding["rule"]: finding for finding in results["card"]}["no retraining on old tasks"]
    assert finding["verdict"] == "unknown"
    assert "200 examples were added" in finding["evidence"]  # 100 in each of two later tasks


class Declares(Finetune):
    """Says that it holds nothing, and keeps more and more."""

    def held(self):
        return {"parameters": 1}

    def on_task_end(self, task):
        self.more = [*getattr(self, "more", []), torch.zeros(100_000)]


def test_growth_is_measured_and_not_declared(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"held\(\) declares"):
        results = run(tmp_path, "learner._target_=tests.evaluation.test_card.Declares", "selection=none")
    assert {f["rule"]: f["verdict"] for f in results["card"]}["constant update complexity"] == "violated"


class AsksInForward(Finetune):
    def forward(self, x, task):
        self.needs = Needs(task_id_at_test=True)
        return self.network(x, task)


def test_who_asks_for_the_number_in_the_middle_of_testing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="does not give"):
        run(tmp_path, "learner._target_=tests.evaluation.test_card.AsksInForward", "grants.task_id_at_test=false")


class ReadsTheSeed(Finetune):
    seeds: set[int] = set()

    def forward(self, x, task):
        self.seeds.add(torch.initial_seed())
        return self.network(x, task)


def test_draws_at_test_tell_nothing_of_the_task() -> None:
    s = toys.stream()
    ReadsTheSeed.seeds.clear()
    Evaluator(s, training(), torch.device("cpu"), Grants()).row(ReadsTheSeed(build=builder(s)), 3)
    assert len(ReadsTheSeed.seeds) == 1


def test_augmented_copies_and_grey_levels_of_other_values_are_found() -> None:
    from cl_lightning.data.show import Show
    from cl_lightning.randomness import rng

    x = torch.rand(40, 3, 20, 20, generator=torch.Generator().manual_seed(0)) * 2 - 1
    train, show = Split(x, torch.zeros(40), torch.zeros(40)), Show(values=[-1, 1], flip=True, crop=3)
    augmented = show.augmented(x[:25], torch.full((1, 3), -1.0), rng(0))
    other = show.augmented(torch.rand(25, 3, 20, 20), torch.zeros(1, 3), rng(0))
    grey = ((x[:10] + 1) / 2 * 255).round().to(torch.uint8)
    assert copies_of([train], {"a": augmented, "b": other, "c": grey}, show) == {"self['a']": 25, "self['c']": 10}
    assert copies_of([train], {"a": augmented}, Show(values=[-1, 1])) == {}
