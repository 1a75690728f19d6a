"""Configurations explain themselves, and all of them run."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest
import torch
import torch.nn as nn
from omegaconf import OmegaConf

from cl_lightning.cli.help import GROUPS, first_comment
from cl_lightning.config.build import build_learner, build_stream
from cl_lightning.config.compose import compose_config
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.data.streams.recipes import FIRST_TASKS, PERMUTED_TASKS
from cl_lightning.data.task import HeadMode
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.scenario import scenario
from cl_lightning.randomness import seed_of
from cl_lightning.runs.identity import relevant
from tests.commands import PLAIN, SMALL, configure, run, thinned, with_values

SAME = [
    (*SMALL, "seed=3", "backbone.dropout=0.2"),
    ("+experiment=ctrl_in", "selection=task_level", "selection.grid.lr=[0.5]", "data=real",
    "data.substitute={svhn: street_chars}"),
    ("stream=ctrl_out", "stream.tasks=[{source: mnist}, {source: mnist, like: 0}]", "trainer.lr=null"),
    ("~selection.grid.lr", "trainer.lr=1e-3", "+selection.grid.strength=[0.0]"),
    ("data.sources.mnist.seed=1", "trainer.precision=bf16-mixed", "name=x", "stream.class_order=[1,0]"),
]  # fmt: skip


@pytest.mark.parametrize("overrides", SAME)
def test_what_tests_configure_is_what_hydra_composes(overrides: tuple[str, ...]) -> None:
    plain = () if overrides[0].startswith("+experiment") else PLAIN
    assert configure("outputs=/a", *overrides) == compose_config(*plain, "outputs=/a", *overrides)


FILES = sorted(Path(conf_dir()).rglob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (Path(conf_dir()) / "experiment").glob("*.yaml"))
STUDIES = {  # sweeps of experiments
    "gem_passes": "gem_rotations",
    "gem_memory": "gem_rotations",
    "gem_table1": "gem_permutations",
    "gem_table2": "gem_cifar100",
    "icann18_reduced": "icann18",
    "iclr19_reduced": "iclr19",
    "robust_timed": "robust_split_mnist",
    "ctrl_long_figure": "ctrl_long",
    "ctrl_ablation_k": "ctrl_minus",
    "ctrl_ablations": "ctrl_minus",
    "ctrl_table1": "ctrl_minus",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_key_has_a_comment(path: Path) -> None:
    bare = []
    opens_a_level = re.compile(r"^\s*(- )?[\w/ ]+:\s*(&\w+)?$")
    for line in path.read_text().splitlines():
        is_key = re.match(r"^\s*[\w]+:", line)
        if is_key and "#" not in line and not opens_a_level.match(line):
            bare.append(line.strip())
    assert not bare


def test_comments_end_before_column_110_where_values_leave_room_for_them() -> None:
    long = [line for path in FILES for line in path.read_text().splitlines() if len(line) > 110]
    assert not [line for line in long if "#" in line and len(line.rpartition("  #")[0]) <= 92]


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.parent != Path(conf_dir())],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_every_choice_begins_with_a_line_for_the_help_page(path: Path) -> None:
    assert 10 < len(first_comment(path)) < 110


def test_the_groups_are_those_of_the_layout() -> None:
    folders = {str(path.parent.relative_to(conf_dir())) for path in FILES}
    assert folders == {".", "data/sources", *GROUPS}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_its_own_name(name: str) -> None:
    assert configure(f"+experiment={name}").name == STUDIES.get(name, name)


OF_CIFAR = ("gem_cifar100", "gem_cifar100_reduced", "gem_table2")
LEARNERS = ["finetune", "independent", "independent_gem", "joint", "gem", "mntdp_d"]
TOLD = r"grants\.task_id_at_test=false"
REFUSED = {  # what learners need and experiments do not give
    **{("robust_single_head", learner): TOLD for learner in ("independent", "independent_gem", "mntdp_d")},
    **{
        (name, "mntdp_d"): "MNTDP compares paths"
        for name in EXPERIMENTS
        if name.startswith(("gem_", "robust_")) and name not in ("robust_single_head", "robust_task_heads")
    },
    **{
        (name, learner): "makes the network of its candidate .* itself"
        for name in EXPERIMENTS
        if name.startswith("ic")  # whose grid is of topologies
        for learner in ("independent", "independent_gem", "joint", "mntdp_d")
    },
}
SMALLER = ["stream.tasks=3", "stream.n_train=60", "stream.n_test=50"]
SHORT = [
    "backbone.width=4", "trainer.max_steps=3", "trainer.precision=32", "stream.test_per_class=10",
    "stream.on_shortage=shrink",
]  # fmt: skip
FEW_LISTED = (
    "stream.tasks=[{source: mnist, n_train: 40, n_val: 20}, {source: fashion_mnist, n_train: 20, n_val: 20}]"
)


def smaller(name: str) -> list[str]:
    """What makes an experiment end in seconds."""
    if name.startswith("ic"):  # two tasks, and topologies in their grids
        few = ["stream.n_train=60", "stream.n_test=100", "trainer.max_steps=3"]
        return [*few, "tuned.topologies=[[8],[6]]"]
    if name in OF_CIFAR:
        return [*SMALLER, "backbone.width=4", *FEW_IMAGES]
    if name in ("robust_single_head", "robust_task_heads"):  # the two that validate
        return [*SMALLER, "stream.n_val=40", *FEW_IMAGES]
    if not name.startswith("ctrl"):
        return [*SMALLER, *FEW_IMAGES]
    if name == "ctrl_permuted":
        return [*SMALLER, *SHORT[1:3]]
    if name == "ctrl_split_cifar100":
        return [*SMALLER, "stream.n_val=20", *SHORT[:3]]
    few = (
        ["stream.tasks=2", "stream.large=[25,15]", "stream.names=[mnist,fashion_mnist]"]
        if "long" in name
        else [FEW_LISTED]
    )
    return [*SHORT, *few, *FEW_IMAGES]


OF_ROWS = ("ctrl_ablation_k", "ctrl_ablations", "ctrl_table1")
PAIRS = [
    *thinned((name for name in EXPERIMENTS if not name.startswith("ctrl")), LEARNERS, each=12),
    *thinned(
        (name for name in EXPERIMENTS if name.startswith("ctrl") and name not in OF_ROWS),
        ["mntdp_d", "independent"],
        each=8,
    ),
    *(pytest.param(name, "mntdp_d", marks=pytest.mark.all) for name in OF_ROWS),
]  # CTrL's experiments have slow networks: its own learners stand for all; its studies differ in nothing that
# learners see


@pytest.mark.parametrize(("name", "learner"), PAIRS)
def test_every_experiment_runs_with_every_learner_that_it_gives_what_it_needs(
    name: str, learner: str, tmp_path: Path
) -> None:
    refused = REFUSED.get((name, learner))
    with pytest.raises(Refusal, match=refused) if refused else nullcontext():
        results = run(
            tmp_path,
            f"+experiment={name}",
            f"learner={learner}",
            "progress=false",
            "figures=false",
            *smaller(name),
            small=False,
        )
        assert results["name"] == STUDIES.get(name, name)


def said_by(path: Path) -> str:
    """The text of an experiment's file, and of those that it begins with."""
    bases = [one for one in OmegaConf.load(path).get("defaults", []) if one != "_self_"]
    found = [path.parent / f"{one}.yaml" for one in bases if isinstance(one, str)]
    found += [Path(conf_dir(), "dnn", f"{one['/dnn']}.yaml") for one in bases if "/dnn" in one]
    return path.read_text() + "".join(map(said_by, found))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_what_learns_and_from_what(name: str) -> None:
    """Whatever the program runs when told nothing."""
    said = said_by(Path(conf_dir(), "experiment", f"{name}.yaml"))
    assert "  - override /learner: " in said
    assert "  - override /stream: " in said


