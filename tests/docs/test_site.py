"""The reference (``scripts/docs``) is of things that are there, and has all that stands at the top."""

from __future__ import annotations

import importlib
import re
import subprocess

import pytest

import convoy
from pages import DOCS, ROOT

NAMED = [
    name
    for page in sorted((DOCS / "reference").glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


def find(name: str) -> object:
    """The module, or what a module holds, of this name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("name", NAMED)
def test_what_the_reference_names_is_there_with_a_docstring(name: str) -> None:
    assert find(name).__doc__


def test_all_that_stands_at_the_top_is_in_the_reference() -> None:
    top = {name: getattr(convoy, name) for name in convoy.__all__ if not name.startswith("__")}
    assert {name for name, thing in top.items() if thing not in [find(name) for name in NAMED]} == set()


def test_the_contents_of_the_site_are_pages_that_are_there() -> None:
    pages = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= set(pages)


@pytest.mark.slow
def test_the_site_is_built_without_a_dead_link() -> None:
    pytest.importorskip(
        "mkdocstrings", reason="mkdocs is not installed: scripts/docs installs it into .venv"
    )
    done = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Predictor" in (ROOT / "build/site/docs/reference/deploy.html").read_text()
