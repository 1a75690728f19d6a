"""Parts of a report of a run, one file each: whatever file lies here is found.

A part has ``table(results, width)``, which the report of a run shows, in its place by ``ORDER``, or
``figure(results)``, which is drawn into the run's folder under the file's name, or both. A table may be
empty, a figure None. ``line(results)`` gives lines that say the same in short, for the end of a run.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def found(what: str, room: ModuleType | None = None) -> dict[str, Callable[..., Any]]:
    """All functions of this name, by the names of their files, in order; or those of another room."""
    room = room or sys.modules[__name__]
    modules = [import_module(f"{room.__name__}.{info.name}") for info in pkgutil.iter_modules(room.__path__)]
    having = [module for module in modules if hasattr(module, what)]
    having.sort(key=lambda module: getattr(module, "ORDER", 0))
    return {module.__name__.rpartition(".")[2]: getattr(module, what) for module in having}
