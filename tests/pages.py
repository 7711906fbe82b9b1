"""The code of the pages: blocks found by section and language, and run as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    code: str


def blocks(page: Path, section: str = "", language: str = "") -> list[Block]:
    """The code blocks of a page, or of the section whose heading begins so, in order."""
    text = page.read_text()
    if section:
        _, heading, text = text.partition(f"\n## {section}")
        assert heading, f"{page.name} has no section {section}"
        text = re.split(r"\n## (?=\w)", text)[0]
    found = [Block(*match.groups()) for match in _FENCED.finditer(text)]
    return [block for block in found if language in ("", block.language)]


def block(page: Path, section: str, language: str) -> str:
    """The code of the first block of a language in a section."""
    return blocks(page, section, language)[0].code


def run_blocks(chosen: Iterable[Block], folder: Path) -> list[str]:
    """What each block prints: one after the other in a folder, each a program of its own."""
    programs = {"python": [sys.executable, "-c"], "sh": ["bash", "-euo", "pipefail", "-c"]}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    printed = []
    for one in chosen:
        command = [*programs[one.language], one.code]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{one.code}\n{done.stdout}\n{done.stderr}"
        printed.append(done.stdout)
    return printed
