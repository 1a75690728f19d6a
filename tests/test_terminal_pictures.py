"""The pictures of a terminal in docs are drawn by a script, of a run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands import SMALL
from tests.docs import PAGES, links
from tests.terminal_pictures import PLACE, draw


def words(path: Path) -> str:
    """What a picture says, a line a line."""
    texts = [text for text in ElementTree.parse(path).iter() if text.tag.endswith("text")]
    return re.sub(r"\s+", " ", " ".join("".join(text.itertext()) for text in texts).replace("\xa0", " "))


def test_they_show_a_run_while_it_trains_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training, end = draw(tmp_path / "made", *SMALL, "progress=true", "name=small")
    assert re.search(r"1 of 3 tasks learned, mean test accuracy on them 0\.\d+", words(training))
    assert re.search(r"task 1 of 0\.\.2, train: batch \d+ of at most \d+, \d of \d alive", words(training))
    assert re.search(r"Metrics: validation accuracy at the end 0\.\d+, average accuracy 0\.\d+", words(end))
    for path in (training, end):
        assert not re.search(r"url\(.http", path.read_text()), "nothing is fetched"


def test_each_stands_on_a_page() -> None:
    made = {path.name for path in PLACE.glob("*.svg")}
    shown = {Path(link).name for page in PAGES for link in links(page.read_text()) if "/terminal/" in link}
    assert made == shown == {"training.svg", "end.svg"}
