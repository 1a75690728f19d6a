"""What a run is: the hash of the code that can change its results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from joblib import Parallel, delayed
from omegaconf import OmegaConf

import cl_lightning
from cl_lightning.runs.identity import source_hash

PACKAGE = Path(cl_lightning.__file__).parent
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


EDITED = """
import sys
from pathlib import Path
from omegaconf import OmegaConf
from cl_lightning.runs.identity import source_hash
package, expected = Path(sys.argv[1]), sys.argv[3].split()
cfg = OmegaConf.create({"learner": {"_target_": sys.argv[2]}})
before = source_hash(cfg)
for file in [*package.rglob("*.py"), *package.rglob("*.yaml")]:
    if file.relative_to(package).as_posix() not in expected:
        file.write_bytes(file.read_bytes() + b"# a remark")
if source_hash(cfg) != before:
    print("one that can change no result")
    before = source_hash(cfg)
for name in expected:
    file = package / name
    text = file.read_bytes()
    file.write_bytes(text + b"# a remark")
    if source_hash(cfg) != before:
        print(name)
    file.write_bytes(text)
"""
ROOMS = {"data", "backbones", "engine", "metrics", "evaluation"}
FILES_OF_RESULTS = {
    "learners/base.py", "selection/rules.py", "selection/grid.py", "config/settings.py", "config/build.py",
    "runs/loop.py", "runs/making.py", "runs/resume.py", "runs/final.py", "protocol.py",
    "randomness.py", "learners/finetune.py",
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "own"),
    [("NewLeg", {"new_leg", "new_head"}), ("gem.GEM", {"gem"})],
)
def test_an_edit_of_this_package_is_noticed_where_it_can_change_a_result(
    target: str, own: set[str], tmp_path: Path
) -> None:
    package = tmp_path / "cl_lightning"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    found = [*package.rglob("*.py"), *package.rglob("*.yaml")]
    files = {file.relative_to(package).as_posix() for file in found}
    expected = {f for f in files if f.partition("/")[0] in ROOMS or f.startswith("learners/parts/")}
    expected = sorted(expected | FILES_OF_RESULTS | {f"learners/{name}.py" for name in own})
    done = subprocess.run(
        [sys.executable, "-c", EDITED, package, f"cl_lightning.learners.{target}", " ".join(expected)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == expected, done.stderr
    rooms = {file.partition("/")[0] for file in files.difference(expected)}
    assert {"report", "cli", "loggers", "callbacks", "learners"} <= rooms, "which stop no interrupted run"


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
