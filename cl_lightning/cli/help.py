"""The page behind ``--help``: made from the configuration files themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill as wrap

from cl_lightning.config.resolvers import conf_dir
from cl_lightning.errors import Refusal

GROUPS = (
    "experiment", "learner", "stream", "stream/show", "backbone", "data", "selection", "trainer",
    "logger", "dnn", "row",
)  # fmt: skip

INTRODUCTION = """cl_lightning: continual-learning experiments on PyTorch Lightning.

Usage: python -m cl_lightning [+experiment=NAME] [GROUP=CHOICE ...] [KEY=VALUE ...]
"""

EXAMPLES = """Five commands to copy:
  python -m cl_lightning
      MNTDP-D on a short CTrL stream, in under a minute
  python -m cl_lightning learner=joint stream=permuted
      another learner, another stream
  python -m cl_lightning +experiment=gem_permutations
      a published setting: 20 tasks, each example once
  python -m cl_lightning 'selection.grid.lr=[0.1,0.01]' trainer.max_epochs=5
      a grid of your own, searched on each task
  python -m cl_lightning --multirun seed=0,1,2 learner=finetune,joint
      a sweep: six runs

More:
  learners          list the learners; so do streams, experiments and backbones;
                    with --json for programs
  --version         the version of this program
  --cfg job         print the configuration that a command makes, with all keys
  --config-dir DIR  add a folder of your own configurations, laid out as these
                    groups
  --multirun, -m    run every combination of comma-separated values; those that
                    fail are told at the end
  --submit          with hydra/launcher=submitit_slurm: leave its jobs to Slurm
  trainer.lr=0.1    train with one rate, in the place of the default grid's; so
                    with weight_decay
  --hydra-help      Hydra's own options
  resume=false      do not look for an earlier run of the same command"""


LISTINGS = {"learners": "learner", "streams": "stream", "experiments": "experiment", "backbones": "backbone"}


PLACE = ("--config-dir", "-cd")  # options with a folder of configurations behind them


def help_page(arguments: Sequence[str], width: int = 80) -> str:
    folders = folders_of(arguments)
    lines = [INTRODUCTION, "Groups and their choices (* is the default):"]
    for group in GROUPS:
        lines += [f"\n  {'+' if group == 'experiment' else ''}{group}=", *choice_lines(group, folders, width)]
    return "\n".join([*lines, "", EXAMPLES])


def listing(name: str, arguments: Sequence[str], width: int = 80) -> str:
    """The choices of a group, as ``python -m cl_lightning learners`` prints them."""
    group = LISTINGS[name]
    folders, plus = folders_of(arguments), "+" * (group == "experiment")
    star = " (* is the default)" * (group in default_choices(folders[0]))
    said = f"The {name}{star}: python -m cl_lightning {plus}{group}=NAME"
    return "\n".join([said, *choice_lines(group, folders, width)])


def listing_as_json(name: str, arguments: Sequence[str]) -> str:
    """The same for programs: each choice with what it does, and its file."""
    group, folders = LISTINGS[name], folders_of(arguments)
    default, plus = default_choices(folders[0]).get(group), "+" * (name == "experiments")
    rows = [
        {
            "name": choice,
            "argument": f"{plus}{group}={choice}",
            "what": first_comment(path),
            "default": choice == default,
            "file": str(path),
        }
        for choice, path in choices_of(group, folders).items()
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False)


def choice_lines(group: str, folders: Sequence[Path], width: int) -> list[str]:
    """A line a choice: its name, and the first comment of its file."""
    files, default = choices_of(group, folders), default_choices(folders[0]).get(group)
    names = max(map(len, files), default=0)
    return [
        wrap(
            f"  {'*' if default == name else ' '} {name:<{names}} {first_comment(path)}",
            width=width,
            subsequent_indent=" " * (names + 5),
            break_on_hyphens=False,
        )
        for name, path in files.items()
    ]


def choices_of(group: str, folders: Sequence[Path]) -> dict[str, Path]:
    """The files of a group by name; those of one's own take the place of others."""
    found = {file.stem: file for folder in folders for file in (folder / group).glob("*.yaml")}
    return dict(sorted(found.items()))


def folders_of(arguments: Sequence[str]) -> list[Path]:
    """Where configurations lie: the program's own folder, and those of the command line."""
    return [Path(conf_dir()), *user_folders(arguments)]


def user_folders(arguments: Sequence[str]) -> list[Path]:
    found = []
    for option, following in zip(arguments, [*arguments[1:], ""]):
        if option in PLACE:
            found.append(Path(following))
        elif option.startswith("--config-dir="):
            found.append(Path(option.partition("=")[2]))
    for folder in found:
        if not folder.is_dir():
            raise Refusal(f"--config-dir={folder} is not there.")
    return found


def first_comment(path: Path) -> str:
    """The first line of comment in a file that is not for Hydra or for editors."""
    for line in path.read_text().splitlines():
        if line.startswith("# ") and not line.startswith(("# @package", "# yaml-language-server")):
            return line[2:]
    return ""


def default_choices(folder: Path) -> dict[str, str]:
    import yaml

    defaults = yaml.safe_load((folder / "config.yaml").read_text())["defaults"]
    return {group: choice for entry in defaults if isinstance(entry, dict) for group, choice in entry.items()}
