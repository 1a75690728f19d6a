"""No test reaches for the network, none leaves anything behind, and all share one cache of decoded images."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from hypothesis import settings
from lightning_fabric.utilities import registry
from omegaconf import OmegaConf

from cl_lightning.runs import identity

for name in [name for name in os.environ if name.startswith("WANDB_")]:
    del os.environ[name]  # the user's own settings
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_SILENT"] = "true"
os.environ["COLUMNS"] = "120"  # whatever the terminal: readline, which pytest imports, tells it to processes
LONGEST_FIRST = (  # a worker has whole files, so that what they share is made once; long ones come first
    "tests/test_slurm.py",
    "tests/test_cuts.py",
    "tests/test_resume.py",
    "tests/test_sweeps.py",
    "tests/test_rounds.py",
    "tests/test_devices.py",
    "tests/test_configs.py",
    "tests/test_command_line.py",
    "tests/report/test_compare.py",
    "tests/selection/test_stream_level.py",
    "tests/test_contract.py",
    "tests/report/test_wandb.py",
    "tests/test_published_settings.py",
    "tests/learners/test_mntdp.py",
    "tests/test_bad_commands.py",
    "tests/test_experiment.py",
    "tests/report/test_loggers.py",
    "tests/learners/test_transfer.py",
    "tests/test_docs.py",
)
CONF = str(Path(__file__).resolve().parents[1] / "conf") + os.sep
REAL_DATA = os.environ.get("CL_LIGHTNING_DATA", "")
THREADS = int(os.environ.get("CL_LIGHTNING_TEST_THREADS", "1"))
settings.register_profile("any machine", deadline=None)  # however busy it is
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    place = {file: number for number, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def what_a_file_left_stays() -> Iterator[None]:
    """The garbage collector need not look again and again at what earlier files imported and kept."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def threads_at_first() -> None:
    """Also for fixtures that tests share."""
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def threads() -> None:
    """A run that a test made before may have set its own number."""
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def wandb_service_of_the_process_alone() -> None:
    """A program that a test starts looks for no process of W&B's that an earlier test used, and ended."""
    os.environ.pop("WANDB_SERVICE", None)


@pytest.fixture(autouse=True)
def modules_of_the_test_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test wrote and imported is gone after it: another test may write one of that name."""
    before, folder = set(sys.modules), str(tmp_path_factory.getbasetemp())
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
            del sys.modules[name]


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The user's cache stays untouched; test processes inherit the folder."""
    os.environ["CL_LIGHTNING_CACHE"] = str(of_all_workers(tmp_path_factory) / "cache")
    return os.environ["CL_LIGHTNING_CACHE"]


def of_all_workers(factory: pytest.TempPathFactory) -> Path:
    """The folder of this run of the tests, whichever of its workers asks."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(autouse=True, scope="session")
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is written to the temporary folder, by processes of tests too, goes with the tests' own."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("tmp"))


@pytest.fixture(autouse=True, scope="session")
def what_stays_the_same_is_read_once() -> Iterator[None]:
    """Reading YAML is half of what composing a configuration takes. (Hydra runs its own modules a second time
    when it looks for plugins: what is put into them is lost.) Each Trainer of Lightning's, one a phase, asks
    all installed packages for callbacks. A source hash asks of each file whose it is. And no test cuts the
    power: nothing need reach the disk."""
    known: dict[tuple[str, int, int], Any] = {}
    read = OmegaConf.load

    def load(file: str | Path | IO) -> Any:
        name = str(getattr(file, "name", ""))
        if not name.startswith(CONF):
            return read(file)
        about = os.stat(name)
        key = (name, about.st_mtime_ns, about.st_size)
        if key not in known:
            known[key] = read(file)
        return deepcopy(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load)
        patch.setattr(registry, "entry_points", cache(registry.entry_points))
        patch.setattr(identity, "nearness", cache(identity.nearness))
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def wandb_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What Weights & Biases keeps beside its runs stays out of the user's home."""
    for kind in ("DATA", "CACHE", "CONFIG"):
        os.environ[f"WANDB_{kind}_DIR"] = str(tmp_path_factory.mktemp(f"wandb_{kind.lower()}"))


@pytest.fixture(scope="session")
def real_data() -> str:
    """The folder of real data sets."""
    if not (Path(REAL_DATA) / "mnist").is_dir():
        pytest.skip("CL_LIGHTNING_DATA names no folder with real MNIST")
    return REAL_DATA
