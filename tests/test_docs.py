"""The README and the pages in docs/ tell what is there: commands compose, links lead somewhere, examples
compile.

Nothing is trained here. Tests elsewhere run the learners of the pages, and hold tables of choices and speed
to the program.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

import cl_lightning
from cl_lightning.cli.data import COMMANDS, configured
from cl_lightning.cli.help import LISTINGS, choices_of
from cl_lightning.cli.report import main as report
from cl_lightning.cli.search import points_for
from cl_lightning.config import compose as config
from cl_lightning.config.build import build_sources, check_targets
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.learners import Learner
from cl_lightning.report.schema import schema
from cl_lightning.selection.sweep import as_override
from tests import docs
from tests.commands import composed
from tests.docs import PAGES, README, ROOT, Command

ALL = [command for path in PAGES for command in docs.commands(path)]
HERE = {
    "python",
    "pip",
    "pytest",
    "mkdocs",
    "ruff",
    "mypy",
    "git",
    "cd",
    "export",
}  # programs that the pages call
ON_THE_PAGE = (
    "learner=anchored",
    "learner=l2_anchor",
    "backbone=small_conv",
    "backbone=three_modules",
    "stream=mirrored",
)  # choices that the reader has just written
NAMES = {
    yaml.safe_load(path.read_text()).get("name") for path in (Path(conf_dir()) / "experiment").glob("*.yaml")
} | {"quickstart"}
GIVEN = {  # names that the pages' own commands give
    word.removeprefix("name=") for command in ALL for word in command.words if word.startswith("name=")
}


def of(*words: str) -> list[Command]:
    """The commands that begin so."""
    return [command for command in ALL if command.words[: len(words)] == words]


def every(commands: Sequence[Command], tried: int = 1) -> pytest.MarkDecorator:
    """The commands as a test's parameters; ``pytest`` tries one in so many of them."""
    of_all = [
        pytest.param(command, id=str(command), marks=[] if i % tried == 0 else pytest.mark.all)
        for i, command in enumerate(commands)
    ]
    return pytest.mark.parametrize("command", of_all)


# ---- commands ----------------------------------------------------------------------------------------------


