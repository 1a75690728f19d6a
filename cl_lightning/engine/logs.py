"""What loggers are told; one that fails is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cl_lightning.errors import Refusal, is_of_the_disk


def call_loggers(loggers: Sequence[Any], method: str, *arguments: Any, **named: Any) -> None:
    """Call a method of all loggers that have it. One that fails ends the run, with its name: what it has lost
    would be missed too late."""
    for logger in loggers:
        try:
            if function := getattr(logger, method, None):
                function(*arguments, **named)
        except Exception as error:
            if isinstance(error, Refusal) or is_of_the_disk(error):
                raise
            words = (str(error).strip() or "no message").splitlines()[0]
            raise Refusal(
                f"The logger {type(logger).__name__} failed in {method}: {type(error).__name__}: {words}\n"
                "What was trained is kept. Mend the logger or leave it out: the run goes on where it was."
            ) from error
