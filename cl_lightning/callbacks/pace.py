"""How long a stream still takes, as a range, from how long its tasks took."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

Range = tuple[float, float]  # seconds: at least about, at most about
Known = list[tuple[float, float]]  # size and seconds of each task that was learned


class Pace:
    """What is known of the seconds of a stream's tasks: each is expected to last as those did, in the mean,
    that were learned since the program was started. One with more training examples lasts longer, but a part
    of its time is the same for all.

    A machine that gets busy changes what is expected of later tasks only as far as it changes this mean.
    """

    def __init__(self, examples: Sequence[int]) -> None:
        fixed = max(sum(examples) / len(examples), 1)  # half of a usual task's time
        self.sizes = [fixed + n for n in examples]
        self.known: Known = []

    def learned(self, task: int, seconds: float) -> None:
        self.known.append((self.sizes[task], seconds))

    def of_task(self, task: int, elapsed: float, phase: Range | None) -> Range | None:
        """The seconds left of a task that is being learned for so long. ``phase`` is what its own phase still
        takes: at least if no candidate improves any more, at most if none stops early."""
        if not self.known:
            return phase
        least, most = phase or (0.0, 0.0)
        mean, deviation = rate(self.known)
        left, more = mean * self.sizes[task] - elapsed, deviation * self.sizes[task]
        low = max(left - more, least)
        # It outlasted what was expected: then perhaps as long again, but not longer than its phase may.
        return low, left + more if left + more > low else max(low, min(most, elapsed))

    def of_stream(self, task: int, elapsed: float, phase: Range | None) -> Range | None:
        """The seconds left of the open task and all behind it; most often between these two."""
        own = self.of_task(task, elapsed, phase)
        if own is None:
            return None
        behind = [self.known or [(self.sizes[task], elapsed + end)] for end in own]
        low, high = (expected(self.sizes[task + 1 :], known) for known in behind)
        return own[0] + low[0], own[1] + high[1]


def expected(sizes: Sequence[float], known: Known) -> Range:
    """The seconds of so many that deviate each by itself, beside a mean that is known from those before."""
    mean, deviation = rate(known)
    more = deviation * sum(sizes) * sqrt(1 / max(len(sizes), 1) + 1 / len(known))
    return max(mean * sum(sizes) - more, 0.0), mean * sum(sizes) + more


def rate(known: Known) -> Range:
    """Seconds by size, and how far tasks deviate from that: as if one of them, before the first, had deviated
    by half.

    >>> rate([(200, 10.0)]), rate([(200, 10.0), (100, 5.0)])[0]
    ((0.05, 0.025), 0.05)
    """
    mean = sum(seconds for _, seconds in known) / sum(size for size, _ in known)
    apart = sum((seconds / size - mean) ** 2 for size, seconds in known)
    return mean, sqrt((apart + (mean / 2) ** 2) / len(known))


def words(left: Range | None) -> str:
    """
    >>> words((75, 4000)), words((75.1, 75.4)), words(None)
    ('1:15 to 1:06:40 left', '1:15 left', '')
    """
    if left is None:
        return ""
    ends = dict.fromkeys(map(clock, left))
    return f"{' to '.join(ends)} left"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(4000)
    ('1:15', '1:06:40')
    """
    minutes, hours = int(seconds // 60) % 60, int(seconds // 3600)
    return f"{hours}:{minutes:02d}:{int(seconds % 60):02d}" if hours else f"{minutes}:{int(seconds % 60):02d}"
