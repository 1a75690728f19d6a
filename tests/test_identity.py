"""What a run is: the hash of the code that can change its results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from joblib import Parallel, delayed
from omegaconf import OmegaConf

from cl_lightning.runs.identity import source_hash

FILES = {
    "mine/__init__.py": "from .inner import Mine\nfrom .inner import *",
    "mine/inner.py": "from bases import Base\n\nclass Mine(Base):\n    class Nested(Base): ...",
    "bases.py": (
        "try:\n    from .helpers import deep\nexcept ImportError:\n    import mine\n"
        "class Base:\n    def loss(self):\n        from helpers.deep import penalty"
    ),
    "helpers/deep.py": "import json, torch, absent, cl_lightning.learners\nfrom ...beyond import nothing",
    "names.py": "import mine.inner as renamed",
    "asked.py": "class Asked: ...",
    "unasked.py": "import bases",
    "log.py": "import helpers.logs",
    "helpers/logs.py": "",
}
HASH = """
from omegaconf import OmegaConf
from cl_lightning.runs.identity import source_hash
print(source_hash(OmegaConf.create({cfg!r})))
"""


def config(target: str) -> dict:
    return {
        "learner": {"_target_": target, "more": [{"_target_": "asked.Asked"}]},
        "logger": {"_target_": "log.L"},
    }


def hash_of(target: str) -> str:
    return source_hash(OmegaConf.create(config(target)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("target", ["mine.Mine", "mine.inner.Mine.Nested", "names.renamed.Mine"])
def test_an_edit_is_noticed_wherever_the_class_leads_and_nowhere_else(target: str, folder: Path) -> None:
    reached = {name for name in FILES if name not in ("unasked.py", "log.py", "helpers/logs.py")}
    before, changed = hash_of(target), set()
    for name, text in FILES.items():
        (folder / name).write_text(f"{text}\n")
        if hash_of(target) != before:
            changed.add(name)
        (folder / name).write_text(text)
    assert changed == reached - ({"names.py"} if target.startswith("mine") else set())
    assert hash_of(target) == before


def test_the_hash_is_the_same_in_every_kind_of_process(folder: Path) -> None:
    here, code = hash_of("mine.Mine"), HASH.format(cfg=config("mine.Mine"))
    __import__("helpers.logs"), __import__("asked")
    assert hash_of("mine.Mine") == here, "what was imported before does not matter"
    (folder / "script.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    for arguments in (("-m", "script"), ("-c", code), ("-",)):  # the last as a notebook: __main__ is no file
        done = subprocess.run(
            [sys.executable, *arguments],
            input=code,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
        )
        assert done.stdout.strip() == here, done.stderr
    assert Parallel(n_jobs=2)(delayed(hash_of)("mine.Mine") for _ in range(1)) == [here]


def test_a_class_of_a_notebook_or_an_installed_library_is_no_file_of_ones_own(folder: Path) -> None:
    assert hash_of("__main__.Mine") == hash_of("joblib.Parallel") == hash_of("absent.Mine")
