"""What is found out about the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from convoy import target
from convoy.target import InstructionSet, Target, cache_bytes, cpu_name


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


@pytest.mark.parametrize(
    ("isa", "name"), [("avx512", "skylake-avx512"), ("avx2", "haswell"), ("portable", "generic")]
)
def test_a_cpu_newer_than_llvm(isa: InstructionSet, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # LLVM 10 calls Zen 5 generic, and plain TVM's share of a network would have vectors of four
    monkeypatch.setattr(target, "host", lambda: Target(isa))
    assert cpu_name("generic") == name


def test_a_cpu_llvm_knows() -> None:
    assert cpu_name("znver5") == "znver5"
    assert cpu_name("") == ""
