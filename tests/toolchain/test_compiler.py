"""Finding the compiler, compiling in parallel through the cache, linking, embedding weights."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_tool import write_tool

from building import Builder
from convoy import target
from convoy.backend import generate
from convoy.errors import ToolchainError
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, MatMul
from convoy.graph.sizes import open_size
from convoy.target import Target
from convoy.toolchain import compiler
from convoy.toolchain.weights import embed_weights

HOST = target.host()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))


def test_missing_compiler_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"expected gcc or clang on the path, got none.*apt install"):
        compiler.compile_object("int x;", HOST)


@pytest.mark.parametrize("named", ["/no/such/compiler", "false", "gcc 'unclosed"])
def test_cc_that_does_not_work(monkeypatch, named):
    monkeypatch.setenv("CC", named)
    with pytest.raises(ToolchainError, match=f"CC=.*{named.split()[0]}"):
        compiler.find_compiler()


def test_cc_may_carry_arguments(monkeypatch):
    monkeypatch.setenv("CC", "gcc -DANSWER=42")
    path = compiler.link_shared([compiler.compile_object("int answer(void) { return ANSWER; }", HOST)])
    assert ctypes.CDLL(str(path)).answer() == 42


def test_rejected_unit_shows_the_first_lines_and_keeps_the_source():
    source = "int good;\n" + "int bad = undeclared;\n" * 30
    with pytest.raises(ToolchainError) as caught:
        compiler.compile_object(source, HOST, name="region_3.c")
    text = str(caught.value)
    assert "compile: region_3.c: expected a unit the C compiler accepts" in text
    assert "undeclared" in text
    assert "more lines" in text
    assert len(text.splitlines()) < 25
    kept = Path(text.split("read ")[1].split(" and report")[0])
    assert kept.read_text() == source
    kept.unlink()


def test_the_runtime_is_compiled_for_any_cpu_and_all_else_for_the_target():
    runtime = compiler.runtime_sources(*compiler.ENTRY_UNITS, *compiler.CLASSIC_ENTRY_UNITS)
    sources = [*runtime.values(), "int region;"]
    here, anywhere = (compiler.compile_objects(sources, t) for t in (Target("avx2"), Target("portable")))
    assert here[:-1] == anywhere[:-1]
    assert here[-1] != anywhere[-1]


REDUCE = """
#include "kernels/reduce.h"
void convoy_barrier(cv_thread t) { (void)t; }
/* A step, as a large region has it: by itself, not inlined. */
__attribute__((noinline)) static void step(cv_thread t, float *arena) {
  const cv_map x = {arena + 832, 17, 2, 1, 16, 4, 4, 0, 0, 0, 0};
  const cv_map y = {arena, 17, 1, 1, 4, 4, 4, 0, 0, 0, 0};
  cv_reduce_map(t, CV_MEAN, x, y);
}
float run(void) {
  static float arena[1024] __attribute__((aligned(64)));
  for (int i = 832; i < 1024; i++) arena[i] = 1.0f;
  step((cv_thread){0, 1}, arena);
  return arena[0];
}
"""


def test_what_a_step_stores_is_kept() -> None:
    # GCC 12 leaves out the call of `step` by itself, which it takes for pure; random graph 51900018
    library = ctypes.CDLL(str(compiler.link_shared([compiler.compile_object(REDUCE, Target("portable"))])))
    library.run.restype = ctypes.c_float
    assert library.run() == 1.0


@pytest.mark.slow
def test_what_regions_share_is_in_units_of_its_own(tmp_path):
    first, second = (
        generate(graph, name, Target("portable")) for name, graph in (("a", dense(5)), ("b", dense(9)))
    )
    shared = compiler.kernel_sources(first.sources)
    assert shared.keys() == {"kernels_activation.c", "kernels_gemm.c", "kernels_requantize.c"}
    assert compiler.kernel_sources(second.sources) == shared
    assert compiler.kernel_sources(['#include "kernels/gemm.h"']) == {}, (
        "a unit that defines all for itself"
    )
    units = [*first.sources, *second.sources, *shared.values()]
    objects = compiler.compile_objects(units, Target("portable"))
    path = compiler.link_relocatable(objects, ["a", "b"], output=tmp_path / "both.o")
    symbols = subprocess.run(["nm", path], text=True, capture_output=True, check=True).stdout.split()
    assert symbols.count("cv_gemm") == 1
    assert symbols[symbols.index("cv_gemm") - 1] == "t", "seen by others than these regions"


@pytest.mark.slow
def test_a_form_that_regions_name_is_a_unit_of_its_own(tmp_path):
    first, second = (
        generate(graph, name, Target("portable"))
        for name, graph in (("a", convolution(64)), ("b", convolution(128)))
    )
    shared = compiler.kernel_sources(second.sources)
    (form,) = {name for name in shared if name.startswith("kernels_winograd_")}
    assert shared[form] == compiler.kernel_sources(first.sources)[form]
    objects = compiler.compile_objects([*first.sources, *second.sources, shared[form]], Target("portable"))
    symbol = form.removeprefix("kernels_").removesuffix(".c")
    for path, kind in zip(objects, ("U", "U", "T"), strict=True):
        symbols = subprocess.run(["nm", path], text=True, capture_output=True, check=True).stdout.split()
        assert symbols[symbols.index(symbol) - 1] == kind


def test_register_tiles_of_open_rows_are_units_that_regions_share():
    first, second = (
        generate(open_convolution(channels), name, Target("portable"))
        for name, channels in (("a", 16), ("b", 48))
    )
    shared = compiler.kernel_sources(first.sources)
    tiles = {name for name in shared if name.startswith("kernels_tiles_to_")}
    assert tiles
    assert {name: compiler.kernel_sources(second.sources)[name] for name in tiles} == {
        name: shared[name] for name in tiles
    }
    for source in (*first.sources, *second.sources):
        assert not re.search(r"^CV_CONV2D_(?!TILES)", source, re.MULTILINE), "a tile of its own"


def test_each_unit_of_the_kernels_defines_what_its_header_declares():
    folder = compiler.kernel_include_dirs()[1] / "kernels"
    for header in folder.glob("*.h"):
        word = f"CV_DEFINES({header.stem.upper()})"
        unit = header.with_suffix(".c")
        text = header.read_text()
        assert (word in text) == unit.is_file(), f"{header.name} and {unit.name}"
        declared = re.findall(
            r"^CV_SHARED void (\w+)\([^{;]*\)\s*(?:CV_SYMBOL\((\w+)\));", text, re.MULTILINE
        )
        if unit.is_file():
            assert declared
            assert all(name == symbol for name, symbol in declared)
            assert text.count("\nCV_SHARED ") == 2 * len(declared), (
                "one has no symbol of its own for bfloat16"
            )
            assert f"#define CV_DEFINES_{header.stem.upper()} 1\n" in unit.read_text()


def dense(inputs: int) -> Graph:
    b = Builder([3, inputs])
    return b.graph(b.add(MatMul, "x0", b.weight(inputs, 4), b.weight(4)))


def convolution(channels: int) -> Graph:
    b = Builder([1, channels, 16, 16])
    return b.graph(b.add(Conv2d, "x0", b.weight(64, channels, 3, 3), padding=(1, 1, 1, 1)))


def open_convolution(channels: int) -> Graph:
    b = Builder([1, channels, open_size("size[0]", 24), open_size("size[1]", 24)])
    return b.graph(b.add(Conv2d, "x0", b.weight(64, channels, 5, 5), padding=(2, 2, 2, 2)))


@pytest.mark.slow
def test_a_compiler_may_begin_to_read_late(monkeypatch, tmp_path):
    # longer than a pipe holds, and later than a waiting thread first looks whether it should stop
    monkeypatch.setenv("CC", str(write_tool(tmp_path / "cc", 'sleep 0.5\nexec gcc "$@"\n')))
    monkeypatch.setenv("CONVOY_COMPILER_SECONDS", "30")
    source = "".join(f"int f{i}(void) {{ return {i}; }}\n" for i in range(5000))
    assert len(source) > 1 << 17
    path = compiler.link_shared([compiler.compile_object(source, Target("portable"))])
    assert ctypes.CDLL(str(path)).f4999() == 4999


def test_units_are_compiled_once_and_in_order(monkeypatch, tmp_path):
    log = tmp_path / "log"
    monkeypatch.setenv("CC", str(write_tool(tmp_path / "cc", f'echo "$@" >> {log}\nexec gcc "$@"\n')))
    sources = [f"int f{i}(void) {{ return {i}; }}" for i in range(5)]
    steps: list[tuple[int, int, str]] = []
    first = compiler.compile_objects(
        sources, HOST, names=[f"u{i}" for i in range(5)], progress=lambda *step: steps.append(step)
    )
    compiled = log.read_text().count(" -c ")
    assert compiled == 5
    assert [(done, total) for done, total, _ in steps] == [(i, 5) for i in range(1, 6)]
    assert sorted(name for _, _, name in steps) == [f"u{i}" for i in range(5)]
    second = compiler.compile_objects(sources, HOST)
    assert second == first
    assert log.read_text().count(" -c ") == compiled
    library = ctypes.CDLL(str(compiler.link_shared(first)))
    assert [library[f"f{i}"]() for i in range(5)] == list(range(5))


def test_objects_of_a_cache_that_is_removed_meanwhile_are_made_again(tmp_path):
    sources = [f"int f{i}(void) {{ return {i}; }}" for i in range(4)]

    def remove(done: int, *_: object) -> None:
        if done == 2:
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    objects = compiler.compile_objects(sources, HOST, folder=tmp_path / "cache", progress=remove)
    library = ctypes.CDLL(str(compiler.link_shared(objects)))
    assert [library[f"f{i}"]() for i in range(4)] == list(range(4))


def test_target_header_and_compiler_are_part_of_the_key(monkeypatch, tmp_path):
    source = '#include "convoy/region.h"\nint f(void) { return CONVOY_OK; }'
    paths = {
        compiler.compile_object(source, target.Target("portable")),
        compiler.compile_object(source, target.Target("avx2")),
    }
    monkeypatch.setenv("CC", "gcc -g0")
    paths.add(compiler.compile_object(source, target.Target("avx2")))
    include, rooms = tmp_path / "csrc" / "include" / "convoy", tmp_path / "csrc"
    include.mkdir(parents=True)
    (include / "region.h").write_text("enum { CONVOY_OK = 0 };")
    monkeypatch.setattr(compiler, "kernel_include_dirs", lambda: [rooms / "include", rooms])
    paths.add(compiler.compile_object(source, target.Target("avx2")))
    (include / "region.h").write_text("enum { CONVOY_OK = 10 };")
    paths.add(compiler.compile_object(source, target.Target("avx2")))
    assert len(paths) == 5


@pytest.mark.parametrize(("knows", "amx"), [("", True), ("exit 1", False)])
def test_a_compiler_that_does_not_know_amx_is_not_told_of_it(monkeypatch, tmp_path, knows, amx):
    log = tmp_path / "log"
    asked = f'case "$*" in *-mamx*) {knows or ":"};; esac'
    tool = write_tool(tmp_path / "cc", f'{asked}\necho "$*" >> {log}\nexec gcc "$@"\n')
    monkeypatch.setenv("CC", str(tool))
    compiler.compile_object("int f(void) { return 1; }", target.MACHINES["sapphirerapids"])
    (compiled,) = [line for line in log.read_text().splitlines() if " -c " in line]
    assert ("-mamx-int8" in compiled, "-mavx512vnni" in compiled) == (amx, True)


def test_damaged_object_is_compiled_again():
    path = compiler.compile_object("int f(void) { return 1; }", HOST)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert compiler.compile_object("int f(void) { return 1; }", HOST).read_bytes() == whole


def complain(monkeypatch, tmp_path, complaint, end="exit 1"):
    """Take a compiler that knows its version and fails with ``complaint``."""
    fail = f"echo '{complaint}' >&2; {end}"
    script = f'case "$1" in --version|-dumpmachine) exec gcc "$@";; *) {fail};; esac\n'
    monkeypatch.setenv("CC", str(write_tool(tmp_path / "cc", script)))


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        ("as: /x.o: No space left on device", "No space left on device"),
        ("ld: final link failed: Disk quota exceeded", "Disk quota exceeded"),
        ("File size limit exceeded signal terminated program cc1", "File size limit exceeded"),
    ],
)
def test_full_disk_while_compiling_is_one_clear_error(monkeypatch, tmp_path, complaint, reason):
    complain(monkeypatch, tmp_path, complaint)
    with pytest.warns(UserWarning, match=reason), pytest.raises(ToolchainError) as caught:
        compiler.compile_object("int f(void) { return 1; }", HOST)
    assert f"expected a folder with free space to write into, got {reason}" in str(caught.value)


def test_a_compiler_that_talks_without_end_is_quoted_briefly(monkeypatch, tmp_path):
    complain(monkeypatch, tmp_path, "x" * 50_000)
    with pytest.raises(ToolchainError, match="xxx … xxx") as caught:
        compiler.compile_object("int f(void) { return 1; }", HOST)
    assert len(str(caught.value)) < 6000


def test_a_compiler_ended_for_want_of_memory_did_not_reject_the_unit(monkeypatch, tmp_path):
    complain(monkeypatch, tmp_path, "cc: fatal error: Killed signal terminated program cc1")
    with pytest.raises(
        ToolchainError, match=r"got a signal that ended it: cc: fatal error: Killed .*; .*memory"
    ):
        compiler.compile_object("int f(void) { return 1; }", HOST)


@pytest.mark.parametrize(
    ("end", "signal"), [("kill -SEGV $$", "a signal (SIGSEGV)"), ("kill -KILL $$", "a signal (SIGKILL)")]
)
def test_the_last_words_of_a_compiler_that_a_signal_ended_are_kept(monkeypatch, tmp_path, end, signal):
    complain(monkeypatch, tmp_path, "\n".join([f"note {i}" for i in range(20)]), end)
    with pytest.raises(ToolchainError) as caught:
        compiler.compile_object("int f(void) { return 1; }", HOST)
    text = str(caught.value)
    assert f"expected it to run to its end, got {signal} that ended it: note 8\n" in text
    assert "\nnote 19; try again" in text


def test_a_compiler_that_a_signal_ended_without_a_word(monkeypatch, tmp_path):
    script = 'case "$1" in --version|-dumpmachine) exec gcc "$@";; *) kill -KILL $$;; esac\n'
    monkeypatch.setenv("CC", str(write_tool(tmp_path / "cc", script)))
    with pytest.raises(ToolchainError, match=r"got a signal \(SIGKILL\) that ended it; try again"):
        compiler.compile_object("int f(void) { return 1; }", HOST)


def test_weights_are_aligned_and_complete():
    weights = os.urandom(100_003)
    reader = """
    extern const unsigned char region_weights[];
    const void *address(void) { return region_weights; }
    """
    objects = [compiler.compile_object(reader, HOST), embed_weights("region", weights, HOST)]
    library = ctypes.CDLL(str(compiler.link_shared(objects)))
    library.address.restype = ctypes.c_void_p
    address = library.address()
    assert address % 64 == 0
    assert ctypes.string_at(address, len(weights)) == weights


def test_a_region_may_have_no_weights():
    reader = "extern const float r_weights[]; const void *address(void) { return r_weights; }"
    objects = [compiler.compile_object(reader, HOST), embed_weights("r", b"", HOST)]
    ctypes.CDLL(str(compiler.link_shared(objects))).address()


def test_relocatable_object_shows_only_its_exports(tmp_path):
    # two objects with equal inner names link into one library, each calling its own
    def module(number: int) -> Path:
        inner = f"int shared_name(void) {{ return {number}; }} int state;"
        outer = f"int shared_name(void); int outer_{number}(void) {{ return shared_name(); }}"
        objects = compiler.compile_objects([inner, outer], HOST)
        return compiler.link_relocatable(objects, [f"outer_{number}"])

    library = ctypes.CDLL(str(compiler.link_shared([module(1), module(2)])))
    assert (library.outer_1(), library.outer_2()) == (1, 2)
    with pytest.raises(AttributeError):
        _ = library.shared_name


def test_link_failure_is_reported():
    broken = compiler.compile_object("int f(void);", HOST).parent / "broken.o"
    broken.write_bytes(b"no object")
    with pytest.raises(ToolchainError, match=r"link: shared library: expected .* to succeed"):
        compiler.link_shared([broken])
