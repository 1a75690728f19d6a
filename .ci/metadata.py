"""The README as PyPI shows it: its links lead to the files of the same version.

``CL_LIGHTNING_ADDRESS`` is where the repository lies, as in https://github.com/me/cl_lightning; without it
links stay as they are.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


def with_absolute_links(text: str, base: str) -> str:
    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({base}/\1)", text)


class CustomMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        if address := os.environ.get("CL_LIGHTNING_ADDRESS"):
            base = f"{address}/blob/v{metadata['version']}"
            readme = with_absolute_links(readme, base)
            metadata["urls"] = {"Source": address, "Changes": f"{base}/CHANGELOG.md", "Docs": f"{base}/docs"}
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
