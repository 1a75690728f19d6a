"""What a learner more adds to ``pytest``: ``python -m tests.one_more``. At most 4 processor seconds.

A stub is put beside the other learners in a copy of the project: a class of its own that stores examples and
replays them, as ER does, and its file in ``conf/learner``. What it adds are the tests that there are then and
were not before, and what tests that were there take longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.__main__ import copy_of_the_project

MOST = 4.0  # processor seconds
STUB = """from cl_lightning.learners.er import ER


class Stub(ER):
    pass
"""
CONFIGURED = """# A learner that is there to be counted: it replays as er does
_target_: tests.stub.Stub
name: stub              # the folder of its runs
policy: reservoir       # reservoir | ring
size: 1000              # examples
"""
LOOPS = (  # tests that go over all learners
    "tests/test_contract.py::test_some_learners_have_settings_without_strength",
    "tests/test_command_line.py::test_help_is_quick_and_lists_every_choice_with_a_line_and_five_commands",
)


def pytest_in(copy: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("CL_LIGHTNING_DATA", None)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True).stdout


def collected(copy: Path) -> set[str]:
    return {line for line in pytest_in(copy, "--collect-only").splitlines() if "::" in line}


def seconds(copy: Path, *tests: str) -> float:
    """Processor seconds of some tests, without what starts them."""
    said = copy / "times.json"
    pytest_in(copy, "-p", "tests.times", f"--times={said}", *tests)
    return sum(json.loads(said.read_text()).values())


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_of_the_project(copy)
        before, looped = collected(copy), seconds(copy, *LOOPS)
        (copy / "tests" / "stub.py").write_text(STUB)
        (copy / "conf" / "learner" / "stub.yaml").write_text(CONFIGURED)
        more = sorted(collected(copy) - before)
        own, longer = seconds(copy, *more), max(0.0, seconds(copy, *LOOPS) - looped)
    print(*more, sep="\n")
    print(f"{len(more)} tests more: {own:.1f} processor seconds, and {longer:.1f} in loops over all learners")
    return 0 if own + longer <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
