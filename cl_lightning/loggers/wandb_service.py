"""One run on Weights & Biases: opened, sent to, closed. What goes wrong there stops nothing here, and is told
once."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import secrets
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cl_lightning.report.projection import AXES, Point, Sheet
from cl_lightning.store.atomic import write_json
from cl_lightning.store.folder import is_writable

if TYPE_CHECKING:
    import wandb

SUPERSEDED = "superseded"  # the tag of a run that has a newer one with all of its points
CHOSEN = "chosen"  # of a run that a search over whole streams chose
# Characters that W&B takes; of an id fewer, as the names of tables, of at most 128, begin with it.
MOST = {"id": 100, "name": 120, "group": 120, "tag": 64}


@dataclass(frozen=True)
class Account:
    """Where runs go on W&B."""

    project: str
    entity: str | None = None
    mode: Literal["online", "offline"] = "online"
    timeout: float = 15.0  # seconds to wait for the service
    at_end: float = 4.0  # so many times as long for what is still to be sent at the end


@dataclass(frozen=True)
class Identity:
    """What a run is called on W&B, and what it is."""

    names: tuple[str, ...]  # with the attempt's number behind them: its name; with a token, too: its id
    group: str
    job_type: Literal["run", "point"]
    tags: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


# ---- attempts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """A run that was opened on W&B for a folder."""

    id: str
    project: str
    entity: str | None

    @property
    def number(self) -> str:
        """Which attempt of the folder's it is."""
        return self.id.split("-")[-2]

    @property
    def path(self) -> str:
        return "/".join(part for part in (self.entity, self.project, self.id) if part)


def new_attempt(folder: Path, account: Account, names: Sequence[str]) -> tuple[Attempt, list[Attempt]]:
    """The next run on W&B for a folder, which remembers it in ``wandb.json``, and those before it. What W&B
    has of a run cannot be written anew: so each attempt is a run of its own there. The token at the end of
    its id is never given twice, also not to a copy of the folder."""
    earlier = attempts_of(folder)
    own = (str(len(earlier) + 1), secrets.token_hex(3))
    attempt = Attempt(as_id((*names, *own)), account.project, account.entity)
    if is_writable(folder):
        write_json(folder / "wandb.json", [asdict(each) for each in (*earlier, attempt)])
    return attempt, earlier


def attempts_of(folder: Path) -> list[Attempt]:
    """The runs that were opened on W&B for a folder; none where their record is damaged."""
    with suppress(OSError, ValueError, TypeError):
        return [Attempt(**each) for each in json.loads((folder / "wandb.json").read_text())]
    return []


def as_id(names: Sequence[str]) -> str:
    """
    >>> as_id(("my study: 1", "ewc", "0a1b-s0", "2", "c0ffee"))
    'my_study__1-ewc-0a1b-s0-2-c0ffee'
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(names))[-MOST["id"] :]


# ---- the service -------------------------------------------------------------------------------------------


@contextmanager
def no_words_of_its_log() -> Iterator[None]:
    """Where the disk is full W&B's own log prints a traceback for each of its lines: here it does not."""
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    finally:
        logging.raiseExceptions = before