def configurations(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Arguments of single runs that a command line makes: each choice of a sweep once, beside the first of
    all others."""
    parsed: list[Override] = OverridesParser.create().parse_overrides(
        [word for word in arguments if not word.startswith("-")]
    )
    choices = [values_of(each) if each.is_sweep_override() else [None] for each in parsed]
    choices = [
        row[:1] if each.key_or_group == "seed" else row for each, row in zip(parsed, choices)
    ]  # one is like another
    for row in zip_longest([None], *choices):
        chosen = [other[0] if choice is None else choice for choice, other in zip(row[1:], choices)]
        yield [
            each.input_line if choice is None else f"{each.input_line.partition('=')[0]}={choice}"
            for each, choice in zip(parsed, chosen)
        ]


def values_of(sweep: Override) -> list[Any]:
    """The values of a sweep; of an interval, which Optuna knows, its ends."""
    value: Any = sweep.value()
    return [value.start, value.end] if sweep.is_interval_sweep() else [*sweep.sweep_string_iterator()]


OF_OPTUNA = dict.fromkeys(("direction", "n_trials", "n_jobs", "max_failure_rate", "sampler", "params"))
PLUGINS: list[tuple[str, str, str, dict[str, Any]]] = [  # with the keys that the pages name
    ("hydra_optuna_sweeper", "sweeper", "optuna", OF_OPTUNA),
    ("hydra_ray_launcher", "launcher", "ray", {"ray": {"init": {}}}),
]


@pytest.fixture
def plugins() -> Iterator[None]:
    """The keys of plugins of Hydra's that are not installed."""
    missing = [each for each in PLUGINS if not importlib.util.find_spec(f"hydra_plugins.{each[0]}")]
    for module, kind, name, keys in missing:
        node = {"_target_": f"hydra_plugins.{module}.Plugin", **keys}
        ConfigStore.instance().store(group=f"hydra/{kind}", name=name, node=node)
    yield
    for _, kind, name, _ in missing:
        del ConfigStore.instance().repo["hydra"][kind][f"{name}.yaml"]


def compose_and_check(arguments: Sequence[str], extra: Path | None = None) -> None:
    """What the program does with a command line before it makes a folder or an image: for each of its
    runs."""
    for overrides in configurations(arguments):
        searched = [] if extra is None else [f"hydra.searchpath=[file://{extra}]"]
        cfg = composed(*overrides, *searched)
        if "stream" in cfg.selection:  # a search over whole streams: its first job
            values = [f"{key}={as_override(value)}" for key, value in points_for(cfg)[0].items()]
            kept = [override for override in overrides if not override.startswith("selection")]
            cfg = composed(*kept, *searched, "selection=task_level", *values)
        config.check_config(cfg)
        check_targets(cfg)
        sources = {*build_sources(cfg)}  # their names
        if "source" in cfg.stream:
            assert cfg.stream.source in sources
        for task in cfg.stream.tasks if not isinstance(cfg.stream.get("tasks"), int | None) else ():
            assert task.source in sources


def is_study(arguments: Sequence[str]) -> bool:
    """Whether an experiment is a sweep of its own."""
    if "selection=stream_level" in arguments:
        return True
    named = [word.partition("=")[2] for word in arguments if word.startswith("+experiment=")]
    return any(
        "mode: MULTIRUN" in Path(conf_dir(), "experiment", f"{name}.yaml").read_text()
        for name in named
        if "," not in name
    )


@pytest.mark.usefixtures("plugins")
@every(of("python", "-m", "cl_lightning"), tried=8)
def test_a_command_of_the_pages_composes(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, extra = list(command.words[3:]), None
    if arguments[:1] and arguments[0] in LISTINGS:
        return
    if "--config-dir" in arguments:
        at = arguments.index("--config-dir")
        own = docs.written(tmp_path, command.page)
        monkeypatch.syspath_prepend(own)
        for name in docs.files(command.page):
            monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
        extra = own / arguments.pop(at + 1)
        del arguments[at]
        assert any(
            (extra / f"{choice.replace('=', '/')}.yaml").is_file()
            for choice in arguments
            if choice in ON_THE_PAGE
        )
    options = [word for word in arguments if word.startswith("-")]
    assert set(options) <= {"--multirun", "-m", "--help", "--cfg", "--submit"}
    if "--cfg" in options:
        assert arguments.pop(arguments.index("--cfg") + 1) == "job"
    if "--help" not in options:
        compose_and_check(arguments, extra)
    assert "--multirun" in options or is_study(arguments) or len([*configurations(arguments)]) == 1, (
        "many values, but no sweep"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("learner=gemm",),
        ("nothing=1",),
        ("learner.memory=3",),
        ("trainer.lr=fast",),
        ("stream=permuted", "+stream.taks=3"),
    ],
)
def test_a_command_with_a_name_or_value_that_is_not_there_does_not_compose(arguments: tuple) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - Hydra's or the program's
        compose_and_check(arguments)


@every([c for c in of("python", "-m", "cl_lightning") if re.search(r"logger|log_every", str(c))])
def test_a_command_that_logs_makes_a_run_of_its_own_and_finds_none_that_is_finished(command: Command) -> None:
    assert any(word.startswith("name=") for word in command.words)


@every(of("python", "-m", "cl_lightning.report"))
def test_a_report_of_the_pages_has_options_and_folders_that_there_are(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [Path(word) for word in command.words[3:] if word.partition("/")[0] == "outputs"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    assert all({*folder.parts[1:2]} <= {*NAMES, *GIVEN} for folder in folders)
    if command.words[3].startswith(("paper=", "page", "compared")):  # where nothing is, they say nothing
        return
    assert report(list(command.words[3:])) == (0 if "status" in command.words else 2)
    assert re.search("No (finished )?run", "".join(capsys.readouterr())), "another mistake"


@every(of("python", "-m", "cl_lightning.data"))
def test_a_data_command_of_the_pages_names_data_sets_and_keys_that_there_are(command: Command) -> None:
    name, *words = command.words[3:]
    assert name in COMMANDS
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    cfg = configured([word for word in words if "=" in word])
    assert {word for word in words if "=" not in word} <= {*cfg.data.sources}


@every(of("python", "-m"))
def test_a_module_that_the_pages_run_has_the_options_that_they_give_it(command: Command) -> None:
    module = command.words[2]
    place = importlib.util.find_spec(module)
    assert place is not None
    if not module.startswith("cl_lightning"):
        part = next((word for word in command.words[3:4] if word.isidentifier()), "__main__")
        source = importlib.util.find_spec(f"{module}.{part}") if place.submodule_search_locations else place
        text = Path(str(source and source.origin)).read_text()
        assert all(f'"{word}"' in text for word in command.words[3:] if word.startswith("--"))


@every(of("pytest"))
def test_a_pytest_command_names_tests_that_there_are(command: Command) -> None:
    assert all(
        (ROOT / word.partition("::")[0]).exists() for word in command.words[1:] if word.startswith("tests")
    )


@every(of("pip"))
def test_what_is_installed_from_here_is_an_extra_that_there_is(command: Command) -> None:
    extras = re.findall(
        r"^(\w+) = \[",
        (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2],
        re.MULTILINE,
    )
    assert command.words[1] == "install"
    for word in command.words[2:]:
        assert not word.startswith(".") or set(re.findall(r"\[(.*)\]", word)) <= set(extras)


def test_the_pages_call_no_other_programs() -> None:
    assert {command.words[0] for command in ALL} <= HERE
    assert {command.words[2] for command in of("python", "-m")} >= {
        "cl_lightning",
        "cl_lightning.report",
        "cl_lightning.data",
    }
    assert len(of("python")) == sum(
        len(re.findall(r"python -[mc] |^torchrun ", text, re.MULTILINE))
        for path in PAGES
        for text in docs.blocks(path.read_text(), "bash")
    )


# ---- text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(path: Path) -> None:
    for link in docs.links(path.read_text()):
        name, _, heading = link.partition("#")
        there = path.parent / name if name else path
        assert there.exists(), link
        assert not heading or heading in docs.anchors(there.read_text()), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_compile(path: Path) -> None:
    text = path.read_text()
    for code in docs.blocks(text, "python"):
        compile(code, str(path), "exec")
    for code in docs.blocks(text, "yaml"):
        assert isinstance(yaml.safe_load(code), dict)
    assert set(re.findall(r"^```(\w*)$", text, re.MULTILINE)) <= {"", "bash", "python", "yaml", "text"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_the_project_that_a_page_names_are_there(path: Path) -> None:
    named = re.findall(
        r"`((?:cl_lightning|conf|tests|docs|\.ci|\.github)/[\w./*-]*)`", docs.prose(path.read_text())
    )
    assert not [name for name in named if not any(ROOT.glob(name))]


def test_the_readme_is_at_most_12_kilobytes() -> None:
    assert README.stat().st_size <= 12_000


def test_every_page_is_in_the_sites_menu_and_every_page_in_the_menu_is_there() -> None:
    def pages(menu: object) -> Iterator[str]:
        if isinstance(menu, str):
            yield menu
        else:
            for entry in menu.values() if isinstance(menu, dict) else menu:  # type: ignore[attr-defined]
                yield from pages(entry)

    listed = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == sorted(
        str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")
    )


def test_pages_end_every_line_within_110_columns_but_for_tables_output_and_what_cannot_be_broken() -> None:
    for path in PAGES:
        made = r"^```text\n.*?^```$|^<!-- report.*?/report -->$"  # output of the program
        text = re.sub(made, "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        long = [line for line in text.splitlines() if len(line) > 110 >= len(max(line.split(), key=len)) + 4]
        assert not [line for line in long if not line.startswith(("|", "python -m"))], path


# ---- what the pages list -----------------------------------------------------------------------------------

ORACLES = [
    line
    for line in docs.page("contributing").partition("## Oracles")[2].splitlines()
    if line.startswith("| ")
]
ORACLES = [line for line in ORACLES if "tests/" in line]


def listed(section: str) -> str:
    return docs.page("contributing").partition(f"### {section}")[2].partition("\n#")[0]


@pytest.mark.parametrize("line", ORACLES, ids=lambda line: line.split(" | ")[0])
def test_an_oracle_that_is_listed_is_a_test_in_the_file_beside_it(line: str) -> None:
    files, tests = re.findall(r"`(tests/[\w/]+\.py)`", line), re.findall(r"`(test_\w+)`", line)
    assert files
    assert tests
    code = "\n".join((ROOT / file).read_text() for file in files)
    assert not [test for test in tests if f"def {test}(" not in code]


def test_every_learner_has_a_reference_by_hand() -> None:
    files = [path.read_text() for path in (ROOT / "tests" / "learners").glob("test_*.py")]
    with_one = "\n".join(
        text for text in files if re.search(r"def test_\w*by_hand|def test_\w*hand_written", text)
    )
    for name in choices_of("learner", [Path(conf_dir())]):
        cls = composed(f"learner={name}", "stream=split").learner._target_.rpartition(".")[2]
        assert re.search(rf"\b{cls}\b|\b{name}\b", with_one), name


def test_every_metric_and_rule_of_the_card_has_an_oracle() -> None:
    parts = schema()["$defs"]
    card = (ROOT / "cl_lightning" / "evaluation" / "card.py").read_text()
    rules = set(re.findall(r'(?:^ {8}|rules\[)"([a-z -]+)"[]:]', card, re.MULTILINE))
    assert len(rules) >= 11
    assert not [name for name in parts["Metrics"]["properties"] if f"`{name}`" not in listed("Metrics")]
    assert not [rule for rule in rules if rule not in listed("Rules of the card")]


def test_every_hook_of_a_learner_is_on_its_page() -> None:
    private = {
        "training_step",
        "configure_optimizers",
        "on_save_checkpoint",
        "on_load_checkpoint",
        "get_extra_state",
        "set_extra_state",
    }
    helpers = {"fresh", "masked", "phase_run"}  # called by learners, or the engine's
    hooks = (
        {name for name in vars(Learner) if not name.startswith("_") and callable(getattr(Learner, name))}
        - private
        - helpers
    )
    assert hooks >= {"loss", "adopt"}
    assert not [hook for hook in hooks if not re.search(rf"`(self\.)?{hook}\(", docs.page("learners"))]


def test_the_five_papers_are_cited() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert len({paper["url"] for paper in cited["references"]}) == 5
    assert (
        cited["version"]
        == re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    )


def test_the_types_of_the_package_are_there_for_others() -> None:
    assert (Path(cl_lightning.__file__).parent / "py.typed").is_file()
