"""What an offline run of Weights & Biases wrote, read back record by record with its own protobuf messages.

The file is seven bytes, then a log as LevelDB writes it: blocks of 32 KiB, and in them parts of records, each
behind seven bytes (checksum, length, kind)."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEAD = 32768, 7
WHOLE, LAST = 1, 4  # kinds of parts that end a record


def records(path: Path) -> Iterator[Record]:
    data, at, begun = path.read_bytes(), HEAD, b""
    assert data[:4] == b":W&B"
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        _, length, kind = struct.unpack_from("<IHB", data, at) if left >= HEAD else (0, 0, 0)
        if kind == 0:  # padding up to the next block
            at += left
            continue
        if at + HEAD + length > len(data):  # the rest is being written
            return
        begun += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(begun)
            yield record
            begun = b""


@dataclass
class Read:
    """An offline run, as its file has it."""

    path: Path

    def __post_init__(self) -> None:
        self.all = list(records(self.path))

    def of(self, kind: str) -> list[Any]:
        return [getattr(record, kind) for record in self.all if record.WhichOneof("record_type") == kind]

    @property
    def id(self) -> str:
        """Also of a run that was killed before anything was written."""
        return self.path.stem.removeprefix("run-")

    @property
    def run(self) -> Any:
        return self.of("run")[0]

    @property
    def config(self) -> dict[str, Any]:
        return {item.key: json.loads(item.value_json) for item in self.run.config.update}

    @property
    def axes(self) -> dict[str, str]:
        """The axis of each defined key."""
        return {metric.glob_name: metric.step_metric for metric in self.of("metric") if metric.step_metric}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What was logged, row by row; of media what kind they are and where they lie."""
        found = []
        for row in self.of("history"):
            own: dict[str, Any] = {}
            for item in row.item:
                name, *inside = list(item.nested_key) or [item.key]
                value = json.loads(item.value_json)
                if inside:
                    own.setdefault(name, {})[inside[-1]] = value
                elif not name.startswith("_"):
                    own[name] = value
            found.append(own)
        return found

    def points(self, axis: str) -> list[tuple[float, str, Any]]:
        """Place on the axis, key and value of all numbers and words, in order."""
        return [
            (row[axis], key, value)
            for row in self.rows
            if axis in row
            for key, value in row.items()
            if key != axis and not isinstance(value, dict)
        ]

    def media(self, key: str) -> list[Path]:
        """The files of a table or picture, in the order in which they were logged."""
        return [self.path.parent / "files" / row[key]["path"] for row in self.rows if key in row]

    @property
    def summary(self) -> dict[str, Any]:
        """The last values of numbers and words."""
        items = [item for record in self.of("summary") for item in record.update if len(item.nested_key) < 2]
        return {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in items}

    @property
    def exit_code(self) -> int | None:
        """None: the run was not ended."""
        ends = self.of("exit")
        return ends[0].exit_code if ends else None


def runs_in(folder: Path) -> list[Read]:
    """The W&B runs of a run's or sweep's folder, by attempt. The last one has ended."""
    files = sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: int(path.stem.split("-")[-2]))
    return [*map(Read, files[:-1]), *map(ended, files[-1:])]


def drawn_by_leet(path: Path, wanted: set[str], folder: Path) -> dict[str, str]:
    """The axis over which W&B's own reader, `wandb leet`, draws each curve that it has another axis for than
    its own count of steps: the heads of its charts, on a terminal that is large enough for all of them."""
    import fcntl
    import pty
    import termios

    (folder / "wandb-leet.json").write_text(json.dumps({"metrics_grid": {"rows": 9, "cols": 9}}))
    main, side = pty.openpty()
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 700, 0, 0))
    there = {**os.environ, "TERM": "xterm-256color", "WANDB_CONFIG_DIR": str(folder)}
    command = [sys.executable, "-m", "wandb", "leet", "run", str(path)]
    process = subprocess.Popen(
        command, stdin=side, stdout=side, stderr=side, env=there, start_new_session=True
    )
    os.close(side)
    drawn, screen, until = {}, b"", monotonic() + 60
    try:
        while not wanted <= set(drawn) and monotonic() < until:
            if select.select([main], [], [], 0.2)[0]:
                screen += os.read(main, 1 << 16)
            plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b" ", screen).decode(errors="replace")
            drawn = dict(re.findall(r"([\w/.]+) +\[x: (\w+)\]", plain))
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # it has started another
        process.wait()
        os.close(main)
    return drawn


def ended(path: Path) -> Read:
    """A W&B run that was told to end: its own process may write for a moment longer than this one waits."""
    until = monotonic() + 60
    while monotonic() < until:
        read = Read(path)
        if read.exit_code is not None:
            return read
    raise AssertionError(f"{path} has no end")
