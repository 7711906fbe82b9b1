"""Messages that the page on troubleshooting explains are messages of the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from pages import DOCS, ROOT

PAGE = DOCS / "troubleshooting.md"
ANY = "…"
"""What differs from case to case."""


def texts(node: ast.AST) -> Iterator[str]:
    """The texts of a module, with ``ANY`` for what is put into them."""
    for part in ast.walk(node):
        match part:
            case ast.JoinedStr(values=values):
                yield "".join(v.value if isinstance(v, ast.Constant) else ANY for v in values)
            case ast.Constant(value=str(text)):
                yield text


@cache
def messages_of_source() -> tuple[str, ...]:
    found = [t for path in (ROOT / "python").rglob("*.py") for t in texts(ast.parse(path.read_text()))]
    for path in (ROOT / "csrc" / "runtime").rglob("*.[ch]"):
        joined = re.sub(r'"\s*\n\s*"', "", path.read_text())
        found += [re.sub(r"%[a-z]+", ANY, text) for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)]
    return tuple(found)


def explained() -> list[str]:
    """The messages in the tables, but those of other programs."""
    text = re.sub(r"\n## Messages of other programs\n.*?(?=\n## )", "", PAGE.read_text(), flags=re.DOTALL)
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def is_of_source(message: str) -> bool:
    pieces = [re.escape(piece) for piece in message.split(ANY)]
    pattern = re.compile(".*".join(pieces), re.DOTALL)
    return any(pattern.search(text) for text in messages_of_source())


@pytest.mark.slow
@pytest.mark.parametrize("message", explained())
def test_a_message_that_is_explained_exists(message: str) -> None:
    assert len(message.replace(ANY, "")) > 12, "too little of it to be found by"
    assert is_of_source(message)


@pytest.mark.parametrize(
    ("message", "known"),
    [
        ("expected a library of … bytes, got …", True),
        ("pass at least … along axis …", True),
        ("expected a library of … words, got …", False),
        ("got …, expected a library of … bytes", False),
    ],
)
def test_messages_are_known_by_their_words(message: str, known: bool) -> None:
    assert is_of_source(message) == known


def test_every_message_has_a_cause_and_a_remedy() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert all(len([c for c in row.strip("|").split(" | ") if c.strip()]) == 3 for row in rows)
