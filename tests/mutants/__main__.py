"""Which mutants the tests notice: ``python -m tests.mutants``, without real data.

Each is tried in a copy of the project, against the tests that ``mutants.yaml`` names for it, until the first
fails. Ends with 0 where at least 95 % are noticed; survivors are listed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants import PACKAGE, Mutant, changed, mutants

ROOT = Path(__file__).parents[2]
COPIED = (
    "cl_lightning",
    "conf",
    "docs",
    "hydra_plugins",
    "tests",
    "pyproject.toml",
    "mkdocs.yml",
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"),
)
ENOUGH = 0.95
ANSWERS: dict[int | None, str] = {0: "survived", 1: "noticed"}  # by pytest's exit code


@dataclass(frozen=True)
class Verdict:
    what: str
    file: str
    verdict: str  # noticed | survived | not tried: the tests could not run, or take too long
    by: str  # the first test that failed
    seconds: float


def copy_of_the_project(folder: Path) -> None:
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif place.is_file():
            shutil.copy2(place, folder / name)


def tried(mutant: Mutant, copy: Path, limit: float) -> Verdict:
    """The verdict of the mutant's tests; the copy is as it was afterwards."""
    file, began, said = copy / PACKAGE / mutant.file, time.monotonic(), copy / "failed"
    original = file.read_text()
    file.write_text(changed(original, mutant))
    said.write_text("")
    try:
        child = multiprocessing.get_context("fork").Process(target=ask, args=(mutant.tests, copy, said))
        child.start()
        child.join(limit)
        if child.exitcode is None and child.pid is not None:
            os.killpg(child.pid, signal.SIGKILL)
            child.join()
        verdict = ANSWERS.get(child.exitcode, "not tried")
    finally:
        file.write_text(original)
    seconds = round(time.monotonic() - began, 1)
    return Verdict(mutant.what, mutant.file, verdict, said.read_text().strip(), seconds)


def ask(tests: Sequence[str], copy: Path, said: Path) -> None:
    """Run tests of the copy, in a process of their own that has torch already; write down which failed."""
    import pytest

    class FirstFailure:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                said.write_text(report.nodeid)

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            items.sort(key=lambda item: item.get_closest_marker("all") is not None)  # the quick ones first

    os.setsid()  # whatever it starts ends with it
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ.pop("CL_LIGHTNING_DATA", None)
    for name in [name for name in sys.modules if name.partition(".")[0] in (PACKAGE, "tests")]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    own = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={copy / 'tmp'}"]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main([*own, "-m", "all or not all", *tests], plugins=[FirstFailure()])
    os._exit(int(code))


def shown(verdicts: Sequence[Verdict]) -> str:
    noticed = sum(each.verdict == "noticed" for each in verdicts)
    lines = ["| file | what is wrong | verdict | by | s |", "| --- | --- | --- | --- | --- |"]
    for each in verdicts:
        by = each.by.rpartition("::")[2]
        lines.append(f"| {each.file} | {each.what} | {each.verdict} | {by} | {each.seconds:.0f} |")
    share = f"{noticed} of {len(verdicts)} noticed ({noticed / max(1, len(verdicts)):.0%})"
    survivors = [
        f"  {each.file}: {each.what} ({each.verdict})" for each in verdicts if each.verdict != "noticed"
    ]
    return "\n".join([*lines, "", share, *survivors])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="words in the file, or in what is wrong")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one mutant")
    parser.add_argument("--json", type=Path, help="write the verdicts there, too")
    parser.add_argument("--list", action="store_true", help="name the mutants, and try none")
    options = parser.parse_args(arguments)
    chosen = [each for each in mutants() if options.only in f"{each.file} {each.what}"]
    if options.list:
        print(*(f"{each.file}: {each.what}" for each in chosen), sep="\n")
        return 0
    for module in ("pytorch_lightning", "hypothesis", "hydra.main", "matplotlib.pyplot", "pydantic"):
        importlib.import_module(module)  # once for all: each mutant's process is forked from this one

    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        copy_of_the_project(Path(folder))
        for mutant in chosen:
            verdicts.append(tried(mutant, Path(folder), options.limit))
            print(f"{verdicts[-1].verdict}: {mutant.file}: {mutant.what}", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(each) for each in verdicts], indent=1))
    print(shown(verdicts))
    return 0 if sum(each.verdict == "noticed" for each in verdicts) >= ENOUGH * len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
