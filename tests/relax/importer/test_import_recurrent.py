"""RNN, GRU and LSTM against ONNX Runtime: a loop where there is one, else written out step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import convoy
from convoy.errors import ModelError
from convoy.graph.ops import SIGMOID, TANH
from convoy.relax.importer import load, recurrent_loops
from convoy.relax.importer.recurrent_loops import Form
from convoy.report.decision import Report
from pairs import pairs

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
INPUT = 6


def make(
    op: str,
    hidden: int = 16,
    steps: int | str = 7,
    batch: int | str = "N",
    *,
    given: tuple[str, ...] = (),
    constant: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; ``given`` are its optional inputs, bias to peepholes, by name."""
    rng = np.random.default_rng(7)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * hidden
    shapes = {
        "w": (directions, rows, INPUT),
        "r": (directions, rows, hidden),
        "b": (directions, 2 * rows),
        "p": (directions, 3 * hidden),
    }
    names = ["x", "w", "r", *(n if n in given else "" for n in ("b", "lengths", "h0", "c0", "p"))]
    while not names[-1]:
        names.pop()
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    weights = [n for n in names if n in shapes]
    arrays = {n: (rng.standard_normal(shapes[n]) / 3).astype("float32") for n in weights}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, INPUT])]
    for name in given:
        if name == "lengths":
            inputs.append(helper.make_tensor_value_info(name, TensorProto.INT32, [batch]))
        elif name in ("h0", "c0"):
            inputs.append(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, [directions, batch, hidden])
            )
    if not constant:
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in arrays.items()]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, "cell", hidden_size=hidden, **attributes)],
        "network",
        inputs,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()] if constant else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(model: onnx.ModelProto, images: int, rng: np.random.Generator) -> list[np.ndarray]:
    arrays = []
    for value in model.graph.input:
        shape = [dim.dim_value or images for dim in value.type.tensor_type.shape.dim]
        if value.name == "lengths":
            arrays.append(np.array([3, 7, 0][:images], "int32"))
        else:
            # larger weights of a state make an unstable system, which amplifies any rounding
            size = 2 if value.name == "x" else 1 / 3
            arrays.append((size * rng.standard_normal(shape)).astype("float32"))
    return arrays


def agree(model: onnx.ModelProto, images: int | tuple[int, ...], run_tvm, run_onnx, rng) -> None:
    """``images``: what an open size is; several: each in turn, of what is loaded and compiled once."""
    module = load(model)
    for size in (images,) if isinstance(images, int) else images:
        arrays = feed(model, size, rng)
        for got, wanted in zip(run_tvm(module, *arrays), run_onnx(model, *arrays), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-6)


OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain": ((), {}),
    "bias": (("b",), {}),
    "backward": (("b",), {"direction": "reverse"}),
    "both ways, from a state": (("b", "h0"), {"direction": "bidirectional"}),
    "clipped": (("b",), {"clip": 0.6}),
}


