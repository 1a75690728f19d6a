"""A network of one's own: what docs/own_network.md shows, and what is said where one does not fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones.own import as_backbone
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from tests import docs
from tests.commands import command

SHAPE, HEAD = (1, 6, 6), Head("domain", 4, (tuple(range(4)),))
TOY = (
    "stream=permuted", "stream.tasks=2", "stream.n_train=100", "stream.n_val=40", "stream.n_test=50",
    "data.sources.mnist.train=2000", "data.sources.mnist.test=300", "trainer.max_epochs=1", "figures=false",
    "progress=false", "selection=none",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page has its reader write."""
    return docs.written(tmp_path_factory.mktemp("own"), "docs/own_network.md")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--config-dir=my_conf", "backbone=small_conv", "learner=ewc"),
        ("~backbone", "+backbone={_target_: my_networks.SmallConv}", "learner=finetune"),
        ("--config-dir=my_conf", "backbone=three_modules", "learner=mntdp_d"),
    ],
)
def test_the_pages_networks_learn(arguments: tuple[str, ...], folder: Path) -> None:
    said = command(*arguments, *TOY, cwd=folder)
    assert "average accuracy" in said.stdout


def test_a_learner_that_takes_networks_apart_says_what_to_derive_from(folder: Path) -> None:
    for learner, part in (("mntdp_d", "path_modules"), ("lwf", "features")):
        own = ("--config-dir=my_conf", "backbone=small_conv", f"learner={learner}")
        said = command(*own, *TOY, cwd=folder, check=False)
        assert said.returncode == 2
        assert re.search(
            rf"asks the network for its {part}, and SmallConv has none: .*\n.*Backbone", said.stderr
        )


@pytest.mark.parametrize("name", ["Ten", "like_torchvisions"])
def test_a_network_that_takes_no_head_is_told_so(name: str, folder: Path) -> None:
    """Also one that passes on whatever it is given, as those of torchvision do."""
    ten = "import torch.nn as nn\n\n\nclass Ten(nn.Linear):\n    pass\n"
    more = "\n\ndef like_torchvisions(*, weights=None, **kwargs):\n    return Ten(**kwargs)\n"
    (folder / "no_head.py").write_text(ten + more)
    own = f"+backbone={{_target_: no_head.{name}, in_features: 3, out_features: 10}}"
    said = command("~backbone", own, *TOY, cwd=folder, check=False)
    assert (
        f"{name} takes no head, which says how many outputs there are.\nWrite def __init__(self, head"
        in said.stderr
    )


class Lazy(nn.Module):
    def __init__(self, outputs: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, outputs)
        )

    def forward(self, x):
        return self.layers(x)


class TakesTheTask(nn.Module):
    needs_task = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(36, 4) for _ in range(2))

    def forward(self, x, task):
        return self.layers[task](x.flatten(1))


def test_lazy_layers_get_their_sizes_and_statistics_stay_as_they_were() -> None:
    network = as_backbone(Lazy(), SHAPE, 4)
    assert [tuple(p.shape) for p in network.parameters()] == [(8, 36), (8,), (8,), (8,), (4, 8), (4,)]
    assert network.training
    assert network.network.layers[2].running_mean.tolist() == [0.0] * 8
    assert network(torch.ones(3, *SHAPE), 1).shape == (3, 4)


def test_a_network_that_takes_the_task_is_given_it() -> None:
    own = TakesTheTask()
    network, x = as_backbone(own, SHAPE, 4), torch.ones(3, *SHAPE)
    assert network.needs_task
    assert torch.equal(network(x, 1), own.layers[1](x.flatten(1)))
    assert not torch.equal(network(x, 1), network(x, 0))


def test_another_number_of_outputs_is_a_sentence() -> None:
    with pytest.raises(Refusal, match=r"Lazy gives the shape \(1, 7\) for one image, and .* wants \(1, 4\)"):
        as_backbone(Lazy(7), SHAPE, 4)


def test_a_network_that_cannot_take_the_images_is_told_with_its_line() -> None:
    with pytest.raises(Refusal, match=r"Linear.forward raised RuntimeError"):
        as_backbone(nn.Linear(5, 4), SHAPE, 4)
