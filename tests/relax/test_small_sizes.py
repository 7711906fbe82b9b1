"""Open sizes of which an op makes one below 0, or a window none: the call ends in a line that says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax, tirx

import convoy
import convoy.onnx
from convoy.errors import ModelError
from convoy.relax.room import expect_room
from convoy.relax.shortage import Shortage, may_be_less
from relax.onnx_models import run_onnx

CONV = "y = Conv<kernel_shape = [5, 5]>(x, k)"
SMALL = {
    "a convolution": (CONV, "h - 4, axis 2 of conv2d y, is less than 1; let h be at least 5"),
    "one of stride 2": (
        "y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k)",
        r"\(h - 3\) // 2 \+ 1, axis 2 of conv2d y, is less than 1; let h be at least 3",
    ),
    "one of several": (
        "a = Conv(x, k) b = Relu(a) y = MaxPool<kernel_shape = [3, 3]>(b)",
        "h - 6, axis 2 of max_pool2d y, is less than 1; let h be at least 7",
    ),
    "one turned around": (
        "y = ConvTranspose<pads = [4, 4, 4, 4]>(x, k)",
        "h - 4, axis 2 of conv2d_transpose y, is less than 1; let h be at least 5",
    ),
    "a pool": (
        "y = AveragePool<kernel_shape = [4, 4]>(x)",
        "h - 3, axis 2 of avg_pool2d y, is less than 1; let h be at least 4",
    ),
    "a pool that TVM computes": (
        "i = Cast<to = 3>(x) y = MaxPool<kernel_shape = [4, 4]>(i)",
        "h - 3, axis 2 of max_pool2d y, is less than 1; let h be at least 4",
    ),
    "a crop": (
        "w = Constant<value_ints = [0, 0, -2, 0, 0, 0, -1, 0]>() y = Pad(x, w)",
        "h - 3, axis 2 of y, is less than 0; let h be at least 3",
    ),
    "a count": (
        "s = Shape<start = 2, end = 3>(x) t = Constant<value_ints = [4]>() d = Sub(s, t)"
        " y = ConstantOfShape(d)",
        "h - 4, which y needs, is less than 0; let h be at least 4",
    ),
}


def network(body: str) -> onnx.ModelProto:
    given, made = "float[n, 3, h, w] x", "float[a, b, c, d] y"
    text = f'<ir_version: 9, opset_import: ["": 18]> g ({given}) => ({made}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    if "k)" in body:
        kernel = np.ones((3, 3, 5, 5), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "k"))
    model.graph.output[0].CopyFrom(onnx.helper.make_empty_tensor_value_info("y"))
    (typed,) = onnx.shape_inference.infer_shapes(model).graph.output
    model.graph.output[0].type.tensor_type.elem_type = typed.type.tensor_type.elem_type
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_size_that_is_too_small_is_named(name: str) -> None:
    # one such size was std::bad_alloc in TVM's virtual machine, and two of them a tensor that has both
    body, words = SMALL[name]
    model = network(body)
    built = convoy.compile(model, threads=1)
    main, runner = relax.VirtualMachine(built, tvm.cpu())["main"], convoy.Runner(built)
    for shape in ((1, 3, 1, 9), (2, 3, 1, 1), (0, 3, 1, 2)):
        x = np.ones(shape, np.float32)
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            run_onnx(model, x)
        with pytest.raises(RuntimeError, match=rf"^expected sizes .* some of which {words}$"):
            main(tvm.runtime.tensor(x))
        with pytest.raises(ModelError, match=f"of them {words}$"):
            runner.run([x])
    large = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(np.float32)
    np.testing.assert_allclose(runner.run([large])[0], run_onnx(model, large)[0], rtol=1e-4, atol=1e-4)


def test_a_session_that_reads_the_sizes_says_it_too() -> None:
    session = convoy.onnx.InferenceSession(network(SMALL["one of several"][0]).SerializeToString())
    problem = r"Conv a: expected a result that can be, got the shape \[n, 3, -3, 1\]; give a larger input"
    with pytest.raises(ModelError, match=problem):
        session.run(None, {"x": np.ones((1, 3, 1, 5), np.float32)})
    assert session.run(None, {"x": np.ones((1, 3, 7, 8), np.float32)})[0].shape == (1, 3, 1, 2)


def test_checks_are_no_ops_of_the_network() -> None:
    report = convoy.Report()
    convoy.compile(network(CONV), threads=1, strict=True, report=report)
    assert [d for d in report.decisions if d.choice == "left"] == []


@pytest.mark.slow
def test_checks_read_no_data() -> None:
    # or memory of an input would have to lie where TVM's kernels want it, and be copied else
    convolution, left = (convoy.compile(network(SMALL[name][0])) for name in ("a convolution", "a crop"))
    assert [convoy.Runner(built).description.alignments for built in (convolution, left)] == [(4,), (64,)]


@pytest.mark.parametrize(
    ("size", "negative", "none"),
    [
        (lambda h, w: h - 1, True, True),
        (lambda h, w: (h - 1) // 2 + 1, False, False),
        (lambda h, w: h // 2, False, True),
        (lambda h, w: tirx.max(h - 4, 1), False, False),
        (lambda h, w: h * w + 2, False, False),
        (lambda h, w: h - tirx.min(h, w), False, True),
    ],
)
def test_which_sizes_may_be_too_small(size: Any, negative: bool, none: bool) -> None:
    made = size(*(tirx.Var(name, "int64") for name in "hw"))
    assert may_be_less(made, 0, 0, {}) is negative
    assert may_be_less(made, 1, 1, {}) is none


def test_what_a_run_finds_may_be_nothing() -> None:
    assert may_be_less(tirx.Var("late", "int64"), 1, 1, {})
    assert not may_be_less(tirx.Var("n", "int64"), 1, 1, {})


def test_what_is_known_of_a_size_is_not_too_small() -> None:
    h, w = (tirx.Var(name, "int64") for name in "hw")
    assert may_be_less(h - 4, 1, 1, {w: 9})
    assert not may_be_less(h - 4, 1, 1, {h: 5})
    assert not may_be_less((h + 24) // 28 * 7 - 3, 0, 0, {h: 4})


def test_a_remedy_is_one_that_helps() -> None:
    h, w, late = (tirx.Var(name, "int64") for name in ("h", "w", "late"))
    assert Shortage((h - 7) // 2 + 1, 1).words.endswith("; let h be at least 7")
    for size in (h - w, 4 - h, late - 1):
        assert Shortage(size, 1).words.endswith("; give larger inputs")
    assert "a size it computes - 1 is less than 1" in Shortage(late - 1, 1).words


def test_sizes_that_cannot_be_too_small_are_not_checked() -> None:
    x = relax.Var("x", relax.TensorType([tirx.Var(name, "int64") for name in "nchw"], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)))
            given = builder.emit_output(relax.op.exp(made))
        builder.emit_func_output(given)
    module = builder.get()
    tvm.ir.assert_structural_equal(expect_room()(module), module)


def test_a_size_that_is_divided_by_another_is_told_without_what_to_give() -> None:
    """``x[:, 5 % rows:]``, as a roll comes, where the rows behind are so many less 9."""
    text = """<ir_version: 9, opset_import: ["": 18]> g (float[n, h] x) => (float[n, k] y) {
        s = Shape<start = 1>(x) five = Constant<value_ints = [5]>() one = Constant<value_ints = [1]>()
        first = Mod(five, s) nine = Constant<value_ints = [9]>() turned = Slice(x, first, s, one)
        widths = Constant<value_ints = [0, 0, 0, -9]>() y = Pad(turned, widths) }"""
    runner = convoy.Runner(convoy.compile(onnx.parser.parse_model(text), threads=1))
    x = np.arange(40, dtype=np.float32).reshape(2, 20)
    np.testing.assert_array_equal(runner.run([x])[0], x[:, 5:-9])
    with pytest.raises(
        ModelError, match=r"max\(h - 5 % h, 0\) - 9, axis 1 of y, is less than 0; give larger"
    ):
        runner.run([x[:, :10]])


@pytest.mark.parametrize(
    "sizes",
    ["d = Div(sn, sm) s = Sub(d, one)", "d = Div(sn, sm) r = Mod(sn, sm) e = Sub(d, r) s = Sub(e, one)"],
)
def test_a_size_divided_by_none_ends_the_call_and_not_the_process(sizes: str) -> None:
    """The divisor is looked at by a check that stands behind those of the sizes made by it."""
    text = f"""<ir_version: 9, opset_import: ["": 18]> g (float[n] x, float[m] z) => (float[k] y) {{
        sn = Shape(x) sm = Shape(z) one = Constant<value_ints = [1]>()
        o = Constant<value = float[1] {{1.0}}>() {sizes} y = Expand(o, s) }}"""
    executable = convoy.compile(onnx.parser.parse_model(text), threads=1)
    few, many = (np.zeros(n, np.float32) for n in (0, 6))
    with pytest.raises(ModelError, match="is less than"):
        convoy.Runner(executable).run([many, few])
    given = [tvm.runtime.tensor(x) for x in (many, few)]
    with pytest.raises(Exception, match="is less than"):
        relax.VirtualMachine(executable, tvm.cpu())["main"](*given)
    assert convoy.Runner(executable).run([many, many[:2]])[0].shape == (2,)
