"""A run on Weights & Biases: a projection of its records, while it goes on and later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from cl_lightning.config.checking import Positive, Text, check_value
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.scenario import scenario_in
from cl_lightning.loggers.base import RunLogger, Status
from cl_lightning.loggers.csv_file import CSVLogger
from cl_lightning.loggers.tensorboard import TensorBoard
from cl_lightning.loggers.wandb_service import CHOSEN, Account, Identity, Service, ended_if_interrupted
from cl_lightning.report.printed import paper_of
from cl_lightning.report.projection import Projection, card_of, summary_of, table_of
from cl_lightning.report.reading import choices_in
from cl_lightning.runs.identity import as_used
from cl_lightning.selection.sweep import in_rounds
from cl_lightning.store.records import StartRecord

UPLOADED = ("results.json", "config.yaml")


def options_in(loggers: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keys of the logger in a configuration that is W&B's; None where there is none."""
    for node in (loggers, *loggers.values()):
        if isinstance(node, Mapping) and str(node.get("_target_")).endswith(".open_wandb"):
            return {key: value for key, value in node.items() if key != "_target_"}
    return None


def options_of(folder: Path) -> dict[str, Any]:
    """What a run's own configuration says of W&B, and conf/logger/wandb.yaml where it says nothing."""
    shipped: Any = OmegaConf.to_container(OmegaConf.load(Path(conf_dir()) / "logger" / "wandb.yaml"))
    path, own = folder / "config.yaml", None
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path)) if path.is_file() else {}
        own = options_in(content.get("logger") or {})
    except (OSError, ValueError, AttributeError, YAMLError, OmegaConfBaseException) as reason:
        raise Refusal(
            f"{path}, which says where on W&B the run goes, is damaged ({' '.join(str(reason).split())}).\n"
            "Mend it; or remove it, and say where with --project and --entity."
        ) from reason
    for key, value in (own or {}).items():
        check_value(open_wandb, key, value, f"{path}: logger.wandb.{key}")
    return {**(options_in(shipped) or {}), **(own or {})}


def check_curves(makes: Sequence[partial]) -> None:
    """Refuse W&B or TensorBoard among loggers of which none writes ``logs.csv``: their curves come from
    there."""
    written = any(isinstance(make.func, type) and issubclass(make.func, CSVLogger) for make in makes)
    names = {open_wandb: ("W&B", "wandb"), TensorBoard: ("TensorBoard", "tensorboard")}
    for name, choice in (names[make.func] for make in makes if not written and make.func in names):
        raise Refusal(
            f"{name} gets its curves from logs.csv, and none of these loggers writes it.\n"
            f"Choose logger={choice} or logger=[csv,{choice}], both of which do, without logger.csv=null or "
            "~logger.csv."
        )


def open_wandb(
    folder: Path,
    project: Text,
    entity: Text | None,
    mode: Literal["online", "offline"],
    tags: list[Text],
    timeout: Positive,
    checkpoints: bool,
) -> RunLogger:
    """A W&B run with all that the run's records say already, which hears of what is recorded next. A run that
    is made by many jobs, round after round, is sent when it is finished."""
    what = (folder, Account(project, entity, mode, timeout), tags, checkpoints)
    return SentAtTheEnd(partial(send_run, *what)) if in_rounds() else WandbRun(*what)


def send_run(folder: Path, account: Account, tags: Sequence[str] = (), checkpoints: bool = False) -> bool:
    """Send a run from its records: a finished one, or one that was killed. Returns whether W&B took it."""
    results = Projection(folder).results()
    is_chosen = (results["fingerprint"], results["seed"]) in choices_in([], [folder.resolve()])[0]
    run = WandbRun(folder, account, [*tags, *[CHOSEN] * is_chosen], checkpoints)
    run.close("success" if results["finished"] else "failed")
    return run.service.alive


class SentAtTheEnd(RunLogger):
    """What sends a run when it is finished."""

    def __init__(self, send: Callable[[], object]) -> None:
        self.send = send

    def log_metrics(self, *_: Any, **__: Any) -> None: ...

    def close(self, status: Status) -> None:
        if status == "success":
            self.send()


