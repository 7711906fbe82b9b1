"""Arrays as they come, to a model's runner: converted where the value stays, refused by name elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tiny_region import make_region

import convoy
import convoy.deploy.library as library_module
import convoy.deploy.runner as runner_module
import convoy.target
from convoy.deploy.export import export_library
from convoy.deploy.runner import Runner
from convoy.errors import ModelError
from convoy.relax import describe
from pages import DOCS, block

SHAPE = (1, 3, 8, 8)


@pytest.fixture
def runner(build):
    return Runner(build(make_region("convoy_runner", shape=SHAPE)))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.swapaxes(np.swapaxes(x, 1, 3).copy(), 1, 3),
        lambda x: x[:, ::-1][:, ::-1],
        lambda x: x.astype(">f4"),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE),
    ],
    ids=["transposed", "twice-backwards", "big-endian", "misaligned-and-read-only"],
)
def test_same_values_in_other_memory_give_the_same(runner, change):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    np.testing.assert_array_equal(runner.run([change(x)])[0], runner.run([x])[0])


@pytest.mark.parametrize("has", [frozenset(), frozenset({"avx2", "fma"}), frozenset({"avx"})])
def test_a_library_for_other_vectors_is_refused_before_it_runs(has, tmp_path, monkeypatch):
    """All of it is TVM's here, whose code asks no CPU; a system that does not tell refuses nothing."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["d"]), helper.make_node("Add", ["x", "d"], ["y"])],
        "g",
        [x],
        [y],
        [numpy_helper.from_array(np.array(0), "axis")],
    )
    export_library(convoy.compile(helper.make_model(graph), target="haswell"), tmp_path / "net.so")
    monkeypatch.setattr(library_module, "host", lambda: replace(convoy.target.host(), features=has))
    if has != {"avx"}:
        Runner(tmp_path / "net.so").run([np.eye(4, dtype="float32")])
        return
    with pytest.raises(
        ModelError,
        match=r"expected a CPU with avx2, fma, for which it was compiled, got one without; compile",
    ):
        Runner(tmp_path / "net.so")


def test_what_is_no_library_by_its_name_is_refused(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"model")
    with pytest.raises(
        ModelError, match=r"expected a library, whose name ends in .so, got net.onnx; make one"
    ):
        Runner(model)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([np.zeros(SHAPE, object)], r"run: input 0: expected an array of real numbers, got dtype object"),
        (
            [np.zeros(SHAPE, np.complex64)],
            "input 0: expected an array of real numbers, got dtype complex64",
        ),
        ([np.zeros((1, 3, 8, 9), np.float32)], r"got float32 \[1, 3, 8, 9\].*param=x.*shape\[3\]"),
        ([np.zeros(SHAPE)], r"got float64 \[1, 3, 8, 8\].*param=x.*float32"),
        ([], r"got no inputs.*expects 1 arguments"),
        (
            np.zeros(SHAPE, np.float32),
            r"run: inputs: expected a sequence of arrays, got .* type ndarray",
        ),
        (
            {"x": np.zeros(SHAPE)},
            r"run: VMExecutable: expected a library that describes itself, got one that does not",
        ),
        (
            [[1.0]],
            "run: input 0: expected a NumPy array or a tensor in the CPU's memory, got .* of type list",
        ),
    ],
    ids=["objects", "complex", "shape", "dtype", "number", "bare", "dict", "list"],
)
def test_other_values_are_one_clear_error(runner, given, problem):
    with pytest.raises(ModelError, match=problem):
        runner.run(given)


def test_memory_that_runs_out_is_one_clear_error(build):
    runner = Runner(build(make_region("convoy_hungry", arena_bytes=1 << 60)))
    with pytest.raises(
        ModelError, match=r"run: main: expected enough memory for a run, got .*convoy_hungry"
    ):
        runner.run([np.zeros(SHAPE, np.float32)])


