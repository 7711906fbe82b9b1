"""Shell scripts that stand in for a compiler."""

from __future__ import annotations

import stat
from pathlib import Path


def write_tool(path: Path, text: str) -> Path:
    """An executable shell script at ``path``."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path
