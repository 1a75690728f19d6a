"""Pages of results and the extracts that they are made of: ``python -m tests.pages PAGE RUNS``.

``gem.json`` beside ``gem.md`` has a row for each group of runs: command, seeds, what made it, and numbers.
Between ``<!-- report: WORDS -->`` and ``<!-- /report -->`` a page has what the words ask for:

    table 3, figure 2 ... a table of the page's paper, with ours beside
    runs EXPERIMENT ... [KEY=VALUE | KEY= | KEY]    runs side by side; with a value of a setting that their
                          commands name, without one, with any
    each task EXPERIMENT ...       the same with the accuracy on each task at the end
    compared EXPERIMENT LEARNER ...    each learner of the experiment against this one, by seed; settings
                          as above
    not reproduced        what did not come out as printed
    claims                what the paper claims, or how rows lie to each other, and what ours says
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from cl_lightning.errors import Refusal
from cl_lightning.report.beside import departs, file_of, is_of, missing, parts_of
from cl_lightning.report.compare import differing, heads_of, in_order, table
from cl_lightning.report.comparisons import comparison_table
from cl_lightning.report.extracts import extract_of
from cl_lightning.report.formats import Sheet, markdown
from cl_lightning.report.groups import FEW, TASK, Group
from cl_lightning.report.paper import departures_of, heads_and_rows
from cl_lightning.report.papers import claims_of
from cl_lightning.report.printed import Cell, names, tables
from cl_lightning.runs.identity import commit, source_hash
from cl_lightning.selection.grid import dotted
from cl_lightning.store.atomic import write_whole

ALWAYS = ("data", "stream.name", "backbone._target_", "backbone.width", "selection.grid.lr")  # of each row
GRIDS = {"tuned.topologies", "tuned.first_rates", "tuned.strengths"}  # what stages of a grid are made of
NOWHERE = {"learner.": "in no table"}  # what is not as in print, of runs that no table has
REGION = re.compile(r"(<!-- report: (.*?) -->\n).*?(<!-- /report -->)", re.DOTALL)


# ---- extracts ----------------------------------------------------------------------------------------------


def update(page: Path, groups: Sequence[Group]) -> None:
    """Put groups of runs into the extract of a page, in the place of rows of the same command, and write the
    page."""
    new = [short(group, page.stem) for group in groups]
    kept = {key_of(group): group for group in (*extract_of(page), *new)}
    ordered = [kept[key] for key in sorted(kept)]
    with write_whole(page.with_suffix(".json")) as building:
        rows = ",\n".join(json.dumps(to_row(group), ensure_ascii=False) for group in ordered)
        building.write_text(f"[\n{rows}\n]\n")
    with write_whole(page) as building:
        building.write_text(page_of(page))


def key_of(group: Group) -> str:
    return json.dumps([group.experiment, group.learner, group.settings], sort_keys=True, default=str)


def short(group: Group, paper: str) -> Group:
    """A group with the settings that its command or the paper's tables name alone, and what is not as in
    print; None where it stands in no table."""
    cells = [cell for t in of_paper(paper) for row in t.rows.values() for cell in row.values()]
    cells = [cell for cell in cells if cell.result and group.experiment in experiments(cell)]
    named = {word.partition("=")[0].lstrip("+") for word in group.command}
    named |= {key for cell in cells for key in cell.overrides} | of_row(group.command)
    named |= {"selection.stages"} if named & GRIDS else set()
    named |= {"backbone.dropout"} if "dnn" in named else set()  # of networks that have nothing else apart
    settings = {k: v for k, v in group.settings.items() if k in ALWAYS or (k in named and "." in k)}
    single = [part for cell in cells for part in parts_of(cell)]
    cell = next((c for c in single if missing(c) is None and is_of(group, c)), None)
    return replace(group, settings=settings, departs=dict(departs(group, cell)) if cell else NOWHERE)


def of_row(command: Sequence[str]) -> set[str]:
    """The keys that the row of a table sets which a command names.

    >>> sorted(of_row(["+experiment=ctrl_table1", "row=er_reservoir"]))
    ['backbone.heads', 'learner.per_class', 'learner.policy']
    """
    names = [value for key, _, value in (word.partition("=") for word in command) if key.lstrip("+") == "row"]
    rows: Any = [OmegaConf.to_container(file_of("row", n)) for n in names]
    return {key for row in rows for key, _ in dotted({k: v for k, v in row.items() if k != "defaults"})}


def experiments(cell: Cell) -> list[str]:
    """The names of the folders that a cell's runs lie in."""
    return [str(cell.overrides.get("name", each)) for each in cell.experiments]


