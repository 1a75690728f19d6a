"""``python -m cl_lightning``: the command line."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from cl_lightning.errors import Refusal
from cl_lightning.runs import conf_dir


@hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
def run_config(cfg: DictConfig) -> float | None:
    from cl_lightning.experiment import run

    try:
        return run(cfg, sys.argv[1:])
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)


def main() -> None:
    if {"--help", "-h"} & set(sys.argv[1:]):
        from cl_lightning.report.help import help_page

        print(help_page(sys.argv[1:]))
    else:
        run_config()


if __name__ == "__main__":
    main()
