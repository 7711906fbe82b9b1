"""What is found out about the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from convoy import target
from convoy.errors import TargetError
from convoy.target import InstructionSet, Target, cache_bytes, cpu_name, from_mcpu


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
    ("mcpu", "features", "isa"),
    [
        ("skylake-avx512", ["-avx512f"], "avx2"),
        ("skylake-avx512", ["-avx512vl"], "avx2"),
        ("skylake-avx512", ["-fma"], "portable"),
        ("knl", [], "avx2"),
        ("knl", ["+avx512bw", "+avx512dq"], "avx2"),
        ("arrowlake", ["+avxvnni"], "avx2"),
        ("skylake-avx512", ["-avx512cd"], "avx512"),
        ("skylake-avx512", ["-avx"], "portable"),
        ("haswell", ["+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"], "avx512"),
        ("haswell", ["+avx512f"], "avx2"),
        ("x86-64", ["+avx2"], "portable"),
        ("x86-64", ["+avx2", "+fma"], "avx2"),
        ("x86-64", ["+avx2", "+fma", "-avx2"], "portable"),
    ],
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names features of x86")
def test_features_added_and_taken_away(mcpu: str, features: list[str], isa: InstructionSet) -> None:
    assert from_mcpu(mcpu, features=features).isa == isa


@pytest.mark.parametrize("system", ["apple-darwin", "pc-windows-msvc", "linux-android"])
def test_another_system_is_an_error(system: str) -> None:
    with pytest.raises(TargetError, match=r"expected linux, got .*; compile for linux"):
        from_mcpu(None, f"{platform.machine()}-{system}")
    assert from_mcpu(None, f"{platform.machine()}-pc-linux-gnu") == target.host()


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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names features of x86")
@pytest.mark.parametrize(
    ("flags", "isa"),
    [
        ({"avx2"}, "portable"),
        ({"fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}, "portable"),
        ({"avx2", "fma", "avx512f"}, "avx2"),
        ({"avx2", "fma", "avx_vnni"}, "avx2"),
        ({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}, "avx512"),
    ],
)
def test_features_are_a_set(flags: set[str], isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # each may be there without the others, as in virtual machines
    monkeypatch.setattr(target, "_cpu_flags", lambda: flags)
    assert target.host.__wrapped__().isa == isa
