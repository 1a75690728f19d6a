"""No test reaches for the network, and all share one cache of decoded images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_SILENT"] = "true"
os.environ["COLUMNS"] = "120"  # whatever the terminal: readline, which pytest imports, tells it to processes
REAL_DATA = os.environ.get("CL_LIGHTNING_DATA", "")
THREADS = int(os.environ.get("CL_LIGHTNING_TEST_THREADS", "1"))
settings.register_profile("any machine", deadline=None)  # however busy it is
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="session")
def threads_at_first() -> None:
    """Also for fixtures that tests share."""
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def threads() -> None:
    """A run that a test made before may have set its own number."""
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The user's cache stays untouched; test processes inherit the folder."""
    os.environ["CL_LIGHTNING_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return os.environ["CL_LIGHTNING_CACHE"]


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
