"""How fast this tree is beside another revision: ``python -m tests.benchmarks against REVISION``.

Each tree does its own side of each row of the table, in a process of its own and in turns; their processor
times are compared pair by pair. Prints the mean of the ratios, new over old, and its 95 % interval. A process
may be fast or slow for its whole life: ``--starts 15 --pairs 1`` starts new ones for every pair. Rows that
have nothing to compare with, such as seconds of whole commands, are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import IO

# Of Student's t with 1, 2, ... degrees of freedom: 97.5 %.
T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
T += [2.120, 2.110, 2.101, 2.093, 2.086]
ROOT = Path(__file__).parents[2]


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the ratios, and the ends of its 95 % interval.

    >>> [round(value, 3) for value in interval([0.9, 1.0, 1.1])]
    [1.0, 0.752, 1.248]
    """
    mean = statistics.mean(ratios)
    half = T[min(len(ratios) - 1, len(T)) - 1] * statistics.stdev(ratios) / len(ratios) ** 0.5
    return mean, mean - half, mean + half


# ---- in each tree ------------------------------------------------------------------------------------------


class Served(Exception):
    """The last comparison that was asked for is done."""


def serve(only: Sequence[int]) -> None:
    """Do the product's side of each comparison as often as standard input says so: ``again`` is answered by
    the seconds that it took. A line that begins with ``row`` names what was compared."""
    replies = sys.stdout
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.excepthook = lambda *error: traceback.print_exception(*error, file=sys.__stderr__)
    sys.path[0] = os.getcwd()
    import torch

    torch.set_num_threads(1)
    program = import_module("tests.benchmarks.__main__")
    number = 0

    def say(*words: object) -> None:
        print(*words, file=replies, flush=True)

    def answered(ours: Callable[[], object], *theirs: Callable[[], object], repeats: int = 0) -> list[float]:
        nonlocal number
        number += 1
        if not only or number in only:
            say("compare", number)
            while sys.stdin.readline() == "again\n":
                began = process_time()
                ours()
                say(process_time() - began)
        if only and number >= max(only):
            raise Served
        return [float(place) for place in range(1, 2 + len(theirs))]  # rows divide by differences

    program.interleaved = answered
    rows = program.all_rows(program.Effort(1) if hasattr(program, "Effort") else 1)
    with suppress(Served):
        for row in rows:
            for each in row if isinstance(row, Iterator) else [row]:
                say("row", each.work)
    say("end")


# ---- here --------------------------------------------------------------------------------------------------


class Tree:
    """A process that serves the rows of a tree."""

    def __init__(self, root: Path, only: Sequence[int]) -> None:
        env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "serve", *map(str, only)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=root, env=env, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.asks: IO[str] = self.process.stdin
        self.says: IO[str] = self.process.stdout

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait()

    def ask(self, word: str) -> None:
        print(word, file=self.asks, flush=True)

    def read(self) -> str:
        """What it says next; the names of rows are passed over."""
        while True:
            said = self.says.readline().strip()
            if not said:
                raise SystemExit(f"The benchmark in {self.process.args} ended unexpectedly.")
            if not said.startswith("row"):
                return said

    def seconds(self) -> float:
        self.ask("again")
        return float(self.read())


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A revision of this repository in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), folder], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "--quiet", revision], check=True)
        yield Path(folder)


def compared(new: Tree, old: Tree, pairs: int) -> Iterator[tuple[str, list[float]]]:
    """Every comparison's name, and the ratios of its pairs."""
    while (said := new.read()) != "end" and old.read() == said:
        new.seconds(), old.seconds()  # warms up
        yield said, [new.seconds() / old.seconds() for _ in range(pairs)]
        new.ask("next")
        old.ask("next")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--pairs", type=int, default=15, help="of one start")
    parser.add_argument("--starts", type=int, default=1, help="of new processes, each with so many pairs")
    parser.add_argument("--only", type=int, nargs="*", default=[], help="numbers of comparisons")
    given = parser.parse_args(arguments)
    found: dict[str, list[float]] = {}
    with checked_out(given.revision) as folder:
        print("| comparison | new / old | 95 % | median |\n| --- | --- | --- | --- |", flush=True)
        for start in range(1, given.starts + 1):
            with Tree(ROOT, given.only) as new, Tree(folder, given.only) as old:
                for name, ratios in compared(new, old, given.pairs):
                    found[name] = found.get(name, []) + ratios
                    if start == given.starts:
                        mean, low, high = interval(found[name])
                        middle = statistics.median(found[name])
                        print(f"| {name} | {mean:.3f} | {low:.3f} to {high:.3f} | {middle:.3f} |", flush=True)


if __name__ == "__main__":
    serve([int(number) for number in sys.argv[2:]])
