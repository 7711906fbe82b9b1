"""Eight threads of a process compile eight models: TVM's own state in classes is kept apart."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from command import tiny_model
from convoy.errors import ModelError
from convoy.relax.importer import load

THREADS = 8

PROGRAM = """
import sys, threading, traceback
sys.path[:0] = {paths!r}
sys.setswitchinterval(1e-5)
from robustness.test_concurrent_compile import THREADS, compile_and_run, model

failures, models = [], [model(i) for i in range(THREADS)]

def work(i):
    try:
        compile_and_run(i, models[i])
    except BaseException:
        failures.append(traceback.format_exc())

before = sys.stdout, sys.stderr
threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert (sys.stdout, sys.stderr) == before
print(len(failures), *failures[:2])
"""


def model(seed: int) -> onnx.ModelProto:
    """A convolution of Convoy's and ops that TVM legalizes, each of its own size."""
    random = np.random.default_rng(seed)
    weight = random.standard_normal((4 + seed % 3, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["1.x", "w"], ["a"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("CumSum", ["b", "axis"], ["c"]),
        helper.make_node("Erf", ["c"], ["d"]),
        helper.make_node("ReduceL2", ["d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        f"model{seed}",
        [helper.make_tensor_value_info("1.x", TensorProto.FLOAT, [1, 3, 5 + seed, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.array(1), "axis"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compile_and_run(i: int, given: onnx.ModelProto) -> None:
    """Through ``convoy.compile``, or TVM's own entry, for Convoy or not; against ONNX Runtime."""
    import onnxruntime

    if i % 2:
        executable = convoy.compile(given)
    else:
        import tvm

        executable = tvm.compile(load(given), target="llvm" if i % 4 else "convoy")
    from convoy.deploy.runner import Runner

    x = np.random.default_rng(i).standard_normal((1, 3, 5 + i, 6)).astype(np.float32)
    (found,) = Runner(executable).run([x])
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, session.run(None, {"1.x": x})[0], rtol=1e-4)


@pytest.mark.slow
def test_threads_that_compile_first_thing() -> None:
    # TVM and its door are imported by them, too
    paths = [str(Path(__file__).parents[1]), str(Path(convoy.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(paths=paths)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stdout + done.stderr
    assert done.stderr == ""


def test_a_node_that_cannot_be_converted_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    given, stdout = tiny_model(), sys.stdout
    del given.graph.node[-1].attribute[:]
    given.graph.node[-1].attribute.append(helper.make_attribute("axis", 9))  # of 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ModelError, match=r"import: tiny: .* expected a node"):
            load(given)
    assert sys.stdout is stdout
    assert capfd.readouterr() == ("", "")


def test_builders_and_tags_are_each_threads_own() -> None:
    from tvm import relax, te
    from tvm.te import tag

    builder, seen = relax.BlockBuilder(), []

    def look() -> None:
        with te.tag_scope("other"):  # TVM refuses one within another
            seen.append((relax.BlockBuilder.current(), tag.TagScope.get_current().tag))

    with te.tag_scope("mine"):
        with builder.function("main", []):
            other = threading.Thread(target=look)
            other.start()
            other.join()
            assert relax.BlockBuilder.current() is builder
            builder.emit_func_output(relax.Tuple([]))
        assert tag.TagScope.get_current().tag == "mine"
    assert seen == [(None, "other")]
