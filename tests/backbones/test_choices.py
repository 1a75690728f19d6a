"""The choices of the configuration group are the published networks, and learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.nn as nn

from cl_lightning.config.build import backbone_of
from cl_lightning.config.resolvers import conf_dir
from tests.backbones.networks import TEN, on_meta, parameters
from tests.commands import configure, run

PUBLISHED = {
    "mlp": 89_610,
    "mlp_mntdp": 1_796_010,
    "fc": 199_210,
    "fc_dropout": 199_210,
    "fc_ewc": 199_210,
    "lwta": 478_410,
    "bayesian": 2 * 89_610,  # a mean and a log-variance each
    "conv": 3_274_634,
    "mc_dropout": 1_199_882,
    "alexnet": 6_524_362 - 2 * 64 * 16,  # images have one channel
    "resnet": 607_050 - 2 * 64 * 9,
    "resnet_small": 38_874 - 2 * 16 * 9,
    "resnet18_gem": 1_109_240 - 90 * 161 - 2 * 20 * 9,  # and ten classes
}


def of_choice(choice: str) -> nn.Module:
    return on_meta(backbone_of(configure(f"backbone={choice}")), input_shape=(1, 28, 28), head=TEN)


def test_every_choice_is_listed_here() -> None:
    assert {path.stem for path in (Path(conf_dir()) / "backbone").glob("*.yaml")} == set(PUBLISHED)


@pytest.mark.parametrize("choice", PUBLISHED)
def test_a_choice_has_the_published_parameters(choice: str) -> None:
    assert parameters(of_choice(choice)) == PUBLISHED[choice]


@pytest.mark.parametrize("choice", ["fc_dropout", "fc_ewc"])
def test_dropout_choices_drop_pixels_and_units_at_the_published_rates(choice: str) -> None:
    assert [m.p for m in of_choice(choice).modules() if isinstance(m, nn.Dropout)] == [0.2, 0.5, 0.5]


SMALL = ["stream.tasks=2", "stream.n_train=300", "stream.n_val=30", "trainer.max_epochs=3",
    "trainer.batch_size=10", "trainer.lr=0.001",
         "selection=none", "progress=false", "data.sources.mnist.train=2000",
         "data.sources.mnist.test=200"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice", ["lwta", *(pytest.param(slow, marks=pytest.mark.all) for slow in ("conv", "resnet_small"))]
)
def test_a_choice_learns_each_task_of_a_stream(choice: str, tmp_path: Path) -> None:
    results = run(
        tmp_path,
        f"backbone={choice}",
        "backbone.heads=per_task",
        "stream.head=multi_train_test",
        *SMALL,
        small=False,
    )
    assert results["metrics"]["learning_accuracy"] > 0.8
