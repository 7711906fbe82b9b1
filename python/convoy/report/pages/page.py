"""What is on a page, put into the template.  Only ``page_json`` writes what a model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from convoy.text import page_json

_FOLDER = Path(__file__).parent
SCRIPTS = ("dagre.min.js", "graph.js", "charts.js", "page.js")
"""In the order in which they run."""


def make_page(content: dict[str, Any]) -> str:
    """The page of a ``content`` (``content.py``, ``study.py``)."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html").render(
        style=(_FOLDER / "page.css").read_text("utf-8"),
        scripts=[(_FOLDER / name).read_text("utf-8") for name in SCRIPTS],
        license=(_FOLDER / "dagre.LICENSE").read_text("utf-8"),
        content=page_json(content),
    )
