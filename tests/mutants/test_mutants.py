"""The mutants are of the code as it is, and the way to try them tells who is noticed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import PACKAGE, Mutant, changed, mutants
from tests.mutants import __main__ as trial

ALL = mutants()


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.what)
def test_a_mutant_changes_one_place_of_a_file_that_there_is_and_asks_tests_that_there_are(
    mutant: Mutant,
) -> None:
    text = (trial.ROOT / PACKAGE / mutant.file).read_text()
    if mutant.file.endswith(".py"):
        compile(changed(text, mutant), mutant.file, "exec")
    assert changed(text, mutant) != text
    assert all((trial.ROOT / test).exists() for test in mutant.tests)


def test_there_are_sixty_over_all_rooms_that_compute() -> None:
    assert len(ALL) >= 60
    assert len({mutant.what for mutant in ALL}) == len(ALL)
    rooms = Counter(mutant.file.partition("/")[0] for mutant in ALL)
    assert {"metrics", "learners", "engine", "data", "backbones", "evaluation", "selection", "store",
            "report"} <= set(rooms)  # fmt: skip


@pytest.mark.all
def test_a_mutant_that_a_test_sees_is_noticed_another_survives_and_the_copy_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / PACKAGE / "added.py"
    module.parent.mkdir()
    module.write_text("ONE, OTHER = 1, 1\n")
    (tmp_path / "test_added.py").write_text(
        "from pathlib import Path\n\n"
        "def test_one():\n"
        f"    assert 'ONE, OTHER = 1' in Path('{PACKAGE}/added.py').read_text()\n"
    )
    one, other = (
        Mutant("", "added.py", old, new, ("test_added.py",))
        for old, new in (("= 1,", "= 2,"), ("1\n", "3\n"))
    )
    verdicts = [trial.tried(mutant, tmp_path, 60) for mutant in (one, other)]
    assert [(each.verdict, each.by.rpartition("::")[2]) for each in verdicts] == [
        ("noticed", "test_one"),
        ("survived", ""),
    ]
    assert module.read_text() == "ONE, OTHER = 1, 1\n"
    broken = Mutant("", "added.py", "= 1,", "= 2,", ("test_nowhere.py",))
    assert trial.tried(broken, tmp_path, 60).verdict == "not tried"
    said = trial.shown(verdicts)
    assert "1 of 2 noticed (50%)" in said