@pytest.mark.parametrize("part", [0.001, 0.5, 0.999])
def test_a_library_cut_short_is_refused_before_it_is_loaded(build, library_path, part):
    build(make_region("convoy_cut")).export_library(str(library_path))
    Runner(library_path)
    whole = library_path.read_bytes()
    cut = library_path.with_name("cut.so")
    cut.write_bytes(whole[: max(64, int(part * len(whole)))])
    with pytest.raises(
        ModelError, match=rf"cut.so: expected a library of {len(whole)} bytes, got \d+; copy"
    ):
        Runner(cut)


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (1, 3, 0, 8)])
def test_scalars_and_arrays_of_nothing_keep_their_shape(shape):
    # NumPy's strides of nothing are 0, and TVM's checks want those of a dense array
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(tvm.relax.op.negative(x)))
    (y,) = Runner(tvm.compile(builder.finalize(), "llvm")).run([np.full(shape, 2, np.float32)])
    assert (y.shape, y.dtype) == (shape, np.float32)
    assert (y == -2).all()


def in_fresh_process(code: str, *arguments: Path) -> str:
    """What ``code`` prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_library_runs_without_tvms_compiler(build, library_path):
    region = make_region("convoy_light")
    build(region).export_library(str(library_path))
    result = library_path.with_suffix(".npy")
    code = (
        "import sys, numpy as np\n"
        "from convoy.deploy.runtime import keep_torch_out\n"
        "keep_torch_out()\n"
        "from convoy.deploy.runner import Runner\n"
        f"x = np.random.default_rng(3).standard_normal({region.input().shape}).astype('float32')\n"
        "np.save(sys.argv[2], Runner(sys.argv[1]).run([x])[0])\n"
        "assert 'tvm' not in sys.modules and not sys.modules['torch']\n"
        "assert 'libtvm_compiler' not in open('/proc/self/maps').read()\n"
    )
    in_fresh_process(code, library_path, result)
    x = np.random.default_rng(3).standard_normal(region.input().shape).astype(np.float32)
    np.testing.assert_array_equal(np.load(result), -region.expected(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "team", "threads"),
    [(1 << 12, False, [3, 2]), (1 << 12, True, []), (4, False, [])],
    ids=["pool", "team", "too-small"],
)
def test_tvms_pool_has_as_many_threads_as_regions_where_it_runs_loops(monkeypatch, rows, team, threads):
    # it does in libraries made before their own teams ran loops, too
    given = []
    if not team:
        monkeypatch.setattr(describe, "has_team", lambda module: False)
    monkeypatch.setattr(runner_module, "_limit_threads_of_tvm", given.append)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Sinh", ["a"], ["d"]),
    ]
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 32, 32, 32]), ("a", [rows, 64]), ("h", None), ("d", None))
    ]
    w = numpy_helper.from_array(np.ones((32, 32, 3, 3), np.float32), "w")
    model = helper.make_model(
        helper.make_graph(nodes, "net", tensors[:2], tensors[2:], [w]),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    library = convoy.compile(model, threads=3)
    Runner(library)
    Runner(library, threads=2)
    assert given == threads


@pytest.mark.slow
@pytest.mark.parametrize("compiled", ["in this process", "before"])
def test_workers_of_tvm_sleep_between_runs(compiled, library_path):
    # those that spin end minutes late on a busy machine, and the process with them
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1 << 12, 64]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Sinh", ["x"], ["y"])], "net", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    if compiled == "before":
        given, source = library_path, "sys.argv[1]"
        export_library(convoy.compile(model), given)
    else:
        given, source = library_path.with_suffix(".onnx"), "convoy.compile(sys.argv[1])"
        onnx.save(model, given)
    code = (
        "import sys, time, numpy as np, convoy\n"
        f"runner = convoy.load({source}, threads=2)\n"
        "x = np.ones((1 << 12, 64), np.float32)\n"
        "runner.run([x])\n"
        "time.sleep(0.5)\n"
        "def others(): return time.process_time() - time.thread_time()\n"
        "before, spent = others(), 0.0\n"
        "for _ in range(10):\n"
        "    runner.run([x])\n"
        "    ran = others()\n"
        "    time.sleep(0.05)\n"
        "    spent += others() - ran\n"
        "print(spent if ran > before else 'no worker')\n"
    )
    assert float(in_fresh_process(code, given)) < 0.1


def test_threads_of_a_library_without_regions():
    # nothing of Convoy's is in it: it runs as TVM compiled it
    node = helper.make_node("Sinh", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    model = helper.make_model(
        helper.make_graph([node], "net", [x], [y]), opset_imports=[helper.make_opsetid("", 18)]
    )
    data = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(
        Runner(convoy.compile(model), threads=2).run([data])[0], np.sinh(data), atol=1e-6
    )


def test_a_library_written_anew_is_loaded_anew(library_path):
    # the loader of the system gives what it has loaded by this name
    runners = []
    for scale in (2.0, 3.0):
        node = helper.make_node("Mul", ["x", "scale"], ["y"])
        value = numpy_helper.from_array(np.float32([scale]), "scale")
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
        export_library(
            convoy.compile(helper.make_model(helper.make_graph([node], "g", [x], [y], [value]))),
            library_path,
        )
        runners += [Runner(library_path), Runner(library_path)]
    assert [float(runner.run([np.ones(4, np.float32)])[0][0]) for runner in runners] == [2, 2, 3, 3]


def test_a_dropped_runner_lets_its_library_go(build, library_path):
    # what it computed stays; the weights and threads of the library do not
    region = make_region("convoy_dropped")
    build(region).export_library(str(library_path))
    code = (
        "import gc, sys, numpy as np\n"
        "from convoy.deploy.runner import Runner\n"
        "def mapped(): return sys.argv[1] in open('/proc/self/maps').read()\n"
        "runner = Runner(sys.argv[1])\n"
        f"runner.bind([np.ones({region.input().shape}, np.float32)])\n"
        "held, used = runner.call(), mapped()\n"
        "del runner; gc.collect()\n"
        "print(used, mapped(), np.from_dlpack(held).sum())\n"
    )
    used, after, total = in_fresh_process(code, library_path).split()
    assert (used, after) == ("True", "False")
    ones = np.ones(region.input().shape, np.float32)
    assert float(total) == pytest.approx(-region.expected(ones).sum(), rel=1e-4)


def test_the_program_of_the_documentation_runs_a_library(build, library_path):
    region = make_region("convoy_documented")
    build(region).export_library(str(library_path))
    program = block(DOCS / "running.md", "With TVM's packages alone", "python")
    shape = region.input().shape
    code = f"import numpy as np; image = np.ones({shape}, np.float32)\n{program}\nprint(scores.sum())"
    printed = in_fresh_process(code.replace("resnet50.so", str(library_path)))
    assert float(printed) == pytest.approx(-region.expected(np.ones(shape, np.float32)).sum(), rel=1e-4)


@pytest.mark.slow
def test_the_program_without_python_runs_a_library(build, library_path, tmp_path):
    region = make_region("convoy_from_cpp", shape=(1, 3, 224, 224))
    build(region).export_library(str(library_path))
    program, commands = (block(DOCS / "running.md", "Without Python", kind) for kind in ("cpp", "sh"))
    (tmp_path / "run.cc").write_text(program)
    commands = commands.replace("python -c", f"{sys.executable} -c")
    script = commands.replace("$PWD/resnet50.so", str(library_path))
    ended = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    values, first = re.fullmatch(r"(\d+) values, the first is (\S+)\n", ended.stdout).groups()
    expected = -region.expected(np.full((1, 3, 224, 224), 0.5, np.float32))
    assert int(values) == expected.size
    assert float(first) == pytest.approx(expected.ravel()[0], rel=1e-4)


@pytest.mark.slow
def test_an_op_that_tvm_has_in_python_only_is_found(library_path):
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(tvm.relax.op.nonzero(x)))
    tvm.compile(builder.finalize(), "llvm").export_library(str(library_path))
    code = (
        "import sys, numpy as np\n"
        "from convoy.deploy.runner import Runner\n"
        "print(Runner(sys.argv[1]).run([np.float32([[0, 1, 0], [2, 0, 3]])])[0].tolist())"
    )
    assert in_fresh_process(code, library_path) == "[[0, 1, 1], [1, 0, 2]]"
