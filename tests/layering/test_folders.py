"""Tests stand in a folder named like the room they test, or like the page says (docs/testing.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE, CSRC, TESTS = ROOT / "python" / "convoy", ROOT / "csrc", ROOT / "tests"
PAGE = ROOT / "docs" / "testing.md"
ROW = re.compile(r"^\| `tests/(\w+)` \|", re.MULTILINE)
"""A folder in the page's table, whose tests are of no one room."""


def holds_a_test(folder: Path) -> bool:
    return any(folder.rglob("test_*.py"))


def folders_of(place: Path) -> set[str]:
    return {path.name for path in place.iterdir() if path.is_dir() and holds_a_test(path)}


def rooms_of(place: Path) -> set[str]:
    """Folders and files of a package; a folder of C has no files that count."""
    return {path.stem for path in place.iterdir() if path.is_dir() or path.suffix == ".py"}


def strangers(folders: set[str], rooms: set[str], named: set[str]) -> set[str]:
    """Folders that are called neither like a room nor in the page."""
    return folders - rooms - named


def test_each_folder_is_named_like_a_room_or_in_the_page() -> None:
    named = set(ROW.findall(PAGE.read_text()))
    assert strangers(folders_of(TESTS), rooms_of(PACKAGE) | rooms_of(CSRC), named) == set()


def test_each_folder_in_the_page_holds_tests_of_no_one_room() -> None:
    named = set(ROW.findall(PAGE.read_text()))
    assert named
    assert {name for name in named if not (TESTS / name).is_dir()} == set()
    assert named & (rooms_of(PACKAGE) | rooms_of(CSRC)) == set()


@pytest.mark.parametrize("folder", ["fold", "importer", "no_touch"])
def test_folders_within_a_door_are_its_parts(folder: str) -> None:
    assert holds_a_test(TESTS / "relax" / folder)
    assert folder in rooms_of(PACKAGE / "relax")


def test_a_folder_of_another_name_is_found() -> None:
    assert strangers({"plan", "fuzz", "compile"}, {"plan"}, {"fuzz"}) == {"compile"}


def test_no_two_test_files_have_one_name() -> None:
    # pytest finds test files by their names: of two that are named alike it refuses one
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
