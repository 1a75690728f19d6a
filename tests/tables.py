"""The tables of choices in docs/, made from the configuration files and the classes; the pages of results,
made from their extracts; and the schemas of configuration files, for editors.

``python -m tests.tables`` writes them; with ``--check`` it ends with 1 where a page says otherwise.

A choice's words are the first comment of its file, which ``--help`` shows, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from hydra.utils import get_class

from cl_lightning.backbones.base import Backbone
from cl_lightning.cli.help import GROUPS, choices_of, first_comment
from cl_lightning.config.build import backbone_of
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.data.task import Head
from cl_lightning.metrics.measures import MEASURES
from cl_lightning.metrics.table import METRICS
from tests.commands import composed
from tests.docs import ROOT
from tests.experiment_times import KEPT
from tests.pages import page_of
from tests.schemas import renew

PACKAGE = ROOT / "cl_lightning"
Row = tuple[str, ...]


def choices(group: str) -> dict[str, Path]:
    return choices_of(group, [Path(conf_dir())])


def learners() -> Iterator[Row]:
    yield "`learner`", "what it does", "needs", "may be in a grid"
    for name, file in choices("learner").items():
        learner = get_class(composed(f"learner={name}", "stream=split").learner._target_)
        needs = [key.replace("_", " ") for key, needed in vars(learner.needs).items() if needed]
        yield (
            f"`{name}`",
            first_comment(file),
            ", ".join(needs),
            ", ".join(map("`{}`".format, learner.grid_keys)),
        )


def streams() -> Iterator[Row]:
    yield "`stream`", "its tasks"
    for name, file in choices("stream").items():
        yield f"`{name}`", first_comment(file)


def experiments() -> Iterator[Row]:
    yield "`+experiment`", "what it runs", "a run takes"
    taken = json.loads(KEPT.read_text())
    for name, file in choices("experiment").items():
        yield f"`{name}`", first_comment(file), duration(taken[name]) if name in taken else ""


def duration(taken: dict) -> str:
    """The learner, and minutes of the processor: one number where the run came to its end."""
    ends = dict.fromkeys(f"{seconds / 60:.{int(seconds < 600)}f}" for seconds in taken["seconds"])
    return f"{taken['learner']}: {' to '.join(ends)} min{' to learn' * taken.get('learning', False)}"


def networks() -> Iterator[Row]:
    yield "`backbone`", "what it is", "modules", "1 x 28 x 28", "3 x 32 x 32"
    for name, file in choices("backbone").items():
        networks = [network(name, shape) for shape in ((1, 28, 28), (3, 32, 32))]
        counts = [f"{sum(p.numel() for p in each.parameters()):,}" for each in networks]
        yield f"`{name}`", first_comment(file), str(len(networks[0].path_modules())), *counts


def network(name: str, shape: tuple[int, int, int]) -> Backbone:
    """A network of ten outputs that all tasks share."""
    make = backbone_of(
        composed("learner=finetune", "stream=split", f"backbone={name}", "backbone.heads=shared")
    )
    with torch.device("meta"):
        return make(input_shape=shape, head=Head("domain", 10, (tuple(range(10)),)))


def metrics() -> Iterator[Row]:
    yield "in `results.json`", "in reports", "on W&B", "what it is", "better", ""
    for metric in METRICS:
        yield f"`{metric.name}`", metric.head, metric.short, metric.formula, metric.better, metric.source


def measures() -> Iterator[Row]:
    yield "`trainer.measures`", "what it is", ""
    for name, measure in MEASURES.items():
        yield f"`{name}`", measure.formula, measure.source


def groups() -> Iterator[Row]:
    yield "group", "choices"
    for group in GROUPS:
        plus = "+" * (group == "experiment")
        yield f"`{plus}{group}`", ", ".join(map("`{}`".format, choices(group)))


def tree() -> str:
    """The package's files, each with the beginning of its docstring."""
    lines, files = ["cl_lightning/"], sorted(PACKAGE.rglob("*.py"), key=order)
    for file in files:
        place = file.relative_to(PACKAGE)
        depth, said = len(place.parts), about(file)
        if file.name != "__init__.py":
            lines.append(f"{'  ' * depth}{file.name:<{26 - 2 * depth}}{said}")
        elif depth > 1:
            lines.append(f"{'  ' * (depth - 1)}{file.parent.name + '/':<{28 - 2 * depth}}{said}".rstrip())
    return "\n".join(["```", *(line if len(line) <= 110 else line[:107] + "..." for line in lines), "```"])


def order(file: Path) -> tuple[tuple[bool, str], ...]:
    """Files of a folder before its folders, and what the folder is for before all."""
    parts = file.relative_to(PACKAGE).parts
    return tuple((i < len(parts) - 1, "" if part == "__init__.py" else part) for i, part in enumerate(parts))


def about(file: Path) -> str:
    """The first sentence of a module's docstring, as a note."""
    said = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    said = re.split(r"(?<=[^.])[.:](?: |$)", said)[0]
    return said[:1].lower() + said[1:] if said[1:2].islower() else said


def table(rows: Iterator[Row]) -> str:
    head, *rest = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rest))


MADE: dict[str, tuple[str, Callable[[], str]]] = {  # the page of each part, and what makes it
    "learners": ("learners", lambda: table(learners())),
    "networks": ("learners", lambda: table(networks())),
    "streams": ("data", lambda: table(streams())),
    "metrics": ("reports", lambda: table(metrics())),
    "measures": ("reports", lambda: table(measures())),
    "experiments": ("results/index", lambda: table(experiments())),
    "choices": ("quickstart", lambda: table(groups())),
    "tree": ("design", tree),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check, other = parser.parse_args().check, []
    for name, (page, make) in MADE.items():
        path = ROOT / "docs" / f"{page}.md"
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, _, rest = path.read_text().partition(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.partition(end)[2]}"
        if text != path.read_text():
            other.append(f"{name} in docs/{page}.md")
            if not check:
                path.write_text(text)
    for extract in sorted((ROOT / "docs" / "results").glob("*.json")):
        page = extract.with_suffix(".md")
        if (text := page_of(page)) != page.read_text():
            other.append(f"docs/results/{page.name}")
            if not check:
                page.write_text(text)
    other += renew(check)
    if check and other:
        print(f"These are not what the program says: {', '.join(other)}. Run python -m tests.tables.")
    return int(check and bool(other))


if __name__ == "__main__":
    sys.exit(main())
