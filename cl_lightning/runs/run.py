"""One run, from its configuration to its results: the page to read first. The second is ``loop.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from omegaconf import DictConfig

from cl_lightning import termination
from cl_lightning.config.build import build_stream, check_targets
from cl_lightning.config.compose import check_config
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import InUse, Refusal, RoundOver
from cl_lightning.parallel.ranks import Ranks, joined
from cl_lightning.parallel.rounds import NEXT
from cl_lightning.report.figures import draw_missing
from cl_lightning.report.results import finished_results
from cl_lightning.report.schema import Results
from cl_lightning.report.tables import show
from cl_lightning.runs.announce import tell_shown
from cl_lightning.runs.identity import changed, run_folder, versions
from cl_lightning.runs.loop import train
from cl_lightning.runs.resume import (
    NO_VALIDATION,
    afresh_if_mended,
    missing_in,
    not_shared,
    of_a_search,
    refuse_again,
    refuse_to_choose,
    wait_for_shares,
)
from cl_lightning.selection.sweep import in_a_sweep, in_rounds, tell_folder
from cl_lightning.store.folder import discard, locked, refuse_beside_jobs
from cl_lightning.store.status import Progress, status_kept


def run(cfg: DictConfig, command: Sequence[str] = ()) -> float | None:
    """Train, resume or only show the run that ``cfg`` describes. Returns, for sweepers that choose, the mean
    accuracy on the validation examples of all tasks at the end of the stream; None where no task has any."""
    check_config(cfg)
    check_targets(cfg)
    if cfg.share is not None and not in_rounds():
        raise Refusal(
            f"share={cfg.share} is for jobs of hydra/sweeper=cl_task_level alone, and this is none. Leave it "
            "out: the sweep tells each job its own."
        )
    share, cfg = cfg.share, cfg.copy()
    cfg.share = None  # it is this job's, and not the run's
    with termination.handled(), joined() as ranks:
        stream = build_stream(cfg)
        folder = run_folder(cfg, stream)
        ranks.agree({"run": folder.name, **versions(cfg)})
        results = None
        if ranks.is_writer:
            tell_folder(folder)
            results = finished_results(folder) if cfg.resume is not False else None
        results = ranks.broadcast(results)
        if results is not None and ranks.is_writer:
            tell_shown(cfg, folder)
        if results is None:
            with suppress(RoundOver):
                results = make_run(cfg, folder, stream, command, ranks, share)
            if cfg.progress and not in_a_sweep():
                ranks.tell()
        if results is None or not ranks.is_writer:
            return None
        if cfg.chosen is not None:
            results = of_a_search(cfg, folder, results)
        draw_missing(folder, results, cfg.figures)
        if not in_a_sweep():  # which has a table of its own at its end
            show(results, folder, note=changed(results["version"], versions(cfg)))
    at_end = results["validation_at_end"]
    mean = None if at_end is None else at_end["mean"]
    if mean is None:
        refuse_to_choose(NO_VALIDATION)
    return mean


def make_run(
    cfg: DictConfig,
    folder: Path,
    stream: Stream,
    command: Sequence[str],
    ranks: Ranks,
    share: str | None,
) -> Results | None:
    """Make the run, or the part of it that is this job's. Rank 0 alone holds its folder."""
    of_a_round = share not in (None, NEXT)
    if of_a_round:
        train_share(cfg, folder, stream, ranks, str(share))
    with ExitStack() as holding:
        progress = None
        if ranks.is_writer:
            try:
                progress = holding.enter_context(run_lock(folder, cfg))
            except InUse:
                if not of_a_round:
                    raise
        if ranks.broadcast(progress is None):
            raise RoundOver  # another job of the round goes on
        with ranks.as_one():
            return train(cfg, folder, stream, command, ranks, progress, share and NEXT)


@contextmanager
def run_lock(folder: Path, cfg: DictConfig) -> Iterator[Progress]:
    """Hold the run's folder, afresh if that is asked for, and say there how the run ends."""
    with locked(folder):
        refuse_beside_jobs(folder)
        if cfg.resume is False:
            discard(folder)
        if cfg.resume is True:
            afresh_if_mended(cfg, folder)
            refuse_again(folder)
        with status_kept(folder) as progress:
            yield progress


def train_share(cfg: DictConfig, folder: Path, stream: Stream, ranks: Ranks, share: str) -> None:
    """Train one share of the phase at hand, in a job of a sweep; other jobs do so at the same time. The job
    that ends last goes on."""
    left = ranks.broadcast(wait_for_shares(folder, share) if ranks.is_writer else None)
    if left is None:
        raise not_shared(folder)
    if share in left:
        with locked(folder / share) if ranks.is_writer else nullcontext(), suppress(RoundOver):
            train(cfg, folder, stream, (), ranks, None, share)
    if ranks.broadcast(missing_in(folder) if ranks.is_writer else None) != []:
        raise RoundOver