GEMS = sorted(name for name in EXPERIMENTS if name.startswith("gem_") and name not in OF_CIFAR)
BEGINS = [
    pytest.param(
        name, learner, marks=[] if name == "gem_rotations" or learner == "multimodal" else pytest.mark.all
    )
    for name in GEMS
    for learner in sorted(path.stem for path in FILES if path.parent.name == "learner")
]


@pytest.mark.parametrize(("name", "learner"), BEGINS)
def test_in_gems_experiments_multimodal_begins_as_pytorch_without_biases_and_all_others_by_glorot(
    name: str, learner: str
) -> None:
    """As in the authors' program; ``relevant`` is what a run is known by and what a report compares."""
    cfg = configure(f"+experiment={name}", f"learner={learner}")
    expected = "torch_unbiased" if learner == "multimodal" else "glorot"
    assert relevant(cfg)["backbone"]["init"] == expected
    assert relevant(with_values(cfg, backbone__init="fan_in"))["backbone"]["init"] == "fan_in"


@pytest.mark.parametrize("name", ["gem_rotations", "gem_permutations"])
def test_the_published_multimodal_network_has_the_weights_that_pytorch_draws_under_its_key_and_no_bias(
    name: str,
) -> None:
    cfg = configure(
        f"+experiment={name}",
        "learner=multimodal",
        "seed=5",
        "stream.tasks=3",
        "backbone.sizes=[30,20]",
        *FEW_IMAGES,
    )
    learner = build_learner(cfg, build_stream(cfg))
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(5, "init", 0))
        nn.Linear(784, 30)  # drawn before the layers of the tasks, which take its place
        own = [nn.Linear(30, 20), *(nn.Linear(784, 30) for _ in range(3)), nn.Linear(20, 10)]
    trunk = learner.network.trunk
    layers = [trunk.linear2, *trunk.linear1.layers, learner.network.head]
    assert all(
        torch.equal(layer.weight, of_pytorch.weight) for layer, of_pytorch in zip(layers, own, strict=True)
    )
    assert not any(layer.bias.any() for layer in layers)


