"""What a page of results keeps of runs: its extract, a JSON file beside it with a row for each group of
them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_lightning.report.groups import Code, Group


def extract_of(page: Path) -> list[Group]:
    """The rows beside a page; none where nothing was extracted yet."""
    file = page.with_suffix(".json")
    return [from_row(row) for row in json.loads(file.read_text())] if file.is_file() else []


def from_row(row: Mapping[str, Any]) -> Group:
    code = {Code(package, torch, source, ()): tuple(seeds) for package, torch, source, seeds in row["code"]}
    told = {key: tuple(pair) for key, pair in row.get("means_and_deviations", {}).items()}
    return Group(
        row["experiment"], row["learner"], row["settings"], tuple(row["seeds"]), row["values"], code=code,
        command=tuple(row["command"].split()), told=told, departs=row["departs"], commit=row["commit"],
    )  # fmt: skip
