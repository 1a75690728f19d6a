"""``python -m cl_lightning.data list``: which data sets there are, and what is in them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from cl_lightning.cli.parser import Parser
from cl_lightning.cli.sentences import sentence
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.config.suggestions import nearest
from cl_lightning.errors import Refusal

DESCRIPTION = """The data sets of this program.

  list                      what there is: classes, images, licence, where it comes from; decodes nothing
  show NAME                 draw a contact sheet, a row of images a class, into NAME.png
  describe [KEY=VALUE ...]  the tasks of a stream (stream=rotated), and how much they look like each other

Which sources, and from where, is configured as for a run:
data=real data.root=FOLDER cache=FOLDER data.sources.mnist.side=32
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        "python -m cl_lightning.data",
        "python -m cl_lightning.data list|show|describe [NAME ...] [KEY=VALUE ...] [--out FILE]",
        DESCRIPTION,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, help=argparse.SUPPRESS)
    parser.add_argument(
        "names", nargs="*", metavar="NAME or KEY=VALUE", help="sources, and the configuration's keys"
    )
    parser.add_argument("--out", type=Path, help="file of the contact sheet (default: NAME.png)")
    try:
        options = parser.parse_intermixed_args(arguments)
        names = [name for name in options.names if "=" not in name]
        return COMMANDS[options.command](names, [name for name in options.names if "=" in name], options.out)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(sentence(error), file=sys.stderr)
        return 2


def configured(overrides: list[str]) -> DictConfig:
    """The configuration that a run with these arguments has, all its sources checked."""
    from cl_lightning.cli.sentences import from_hydra, refuse_lists
    from cl_lightning.config import build
    from cl_lightning.config.compose import check_config, compose_config

    try:
        refuse_lists(overrides)
        cfg = compose_config(*overrides)
        check_config(cfg)
    except Exception as error:
        raise from_hydra(error, overrides) from error
    for name in cfg.data.sources:
        build.source_of(cfg, name)
    return cfg


def source_of(cfg: DictConfig, name: str) -> Any:
    from cl_lightning.config import build

    if name not in cfg.data.sources:
        raise Refusal(
            f"There is no source {name!r} here.{nearest(name, cfg.data.sources)} (data=real has others than "
            "data=synthetic.)"
        )
    return build.source_of(cfg, name)()


def list_sources(names: list[str], overrides: list[str], out: Path | None) -> int:
    from cl_lightning.report.layout import Column, new_console, tables

    choices = [[f"data={path.stem}"] for path in sorted((Path(conf_dir()) / "data").glob("*.yaml"))]
    chosen = any(override.startswith("data=") for override in overrides)
    configurations = [configured([*choice, *overrides]) for choice in ([[]] if chosen else choices)]
    for name in names:
        if not any(name in cfg.data.sources for cfg in configurations):
            source_of(configurations[0], name)  # says what there is
    numbers = ("classes", "train", "test", "shape")
    heads = ("name", *numbers, "cached", "licence", "from", "read from the Hub here")
    columns = [Column(head, text=head not in numbers) for head in heads]
    console = new_console()
    for cfg in configurations:
        rows = []
        for name in [name for name in names or cfg.data.sources if name in cfg.data.sources]:
            try:
                rows.append([name, *row(name, source_of(cfg, name), cfg.cache)])
            except Refusal as refusal:
                rows.append([name, "?", "?", "?", "?", "no", "", str(refusal).splitlines()[0], ""])
        for table in tables(columns, rows, console.width):
            console.print(table)
    return 0


def row(name: str, source: Any, cache: str) -> list[str]:
    """What can be said of a source without decoding it."""
    from cl_lightning.data.sources.cache import cache_folder, is_complete, shape_in

    folder = cache_folder(name, source, cache)
    cached = is_complete(folder)
    drawn = {split: getattr(source, split, None) for split in ("train", "test")}
    counts = source.numbers() if hasattr(source, "numbers") else drawn
    tried = getattr(source, "tried", None)
    return [
        str(len(source.classes)),
        *(str(counts.get(split) or "?") for split in ("train", "test")),
        "x".join(map(str, shape_in(folder))) or "?",
        "yes" if cached else "no",
        getattr(source, "licence", None) or "",
        source.location() if hasattr(source, "location") else "drawn here",
        "" if tried is None else "yes" if tried else "no",
    ]


def show(names: list[str], overrides: list[str], out: Path | None) -> int:
    from cl_lightning.data.sources.cache import open_images
    from cl_lightning.data.sources.sheet import write_sheets

    if len(names) != 1:
        raise Refusal("show draws one source. Name it: python -m cl_lightning.data show mnist.")
    cfg = configured(overrides)
    images = open_images(names[0], source_of(cfg, names[0]), cfg.cache)
    for file in write_sheets(images, out or Path(f"{names[0]}.png")):
        print(f"written: {file}")
    return 0


def describe(names: list[str], overrides: list[str], out: Path | None) -> int:
    """The stream of a run with these arguments; a small network is trained to say how alike its tasks are."""
    from cl_lightning.config.build import build_stream
    from cl_lightning.data.streams.resemblance import SURE, resemblance
    from cl_lightning.report.layout import Column, new_console, tables

    stream = build_stream(configured(overrides))
    heads = ("task", "name", "source", "classes", "train", "val", "test")
    rows, console = [], new_console()
    for index, task in enumerate(stream.describe()):
        sizes = (str(task[key]) for key in ("n_train", "n_val", "n_test"))
        rows.append([str(index), task["name"], task["source"], str(len(task["classes"])), *sizes])
    columns = [Column(head, text=head in ("name", "source")) for head in heads]
    for table in tables(columns, rows, console.width):
        console.print(table)
    alike = resemblance(stream)
    if alike is not None:
        print(
            f"A network trained on earlier tasks gives {alike.sure:.1%} of the images of task {alike.task} "
            f"an old class with probability {SURE} or more (mean entropy {alike.entropy:.2f} "
            f"nats){': their pixels are permuted' * alike.permuted}."
        )
    return 0


COMMANDS: dict[str, Callable[[list[str], list[str], Path | None], int]] = {
    "list": list_sources,
    "show": show,
    "describe": describe,
}
