"""Task-level selection by jobs: each round trains the candidates of one phase, in shares, a job a share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from cl_lightning.cli.jobs import Job
from cl_lightning.cli.sweeps import batches, combinations, show_runs, sweep_lock, write_sweep
from cl_lightning.errors import Refusal
from cl_lightning.selection.sweep import as_override, lateness


@dataclass
class InRounds:
    """A run that is made by several jobs, round after round."""

    overrides: list[str]
    # What the next round's jobs are told: the shares that they train, or None, to go on until there are some.
    shares: list[str | None] = field(default_factory=lambda: [None])
    job: Job | None = None  # that ended it

    def after(self, jobs: list[Job], late_by: float) -> None:
        """Take in what the jobs of a round came to, and note what the next round has to do. ``late_by``:
        seconds after which what they wrote is visible here."""
        from cl_lightning.store.atomic import in_time

        failed = next((job for job in jobs if job.failure), None)
        folder = next((job.folder for job in jobs if job.folder), None)
        if failed or folder is None:
            self.end(failed or jobs[0], "its jobs said nothing of a run")
            return
        shares = in_time(lambda: self.next_in(Path(folder)), late_by)
        if shares is None:
            self.end(jobs[0], "a job ended, and the run did not go on")
        elif shares:
            self.shares = shares
        else:
            self.end(next((job for job in jobs if job.value is not None), jobs[-1]), None)

    def next_in(self, folder: Path) -> list[str | None] | None:
        """What the jobs of the next round have to do: nothing if the run is finished; None if nothing shows
        yet that a job went on."""
        from cl_lightning.parallel.rounds import missing_in
        from cl_lightning.report.results import finished_results

        if finished_results(folder) is not None:
            return []
        missing: Sequence[str | None] = missing_in(folder) or [None]
        return None if [*missing] == self.shares == [None] else [*missing]

    def end(self, job: Job, failure: str | None) -> None:
        self.job = Job(self.overrides, job.failure or failure, job.value, job.folder)
        self.shares = []


def sweep_rounds(sweeper: Any, arguments: list[str]) -> Any:
    """Every combination of the values on the command line; the rounds of all go on side by side."""
    loader = sweeper.hydra_context.config_loader
    runs = [InRounds(combination) for combination in combinations(sweeper, arguments)]
    configs = [loader.load_sweep_config(sweeper.config, run.overrides) for run in runs]
    for cfg in configs:
        check_shared_out(sweeper, cfg)
    afresh = any(cfg.resume is False for cfg in configs)
    sweeper.validate_batch_is_legal([run.overrides for run in runs])
    late_by = lateness(sweeper.config.hydra.launcher._target_)
    jobs, returns = sweeper.launcher.jobs, []
    with sweep_lock(sweeper):
        while going := [run for run in runs if run.shares]:
            again = ["resume=true"] * (afresh and bool(jobs))  # only the first round begins afresh
            returns += one_round(sweeper, going, again, late_by)
        jobs[:] = [run.job for run in runs if run.job]
        write_sweep(sweeper, "task_level", arguments, [], [])
    show_runs(jobs)
    return returns


def one_round(sweeper: Any, going: Sequence[InRounds], more: Sequence[str], late_by: float) -> list[Any]:
    """Launch a job for each share; then each run takes in what its own jobs came to."""
    jobs, returns = sweeper.launcher.jobs, []
    first = len(jobs)
    batch = [
        [*run.overrides, "hydra.mode=MULTIRUN", f"hydra.callbacks.sweep.share={as_override(share)}", *more]
        for run in going
        for share in run.shares
    ]
    for part in batches(sweeper, batch):
        returns.append(sweeper.launcher.launch(part, initial_job_idx=len(jobs)))
    ended = iter(jobs[first:])
    for run in going:
        run.after(list(islice(ended, len(run.shares))), late_by)
    return returns


def check_shared_out(sweeper: Any, cfg: Any) -> None:
    """Refuse what would not be shared out."""
    if sweeper.launcher.leaves:
        raise Refusal(
            "The rounds of hydra/sweeper=cl_task_level wait for one another: a sweep that leaves (--submit) "
            "cannot begin them. Leave it out, and start the command where it can wait, as in a job."
        )
    if cfg.trainer.candidates_at_once is None:
        raise Refusal(
            "hydra/sweeper=cl_task_level gives a task's candidates to several jobs, but nothing says how "
            "many to each. Set trainer.candidates_at_once, as in trainer.candidates_at_once=6."
        )
