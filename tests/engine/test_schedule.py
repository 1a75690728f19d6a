"""Learning rates that fall, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cl_lightning.errors import Refusal
from cl_lightning.learners import Phase
from tests import toys
from tests.dying import killed
from tests.engine.test_rules import SIX_STEPS, Scripted, Shrinks, ends, near, trained


def left(*rates: float) -> object:
    """The weights after a step of each rate: it takes this part of them off."""
    part = 1.0
    for rate in rates:
        part *= 1 - rate
    return near(3 * part, 4 * part)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({"by": 5, "at": [1, 3]}, [0.1] * 6 + [0.02] * 12 + [0.004] * 6),
        ({"by": 2}, [0.1] * 6 + [0.05] * 6 + [0.025] * 6 + [0.0125] * 6),
    ],
)
def test_rates_fall_after_epochs(schedule: dict, rates: list[float]) -> None:
    assert ends(trained(Shrinks(), max_epochs=4, schedule=schedule)) == left(*rates)
    of_phase = OfAPhase(schedule=schedule)
    assert ends(trained(of_phase, max_epochs=4)) == left(*rates)
    assert ends(trained(OfAPhase(auxiliary=True), max_epochs=4, schedule=schedule)) == left(*[0.1] * 24)


class OfAPhase(Shrinks):
    def __init__(self, auxiliary: bool = False, **settings: Any) -> None:
        super().__init__()
        self.settings, self.auxiliary = settings, auxiliary

    def learn(self, task):
        found = self.candidates(task)
        best = yield Phase(found, settings=self.settings, auxiliary=self.auxiliary)
        self.adopt(best.candidate, task)


# Scored before the first and after each mini-batch, six an epoch: half an epoch are three mini-batches.
PLATEAU: dict[str, Any] = {
    "schedule": {"after": 0.5, "by": 2, "until": 0.02}, "score_every": 1, "score_at": (0,), "max_epochs": 3,
    "block": 2, "checkpoint_minutes": 0,
}  # fmt: skip
SCRIPT = {
    "name=better for long": [i / 20 for i in range(9)],  # then never again
    "name=never better": [0.5],
    "name=once more": [0.5, 0.5, 0.5, 0.5, 0.5, 0.6],  # after 5
}
RATES = {
    "name=better for long": [0.1] * 11 + [0.05] * 3 + [0.025] * 3 + [0.0125] * 0,
    "name=never better": [0.1] * 3 + [0.05] * 3 + [0.025] * 3,
    "name=once more": [0.1] * 3 + [0.05] * 5 + [0.025] * 3,
}


def plateaus(*names: str, folder: Path | None = None, **options: Any) -> dict[str, tuple]:
    """The steps of each candidate, and its weights."""
    learner = Scripted(script=SCRIPT, grid=[{"name": name.removeprefix("name=")} for name in names])
    kept: dict[str, list[float]] = {}

    def read(c: Any, _: object) -> float:
        """Scored at each step: a row goes on where a kill left it."""
        kept[c.name] = c.network.w.tolist()
        return SCRIPT[c.name][min(learner.phase_run.step, len(SCRIPT[c.name]) - 1)]

    learner.read = read  # type: ignore[method-assign]
    settings = toys.training(**{**SIX_STEPS, **PLATEAU, **options})
    learned = toys.learn(learner, toys.stream(tasks=1), settings, folder)
    return {c.name: (c.steps, kept[c.name]) for c in learned.phase(0).candidates if c.name in kept}


def test_the_rate_of_each_candidate_falls_by_itself_where_it_is_not_better_and_ends_it() -> None:
    together = plateaus(*SCRIPT)
    for name, rates in RATES.items():
        assert together[name] == (len(rates), left(*rates))
        assert plateaus(name)[name] == together[name], "alone it ends otherwise"
        assert plateaus(*SCRIPT, candidates_at_once=2)[name] == together[name]


def test_a_rate_that_fell_is_as_low_after_a_kill(tmp_path: Path) -> None:
    """In the middle of an epoch, behind a checkpoint."""
    for schedule in (PLATEAU["schedule"], {"by": 3}):
        whole = trained(Shrinks(), **{**PLATEAU, "schedule": schedule})
        folder = tmp_path / str(len(schedule))

        def learned(folder: Path = folder, schedule: dict = schedule) -> Any:
            settings = toys.training(**{**SIX_STEPS, **PLATEAU, "schedule": schedule})
            return toys.learn(Shrinks(), toys.stream(tasks=1), settings, folder)

        killed("block:5", learned)
        assert learned().weights.tolist() == ends(whole)


def test_each_candidate_goes_on_with_its_own_rate_after_a_kill(tmp_path: Path) -> None:
    """Two rates have fallen by then, one of them twice; none has left."""
    killed("block:4", lambda: plateaus(*SCRIPT, folder=tmp_path))
    ended = plateaus(*SCRIPT, folder=tmp_path)
    assert ended == {name: (len(rates), left(*rates)) for name, rates in RATES.items()}


def test_a_plateau_needs_a_score_and_a_schedule_one_way() -> None:
    with pytest.raises(Refusal, match=r"trainer\.schedule without `after`"):
        toys.learn(Shrinks(), toys.stream(n_val=0), toys.training(**SIX_STEPS, schedule=PLATEAU["schedule"]))
    for both in ({"at": [2], "after": 5, "by": 3}, {"until": 0.1, "by": 3}):
        with pytest.raises(Refusal, match="takes one way"):
            toys.training(schedule=both)
    with pytest.raises(Refusal, match=r"trainer\.schedule\.by=1 must be a number above 1"):
        toys.training(schedule={"by": 1})
    with pytest.raises(Refusal, match=r"trainer\.schedule\.on is not a key"):
        toys.training(schedule={"by": 2, "on": [3]})
