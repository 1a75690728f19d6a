"""What a test measures besides accuracies, and keeps."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.evaluator import Evaluator, Measured
from cl_lightning.learners import Finetune, Needs
from cl_lightning.metrics.measures import MEASURES
from cl_lightning.notebook import Run
from cl_lightning.protocol import Grants
from cl_lightning.report.schema import schema
from tests import toys
from tests.commands import finished, run
from tests.metrics.test_measures import by_hand
from tests.report.test_tables import shown
from tests.toys import builder

CPU = torch.device("cpu")
W = torch.randn(3, 4, 36, generator=torch.Generator().manual_seed(0)) * 4


class Draws(Finetune):
    """Three draws, each a fixed linear map of the image."""

    def samples(self, x, task):
        return torch.einsum("koi,ni->kno", W, x.flatten(1))


class ToldDraws(Draws):
    needs = Needs(task_id_at_test=True)


def measured(cls: type[Finetune], s: Stream, learned: int = 2, **settings: object) -> Measured:
    evaluator = Evaluator(s, toys.one_epoch(**settings), CPU, Grants())
    return evaluator.measure([("", cls(build=builder(s), head=s.head))], learned)


def logits_by_hand(s: Stream, task: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of logits of a task's test images, without outputs of other tasks where the head masks them."""
    test = s.test(task)
    logits = np.einsum("koi,ni->kno", W.numpy(), test.x.flatten(1).numpy())
    if s.head.masks_test:
        logits[:, :, [c for c in range(4) if c not in s.head.owned[task]]] = -np.inf
    return logits, test.y.numpy()


@pytest.mark.parametrize("cls", [Draws, ToldDraws])
@pytest.mark.parametrize("head", ["single", "multi_test"])
def test_accuracy_and_measures_go_by_the_mean_of_the_probabilities_by_hand(
    cls: type[Draws], head: str
) -> None:
    s = toys.pairs_of_classes(head)
    test = measured(cls, s, measures=[*MEASURES], eval_batch_size=33)
    other = set()
    for task in range(2):
        logits, y = logits_by_hand(s, task)
        p_k = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        right = {"mean p": p_k.mean(0), "mean logit": logits.mean(0), "first draw": logits[0]}
        accuracies = {name: (each.argmax(1) == y).mean() for name, each in right.items()}
        assert test.rows[""][task] == accuracies["mean p"]
        other |= {name for name, accuracy in accuracies.items() if accuracy != accuracies["mean p"]}
        for name, values in by_hand(logits, y).items():
            over = np.median if name.endswith("median") else np.mean
            # torch's median of an even number is the lower of two
            expected = np.sort(values)[(len(values) - 1) // 2] if over is np.median else over(values)
            assert test.measures[name][""][task] == pytest.approx(expected, abs=1e-5)
    assert other >= {"mean logit", "first draw"}, "the test would show nothing"


def test_without_draws_of_its_own_a_learner_has_one_and_keeps_its_accuracies() -> None:
    s = toys.stream()
    plain, more = (measured(Finetune, s, measures=names) for names in ([], [*MEASURES]))
    assert plain.rows == more.rows
    assert not plain.measures
    assert more.measures["mutual_information"][""] == [0, 0, 0]


def test_draws_of_the_wrong_shape_are_refused_by_the_name_of_the_hook() -> None:
    class NoDraws(Finetune):
        def samples(self, x, task):
            return self(x, task)

    with pytest.raises(Refusal, match=r"NoDraws\.samples gave .* must be \('draws', 600, 4\)"):
        measured(NoDraws, toys.stream())


def test_tasks_that_are_not_tested_and_values_that_are_infinite_are_null() -> None:
    class Sure(Finetune):
        def forward(self, x, task):
            return torch.tensor([0.0, -torch.inf, -torch.inf, -torch.inf]).expand(len(x), 4)

    test = measured(Sure, toys.stream(), evaluate="seen", measures=["nll", "entropy"])
    assert test.measures == {"nll": {"": [None] * 3}, "entropy": {"": [0, 0, None]}}


def test_what_is_frozen_is_measured_and_kept_in_every_row() -> None:
    class Frozen(Finetune):
        frozen_predictions = True

    s = toys.stream()
    evaluator = Evaluator(s, toys.one_epoch(measures=["nll"], keep_predictions=True), CPU, Grants())
    learner = Frozen(build=builder(s), head=s.head)
    first, again = (evaluator.measure([("", learner)], learned) for learned in (1, 2))
    assert first.measures == again.measures
    assert all(
        torch.equal(first.predictions[""][0][name], kept) for name, kept in again.predictions[""][0].items()
    )


KEEPS = ("selection=none", "trainer.measures=[entropy,nll]", "trainer.keep_predictions=true")


def test_measures_and_predictions_are_in_the_results_the_table_and_the_folder(tmp_path: Path) -> None:
    results = run(tmp_path, *KEEPS)
    jsonschema.validate(results, schema())
    plain = finished(tmp_path / "plain", "selection=none")
    assert results["accuracy_matrix"] == plain["accuracy_matrix"]
    entropy, nll = results["measures"]["entropy"], results["measures"]["nll"]
    assert np.shape(entropy) == np.shape(nll) == (4, 3)
    folder = next(path.parent for path in tmp_path.glob("*/*/*/results.json"))
    line = next(line for line in shown(folder).splitlines() if "nll" in line)
    assert f"{np.mean(nll[3]):.3f}" in line
    assert f"{np.mean([nll[j + 1][j] for j in range(3)]):.3f}" in line
    made = Run(folder)
    assert made.measures["entropy"].loc[3, 1] == entropy[3][1]
    kept = made.predictions(after=2)
    assert list(kept) == ["predictor", "task", "label", "predicted", "probability", "entropy"]
    by_task = kept.groupby("task")
    right = (kept["label"] == kept["predicted"]).groupby(kept["task"]).mean()
    assert right.tolist() == pytest.approx(results["accuracy_matrix"][2])
    assert by_task["entropy"].mean().tolist() == pytest.approx(entropy[2], abs=1e-6)
    test, learner = made.stream().test(1), made.learner(after=2)
    with torch.no_grad():
        p = learner.head.mask(learner(test.x, None), 1).softmax(1)
    assert by_task.get_group(1)["probability"].to_numpy() == pytest.approx(p.amax(1).numpy(), abs=1e-5)
    with pytest.raises(Refusal, match=r"trainer\.keep_predictions=true"):
        Run(next((tmp_path / "plain").glob("*/*/*/results.json")).parent).predictions()


def test_a_measure_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"trainer\.measures.*entropy.*mutual_information"):
        run(tmp_path, "trainer.measures=[entropie]")
