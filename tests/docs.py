"""The README and the pages in docs/, as text: their blocks of code, commands, headings and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
STARTERS = ("torchrun", "srun")  # of several processes that run one command
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Command:
    """A line of a bash block: its words as a shell has them, without those of other commands on the line."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def page(name: str) -> str:
    """The text of a page in docs/."""
    return (ROOT / "docs" / f"{name}.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def block_after(text: str, words: str, language: str) -> str:
    """The first block of code of a language behind some words."""
    return blocks(text.partition(words)[2], language)[0]


def prose(text: str) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def commands(path: Path) -> Iterator[Command]:
    """All commands of a page's bash blocks, with the variables that the blocks set put in."""
    for block in blocks(path.read_text(), "bash"):
        variables: dict[str, str] = {}
        for line in statements(block):
            for part in with_variables(line, variables).split(" && "):
                words = shlex.split(part, comments=True)
                if words and (assigned := re.fullmatch(r"(\w+)=(.*)", words[0])):
                    variables[assigned[1]] = assigned[2]
                elif words:
                    if words[0] in STARTERS and "cl_lightning" in words:
                        words = ["python", "-m", *words[words.index("cl_lightning") :]]
                    yield Command(str(path.relative_to(ROOT)), tuple(words))


def with_variables(line: str, variables: dict[str, str]) -> str:
    """The line with ``$name`` replaced by what it stands for."""
    return re.sub(r"\$(\w+)", lambda name: variables[name[1]], line)


def statements(block: str) -> Iterator[str]:
    """The lines of a block; one that goes on, behind a backslash or inside of quotes, is one line."""
    whole = ""
    for line in block.replace("\\\n", " ").splitlines():
        whole = f"{whole} {line.strip()}" if whole else line
        if whole.count("'") % 2 == 0:
            yield whole
            whole = ""


def anchors(text: str) -> set[str]:
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> list[str]:
    """Where links and images lead: files and headings of this project, not the web."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)) if not link.startswith("http")]


def files(page: str) -> dict[str, str]:
    """What a page in docs/ has its reader write, by name."""
    named = r"`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```$"
    return dict(re.findall(named, (ROOT / page).read_text(), re.DOTALL | re.MULTILINE))


def written(root: Path, page: str) -> Path:
    """The folder in which a reader has written them."""
    for name, code in files(page).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(code)
    return root
