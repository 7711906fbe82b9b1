"""``docs/adding.md`` names the files that an activation and an op touch: all of them, and few."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding.md").read_text()
SOURCES = [p for p in (ROOT / "python/convoy", ROOT / "csrc/kernels") for p in p.rglob("*.*")
           if p.suffix in (".py", ".h")]  # fmt: skip


def files_of(section: str) -> list[str]:
    """The files in the table of a section."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def naming(word: str) -> set[str]:
    """The sources that name an op."""
    return {str(p.relative_to(ROOT)) for p in SOURCES if re.search(word, p.read_text())}


@pytest.mark.parametrize(("section", "most"), [("An activation", 5), ("An op", 8)])
def test_few_files_are_touched_and_all_exist(section: str, most: int) -> None:
    files = files_of(section)
    assert 0 < len(files) <= most
    assert all((ROOT / file).is_file() for file in files)


def test_an_activation_is_named_where_the_page_says() -> None:
    assert naming(r"\bmish\b") | {"CHANGELOG.md"} == set(files_of("An activation"))


def test_an_op_is_named_where_the_page_says() -> None:
    beside = set(files_of("What an op may want beside"))
    assert naming("GroupNorm|group_norm") | {"CHANGELOG.md"} == set(files_of("An op")) | beside
