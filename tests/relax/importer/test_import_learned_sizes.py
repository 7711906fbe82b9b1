"""What a convolution says of an open size: a call where it has no pixel ends, so what follows has one."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import ModelProto, TensorProto, helper, numpy_helper

import convoy
from convoy.relax.importer import load
from convoy.relax.room import expect_room

node = helper.make_node


def windows(*, patches: bool) -> ModelProto:
    """Patches of an image, padded to whole windows of 7 and rolled by 3, as Swin Transformers do."""
    weight = np.random.default_rng(5).standard_normal((8, 3, 4, 4)).astype("float32")
    numbers = {
        "two": [2],
        "seven": [7],
        "three": [3],
        "zero": [0],
        "zeros": [0, 0, 0, 0, 0],
        "end": [2**62],
    }
    first = node("Conv", ["x", "weight"], ["p"], "patches", strides=[4, 4])
    if not patches:
        first = node("Relu", ["x"], ["p"], "patches")
    nodes = [
        first,
        node("Shape", ["p"], ["rows"], start=2, end=3),
        node("Sub", ["seven", "rows_left"], ["over"]),
        node("Mod", ["over", "seven"], ["more"]),
        node("Concat", ["zero", "zero", "zero", "zero", "zero", "zero", "more", "zero"], ["pads"], axis=0),
        node("Pad", ["p", "pads"], ["padded"]),
        node("Shape", ["padded"], ["all"], start=2, end=3),
        node("Mod", ["three", "all"], ["by"]),
        node("Slice", ["padded", "by", "all", "two"], ["below"]),
        node("Slice", ["padded", "zero", "by", "two"], ["above"]),
        node("Concat", ["below", "above"], ["rolled"], "roll", axis=2),
        node("Relu", ["rolled"], ["y"]),
    ]
    nodes.insert(2, node("Mod", ["rows", "seven"], ["rows_left"]))
    graph = helper.make_graph(
        nodes,
        "windows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), n) for n, v in numbers.items()]
        + [numpy_helper.from_array(weight, "weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def branch() -> ModelProto:
    """A convolution that not every call computes."""
    taken = helper.make_graph(
        [
            node("Conv", ["x", "weight"], ["c"], strides=[4, 4]),
            node("ReduceMean", ["c"], ["m"], keepdims=0),
        ],
        "taken",
        [],
        [helper.make_tensor_value_info("m", TensorProto.FLOAT, [])],
    )
    other = helper.make_graph(
        [node("ReduceMean", ["x"], ["n"], keepdims=0)],
        "other",
        [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, [])],
    )
    nodes = [
        node("If", ["which"], ["b"], then_branch=taken, else_branch=other),
        node("Add", ["x", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "branch",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", 8]),
            helper.make_tensor_value_info("which", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((8, 3, 4, 4), "float32"), "weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
def test_a_shift_is_less_than_windows_of_patches(run_onnx) -> None:
    model = windows(patches=True)
    text = load(model).script(show_meta=False)
    assert "(h + 24) // 28 * 7" in text  # patches are h // 4, and so are whole windows of 7
    assert "late" not in text
    assert "T.min" not in text
    run = convoy.load(convoy.compile(model)).run
    for h in (4, 27, 28, 31, 57):
        x = np.random.default_rng(h).standard_normal((1, 3, h, 8)).astype("float32")
        np.testing.assert_allclose(run([x])[0], run_onnx(model, x)[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(Exception, match=r"h // 4, axis 2 of conv2d patches, is less than 1; let h be at"):
        run([np.zeros((1, 3, 3, 8), "float32")])


@pytest.mark.slow
def test_a_size_that_no_convolution_reads_may_be_1(run_onnx) -> None:
    model = windows(patches=False)
    run = convoy.load(convoy.compile(model)).run
    for h in (1, 2, 7, 8):
        x = np.random.default_rng(h).standard_normal((1, 3, h, 8)).astype("float32")
        np.testing.assert_array_equal(run([x])[0], run_onnx(model, x)[0])


def test_what_is_learned_is_checked_once() -> None:
    module = load(windows(patches=True))
    tvm.ir.assert_structural_equal(expect_room()(module), module)
    other = load(branch())  # the twin: nothing was learned, and nothing is checked yet
    assert not tvm_ffi.structural_equal(expect_room()(other), other)


@pytest.mark.slow
def test_the_least_size_told_is_that_of_all_convolutions(run_onnx) -> None:
    rng = np.random.default_rng(7)
    weights = {"four": (4, 3, 4, 4), "two": (4, 4, 2, 2)}
    nodes = [
        node("Conv", ["x", "four"], ["a"], "first", strides=[4, 4]),
        node("Conv", ["a", "two"], ["b"], "second", strides=[2, 2]),
        node("Conv", ["b", "two"], ["y"], "third", strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "pyramid",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(rng.standard_normal(s).astype("float32"), n) for n, s in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    run = convoy.load(convoy.compile(model)).run
    for height in (0, 1, 3, 4, 15):
        with pytest.raises(Exception, match=r"h // 16, axis 2 of conv2d third, .* let h be at least 16"):
            run([np.zeros((1, 3, height, 32), "float32")])
    with pytest.raises(Exception, match="let w be at least 16"):  # the twin: another size
        run([np.zeros((1, 3, 16, 15), "float32")])
    x = rng.standard_normal((1, 3, 16, 16)).astype("float32")
    np.testing.assert_allclose(run([x])[0], run_onnx(model, x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_branch_says_nothing_of_a_size_outside_of_it(run_onnx) -> None:
    model = branch()
    run = convoy.load(convoy.compile(model)).run
    for h, which in ((1, False), (3, False), (4, True), (9, True)):
        x = np.random.default_rng(h).standard_normal((1, 3, h, 8)).astype("float32")
        given = [x, np.array(which)]
        np.testing.assert_allclose(run(given)[0], run_onnx(model, *given)[0], rtol=1e-4, atol=1e-4)
