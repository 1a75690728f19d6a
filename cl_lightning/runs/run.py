"""One run, from its configuration to its results. Its tasks are learned in ``loop.py``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from omegaconf import DictConfig

import cl_lightning.termination as termination
from cl_lightning.config.build import build_stream, check_targets
from cl_lightning.config.compose import check_config, without_deleted
from cl_lightning.parallel.ranks import joined
from cl_lightning.report.figures import draw_missing
from cl_lightning.report.results import finished_results
from cl_lightning.report.tables import show_end
from cl_lightning.runs.announce import tell_shown
from cl_lightning.runs.identity import changed, run_folder, versions
from cl_lightning.runs.part import make_run, own_rounds
from cl_lightning.runs.resume import NO_VALIDATION, of_a_search, refuse_to_choose
from cl_lightning.selection.sweep import in_a_sweep, tell_job


def run(cfg: DictConfig, command: Sequence[str] = ()) -> float | None:
    """Train, resume or only show the run that ``cfg`` describes. Returns, for sweepers that choose, the mean
    accuracy on the validation examples of all tasks at the end of the stream; None where no task has any."""
    cfg = without_deleted(cfg)
    check_config(cfg)
    check_targets(cfg)
    with termination.handled(), joined() as ranks:
        stream = build_stream(cfg)
        folder = run_folder(cfg, stream)
        ranks.agree({"run": folder.name, **versions(cfg)})
        results = None
        if ranks.is_writer:
            tell_job(folder=str(folder.resolve()), process=os.getpid())
            results = finished_results(folder) if cfg.resume is not False else None
        results = ranks.broadcast(results)
        if results is not None and ranks.is_writer:
            tell_shown(cfg, folder)
        if results is None:
            results = make_run(cfg, folder, stream, command, ranks, own_rounds())
            if cfg.progress and not in_a_sweep():
                ranks.tell()
        if results is None or not ranks.is_writer:
            return None
        if cfg.chosen is not None:
            results = of_a_search(cfg, results)
        draw_missing(folder, results, cfg.figures)
        if not in_a_sweep():  # which has a table of its own at its end
            show_end(results, folder, note=changed(results["version"], versions(cfg)))
    at_end = results["validation_at_end"]
    mean = None if at_end is None else at_end["mean"]
    if mean is None:
        refuse_to_choose(NO_VALIDATION)
    return mean