SENSIBLE = [
    *(("shared", head) for head in get_args(HeadMode)),
    ("per_task", "multi_train_test"),
    ("per_task", "domain"),
]  # test_experiment has the rest


@pytest.mark.parametrize(("heads", "head"), SENSIBLE)
def test_every_head_mode_runs_that_makes_sense(heads: str, head: str, tmp_path: Path) -> None:
    assert (
        run(tmp_path, f"stream.head={head}", f"backbone.heads={heads}")["metrics"]["average_accuracy"] > 0.1
    )


# ---- every stream on every data set ------------------------------------------------------------------------

SOURCES = list(configure().data.sources)
FEW = {
    "cifar100": (4000, 1000),
    "devanagari": (2300, 460),
    "dtd": (3760, 470),
}  # images; 1200 and 300 of the others
FEW_IMAGES = [
    f"data.sources.{name}.{split}={count}"
    for name in SOURCES
    for split, count in zip(("train", "test"), FEW.get(name, (1200, 300)))
]


def first_tasks_of(stream: str, count: int) -> str:
    """As an argument of the command line."""
    tasks = configure(f"stream={stream}").stream.tasks[:count]
    listed = [
        f"{{source: {t.source}, classes: {list(t.classes)}, n_train: {t.n_train}, n_val: {t.n_val}}}"
        for t in tasks
    ]
    return f"stream.tasks=[{', '.join(listed)}]"


STREAMS = {
    "split": ["stream.tasks=2", "stream.n_train=60", "stream.n_val=20"],
    **{f"split_{word}": ["stream.tasks=2", "stream.n_val=20"] for word in ("task", "domain", "class")},
    "permuted": ["stream.tasks=2", "stream.n_train=60", "stream.n_val=20"],
    "rotated": ["stream.tasks=2", "stream.n_train=60", "stream.n_val=20"],
    "two_tasks": ["stream.n_train=60", "stream.n_val=20"],
    "overlapping": ["stream.tasks=2", "stream.n_train=60", "stream.n_val=20"],
    "drifting": ["stream.tasks=5", "stream.groups=2", "stream.n_train=60", "stream.n_val=20"],
    "transfer": [
        "stream.tasks=[{source: mnist, n_train: 60}, {source: svhn, n_train: 60}]",
        "stream.n_val=20",
    ],
    "sequence": [],
    "incremental_cifar100": ["stream.tasks=3", "stream.n_train=50"],
    "split_cifar100": ["stream.tasks=3", "stream.n_train=100", "stream.n_val=50"],
    **{f"ctrl_{name}": ["stream.on_shortage=shrink"] for name in ("minus", "plus", "in", "out", "pl")},
    "ctrl_short": ["stream.on_shortage=shrink"],
    "ctrl_long": ["stream.on_shortage=shrink", "stream.tasks=6"],
    "ctrl_long_published": ["stream.on_shortage=shrink", first_tasks_of("ctrl_long_published", 6)],
}


