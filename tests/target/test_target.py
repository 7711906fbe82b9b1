"""What is known of machines: by their names, by features, and by what the system tells."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from convoy.errors import TargetError
from convoy.target import MACHINES, InstructionSet, Target, cpu_name, from_mcpu, host, names, this_machine
from convoy.target.this_machine import cache_bytes, find_row

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names CPUs of x86")


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
        ("x86-64", ["+avx2", "+fma", "-sse2"], "portable"),
        ("sapphirerapids", ["-sse4.1"], "portable"),
        ("haswell", ["-f16c", "+sse4.2"], "avx2"),
    ],
)
@on_x86
def test_features_added_and_taken_away(mcpu: str, features: list[str], isa: InstructionSet) -> None:
    assert from_mcpu(mcpu, features=features).isa == isa


@pytest.mark.parametrize("system", ["apple-darwin", "pc-windows-msvc", "linux-android"])
def test_another_system_is_an_error(system: str) -> None:
    with pytest.raises(TargetError, match=r"expected linux, got .*; compile for linux"):
        from_mcpu(None, f"{platform.machine()}-{system}")
    assert from_mcpu(None, f"{platform.machine()}-pc-linux-gnu") == host()


@pytest.mark.parametrize(
    ("isa", "name"), [("avx512", "skylake-avx512"), ("avx2", "haswell"), ("portable", "generic")]
)
def test_a_cpu_newer_than_llvm(isa: InstructionSet, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # LLVM 10 calls Zen 5 generic, and plain TVM's share of a network would have vectors of four
    monkeypatch.setattr(names, "host", lambda: Target(isa))
    assert cpu_name("generic") == name


def test_a_cpu_llvm_knows() -> None:
    assert cpu_name("znver5") == "znver5"
    assert cpu_name("") == ""


@on_x86
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
    monkeypatch.setattr(this_machine, "read_cpuinfo", lambda: {"flags": " ".join(flags)})
    assert host.__wrapped__().isa == isa


@on_x86
@pytest.mark.parametrize(
    "name", sorted(name for name, row in MACHINES.items() if row.architecture != "aarch64")
)
def test_a_named_cpu_takes_nothing_from_this_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = from_mcpu(name)
    monkeypatch.setattr(names, "host", lambda: Target("portable", l2_bytes=1, cores=77, l1_bytes=2))
    assert from_mcpu(name) == before == MACHINES[name]
    assert from_mcpu("native").cores == 77


@on_x86
def test_what_a_user_says_of_a_machine_comes_on_top() -> None:
    said = from_mcpu("cascadelake").with_said(3, 1 << 19)
    assert (said.cores, said.l2_bytes) == (3, 1 << 19)
    assert from_mcpu("cascadelake").with_said(0, 0) == from_mcpu("cascadelake")


@pytest.mark.parametrize(
    ("mcpu", "fma", "loads"),
    [
        ("cascadelake", 2, 2),
        ("znver4", 1, 1),
        ("znver5", 2, 2),
        ("icelake-client", 1, 2),
        ("haswell", 2, 2),
        ("znver1", 1, 1),
        ("neoverse-v1", 4, 3),
        ("tigerlake", 1, 2),
        ("raptorlake", 2, 3),
        ("cortex-a72", 1, 1),
    ],
)
def test_pipes_narrower_than_a_vector_take_several_for_one(mcpu: str, fma: float, loads: float) -> None:
    assert (MACHINES[mcpu].fma_units, MACHINES[mcpu].load_units) == (fma, loads)


@on_x86
@pytest.mark.parametrize(
    ("mcpu", "bf16", "int8"),
    [("haswell", 2, 2), ("cascadelake", 2, 4), ("znver4", 2, 4), ("sapphirerapids", 16, 32)],
)
def test_narrower_products_are_made_several_at_once(mcpu: str, bf16: int, int8: int) -> None:
    found = from_mcpu(mcpu)
    assert [found.products_at_once(kind) for kind in ("float32", "bf16", "int8")] == [1, bf16, int8]


def test_a_machine_without_its_widest_vectors_has_the_units_of_narrower_ones() -> None:
    narrow = from_mcpu("znver4", features=["-avx512f"])
    assert (narrow.isa, narrow.fma_units, narrow.load_units) == ("avx2", 2, 2)
    assert not [feature for feature in narrow.features if feature.startswith("avx512")]


def test_portable_is_no_machine_in_particular() -> None:
    portable = MACHINES["portable"]
    assert portable.architecture == ""
    assert portable.flags == ()
    assert not portable.features
    for here in ("x86_64", "aarch64", "riscv64"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(platform, "machine", lambda here=here: here)
            assert from_mcpu("portable") == from_mcpu("generic") == portable


def test_arm_is_computed_by_the_portable_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    found = from_mcpu("neoverse-n1")
    assert (found.isa, found.flags, found.l1_bytes) == ("portable", (), 64 << 10)
    assert from_mcpu("x925", ask=lambda _: {"neon", "sve2"}).isa == "portable"
    with pytest.raises(TargetError, match="expected aarch64, the architecture of this machine, got x86_64"):
        from_mcpu("haswell")


@on_x86
def test_a_cpu_of_another_architecture_is_an_error() -> None:
    with pytest.raises(TargetError, match="expected x86_64, the architecture of this machine, got aarch64"):
        from_mcpu("neoverse-v2")


@on_x86
@pytest.mark.parametrize(
    ("features", "isa"),
    [
        ({"sse2"}, "portable"),
        ({"avx", "avx2", "fma", "avx10.2", "avx512f"}, "avx2"),
        ({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "amx-tile"}, "avx512"),
    ],
)
def test_llvm_is_asked_for_a_cpu_without_a_row(features: set[str], isa: InstructionSet) -> None:
    found = from_mcpu("diamondrapids", ask=lambda name: features if name == "diamondrapids" else None)
    assert (found.isa, found.name) == (isa, "diamondrapids")
    assert features <= found.features
    assert found.cores == from_mcpu({"portable": "x86-64", "avx2": "x86-64-v3"}.get(isa, "x86-64-v4")).cores
    with pytest.raises(
        TargetError, match=r"mcpu 'z80': expected one of .*, or one that LLVM knows; name one"
    ):
        from_mcpu("z80", ask=lambda name: features if name == "diamondrapids" else None)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"vendor_id": "AuthenticAMD", "cpu family": "23", "model": "1"}, "znver1"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "23", "model": "49"}, "znver2"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}, "znver3"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, "znver4"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "26", "model": "2"}, "znver5"),
        (
            {"vendor_id": "GenuineIntel", "cpu family": "6", "model": "85", "stepping": "4"},
            "skylake-avx512",
        ),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "85", "stepping": "7"}, "cascadelake"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "173"}, "graniterapids"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "60"}, "haswell"),
        ({"vendor_id": "GenuineIntel", "cpu family": "15", "model": "6"}, ""),
        ({"CPU implementer": "0x41", "CPU part": "0xd0c"}, "neoverse-n1"),
        ({"CPU implementer": "0x51", "CPU part": "0xd0c"}, ""),
        ({}, ""),
    ],
)
def test_the_row_of_what_the_system_tells(told: dict[str, str], name: str) -> None:
    assert find_row(told) == name
    assert not name or name in MACHINES


@on_x86
def test_an_unknown_cpu_has_a_row_by_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni amx_tile"
    monkeypatch.setattr(this_machine, "read_cpuinfo", lambda: {"vendor_id": "CentaurHauls", "flags": flags})
    found = host.__wrapped__()
    assert (found.name, found.isa) == ("x86-64-v4", "avx512")
    assert {"avx512vnni", "amx-tile", "fma"} <= found.features
