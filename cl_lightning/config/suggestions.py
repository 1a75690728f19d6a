"""How alike two names are, and which of those that are known may be meant by one that is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

LIKE = 0.7  # how alike two names are at least, of which one may be meant for the other
SHOWN = 30  # names that a message can list
OTHER_WORDS = {"accelerator": "device"}  # for a part of a key


def nearest(name: str, known: Iterable[str]) -> str:
    """
    >>> nearest("finetun", ["finetune", "joint"]), nearest("x", ["finetune", "joint"])
    (' Did you mean finetune?', ' Choose one of finetune, joint.')
    """
    known = list(known)
    near = names_like(name, known)
    choices = f" Choose one of {', '.join(known)}." if 0 < len(known) <= SHOWN else ""
    return f" Did you mean {' or '.join(near)}?" if near else choices


def names_like(name: str, known: Iterable[str]) -> list[str]:
    """All names that begin with this one; where none does, the three that are most like it.

    >>> names_like("gem", ["ewc", "gem_passes", "gem_memory"]), names_like("ewcc", ["ewc", "gem"])
    (['gem_passes', 'gem_memory'], ['ewc'])
    """
    known = list(known)
    begun = [each for each in known if name and each.startswith(name)]
    alike = sorted(known, key=lambda each: -likeness(name, each))[:3]
    return begun or [each for each in alike if likeness(name, each) >= LIKE]


def likeness(typed: str, known: str) -> float:
    """A number from 0 to 1, where both are the same. What is typed may leave out the first parts of a key;
    all that it has must be alike.

    >>> likeness("lr", "trainer.lr"), likeness("a.lr", "trainer.lr") < 0.5
    (1.0, True)
    """
    parts, of_known = typed.lower().split("."), known.lower().split(".")
    if len(parts) > len(of_known):
        return 0.0
    return min(map(likeness_of_parts, reversed(parts), reversed(of_known)))


def likeness_of_parts(one: str, other: str) -> float:
    """
    >>> likeness_of_parts("seed", "seed"), likeness_of_parts("learning_rate", "lr")
    (1.0, 0.9)
    """
    same = one in initials(other) or other in initials(one) or OTHER_WORDS.get(other) == one
    return max(SequenceMatcher(None, one, other).ratio(), 0.9 * same)


def initials(name: str) -> list[str]:
    """
    >>> initials("learning_rate"), initials("seed")
    (['lr'], [])
    """
    words = [word for word in name.split("_") if word]
    return ["".join(word[0] for word in words)] if len(words) > 1 else []
