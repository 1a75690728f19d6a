"""The pictures in docs/images, drawn again: from the extracts of pages, or from runs.

``python -m tests.pictures`` draws all that take a few minutes at most, and ``python -m tests.pictures NAME``
one of them; the files of ``dashboard`` are drawn together. Runs are made in ``outputs``, where they are
found again.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from matplotlib import rc_context
from PIL import Image, ImageDraw, ImageFont, ImageOps

from cl_lightning.report.across.ranks import figure as ranks
from cl_lightning.report.extracts import extract_of
from cl_lightning.report.figures import save
from cl_lightning.report.groups import Group
from cl_lightning.report.projection import Point, Projection
from cl_lightning.report.style import Figure, colour, panels, styled, whole_numbers
from tests.commands import command, configure
from tests.docs import ROOT
from tests.pages import key_of

IMAGES = ROOT / "docs" / "images"
OUTPUTS = Path("outputs")
RUNS = {  # pictures that a run has in its folder: the figure's name, and the command
    "two_tasks/fc_d9_1a": (
        "two_tasks", "+experiment=icann18_reduced data=real dnn=fc stream.kind=D9-1a"),
    "two_tasks/imm_d5_5a": (
        "alphas", "+experiment=iclr19_reduced data=real dnn=imm learner.merging=mode stream.kind=D5-5a"),
    "ctrl_long": ("over_tasks", "+experiment=ctrl_long backbone.width=8"),
}  # fmt: skip
LONG = {"ctrl_long"}  # an hour and a half of a processor: drawn where it is named
OF_DASHBOARD = "name=dashboard trainer.log_every=10 figures=false progress=false"


# ---- from extracts -----------------------------------------------------------------------------------------


def robust_ranks() -> dict[str, Any]:
    """Learners of ten permutations, and of split digits under one head and under several, from the page's
    extract. VGR is the oracle, with stored data."""
    shown = ("robust_permuted", "robust_split_mnist")
    groups = [
        group
        for group in extract_of(ROOT / "docs" / "results" / "robust.md")
        if group.experiment in shown
        and group.settings.get("stream.head") != "multi_test"
        and (group.learner != "vgr" or group.settings.get("learner.replay") == "stored")
    ]
    return {"robust_ranks": ranks(learners_in(groups))}


def learners_in(groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The rows of an extract as runs by learner, as far as the figure of ranks reads them: of a learner's
    rows under one head that with most seeds."""
    best: dict[tuple[str, ...], Group] = {}
    for group in sorted(groups, key=lambda group: len(group.seeds)):
        best[group.experiment, group.settings.get("stream.head", "domain"), group.learner] = group
    learners: dict[str, list[dict[str, Any]]] = {}
    for (experiment, head, learner), group in sorted(best.items()):
        for accuracy in group.values["average_accuracy"]:
            metrics, tasks = {"average_accuracy": accuracy}, [{"head": {"mode": head}}]
            run = {"name": experiment, "learner": learner, "metrics": metrics, "stream": {"tasks": tasks}}
            learners.setdefault(learner, []).append({**run, "fingerprint": key_of(group)})
    return learners


# ---- from runs ---------------------------------------------------------------------------------------------


def of_run(name: str) -> None:
    """Make a run, or find it again, and take a figure out of its folder."""
    figure, words = RUNS[name]
    said = command(*shlex.split(words), f"outputs={OUTPUTS}", "progress=false").stdout
    folder = Path(re.findall(r"Results: (\S+)/results.json", said)[-1])
    shutil.copy(folder / "figures" / f"{figure}.png", IMAGES / f"{name}.png")


def dashboard() -> dict[str, Any]:
    """The panels of docs/dashboard.md, from the points that W&B gets of two learners."""
    command("--multirun", "learner=mntdp_d,finetune", f"outputs={OUTPUTS}", *OF_DASHBOARD.split())
    folders = [path.parent for path in sorted(OUTPUTS.glob("dashboard/*/*/run.json"))]
    points = {folder.parent.name: list(Projection(folder).news()) for folder in folders}
    page = (ROOT / "docs" / "dashboard.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(#panel-\w+\) \| (.*) \| `(\w+)` \| (\w+) \|$", page, re.MULTILINE)
    alone = re.findall(r"!\[(.*)\]\(images/dashboard/(\w+)\.png\)", page)
    titles = {name: title for title, name in alone}
    drawn = {
        f"dashboard/{name}": panel(points, re.findall("`(.*?)`", keys), axis, scale, titles[name])
        for name, keys, axis, scale in rows
    }
    heats = [point["matrix/heat"] for point in points["mntdp_d"] if "matrix/heat" in point]
    return {**drawn, "dashboard/matrix": heats[-1]}


def panel(
    runs: Mapping[str, Sequence[Point]], patterns: Sequence[str], axis: str, scale: str, title: str
) -> Figure:
    """Colours are runs where the panel has one key, else keys; then each run has its own kind of line."""
    drawn, (axes,) = panels(1, width=5.5)  # the legend stands beside
    known = {key for points in runs.values() for point in points for key in point}
    keys = sorted(key for key in known if any(fnmatch(key, pattern) for pattern in patterns))
    for number, ((learner, points), kind) in enumerate(zip(runs.items(), ("-", "--", ":"))):
        for place, key in enumerate(keys):
            own = [(point[axis], point[key]) for point in points if key in point]
            label = learner if len(keys) == 1 else f"{learner} {key}"
            look = {"marker": ".", "color": colour(place if len(keys) > 1 else number), "label": label}
            if own:
                axes.plot(*zip(*own), kind, **look)
    axes.set(title=title, xlabel={"learned": "tasks learned", "batches": "mini-batches"}[axis])
    axes.set_yscale(scale)
    if scale == "log":
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    whole_numbers(axes.xaxis)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return drawn


# ---- from the drawn data sets ------------------------------------------------------------------------------


def synthetic() -> None:
    """Ten images of each data set, the first ten classes in their order."""
    from hydra.utils import instantiate

    sources, side, margin = configure().data.sources, 66, 110
    page = Image.new("RGB", (margin + 10 * side, len(sources) * side), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(10)
    for row, name in enumerate(sources):
        source = instantiate(sources[name])
        x = source.images("train", torch.arange(10))
        shape = "x".join(map(str, x[0].shape)) if isinstance(x, torch.Tensor) else "more sizes"
        pen.text((5, row * side + 20), f"{name}\n{len(source.classes)} classes, {shape}", "black", font)
        for column, image in enumerate(x):
            picture = Image.fromarray(image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
            size = (side - 2) // picture.width * picture.width if picture.width < side else side - 2
            place = (margin + column * side + (side - size) // 2, row * side + (side - size) // 2)
            page.paste(ImageOps.fit(picture, (size, size), Image.Resampling.NEAREST), place)
    page.quantize(128, dither=Image.Dither.NONE).save(IMAGES / "synthetic.png", optimize=True)  # few bytes


DRAWN: dict[str, Callable[[], Any]] = {
    "robust_ranks": robust_ranks, "synthetic": synthetic, "dashboard": dashboard,
    **{name: lambda name=name: of_run(name) for name in RUNS},  # type: ignore[misc]
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*DRAWN, []], help="default: all but those that take long"
    )
    for name in parser.parse_args().names or [name for name in DRAWN if name not in LONG]:
        with styled(), rc_context({"savefig.dpi": 110}):
            save(DRAWN[name]() or {}, IMAGES, ["png"])
        print(f"drawn: {name}")


if __name__ == "__main__":
    main()