class Service:
    """A run on W&B. After the first error nothing more is sent, and a warning has said so."""

    def __init__(self, folder: Path, account: Account, identity: Identity) -> None:
        self.folder, self.account = folder, account
        self.identity = identity
        self.run: Any = None
        self.is_online = self.failed = False
        self.earlier: list[Attempt] = []
        if os.environ.get("WANDB_MODE") == "disabled":
            say("W&B: WANDB_MODE=disabled, so nothing is logged there.")
            return
        self.attempt, self.earlier = new_attempt(folder, account, identity.names)
        try:
            with ended_if_interrupted():
                self.run, line = self.begin()
        except Exception as error:
            self.give_up(error)
        else:
            say(line)
        self.guarded(define_axes)

    @property
    def online(self) -> bool:
        return self.alive and self.is_online

    @property
    def alive(self) -> bool:
        return self.run is not None and not self.failed

    @no_words_of_its_log()
    def begin(self) -> tuple[wandb.Run, str]:
        """Online with credentials and network, else offline; with the line that says so. Never asks, never
        waits long."""
        import wandb

        mode, reason = self.account.mode, "mode=offline"
        if os.environ.get("WANDB_MODE") == "offline":
            mode, reason = "offline", "WANDB_MODE=offline"
        if mode == "online":
            reason = "no credentials"
            try:
                wandb.setup(wandb.Settings(silent=True))  # else login tells who is logged in
                if wandb.login(prompt=False, verify=False):  # init verifies
                    run = wandb.init(mode="online", **self.options())
                    self.is_online = True
                    return run, f"W&B: {run.url}"
            except Exception as error:
                reason = f"no connection ({type(error).__name__})"
                # What failed may have taken its id.
                self.attempt, _ = new_attempt(self.folder, self.account, self.identity.names)
        run = wandb.init(mode="offline", **self.options())
        where = shlex.quote(run.settings.sync_dir)
        return run, f"W&B: {reason}, so this run is logged offline. Send it later with: wandb sync {where}"

    def options(self) -> dict[str, Any]:
        import wandb

        identity = self.identity
        number = self.attempt.number
        quiet: dict[str, Any] = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
        return {
            "project": self.account.project,
            "entity": self.account.entity,
            "dir": self.folder if is_writable(self.folder) else Path.cwd(),
            "id": self.attempt.id,
            "name": "/".join((*identity.names, number))[-MOST["name"] :],
            "group": identity.group[-MOST["group"] :],
            "job_type": identity.job_type,
            "tags": list(dict.fromkeys(tag[: MOST["tag"]] for tag in identity.tags)),
            "config": {**identity.config, "attempt": number},
            "reinit": "create_new",
            "settings": wandb.Settings(
                **quiet,
                init_timeout=self.account.timeout,
                finish_timeout=self.account.at_end * self.account.timeout,
                finish_timeout_raises=True,
            ),
        }

    @no_words_of_its_log()
    def guarded(self, action: Callable[[Any], object]) -> None:
        if self.alive:
            try:
                action(self.run)
            except Exception as error:
                self.give_up(error)

    def give_up(self, error: Exception) -> None:
        self.failed = True
        warnings.warn(
            f"W&B failed ({reason_of(error)}). The run goes on without it. Send all of it later with: "
            f"python -m cl_lightning.report wandb {shlex.quote(str(self.folder))}",
            stacklevel=2,
        )

    def send(self, point: Point) -> None:
        self.guarded(lambda run: run.log({key: media(value) for key, value in point.items()}))

    def supersede(self) -> None:
        """Tag the earlier runs of this folder on the server, where it has them."""
        try:
            for earlier in self.earlier if self.online else ():
                set_tag(earlier, SUPERSEDED)
        except Exception as error:
            warnings.warn(f"W&B did not tag earlier runs as {SUPERSEDED} ({reason_of(error)}).", stacklevel=2)

    @no_words_of_its_log()
    def finish(self, succeeded: bool) -> None:
        """End the run, also one to which nothing could be sent any more: nothing of W&B's goes on."""
        if self.run is not None:
            try:
                self.run.finish(exit_code=0 if succeeded else 1)
            except Exception as error:
                if not self.failed:
                    self.give_up(error)


@contextmanager
def ended_if_interrupted() -> Iterator[None]:
    """Where the program is told to end inside, W&B's runs end as failed ones; else they would pass for
    finished. Also one that is being opened, which nothing has got hold of yet."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        import wandb

        wandb.teardown(exit_code=1)
        raise


def say(line: str) -> None:
    print(line, file=sys.stderr)


def reason_of(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def define_axes(run: Any) -> None:
    for axis, keys in AXES.items():
        run.define_metric(axis, hidden=True)
        for key in keys:
            run.define_metric(key, step_metric=axis)


def mark_chosen(mode: str, folders: Mapping[Path, bool]) -> None:
    """Tag the runs of these folders as chosen on the server, or not as chosen any more, where it has them."""
    if mode == "offline" or os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return
    import wandb

    try:
        if wandb.login(prompt=False, verify=False):
            for folder, chosen in folders.items():
                for newest in attempts_of(folder)[-1:]:
                    set_tag(newest, CHOSEN, chosen)
    except Exception as error:
        warnings.warn(f"W&B did not tag which run was {CHOSEN} ({reason_of(error)}).", stacklevel=2)


def set_tag(attempt: Attempt, tag: str, wanted: bool = True) -> None:
    """Give a run on the server a tag, or take it away."""
    import wandb

    try:
        run: Any = wandb.Api().run(attempt.path)
    except (ValueError, wandb.errors.CommError):  # it is offline yet, or somebody removed it
        return
    if wanted != (tag in run.tags):
        run.tags = [*run.tags, tag] if wanted else [each for each in run.tags if each != tag]
        run.update()


def media(value: Any) -> Any:
    """Tables and figures as W&B has them; numbers and words as they are."""
    if isinstance(value, int | float | str):
        return value
    import wandb
    from matplotlib.figure import Figure
    from PIL import Image

    if isinstance(value, Sheet):
        return wandb.Table(columns=[*value.columns], data=value.rows)
    if isinstance(value, Figure):
        png = io.BytesIO()
        value.savefig(png, format="png")
        return wandb.Image(Image.open(png))
    raise TypeError(f"{type(value).__name__} is nothing that is sent")
