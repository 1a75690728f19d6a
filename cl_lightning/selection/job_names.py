"""What the jobs of a sweep are called."""

from __future__ import annotations

from collections.abc import Sequence

from cl_lightning.config.resolvers import WITHOUT_RESULT


def different(own: Sequence[str], jobs: Sequence[Sequence[str]]) -> list[str]:
    """The overrides of a job that not all jobs have."""
    return [override for override in own if not all(override in other for other in jobs)]


def name_of(own: Sequence[str], jobs: Sequence[Sequence[str]]) -> str:
    """A name for a job: the overrides in which it differs from the others; alone, all that say what it is.

    >>> name_of(["a=1", "seed=0"], [["a=1", "seed=0"], ["a=1", "seed=1"]])
    'seed=0'
    >>> name_of(["a=1", "progress=false", "hydra.mode=RUN"], [["a=1", "progress=false", "hydra.mode=RUN"]])
    'a=1'
    """
    return " ".join(different(own, jobs) or [each for each in own if says_what(each)] or own)


def says_what(override: str) -> bool:
    """Whether an override says what is made; others say where, how, or that it is a job."""
    return not override.startswith("hydra") and key_of(override).partition(".")[0] not in WITHOUT_RESULT


def key_of(override: str) -> str:
    """
    >>> key_of("+learner.strength=3"), key_of("~seed")
    ('learner.strength', 'seed')
    """
    return override.lstrip("+~").partition("=")[0]
