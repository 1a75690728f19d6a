"""Results as reports read them: through their schema, and held against the records that lie beside them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from cl_lightning.errors import Refusal
from cl_lightning.evaluation.card import chosen_over_streams
from cl_lightning.report.results import recorded, sealed
from cl_lightning.report.schema import Finding, Results
from cl_lightning.selection.stream_level import Chosen
from cl_lightning.store.files import adapter

DAMAGES = (Refusal, ValueError, OSError, RecursionError)  # what reading a damaged file comes to


@dataclass(frozen=True)
class Runs:
    """All runs below some folders, of unfinished ones as far as they are."""

    results: list[Results]
    said: list[str]  # a sentence for each folder or file that is damaged
    chosen: dict[tuple[str, int], Chosen]  # by fingerprint and seed: what searches over whole streams chose

    def choice(self, results: Mapping[str, Any]) -> Chosen | None:
        return self.chosen.get((results["fingerprint"], results["seed"]))


def runs_in(tops: Iterable[Path]) -> Runs:
    tops = list(tops)
    files = (path for top in tops for name in ("results.json", "run.json") for path in top.rglob(name))
    folders = sorted({path.resolve().parent for path in files})
    read = [read_run(folder) for folder in folders]
    chosen, damaged = choices_in(tops, folders)
    said = [*(sentence for _, sentence in read if sentence), *damaged]
    return Runs([results for results, _ in read if results is not None], said, chosen)


def read_run(folder: Path) -> tuple[Results | None, str]:
    """The results of a run, and a sentence where its files are damaged. What its records say counts, where
    they are whole; results.json counts where it lies alone."""
    path, written, wrong = folder / "results.json", None, ""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            written = written_results(path) if path.exists() else None
        except DAMAGES as reason:
            wrong = f"{path} is damaged, was changed, or is of another version of this program"
            wrong += f" ({in_a_word(reason)})"
        try:
            of_records = recorded(folder)
        except DAMAGES as reason:
            return None, f"{folder} is left out: {in_a_word(reason)}"
    if of_records is None:
        return written, wrong and f"{wrong}: it is left out."
    if not of_records["finished"] and (told or (written and written["finished"])):
        what = f" ({in_a_word(told[0].message)})" if told else ""
        return None, (
            f"{folder} is left out: its records are damaged or not all there{what}. The command that made it "
            "mends it; results.json in a folder of its own is read as it stands."
        )
    if written and written["finished"] and (other := differing_keys(written, of_records)):
        wrong = f"{path} is not what the records beside it say of {', '.join(other)}"
    return of_records, wrong and f"{wrong}: shown is what the records say."


def written_results(path: Path) -> Results:
    """What results.json says, if it is what was written; else a ValueError."""
    content: Results = json.loads(path.read_bytes())
    adapter(Results).validate_python(content)
    if content["crc"] != sealed(content.copy())["crc"]:
        raise ValueError("its checksum is not that of its content")
    return content


def differing_keys(written: Results, recorded: Results) -> list[str]:
    """Where two results differ; but in the words of the card, which other versions may choose otherwise."""
    one, other = cast(Mapping[str, Any], written), cast(Mapping[str, Any], recorded)
    return [key for key in one if key not in ("card", "crc") and one[key] != other.get(key)]


def in_a_word(reason: object) -> str:
    """The first line of what went wrong, without its point."""
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0].rstrip(".")


# ---- what searches over whole streams chose ----------------------------------------------------------------


def choices_in(
    tops: Iterable[Path], folders: Iterable[Path]
) -> tuple[dict[tuple[str, int], Chosen], list[str]]:
    """The winners of searches over whole streams, by fingerprint and seed, as their files say that lie below
    ``tops`` or with the experiments of the runs; also of runs that were made from such a file elsewhere. And
    a sentence for each file that is damaged."""
    import yaml

    folders, said = list(folders), []
    chosen: dict[tuple[str, int], Chosen] = {}
    files = {path.resolve() for top in tops for path in top.rglob("best/*.yaml")}
    for experiment in {folder.parent.parent for folder in folders}:
        files.update(experiment.glob("sweeps/*/best/*.yaml"))
    for path in [*sorted(files), *(folder / "config.yaml" for folder in folders)]:
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if "\nchosen:\n" in text:
                one = adapter(Chosen).validate_python(yaml.safe_load(text)["chosen"])
                chosen |= {(one.fingerprint, seed): one for seed in one.seeds}
        except (*DAMAGES, yaml.YAMLError, TypeError, KeyError) as reason:
            said.append(f"{path} is damaged ({in_a_word(reason)}): what it chose is not marked.")
    return chosen, said


def as_chosen(results: Results, chosen: Chosen) -> Results:
    """The results of a run that a search chose, with what that means for its card."""
    finding = cast(Finding, asdict(chosen_over_streams(chosen.points, chosen.scored, chosen.by)))
    card = [finding if each["rule"] == finding["rule"] else each for each in results["card"]]
    return {**results, "card": card}
