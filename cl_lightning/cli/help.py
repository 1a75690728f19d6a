"""The page behind ``--help``: made from the configuration files themselves."""

from __future__ import annotations

from pathlib import Path

from cl_lightning.conf_dir import conf_dir

GROUPS = (
    "experiment",
    "learner",
    "stream",
    "stream/show",
    "backbone",
    "data",
    "selection",
    "trainer",
    "logger",
)

INTRODUCTION = """cl_lightning: continual-learning experiments on PyTorch Lightning.

Usage: python -m cl_lightning [+experiment=NAME] [GROUP=CHOICE ...] [KEY=VALUE ...]
"""

EXAMPLES = """Five commands to copy:
  python -m cl_lightning                                     MNTDP-D on a short CTrL stream, in under a minute
  python -m cl_lightning learner=joint stream=permuted       another learner, another stream
  python -m cl_lightning +experiment=gem_permutations        a published setting: 20 tasks, each example once
  python -m cl_lightning selection=task_level 'selection.grid.lr=[0.1,0.01,0.001]' trainer.max_epochs=5
  python -m cl_lightning --multirun seed=0,1,2 learner=finetune,independent,joint

More:
  --cfg job           print the configuration that a command makes, with all keys
  --config-dir DIR    add a folder of your own configurations, laid out as these groups
  --multirun, -m      run every combination of comma-separated values; those that fail are told at the end
  trainer.lr=0.1      train with one rate, in the place of the default grid's; so with weight_decay
  --hydra-help        Hydra's own options
  resume=false        do not look for an earlier run of the same command"""


def help_page(arguments: list[str]) -> str:
    folders = [Path(conf_dir()), *user_folders(arguments)]
    lines = [INTRODUCTION, "Groups and their choices (* is the default):"]
    defaults = default_choices(folders[0])
    for group in GROUPS:
        lines.append(f"\n  {'+' if group == 'experiment' else ''}{group}=")
        for file in sorted(
            {f.stem: f for folder in folders for f in (folder / group).glob("*.yaml")}.items()
        ):
            name, path = file
            lines.append(f"  {'*' if defaults.get(group) == name else ' '} {name:<20} {first_comment(path)}")
    return "\n".join([*lines, "", EXAMPLES])


def user_folders(arguments: list[str]) -> list[Path]:
    found = []
    for option, following in zip(arguments, [*arguments[1:], ""]):
        if option in ("--config-dir", "-cd"):
            found.append(Path(following))
        elif option.startswith("--config-dir="):
            found.append(Path(option.partition("=")[2]))
    return found


def first_comment(path: Path) -> str:
    """The first line of comment in a file that is not a directive to Hydra."""
    for line in path.read_text().splitlines():
        if line.startswith("# ") and not line.startswith("# @package"):
            return line[2:]
    return ""


def default_choices(folder: Path) -> dict[str, str]:
    import yaml

    defaults = yaml.safe_load((folder / "config.yaml").read_text())["defaults"]
    return {group: choice for entry in defaults if isinstance(entry, dict) for group, choice in entry.items()}
