"""Which room may know which: no line of code imports from a room above its own."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import cl_lightning

PACKAGE = Path(cl_lightning.__file__).parent

# From the bottom to the top; of one line, each knows the others. A file counts as a room where it is named by
# itself.
ORDER = [
    [
        "errors", "config/suggestions", "termination", "parallel/ranks", "parallel/rendezvous", "randomness",
        "metrics", "config/resolvers", "config/trees", "config/version", "selection/rules",
    ],
    ["config/checking", "protocol"],
    ["store"],
    ["data"],
    ["backbones"],
    ["learners"],
    ["config/settings"],
    ["config/compose"],
    ["selection"],
    ["parallel/shares", "parallel/rounds", "engine"],
    ["evaluation", "callbacks"],
    ["runs/identity"],
    ["loggers", "report"],
    ["config/build"],
    ["runs/resume", "runs/final", "runs/announce"],
    ["runs/making"],
    ["runs/loop"],
    ["runs/part"],
    ["runs/run"],
    [
        "parallel/starter", "parallel/rank", "parallel/slots", "cli", "notebook", "__main__", "data/__main__",
        "report/__main__", "contract",
    ],
]  # fmt: skip
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def room_of(file: Path) -> str:
    """The longest name in ORDER that a file lies in."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    names = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in names if name in LEVEL), "")


def imports_of(file: Path) -> Iterator[Path]:
    """Files of the package that a file imports: at its top, in functions, for types."""
    for node in ast.walk(ast.parse(file.read_text())):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        for module in (m for m in modules if m.partition(".")[0] == "cl_lightning"):
            path = PACKAGE.joinpath(*module.split(".")[1:])
            yield from (p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file())


def test_every_file_has_a_room() -> None:
    assert not [file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py" and not room_of(file)]


def test_nothing_imports_upwards() -> None:
    upwards = set()
    for file in PACKAGE.rglob("*.py"):
        own = room_of(file)
        for other in map(room_of, imports_of(file)):
            if own and other and LEVEL[other] > LEVEL[own]:
                upwards.add(f"{file.relative_to(PACKAGE)} imports from {other}")
    assert not upwards


def test_no_file_imports_one_that_imports_it() -> None:
    """Not at its top, in a function, or for types."""
    knows = {file: set(imports_of(file)) - {file} for file in PACKAGE.rglob("*.py")}
    graphlib.TopologicalSorter(knows).prepare()  # raises CycleError, with the cycle
