"""What the program says when something went wrong: at most five lines."""

from __future__ import annotations

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cl_lightning.errors import DISK, Refusal, is_of_the_disk, nearest

LINES = 5


def sentence(error: BaseException) -> str:
    """What went wrong, in at most five lines."""
    if isinstance(error, Refusal):
        text = str(error)
    elif isinstance(error, OSError) and is_of_the_disk(error):
        name = error.filename or "A file"
        text = (
            f"{name} cannot be written: {DISK[error.errno or 0]}.\n"
            "The same command then goes on where it was."
        )
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}. Choose another folder with outputs= or cache=."
    else:
        words = (str(error).strip() or "no message").splitlines()
        text = "\n".join([f"{type(error).__name__}: {words[0]}", *words[1:3]])
        text += (
            "\nThis is an error in the program itself. debug.traceback=true shows where; what was computed "
            "is "
            "kept, and the same command goes on."
        )
    return "\n".join(text.splitlines()[:LINES])


def from_hydra(error: Exception) -> Exception:
    """Hydra's errors in words that say what to do."""
    from cl_lightning.config import compose_config, key_paths  # late: --help reads files alone

    words = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return Refusal(f"{group or 'config'}={choice} is not there.{nearest(choice, error.options or [])}")
    if isinstance(error, ConfigCompositionException) and words[0].startswith("Could not override"):
        key, known = words[0].split("'")[1], key_paths(OmegaConf.to_container(compose_config()))
        if key == "best":
            return Refusal(
                f"{key} is a choice of a sweep that chose: --config-dir <folder of the sweep> +best=..."
            )
        if key in known:
            return Refusal(
                f"{key} has no such key inside. Add it with a plus, as in +stream.held_out.mnist=10."
            )
        return Refusal(
            f"{key} is not a key.{nearest(key, known)}\nSee them all with --cfg job; a new one is added "
            f"with +{key}=..."
        )
    if isinstance(
        error,
        HydraException | OmegaConfBaseException | ValueError | TypeError | AttributeError | AssertionError,
    ):
        return Refusal(
            f"The command line cannot be turned into a configuration: {words[0]}\n"
            "Arguments are group=choice or key=value; see --help."
        )
    return error