class WandbRun(RunLogger):
    """A W&B run. Curves inside tasks come while it trains where W&B is online, else at a task's boundary."""

    def __init__(self, folder: Path, account: Account, tags: Sequence[str], checkpoints: bool) -> None:
        self.checkpoints = checkpoints
        self.projection = Projection(folder)
        identity = identity_of(self.projection, tags)
        if checkpoints:  # files of any size
            account = replace(account, at_end=60 * account.at_end)
        self.service = Service(folder, account, identity)
        with ended_if_interrupted():
            self.boundary()
            self.service.supersede()

    @property
    def experiment(self) -> Any:
        """W&B's own object, as Lightning's loggers have theirs; None where it could not be opened."""
        return self.service.run

    def log_metrics(self, *_: Any, **__: Any) -> None:
        """Called when ``logs.csv`` has the values, since its logger comes first."""
        for point in self.projection.curves.news() if self.service.online else ():
            self.service.send(point)

    def boundary(self) -> None:
        for point in self.projection.news() if self.service.alive else ():
            self.service.send(point)

    def close(self, status: Status) -> None:
        with ended_if_interrupted():
            self.boundary()
            if self.service.alive:
                self.end()
        self.service.finish(status == "success")

    def end(self) -> None:
        """What the run came to: the matrix; of a finished run also summary, figures, card, files. Tables and
        files come here alone, and last: W&B asks the server about each while the program waits."""
        folder, results = self.projection.folder, self.projection.results()
        rows = [row.first for row in self.projection.rows]
        learned = max(len(rows) - 1, 0)
        if results["finished"]:
            self.service.guarded(lambda run: run.summary.update(summary_of(results)))
            self.service.guarded(lambda run: log_figures(run, folder, learned))
        if learned:
            self.service.send({"learned": learned, "matrix/table": table_of(rows)})
        if results["finished"]:
            self.service.send({"learned": learned, "card/table": card_of(results)})
            self.service.guarded(lambda run: log_files(run, folder, self.checkpoints))


def log_figures(run: Any, folder: Path, learned: int) -> None:
    import wandb

    drawn = sorted((folder / "figures").glob("*.png"))
    if drawn:
        run.log({"learned": learned, **{f"figures/{path.stem}": wandb.Image(str(path)) for path in drawn}})


def log_files(run: Any, folder: Path, checkpoints: bool) -> None:
    """Send the artifact ``results``; the run's id is an alias of its version."""
    import wandb

    artifact = wandb.Artifact("results", type="results")
    learners = sorted((folder / "tasks").glob("*.pt")) if checkpoints else []
    files = [*(folder / name for name in UPLOADED), *sorted((folder / "figures").glob("*")), *learners]
    for path in files:
        if path.is_file():
            artifact.add_file(str(path), name=path.relative_to(folder).as_posix())
    run.log_artifact(artifact, aliases=["latest", run.id])


# ---- identity ----------------------------------------------------------------------------------------------


def identity_of(projection: Projection, tags: Sequence[str]) -> Identity:
    """Name and id from experiment, learner, fingerprint, seed and a token of the folder: runs of other
    experiments, and of other people, are other runs."""
    start, token = projection.start, projection.store.run
    kind = f"{start.name}/{start.learner}/{start.fingerprint}"
    names = (start.name, start.learner, f"{start.fingerprint}-s{start.seed}", token[:8])
    job_type: Literal["run", "point"] = "point" if start.of_a_sweep else "run"
    return Identity(names, kind, job_type, (*tags_of(start), *tags), config_of(start, token))


def tags_of(start: StartRecord) -> list[str]:
    """Learner, stream, scenario, protocol, paper."""
    paper, of_run = paper_of(start.name), scenario_in(start.stream.tasks, start.needs)
    single_pass = ["single_pass"] * (start.passes is not None)
    protocol = [*([of_run.name] if of_run else []), start.stream.head, *single_pass]
    return [start.learner, start.stream.name, *protocol, *([paper] if paper else [])]


def config_of(start: StartRecord, token: str) -> dict[str, Any]:
    """The configuration, and below ``run`` what made the run, with all fingerprints."""
    about = {
        "experiment": start.name,
        "learner": start.learner,
        "fingerprint": start.fingerprint,
        "stream_fingerprint": start.stream.fingerprint,
        "images": start.stream.images,
        "folder": token,
        "commit": start.environment.get("commit", "unknown"),
        "version": start.version,
        "environment": start.environment,
        "command": start.command,
    }
    return {**as_used(start.config), "run": about}