def to_row(group: Group) -> dict[str, Any]:
    made_by = [[code.package, code.torch, code.source, list(seeds)] for code, seeds in group.code.items()]
    row: dict[str, Any] = {
        "experiment": group.experiment,
        "learner": group.learner,
        "command": " ".join(group.command),
        "commit": commit_of(group),
        "code": made_by,
        "seeds": list(group.seeds),
        "settings": group.settings,
        "departs": group.departs,
        "values": {key: [round(v, 6) for v in values] for key, values in group.values.items()},
    }
    return row | ({"means_and_deviations": group.told} if group.told else {})


def commit_of(group: Group) -> str | None:
    """The commit of the program that made runs, where it is the one that is here and unchanged."""
    program = source_hash(OmegaConf.create()).partition(".")[0]
    if group.commit or {code.source.partition(".")[0] for code in group.code} != {program}:
        return group.commit
    if (here := commit()) == "unknown":  # it is no checkout, or there is no git
        return None
    changed = subprocess.run(["git", "diff", "HEAD", "--quiet"], cwd=Path(__file__).parent, check=False)
    return None if changed.returncode else here[:12]


# ---- pages -------------------------------------------------------------------------------------------------


def page_of(page: Path) -> str:
    """The page as its extract says it."""
    groups = extract_of(page)

    def said(found: re.Match[str]) -> str:
        return f"{found[1]}\n{region(found[2], page.stem, groups)}\n\n{found[3]}"

    return REGION.sub(said, page.read_text())


def region(words: str, paper: str, groups: Sequence[Group]) -> str:
    kind, _, rest = words.partition(" ")
    for known in of_paper(paper):
        if known.name == words:
            heads, rows = heads_and_rows(known, groups)
            return "\n\n".join([markdown(heads, rows), *departures_of(known, groups)])
    if kind == "runs":
        return markdown(*side_by_side([group for group in groups if is_asked(group, rest.split())]))
    if words.startswith("each task "):
        return markdown(*each_task([group for group in groups if is_asked(group, rest.split())]))
    if kind == "compared":
        experiment, against, *settings = rest.split()
        own = [group for group in groups if is_asked(group, [experiment, *settings])]
        return markdown(*comparison_table(own, against))
    if words == "claims" and (claimed := claims_of(paper, groups)):
        return markdown(*claimed)
    if words == "not reproduced":
        module = importlib.import_module(f"cl_lightning.report.papers.{paper}")
        return markdown(["what", "printed", "ours", "why"], module.not_reproduced(groups))
    known_tables = ", ".join(each.name for each in of_paper(paper))
    raise Refusal(
        f"A page asks for '{words}'. Known are runs, each task, compared, claims, not reproduced"
        f"{known_tables and f' and the tables {known_tables}'}."
    )


def is_asked(group: Group, words: Sequence[str]) -> bool:
    """Whether a group is of one of the experiments, and has the settings that are asked for.

    >>> gem = Group("rotations", "gem", {"learner.margin": 0.5}, (0,), {})
    >>> [is_asked(gem, ["rotations", f"learner.{word}"]) for word in ("margin=0.5", "margin=", "k")]
    [True, False, False]
    """
    known = {key: str(value) for key, value in group.settings.items()}
    pairs = [word.partition("=") for word in words if "." in word]
    return group.experiment in words and all(
        known.get(key, "") == value if equal else key in known for key, equal, value in pairs
    )


def side_by_side(groups: Sequence[Group]) -> Sheet:
    """Runs in a table; a setting that a command does not name is the experiment's own, and empty here."""
    return table(filled(groups), beside_print=False)


def filled(groups: Sequence[Group]) -> list[Group]:
    keys = dict.fromkeys(key for group in groups for key in group.settings)
    with_all = [{key: group.settings.get(key, "") for key in keys} for group in groups]
    return in_order([replace(group, settings=settings) for group, settings in zip(groups, with_all)])


def each_task(groups: Sequence[Group]) -> Sheet:
    """Accuracies on each task at the end, means over seeds: an average of 0.2 may be 1, 0, 0, 0, 0."""
    groups = filled(groups)
    varied, rows = differing(groups), []
    for group in groups:
        means = [group.mean_and_deviation(f"{TASK} {task}") for task in range(FEW)]
        shown = ", ".join(f"{mean[0]:.2f}" for mean in means if mean is not None)
        own = [str(group.settings[key]) for key in varied]
        rows.append([group.learner, *own, shown, group.label("average_accuracy"), str(len(group.seeds))])
    return ["learner", *heads_of(varied), "each task", "ACC", "seeds"], rows


def of_paper(paper: str) -> Sequence[Any]:
    return tables(paper) if paper in names() else ()
