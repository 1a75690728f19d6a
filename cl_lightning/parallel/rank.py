"""One process of a run on several devices, as ``trainer.devices`` starts it."""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import cl_lightning.termination as termination


def main(folder: Path) -> int:
    """Run the configuration that lies in the folder, and write there what it returned or why it failed."""
    termination.claim()
    import os

    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from cl_lightning.cli.sentences import sentence
    from cl_lightning.config import resolvers  # noqa: F401  (registers what configurations may ask for)
    from cl_lightning.errors import Diverged
    from cl_lightning.parallel.ranks import OtherRankEnded, have_met
    from cl_lightning.parallel.rendezvous import is_orphaned
    from cl_lightning.runs.run import run

    job, cfg = json.loads((folder / "job.json").read_text()), OmegaConf.load(folder / "config.yaml")
    if job["sweep"]:
        sweep = {**job["sweep"], "mode": job["sweep"]["mode"] and RunMode[job["sweep"]["mode"]]}
        HydraConfig.instance().cfg = OmegaConf.create({"hydra": sweep})  # type: ignore[assignment]
    told: dict[str, Any]
    try:
        told = {"value": run(cfg, job["command"])}  # type: ignore[arg-type]
    except Exception as error:
        if cfg.debug.traceback:
            traceback.print_exc()
        follows, diverged = isinstance(error, OtherRankEnded), isinstance(error, Diverged)
        told = {"failed": sentence(error), "follows": follows, "diverged": diverged, "met": have_met()}
    if is_orphaned():  # nobody reads it, and nobody else clears up
        shutil.rmtree(folder, ignore_errors=True)
        return 2
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(told))
    return 2 * ("failed" in told)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
