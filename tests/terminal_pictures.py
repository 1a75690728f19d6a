"""The pictures of a terminal in docs/images/terminal: ``python -m tests.terminal_pictures`` makes the first
run of the README in a folder of its own, and draws what it showed. No picture is made by hand."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT  # private: there is no other way to leave its fonts out
from rich.console import Console

import cl_lightning.runs.making as making
from cl_lightning.callbacks.progress import ProgressDisplay
from cl_lightning.cli.command import main as command
from cl_lightning.report.tables import show_end
from tests.docs import ROOT

PLACE = ROOT / "docs" / "images" / "terminal"
WIDTH = 120
# Its fonts would be fetched from the web; those of the reader's machine will do.
FORMAT = re.sub(r"@font-face {{.*?}}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


class Seen(ProgressDisplay):
    """Draws itself in the middle of the stream, where a third of a task's mini-batches are trained."""

    console_of_picture: Console

    def on_train_batch_end(self, trainer: Any, learner: Any, *_: Any) -> None:
        run = learner.phase_run
        if self.task == self.tasks // 2 and run and run.step >= run.blocks.steps // 3 and not self.drawn:
            self.drawn = True
            self.console_of_picture.print(self)

    drawn = False


def terminal(typed: str) -> Console:
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, _environ={})
    console.print(f"$ {typed}", style="bold", highlight=False)
    return console


def draw(place: Path, *arguments: str) -> list[Path]:
    """Pictures of a run while it trains, and of its end. Works in the current folder."""
    place.mkdir(parents=True, exist_ok=True)
    typed = "python -m cl_lightning"
    Seen.console_of_picture = training = terminal(typed)
    making.ProgressDisplay = Seen  # type: ignore[misc, attr-defined]
    try:
        assert command(["outputs=outputs", *arguments]) == 0
    finally:
        making.ProgressDisplay = ProgressDisplay  # type: ignore[misc, attr-defined]
    (path,) = Path("outputs").rglob("results.json")
    show_end(json.loads(path.read_text()), path.parent, console=(end := terminal(typed)))
    return [saved(training, place / "training.svg"), saved(end, place / "end.svg")]


def saved(console: Console, path: Path) -> Path:
    console.save_svg(str(path), title="", code_format=FORMAT, unique_id=path.stem)
    return path


def main(arguments: Sequence[str]) -> int:
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        print(*draw(PLACE, *arguments), sep="\n")
        os.chdir(ROOT)  # else the folder could not be removed everywhere
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
