"""What validation data chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from cl_lightning.report.layout import Column, three_digits, with_title
from cl_lightning.report.parts.paths import module_paths

ORDER = 5  # among the tables of a run


def line(results: Mapping[str, Any]) -> list[str]:
    """What was chosen most often among several candidates, last phases of tasks alone."""
    last = {phase["where"]: phase for phase in results["selected"] if phase["where"].startswith("task")}
    several = any(len(phase.get("compared", ())) > 1 for phase in last.values())
    if not several or module_paths(results):  # which say what was chosen
        return []
    counts = Counter(phase["candidate"] for phase in last.values()).most_common(2)
    return [f"Chosen: {'; '.join(f'{name} ({count} of {len(last)} tasks)' for name, count in counts)}"]


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a phase of each task. ``val`` is the best validation accuracy; a phase's own score is called
    so."""
    rows = []
    for cost in results["costs"]:
        chosen = [phase for phase in results["selected"] if phase["where"] == f"task{cost['task']}"]
        for place, phase in enumerate(chosen):
            task = "" if place else str(cost["task"])
            own = "score" in phase
            best = "score " * own + three_digits(phase["score" if own else "val_accuracy"])
            steps = (str(phase["steps"]), str(phase["steps_to_best"]))
            rows.append([task, phase["candidate"], best, *steps])
    heads = [Column(head, text=head == "chosen") for head in ("task", "chosen", "val", "steps", "to best")]
    return with_title("Choices, by task", heads, rows, width)
