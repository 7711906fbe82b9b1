"""What is found out about the machine."""

from __future__ import annotations

from pathlib import Path

from convoy.target import cache_bytes


def write_cache(folder: Path, number: int, **facts: str) -> None:
    index = folder / f"index{number}"
    index.mkdir(parents=True)
    for name, text in facts.items():
        (index / name).write_text(f"{text}\n")


def test_size_of_a_data_cache(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", type="Data", size="48K")
    write_cache(tmp_path, 1, level="2", type="Instruction", size="32K")
    write_cache(tmp_path, 2, level="2", type="Unified", size="2048K")
    assert cache_bytes(2, 5, tmp_path) == 2 << 20


def test_a_kernel_that_does_not_say_the_size(tmp_path: Path) -> None:
    # as on many ARM machines
    write_cache(tmp_path, 0, level="2", type="Unified")
    assert cache_bytes(2, 5, tmp_path) == 5
    assert cache_bytes(2, 5, tmp_path / "none") == 5
