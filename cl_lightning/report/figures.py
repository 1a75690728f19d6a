"""Figures of a finished run, from its results.json alone: PNG and SVG in the run's ``figures`` folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_lightning.report.parts import found
from cl_lightning.store.folder import is_writable, locked

FORMATS = ("png", "svg")


def draw_missing(folder: Path, results: Mapping[str, Any], wanted: bool) -> None:
    """Draw the figures where they are wanted and missing, as after a kill. A folder that cannot be written to
    gets none."""
    if wanted and not (folder / "figures").is_dir() and is_writable(folder):
        with locked(folder, wait=60):
            if not (folder / "figures").is_dir():
                draw(results, folder)


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """All figures that ``report/parts`` has, as far as they have something to show."""
    building, figures = folder / "figures.building", folder / "figures"  # there whole, or not at all
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    for name, make in found("figure").items():
        figure = make(results)
        for kind in FORMATS if figure is not None else ():
            figure.savefig(
                building / f"{name}.{kind}",
                metadata={"Date": None} if kind == "svg" else None,
                bbox_inches="tight",
            )
    shutil.rmtree(figures, ignore_errors=True)
    building.rename(figures)
    return sorted(figures.iterdir())