def test_every_stream_is_tried_here() -> None:
    assert set(STREAMS) == {path.stem for path in (Path(conf_dir()) / "stream").glob("*.yaml")}


@pytest.mark.parametrize("stream", STREAMS)
def test_every_stream_can_be_tested_on_a_share_of_its_images(stream: str) -> None:
    cfg = configure(f"stream={stream}", *FEW_IMAGES, *STREAMS[stream])
    whole, half = (build_stream(with_values(cfg, stream__test_share=share)) for share in (None, 0.5))
    for index in range(2):
        every, some = whole.recipe(index).test, half.recipe(index).test
        assert set(some.tolist()) < set(every.tolist())
        assert abs(len(some) - len(every) / 2) <= len(whole.recipe(index).classes) / 2


@pytest.mark.parametrize("word", ["task", "domain", "class"])
def test_the_streams_of_the_fields_words_are_what_they_say_and_have_all_images(word: str) -> None:
    few = ("data.sources.mnist.train=500", "data.sources.mnist.test=120", "stream.n_val=10")
    cfg = configure(f"stream=split_{word}", *few)
    assert cfg.stream.name == f"split_{word}_mnist"
    s = build_stream(cfg)
    assert scenario(s.head.mode, s.head.owned, told=False).name == f"{word}-incremental"
    tasks = [s.recipe(index) for index in range(len(s))]
    assert [[int(name) for name in task.classes] for task in tasks] == [[2 * i, 2 * i + 1] for i in range(5)]
    lent = [row for task in tasks for row in (*task.train.tolist(), *task.val.tolist())]
    assert sorted(lent) == [*range(500)]
    assert sorted(row for task in tasks for row in task.test.tolist()) == [*range(120)]
    assert {len(task.val) for task in tasks} == {10}


@pytest.mark.parametrize(("stream", "learner"), thinned(STREAMS, ["finetune", "independent"], each=4))
def test_every_stream_is_learned(stream: str, learner: str, tmp_path: Path) -> None:
    smaller = [
        *FEW_IMAGES,
        *STREAMS[stream],
        "backbone.sizes=[32]",
        "trainer.max_epochs=1",
        "selection=none",
        "trainer.patience=null",
        "figures=false",
    ]
    results = run(tmp_path, f"stream={stream}", f"learner={learner}", "progress=false", *smaller, small=False)
    assert all(accuracy is not None for accuracy in results["accuracy_matrix"][-1])


@pytest.mark.parametrize("source", SOURCES)
def test_every_data_set_can_be_split_permuted_and_learned_in_two_tasks(source: str) -> None:
    some = {"stream__source": source, "stream__n_train": 30, "stream__n_val": 10}
    cut = with_values(configure("stream=split", "stream.balanced=true", *FEW_IMAGES), **some)
    for head in get_args(HeadMode):
        s = build_stream(with_values(cut, stream__head=head))
        assert s.task(1).train.y.bincount()[list(s.head.owned[1])].tolist() == [15, 15]
    mixed = with_values(configure("stream=permuted", *FEW_IMAGES), **some)
    for head in ("domain", "single"):
        s = build_stream(with_values(mixed, stream__head=head))
        assert not torch.equal(s.recipe(0).pixels, s.recipe(1).pixels)
    both = with_values(configure("stream=two_tasks", "stream.class_order=frequency", *FEW_IMAGES), **some)
    for kind in (*FIRST_TASKS, PERMUTED_TASKS):
        s = build_stream(with_values(both, stream__kind=kind))
        assert [len(s.task(index).train) for index in range(2)] == [30, 30]
        assert (len(s), s.head.num_outputs) == (2, 10)