@pytest.mark.parametrize(("options", "images"), [*zip(OPTIONS, (1, 3, 1, 3, 1), strict=True)])
@pytest.mark.parametrize("op", GATES)
def test_a_loop_gives_what_onnx_runtime_gives(
    op, options, images, run_tvm, run_onnx, rng, count_ops
) -> None:
    given, attributes = OPTIONS[options]
    model = make(op, given=given, **attributes)
    found = count_ops(load(model))
    assert found["convoy.recurrent"] == (2 if "direction" in attributes and "h0" in given else 1)
    agree(model, images, run_tvm, run_onnx, rng)


ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "as Keras wrote an LSTM": ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}),
    "relu in an LSTM": ("LSTM", {"activations": ["Sigmoid", "Relu", "Relu"]}),
    "slopes": ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.3]}),
    "relu": ("RNN", {"activations": ["Relu"]}),
    "elu, reset last": (
        "GRU",
        {"activations": ["Sigmoid", "Elu"], "activation_alpha": [0.7], "linear_before_reset": 1},
    ),
    "reset first": ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.1]}),
    "each way its own": (
        "LSTM",
        {
            "direction": "bidirectional",
            "activations": ["HardSigmoid", "Tanh", "Elu", "Sigmoid", "Relu", "Tanh"],
            "activation_alpha": [0.3, 0.8],
            "activation_beta": [0.4],
            "clip": 0.9,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_loop_of_other_activations(name: str, run_tvm, run_onnx, rng, count_ops) -> None:
    op, attributes = ACTIVATIONS[name]
    model = make(op, given=("b", "h0"), **attributes)
    assert "convoy.recurrent" in count_ops(load(model))
    agree(model, 3, run_tvm, run_onnx, rng)
    exe = convoy.compile(load(model))
    arrays = feed(model, 3, rng)
    got = relax.VirtualMachine(exe, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    for ours, wanted in zip(got, run_onnx(model, *arrays), strict=True):
        np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("loop", ["lstm_loop", "gru_loop", "gru_reset_first_loop", "rnn_loop"])
def test_a_bound_makes_a_loop_little_longer(loop: str) -> None:
    """An activation names its argument many times, a bound four times: TVM took 20 s for a clipped LSTM."""
    plain, clipped = (
        len(getattr(recurrent_loops, loop)(Form(7, 16, False, True, bound, (SIGMOID, TANH, TANH))).script())
        for bound in (0.0, 0.6)
    )
    assert plain < clipped < 1.2 * plain


@pytest.mark.parametrize("op", [*GATES, "GRU, reset last"])
def test_threads_that_share_the_sequences_have_memory_of_their_own(op: str, run_tvm, rng) -> None:
    attributes = {"linear_before_reset": 1} if "," in op else {}
    model = load(make(op[:4].rstrip(","), 64, 20, given=("b",), **attributes))
    x = rng.standard_normal((20, 1, 6)).astype("float32")
    one = [y.take(0, -2) for y in run_tvm(model, x)]
    for many in zip(one, run_tvm(model, x.repeat(200, 1)), strict=True):
        np.testing.assert_array_equal(many[1], many[0][..., None, :].repeat(200, -2))


@pytest.mark.parametrize("hidden", [5, 40])
@pytest.mark.parametrize("op", [*GATES, "GRU, reset last"])
def test_any_size_of_a_state(op: str, hidden: int, run_tvm, run_onnx, rng) -> None:
    attributes = {"linear_before_reset": 1} if "," in op else {}
    agree(make(op[:4].rstrip(","), hidden, given=("b",), **attributes), 2, run_tvm, run_onnx, rng)


@pytest.mark.slow
def test_both_states_and_peepholes_of_an_lstm(run_tvm, run_onnx, rng) -> None:
    agree(make("LSTM", given=("b", "h0", "c0", "p")), 3, run_tvm, run_onnx, rng)


@pytest.mark.slow
def test_images_in_front(run_tvm, rng) -> None:
    """ONNX Runtime has no layout 1: the same with the axes moved."""
    model = make("GRU", given=("b",))
    (x,) = feed(model, 3, rng)
    y, h = run_tvm(load(model), x)
    model.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    swapped = model.graph.input[0].type.tensor_type.shape
    swapped.dim[0].dim_param, swapped.dim[1].dim_value = "N", 7
    got_y, got_h = run_tvm(load(model), np.ascontiguousarray(x.transpose(1, 0, 2)))
    np.testing.assert_array_equal(got_y, y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(got_h, h.transpose(1, 0, 2))


WRITTEN_OUT: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "lengths and a bound": ("LSTM", ("b", "lengths", "h0", "c0"), {"clip": 0.6}),
    "lengths and activations": (
        "GRU",
        ("b", "lengths", "h0"),
        {"direction": "bidirectional", "activations": ["HardSigmoid", "Softplus"] * 2},
    ),
    "activations": ("LSTM", ("b",), {"activations": ["HardSigmoid", "Softsign", "Relu"]}),
    "slopes": (
        "RNN",
        ("b",),
        {"activations": ["ThresholdedRelu"], "activation_alpha": [0.3]},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_what_no_loop_does_is_written_out(name: str, run_tvm, run_onnx, rng, count_ops) -> None:
    op, given, attributes = WRITTEN_OUT[name]
    model = make(op, given=given, **attributes)
    assert "convoy.recurrent" not in count_ops(load(model))
    agree(model, 3, run_tvm, run_onnx, rng)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["T", 90])
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_what_no_loop_does_is_a_scan_of_many_or_open_steps(
    name: str, steps: int | str, run_tvm, run_onnx, rng
) -> None:
    op, given, attributes = WRITTEN_OUT[name]
    backward = {} if "direction" in attributes else {"direction": "reverse"}
    model = make(op, 8, steps, given=given, **attributes, **backward)
    x, *rest = feed(model, 3, rng)
    arrays = [x if steps == 90 else x.repeat(3, 0), *rest]
    for got, wanted in zip(run_tvm(load(model), *arrays), run_onnx(model, *arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["LSTM", "RNN", "GRU", "GRU, reset last"])
def test_sequences_end_at_their_lengths(op: str, run_onnx, rng, count_ops) -> None:
    attributes = {"linear_before_reset": 1} if "," in op else {}
    states = ("h0", "c0", "p") if op == "LSTM" else ("h0",)
    given = ("b", "lengths", *states)
    model = make(op.split(",")[0], 16, "T", given=given, direction="bidirectional", **attributes)
    assert "convoy.recurrent" in count_ops(load(model))
    machine = relax.VirtualMachine(convoy.compile(model, threads=2), tvm.cpu())
    whole, _, *rest = feed(model, 3, rng)
    for lengths in ([3, 3, 3], [0, 3, 1], [1, 2, 2]):
        x = whole.copy()
        for n, length in enumerate(lengths):
            x[length:, n] = np.nan  # what fills the tensor up is read by no one
        arrays = [x, np.array(lengths, np.int32), *rest]
        found = machine["main"](*map(tvm.runtime.tensor, arrays))
        for got, wanted in zip(found, run_onnx(model, *arrays), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("activations", [[], ["HardSigmoid", "Tanh"]])
@pytest.mark.parametrize("lengths", [[7, 8, 1], [1, -1, 1]])
def test_lengths_beyond_the_steps_end_a_call(lengths, activations, rng) -> None:
    attributes = {"activations": activations} if activations else {}
    model = make("GRU", given=("b", "lengths"), **attributes)
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    x, right = feed(model, 3, rng)
    machine["main"](*map(tvm.runtime.tensor, (x, right)))
    with pytest.raises(Exception, match="got one outside"):
        machine["main"](*map(tvm.runtime.tensor, (x, np.array(lengths, np.int32))))


def fix_lengths(*lengths: int) -> onnx.ModelProto:
    model = make("RNN", batch=2, given=("b", "lengths"))
    del model.graph.input[1:]
    model.graph.initializer.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
    return model


@pytest.mark.slow
def test_constant_lengths(run_tvm, run_onnx, rng) -> None:
    for lengths in ((7, 7), (2, 7)):
        agree(fix_lengths(*lengths), 2, run_tvm, run_onnx, rng)
    with pytest.raises(ModelError, match=r"expected lengths from 0 to the 7 steps there are, got \[8, 1\]"):
        load(fix_lengths(8, 1))


def test_lengths_that_are_all_the_steps_cost_nothing(count_ops) -> None:
    assert (
        count_ops(load(fix_lengths(7, 7)))["call_tir"] == 0 < count_ops(load(fix_lengths(7, 6)))["call_tir"]
    )


@pytest.mark.slow
def test_weights_that_are_fed_are_written_out(run_tvm, run_onnx, rng) -> None:
    agree(make("GRU", given=("b",), constant=False, linear_before_reset=1), 2, run_tvm, run_onnx, rng)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"activations": ["Gelu", "Relu"]}, "GRU with the activations Gelu, Relu"),
    ],
)
def test_what_can_be_neither_is_refused_with_a_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=rf"^import: network: GRU cell: .*{reason}") as refusal:
        load(make("GRU", **changes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("op", ["LSTM", "RNN", "GRU", "GRU, reset last"])
def test_the_product_with_the_inputs_and_the_loop_are_in_a_region(op: str) -> None:
    report = Report()
    attributes = {"linear_before_reset": 1} if "," in op else {}
    convoy.compile(make(op[:4].rstrip(","), 64, 50, 1, given=("b",), **attributes), report=report)
    ops = [op for region in report.regions for op in region.ops]
    assert (ops.count("matmul"), ops.count("recurrent")) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "batch", "images"),
    pairs(["LSTM", "RNN", "GRU", "GRU, reset last"], ["N", "as many"], [1, 3]),
)
def test_a_compiled_loop_gives_what_onnx_runtime_gives(op, batch, images, run_onnx, rng) -> None:
    attributes = {"linear_before_reset": 1} if "," in op else {}
    states = ("h0", "c0", "p") if op == "LSTM" else ("h0",)
    model = make(
        op[:4].rstrip(","), 40, 7, "N" if batch == "N" else images, given=("b", *states),
        direction="bidirectional", clip=0.9, **attributes,
    )  # fmt: skip
    arrays = feed(model, images, rng)
    machine = relax.VirtualMachine(convoy.compile(model, threads=2), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, arrays))
    for got, wanted in zip(found, run_onnx(model, *arrays), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.slow
def test_states_of_an_unnamed_batch_are_of_the_inputs(run_onnx, rng) -> None:
    # x [7, N, 6] and states [1, ?, 16]: a call shows that both are as many
    model = make("LSTM", given=("b", "h0", "c0"))
    for value in model.graph.input[1:]:
        value.type.tensor_type.shape.dim[1].Clear()
    report = Report()
    machine = relax.VirtualMachine(convoy.compile(model, threads=2, report=report), tvm.cpu())
    assert any("recurrent" in region.ops for region in report.regions)
    for images in (1, 4):
        arrays = feed(model, images, rng)
        found = machine["main"](*map(tvm.runtime.tensor, arrays))
        for got, wanted in zip(found, run_onnx(model, *arrays), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=2e-6)
    x, h0, c0 = feed(model, 3, rng)
    with pytest.raises(Exception, match=r"(?i)match|expect|shape"):
        machine["main"](*map(tvm.runtime.tensor, (x, h0[:, :2].copy(), c0)))


@pytest.mark.slow
def test_infinities_saturate_as_in_onnx_runtime_and_nan_stays(run_tvm, run_onnx, rng) -> None:
    model = make("LSTM", given=("b",))
    (x,) = feed(model, 2, rng)
    x[2, 0, 0] = np.inf
    wanted = run_onnx(model, x)[0]
    x[4, 1, 1] = np.nan  # which ONNX Runtime's activations lose
    got = run_tvm(load(model), x)[0]
    np.testing.assert_allclose(got[:, :, 0], wanted[:, :, 0], rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(got[:4, :, 1], wanted[:4, :, 1], rtol=1e-4, atol=2e-6)
    assert np.isnan(got[4:, :, 1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("op", ["LSTM", "RNN", "GRU", "GRU, reset last"])
def test_any_number_of_steps(op: str, run_tvm, run_onnx, rng) -> None:
    attributes = {"linear_before_reset": 1} if "," in op else {}
    model = make(op.split(",")[0], 16, "T", 2, given=("b", "h0"), direction="bidirectional", **attributes)
    agree(model, (3, 7), run_tvm, run_onnx, rng)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["LSTM", "RNN", "GRU", "GRU, reset last"])
def test_open_steps_of_a_batch_that_is_known_are_no_images(op: str, run_onnx, rng) -> None:
    # x [T, 2, 6]: with the steps in front a region of theirs would take each step for a sequence
    attributes = {"linear_before_reset": 1} if "," in op else {}
    model = make(op.split(",")[0], 16, "T", 2, given=("b",), **attributes)
    machine = relax.VirtualMachine(convoy.compile(model, threads=2), tvm.cpu())
    for steps in (1, 9):
        (x,) = feed(model, steps, rng)
        found = machine["main"](tvm.runtime.tensor(x))
        for got, wanted in zip(found, run_onnx(model, x), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["LSTM", "RNN", "GRU", "GRU, reset last"])
def test_a_call_without_a_step_is_refused(op: str, run_tvm, rng) -> None:
    # the last state was read in front of the first row of outputs
    attributes = {"linear_before_reset": 1} if "," in op else {}
    model = make(op.split(",")[0], 16, "T", 2, given=("b",), **attributes)
    with pytest.raises(Exception, match=r"(?i)match|expect|shape"):
        run_tvm(load(model), np.zeros((0, 2, 6), np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2, "N"])
def test_states_that_are_made_of_zeros_are_none(batch: int | str, run_onnx, rng) -> None:
    # a state beside the region was a constant, which left the loop to TVM
    model = make("LSTM", batch=batch, given=("b", "h0", "c0"))
    del model.graph.input[1:]
    zeros = onnx.parser.parse_graph("""g (float[7,N,6] x) => (float[1,N,16] h0, float[1,N,16] c0) {
        images = Shape <start = 1, end = 2> (x)
        one = Constant <value_ints = [1]> () cells = Constant <value_ints = [16]> ()
        shape = Concat <axis = 0> (one, images, cells)
        h0 = ConstantOfShape (shape) c0 = ConstantOfShape (shape) }""")
    nodes = [*zeros.node, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    report = Report()
    runner = convoy.load(convoy.compile(model, report=report))
    assert not [d for d in report.refusals if "recurrent" in d.node]
    x = rng.standard_normal((7, 2, INPUT)).astype("float32")
    for got, wanted in zip(runner.run([x]), run_onnx(model, x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
