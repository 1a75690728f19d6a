"""What is published: the README as PyPI shows it, and the workflow that sends it there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture
def hook():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("metadata_hook", ROOT / ".ci" / "metadata.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_the_readme_lead_to_the_files_of_its_version(hook) -> None:
    text = hook.with_absolute_links("[a](docs/b.md#c) [d](https://e.org) [f](#g)", "https://h.org/blob/v1")
    assert text == "[a](https://h.org/blob/v1/docs/b.md#c) [d](https://e.org) [f](#g)"


def test_the_metadata_have_no_link_that_leads_nowhere_from_pypi(hook, monkeypatch) -> None:
    monkeypatch.setenv("CL_LIGHTNING_ADDRESS", "https://h.org/me/cl_lightning")
    metadata = {"version": "1.2.3"}
    hook.CustomMetadataHook(str(ROOT), {}).update(metadata)
    links = re.findall(r"\]\(([^)]+)\)", metadata["readme"]["text"])
    base = "https://h.org/me/cl_lightning/blob/v1.2.3/"
    own = [link.removeprefix(base).partition("#")[0] for link in links if link.startswith(base)]
    assert len(own) > 20
    assert all((ROOT / link).is_file() for link in own)
    assert all(link.startswith(("https://", "#")) for link in links)
    assert metadata["urls"]["Changes"] == f"{base}CHANGELOG.md"


def test_a_tag_publishes_what_ci_builds() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key "on" so
    built = " ".join(str(step) for step in workflow["jobs"]["build"]["steps"])
    assert ".ci/build dist site" in built
    assert ".ci/build" in (ROOT / ".ci" / "run").read_text()
    assert {job["needs"] for name, job in workflow["jobs"].items() if name != "build"} == {"build"}
