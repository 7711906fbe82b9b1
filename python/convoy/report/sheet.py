"""What is printed: text and tables that show names from outside without obeying them (``convoy.text``).

Rich takes a string for markup, and hands on escape sequences: so it is given none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import JustifyMethod, RenderableType
from rich.table import Column, Table
from rich.text import Text

from convoy.text import line, lines


def plain(text: str, style: str = "", justify: JustifyMethod | None = None) -> Text:
    """One line."""
    return Text(line(text), style=style, justify=justify)


def stack(rows: Iterable[str]) -> Text:
    """One line below the other."""
    return Text("\n".join(map(line, rows)))


def block(text: str) -> Text:
    """The lines of a program's text, as long as they are."""
    return Text(lines(text), no_wrap=True, overflow="ignore")


class Sheet(Table):
    """A table whose cells and headings, where they are strings, are one line each."""

    def __init__(self, *head: str, title: str = "", whole: str = "", **given: Any) -> None:
        """``whole``: the heading of a column whose cells are never broken; the rest is ``rich``'s."""
        columns = [Column(plain(name), no_wrap=name == whole) for name in head]
        super().__init__(*columns, title=plain(title) if title else None, **given)

    @classmethod
    def bare(cls) -> Sheet:
        """Columns without a frame or headings."""
        return cls(
            box=None, show_header=False, show_edge=False, pad_edge=False, collapse_padding=True,
            padding=(0, 2, 0, 0),
        )  # fmt: skip

    def add_row(self, *cells: RenderableType | None, **given: Any) -> None:
        super().add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells), **given)
