"""An external function through TVM: RunCodegen, build, run in place, export, reload, run again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tvm
from tiny_region import make_region
from tvm import relax

from convoy.errors import ToolchainError
from convoy.offload.settings import Settings
from convoy.options import Options
from convoy.relax import codegen
from convoy.report.decision import Report

FRESH = """
import sys
import numpy as np
import tvm
from tvm import relax
module = tvm.runtime.load_module(sys.argv[1])
machine = relax.VirtualMachine(module, tvm.cpu())
x = np.load(sys.argv[2])
np.save(sys.argv[3], machine["main"](tvm.runtime.tensor(x)).numpy())
assert "convoy" not in sys.modules
print(module.get_function("convoy_num_threads", query_imports=True)())
"""


def run(executable: relax.VMExecutable | tvm.runtime.Module, x: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def run_fresh(library: Path, x: np.ndarray, **environment: str) -> tuple[np.ndarray, str]:
    """Run an exported library where neither our package nor a compiler can be found."""
    given, result = library.with_suffix(".in.npy"), library.with_suffix(".out.npy")
    np.save(given, x)
    done = subprocess.run(
        [sys.executable, "-I", "-c", FRESH, str(library), str(given), str(result)],
        env={"PATH": "/nowhere", "HOME": os.environ.get("HOME", "/"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return np.load(result), done.stdout.strip()


def test_runs_in_place(build):
    region = make_region("convoy_in_place")
    np.testing.assert_array_equal(run(build(region), region.input()), -region.expected(region.input()))


@pytest.mark.slow
def test_exported_library_runs_alone(build, library_path):
    region = make_region("convoy_alone")
    build(region).export_library(str(library_path))
    result, _ = run_fresh(library_path, region.input())
    np.testing.assert_array_equal(result, -region.expected(region.input()))


@pytest.mark.slow
def test_large_weights_are_stored_once(build, library_path):
    region = make_region("convoy_large", padding_bytes=40 << 20)
    executable = build(region)
    executable.export_library(str(library_path))
    assert 40 << 20 < library_path.stat().st_size < 42 << 20
    result, _ = run_fresh(library_path, region.input())
    np.testing.assert_array_equal(result, -region.expected(region.input()))


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_any_batch(build, batch):
    region = make_region("convoy_any_batch", batch=None)
    x = np.random.default_rng(2).standard_normal((batch, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(run(build(region), x), -region.expected(x))


def test_fixed_batch(build):
    region = make_region("convoy_batch_3", batch=3)
    np.testing.assert_array_equal(run(build(region), region.input()), -region.expected(region.input()))


@pytest.mark.slow
def test_two_models_in_one_process_share_nothing(build, tmp_path):
    # the same C names inside (run, arguments, the whole runtime), other symbols and weights outside
    regions = [
        make_region("convoy_first", seed=1),
        make_region("convoy_second", seed=2, shape=(1, 5, 4, 4)),
    ]
    executables = [build(region) for region in regions]
    libraries = []
    for region, executable in zip(regions, executables, strict=True):
        path = tmp_path / f"{region.symbol}.so"
        executable.export_library(str(path))
        libraries.append(tvm.runtime.load_module(str(path)))
    for round_ in range(3):
        for region, executable, library in zip(regions, executables, libraries, strict=True):
            x = region.input(round_)
            np.testing.assert_array_equal(run(executable, x), -region.expected(x))
            np.testing.assert_array_equal(run(library, x), -region.expected(x))
    libraries[0].get_function("convoy_set_num_threads", query_imports=True)(1)
    assert libraries[0].get_function("convoy_num_threads", query_imports=True)() == 1
    assert libraries[1].get_function("convoy_num_threads", query_imports=True)() >= 1


def test_two_modules_link_into_one_library(build, tmp_path):
    regions = [make_region("convoy_left", seed=1), make_region("convoy_right", seed=2)]
    context = codegen.current()
    modules = [module for region in regions for module in codegen.link_regions([region], context)]
    objects = []
    for i, module in enumerate(modules):
        objects.append(str(tmp_path / f"{i}.o"))
        module.write_to_file(objects[-1])
    from tvm.support import cc

    cc.create_shared(str(tmp_path / "both.so"), objects)
    library = tvm.runtime.load_module(str(tmp_path / "both.so"))
    for region in regions:
        x = region.input()
        result = tvm.runtime.tensor(np.zeros_like(x))
        library[region.symbol](tvm.runtime.tensor(x), result)
        np.testing.assert_array_equal(result.numpy(), region.expected(x))


def test_threads_of_python_may_call_at_once(build):
    region = make_region("convoy_at_once", shape=(1, 16, 32, 32))
    executable = build(region)
    failures: list[BaseException] = []

    def caller(seed: int) -> None:
        try:
            machine = relax.VirtualMachine(executable, tvm.cpu())
            x = region.input(seed)
            for _ in range(50):
                result = machine["main"](tvm.runtime.tensor(x)).numpy()
                np.testing.assert_array_equal(result, -region.expected(x))
        except BaseException as failure:
            failures.append(failure)

    executable.jit()
    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiled", "environment", "expected"),
    [
        (3, {}, "3"),
        (3, {"TVM_NUM_THREADS": "2"}, "2"),
        (3, {"TVM_NUM_THREADS": "2", "CONVOY_NUM_THREADS": "4"}, "4"),
        (3, {"CONVOY_NUM_THREADS": "many"}, "3"),
    ],
)
def test_number_of_threads(build, library_path, compiled, environment, expected):
    region = make_region("convoy_count")
    build(region, Options(threads=compiled)).export_library(str(library_path))
    result, printed = run_fresh(library_path, region.input(), **environment)
    np.testing.assert_array_equal(result, -region.expected(region.input()))
    assert printed == expected


def test_number_of_threads_at_run_time(build):
    region = make_region("convoy_settable")
    executable = build(region, Options(threads=2))
    number, set_number = executable["convoy_num_threads"], executable["convoy_set_num_threads"]
    for threads in (1, 3, 2):
        set_number(threads)
        assert number() == threads
        np.testing.assert_array_equal(run(executable, region.input()), -region.expected(region.input()))
    set_number(0)
    assert number() == 2
    with pytest.raises(TypeError, match="expected one int"):
        set_number("two")


def test_errors_reach_python(build):
    region = make_region("convoy_fussy", shape=(1, 3, 224, 224))
    function = build(region)["convoy_fussy"]
    good = tvm.runtime.tensor(region.input())
    expected = r"convoy_fussy: argument 0 \(data\): expected float32 \[1, 3, 224, 224\], got "
    with pytest.raises(
        ValueError, match=expected + r"float32 \[1, 3, 200, 224\]; pass a tensor of that shape"
    ):
        function(tvm.runtime.tensor(np.zeros((1, 3, 200, 224), np.float32)), good)
    with pytest.raises(TypeError, match=expected + r"float64 \[1, 3, 224, 224\]; convert it to float32"):
        function(tvm.runtime.tensor(np.zeros((1, 3, 224, 224))), good)
    with pytest.raises(ValueError, match=r"expected 1 inputs and 1 outputs.*got 1"):
        function(good)
    with pytest.raises(TypeError, match="no tensor"):
        function(3, good)


def test_out_of_memory_is_an_error(build):
    region = make_region("convoy_greedy", arena_bytes=1 << 60)
    with pytest.raises(MemoryError, match=r"convoy_greedy: scratch memory: expected enough memory"):
        run(build(region), region.input())


def test_errors_of_a_compilation_keep_their_type(build, tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file, no folder")
    with pytest.raises(
        ToolchainError, match=r"keep: .*taken: expected a folder to write the generated C to"
    ):
        build(make_region("convoy_unkept"), Options(keep=tmp_path / "taken"))

    def full_disk(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(
        ToolchainError, match=r"expected a folder with free space .*No space left on device"
    ):
        build(make_region("convoy_no_room"))


@pytest.mark.slow
def test_context_reaches_the_codegen(build, tmp_path):
    seen: list[str] = []
    region = make_region("convoy_kept")
    options = Options(keep=tmp_path / "kept", cache=tmp_path / "cache")
    context = codegen.Context(codegen.current().target, Settings(options, Report(), seen.append))
    codegen.link_regions([region], context)
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"convoy_kept.c", "convoy_kept_entry.c", "convoy_kept_weights.bin", "team.c"} <= kept
    assert (tmp_path / "kept" / "convoy_kept_weights.bin").read_bytes() == region.weights
    assert list((tmp_path / "cache").glob("??/*.o"))
    counts, names = zip(*(line.split(" C units: ") for line in seen), strict=True)
    assert list(counts) == [f"compiled {i + 1} of {len(seen)}" for i in range(len(seen))]
    assert set(names) == {name for name in kept if name.endswith(".c")}


def test_context_defaults_to_the_current_target():
    with tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}):
        assert codegen.current().target.isa == "avx2"
    chosen = codegen.Context(codegen.current().target, Settings(Options(threads=7)))
    with codegen.using(chosen), tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}):
        assert codegen.current() is chosen
