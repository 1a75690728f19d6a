"""Mutants: changes of the package that make its science, rules or bookkeeping wrong, and that tests must
notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

PACKAGE = "cl_lightning"


@dataclass(frozen=True)
class Mutant:
    """One change of one file. ``mutants.yaml`` lists them."""

    what: str  # is wrong
    file: str  # below the package; ../conf/... of the configuration
    old: str  # text that occurs once in it
    new: str
    tests: tuple[str, ...]  # files and folders of tests that are asked


def mutants() -> list[Mutant]:
    listed = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text())
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in listed]


def changed(text: str, mutant: Mutant) -> str:
    """The file's text as the mutant has it."""
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times"
    return text.replace(mutant.old, mutant.new)
