"""A run on TensorBoard: the projection of its records that Weights & Biases gets, too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cl_lightning.config.trees import dotted
from cl_lightning.loggers.base import RunLogger, Status
from cl_lightning.report.projection import AXES, Point, Projection, Sheet, card_of, summary_of, table_of
from cl_lightning.runs.identity import as_used


class TensorBoard(RunLogger):
    """``tensorboard/`` in the run's folder, written anew by each start: so it has all points from the first
    task on, each once. A step is what W&B calls the axis: tasks learned, or mini-batches of curves."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.projection = Projection(folder)
        place = folder / "tensorboard"
        shutil.rmtree(place, ignore_errors=True)
        self.writer = SummaryWriter(str(place), flush_secs=10)
        self.boundary()

    def log_metrics(self, *_: Any, **__: Any) -> None:
        """Called when ``logs.csv`` has the values, since its logger comes first."""
        for point in self.projection.curves.news():
            self.send(point)

    def boundary(self) -> None:
        for point in self.projection.news():
            self.send(point)

    def send(self, point: Point) -> None:
        (axis,) = (axis for axis in AXES if axis in point)
        for key, value in point.items():
            if key != axis:
                self.show(key, value, point[axis])

    def show(self, key: str, value: Any, step: int) -> None:
        """A number as a curve, a figure as a picture, words and tables as texts."""
        if isinstance(value, int | float):
            self.writer.add_scalar(key, value, step)
        elif isinstance(value, Sheet):
            rows = [value.columns, ["---"] * len(value.columns), *value.rows]
            self.writer.add_text(key, "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows), step)
        elif isinstance(value, str):
            self.writer.add_text(key, value, step)
        else:
            self.writer.add_figure(key, value, step)

    def close(self, status: Status) -> None:
        self.boundary()
        results, rows = self.projection.results(), [row.first for row in self.projection.rows]
        if results["finished"]:
            self.end(summary_of(results), len(rows) - 1)
            self.show("matrix/table", table_of(rows), len(rows) - 1)
            self.show("card/table", card_of(results), len(rows) - 1)
        self.writer.close()

    def end(self, summary: dict[str, Any], learned: int) -> None:
        """What a finished run came to: hyper-parameters beside the final values, in one table over all runs;
        the card's verdicts are among the former, as they are words. And the figures."""
        import numpy as np
        from PIL import Image
        from torch.utils.tensorboard.summary import hparams

        final = {key: value for key, value in summary.items() if isinstance(value, int | float)}
        words = {key: value for key, value in summary.items() if key not in final}
        settings = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in dotted(as_used(self.projection.start.config))
        }
        for of_table in hparams(settings | words, final):
            # Private: add_hparams would open a run beside.
            self.writer._get_file_writer().add_summary(of_table)
        for key, value in final.items():
            self.writer.add_scalar(key, value, learned)
        for path in sorted((self.projection.folder / "figures").glob("*.png")):
            pixels = np.asarray(Image.open(path).convert("RGB"))
            self.writer.add_image(f"figures/{path.stem}", pixels, learned, dataformats="HWC")
