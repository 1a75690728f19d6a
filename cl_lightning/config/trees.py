"""What lies in nested values: mappings, and lists of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def dotted(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and values of the leaves of a tree of mappings.

    >>> list(dotted({"learner": {"strength": [1]}, "trainer.lr": {}}))
    [('learner.strength', [1]), ('trainer.lr', {})]
    """
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of all that is neither a mapping nor a list.

    >>> list(leaves({"a": [{"b": 1}, 2], "c": []}))
    [('a.0.b', 1), ('a.1', 2)]
    """
    if isinstance(node, Mapping | list | tuple):
        for key, part in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from leaves(part, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def targets(node: Any) -> list[str]:
    """All ``_target_``s in nested values, in their order.

    >>> targets({"logger": {"_target_": "a.B", "inner": [{"_target_": "c"}]}})
    ['a.B', 'c']
    """
    return [str(value) for path, value in leaves(node) if path.rpartition(".")[2] == "_target_"]
