"""Figures of a finished run, in its folder ``figures``, and of several runs, from results.json alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_lightning.report import across
from cl_lightning.report.parts import found
from cl_lightning.report.style import Figure, styled
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
    with styled():
        save({name: make(results) for name, make in found("figure").items()}, building, FORMATS)
    shutil.rmtree(figures, ignore_errors=True)
    building.rename(figures)
    return sorted(figures.iterdir())


def draw_across(runs: Iterable[Mapping[str, Any]], folder: Path) -> list[Path]:
    """All figures of several runs that ``report/across`` has, as far as they have something to show."""
    learners = across.by_learner(runs)
    folder.mkdir(parents=True, exist_ok=True)
    with styled():
        figures = {name: make(learners) for name, make in found("figure", across).items()}
        return save(figures, folder, (*FORMATS, "pdf"))


def save(figures: Mapping[str, Figure | None], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Files without a date in them: the same numbers give the same bytes."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    saved = []
    for name, figure in figures.items():
        for kind in formats if figure is not None else ():
            saved.append(folder / f"{name}.{kind}")
            figure.savefig(saved[-1], metadata=dates.get(kind), bbox_inches="tight")  # type: ignore[union-attr]
    return saved
