"""The part of a run that is this job's: all of it, or one share of a phase beside other jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from omegaconf import DictConfig

from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Diverged, InUse, RoundOver
from cl_lightning.parallel.ranks import Ranks
from cl_lightning.parallel.rounds import Rounds, missing_in, not_shared, wait_for_shares
from cl_lightning.report.schema import Results
from cl_lightning.runs.announce import say
from cl_lightning.runs.identity import changed, versions
from cl_lightning.runs.loop import train
from cl_lightning.runs.making import prepared
from cl_lightning.selection.sweep import in_rounds, told
from cl_lightning.store.folder import discard, learned_tasks, locked, open_store, refuse_beside_jobs
from cl_lightning.store.status import Progress, read_status, status_kept


def own_rounds() -> Rounds | None:
    """What this job does in a sweep whose jobs share a task's candidates; None in other sweeps, and
    outside."""
    return Rounds(told().share) if in_rounds() else None


def make_run(
    cfg: DictConfig, folder: Path, stream: Stream, command: Sequence[str], ranks: Ranks, rounds: Rounds | None
) -> Results | None:
    """Make the run, or this job's part of it. Returns the results, or None if other jobs go on with the run.
    Rank 0 alone holds its folder."""
    share = None if rounds is None else rounds.share
    if share is not None:
        train_share(cfg, folder, stream, ranks, share)
        if ranks.broadcast(missing_in(folder) if ranks.is_writer else None) != []:
            return None  # others train their shares still
        rounds = Rounds(None)
    with suppress(RoundOver), ExitStack() as holding:
        progress = None
        if ranks.is_writer:
            try:
                progress = holding.enter_context(run_lock(folder, cfg))
            except InUse:
                if share is None:
                    raise
        if ranks.broadcast(progress is None):
            return None  # another job that has trained its share goes on
        with ranks.as_one():
            return train(prepared(cfg, folder, stream, command, ranks, progress, rounds))
    return None


@contextmanager
def run_lock(folder: Path, cfg: DictConfig) -> Iterator[Progress]:
    """Hold the run's folder, emptied if ``resume=false``, and write there how the run ends."""
    with locked(folder):
        refuse_beside_jobs(folder)
        if cfg.resume is False:
            discard(folder)
        look_back(cfg, folder)
        with status_kept(folder) as progress:
            yield progress


def look_back(cfg: DictConfig, folder: Path) -> None:
    """Heed how the run ended last. One that diverged does so again: that is a result, and only
    ``resume=retry`` tries it anew. One that failed before it had learned a task starts afresh where the
    program is another now: whoever mends a learner wants its first task anew."""
    status = read_status(folder)
    if status is None or status.state not in ("failed", "diverged"):
        return
    diverged, found = status.state == "diverged", open_store(folder)
    if diverged and cfg.resume == "retry":
        shutil.rmtree(folder / "work", ignore_errors=True)  # what the phase came to would be read back
    if cfg.resume is True:
        if found and not learned_tasks(found[0]) and changed(found[1].version, versions(cfg)):
            say("It failed in its first task, and the program was changed since: it starts afresh.")
            discard(folder)
        elif diverged:
            raise Diverged(str(status.said))


def train_share(cfg: DictConfig, folder: Path, stream: Stream, ranks: Ranks, share: str) -> None:
    """Train one share of the phase at hand, unless that is done. Other jobs train others at the same time."""
    left = ranks.broadcast(wait_for_shares(folder, share) if ranks.is_writer else None)
    if left is None:
        raise not_shared(folder)
    if share in left:
        with locked(folder / share) if ranks.is_writer else nullcontext(), suppress(RoundOver):
            train(prepared(cfg, folder, stream, (), ranks, None, Rounds(share)))
