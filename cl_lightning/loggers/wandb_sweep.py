"""The summary of a sweep on Weights & Biases: a run with a table of the sweep's runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cl_lightning.errors import Refusal
from cl_lightning.loggers.wandb_run import options_of
from cl_lightning.loggers.wandb_service import Account, Identity, Service, attempts_of, media
from cl_lightning.metrics.table import METRICS
from cl_lightning.report.projection import Sheet, summary_of
from cl_lightning.report.results import Results, results_of
from cl_lightning.report.schema import Sweep, SweepJob
from cl_lightning.selection.job_names import name_of
from cl_lightning.store.files import Store, adapter
from cl_lightning.store.folder import open_store
from cl_lightning.store.records import StartRecord

MEASURES = ("val_accuracy", *(metric.short for metric in METRICS), "T")  # of what a run came to


def send_sweep(folder: Path, account: Account, tags: Sequence[str] = ()) -> bool:
    """Send the record of a sweep, ``sweep.json``, with what its runs came to. Returns whether W&B took it."""
    sweep = sweep_in(folder)
    stores = [store_of(folder, job) for job in sweep["jobs"]]
    runs = [None if found is None else results_of(*found) for found in stores]
    tokens = [found[0].run for found in stores if found is not None]
    service = Service(folder, account, identity_of(folder, sweep, tokens, tags))
    table = table_of(sweep, runs, [id_of(folder, job) for job in sweep["jobs"]])
    service.guarded(lambda run: run.log({"sweep/table": media(table)}))
    service.guarded(lambda run: run.summary.update(counts_of(sweep)))
    service.supersede()
    service.finish(succeeded=True)
    return service.alive


def sweep_in(folder: Path) -> Sweep:
    """The record of a sweep."""
    path = folder / "sweep.json"
    try:
        return adapter(Sweep).validate_json(path.read_bytes())
    except ValueError as reason:  # pydantic's, also where it is no JSON or no text
        raise Refusal(
            f"{path}, which says what the sweep in this folder is, is damaged, or of another version. The "
            "sweep's command writes it anew."
        ) from reason


def store_of(folder: Path, job: SweepJob) -> tuple[Store, StartRecord] | None:
    """The records of a job's run; None where it has none that can be read."""
    with suppress(Refusal):
        return open_store(folder / job["run"]) if job["run"] else None
    return None


def id_of(folder: Path, job: SweepJob) -> str:
    """The id under which W&B has a job's run; empty where it does not."""
    attempts = attempts_of(folder / job["run"]) if job["run"] else []
    return attempts[-1].id if attempts else ""


def identity_of(folder: Path, sweep: Sweep, tokens: Sequence[str], tags: Sequence[str]) -> Identity:
    """A sweep is named by what it sweeps; its first run's token tells it from other people's."""
    experiment = folder.parent.parent.name
    names = (experiment, "sweep", folder.name, tokens[0][:8] if tokens else "none")
    config = {key: sweep[key] for key in ("kind", "arguments", "chosen")} | {"experiment": experiment}
    return Identity(names, f"{experiment}/sweeps/{folder.name}", "sweep", (sweep["kind"], *tags), config)


def table_of(sweep: Sweep, runs: Sequence[Results | None], ids: Sequence[str]) -> Sheet:
    """A row a job: what it is called, its run on W&B, how it ended, what it came to. A search over whole
    streams shows test numbers of the runs alone that it chose."""
    rows = []
    names = [job["overrides"] for job in sweep["jobs"]]
    for job, results, id_ in zip(sweep["jobs"], runs, ids):
        ended = results if results is not None and results["finished"] else None
        final = {} if ended is None else summary_of(ended)
        chosen = ended is not None and ended["chosen"] is not None
        shown = MEASURES if chosen or sweep["kind"] != "stream_level" else MEASURES[:1]
        about = [name_of(job["overrides"], names), id_, job["state"], "chosen" if chosen else ""]
        rows.append([*about, *(final.get(f"final/{word}") if word in shown else None for word in MEASURES)])
    return Sheet(["job", "run", "state", "chosen", *MEASURES], rows)


def counts_of(sweep: Sweep) -> dict[str, Any]:
    states = [job["state"] for job in sweep["jobs"]]
    scores = [job["validation"] for job in sweep["jobs"] if job["validation"] is not None]
    best = {"sweep/best_val_accuracy": max(scores)} if scores else {}
    return {"sweep/jobs": len(states), "sweep/done": states.count("done"), **best}


def runs_of(folder: Path) -> list[Path]:
    """The folders of a sweep's runs, as its record has them."""
    return [(folder / job["run"]).resolve() for job in sweep_in(folder)["jobs"] if job["run"]]


def own_options(folder: Path) -> dict[str, Any]:
    """What a run says of W&B itself; of a sweep, what its first run says."""
    is_sweep = (folder / "sweep.json").is_file()
    return options_of(next(iter(runs_of(folder)), folder) if is_sweep else folder)
