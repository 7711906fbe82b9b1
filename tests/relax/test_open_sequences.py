"""Transformers whose batch, length or image is known at the call: one library runs every size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import tvm
from onnx import numpy_helper
from open_models import Both, Sketch
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import convoy
from convoy import Options
from convoy.report.decision import Report

E, HEADS = 32, 4


def attend(s: Sketch, x: str, *, rows: bool = False) -> str:
    """Heads of x [n, t, E], as exporters write them; with ``rows`` the products are of [n * t, E]."""

    def project(x: str, out: int = E) -> str:
        if not rows:
            return s.add("Add", s.add("MatMul", x, s.weight(E, out)), s.weight(out))
        flat = s.add("Gemm", s.add("Reshape", x, s.numbers(-1, E)), s.weight(E, out), s.weight(out))
        return s.add("Reshape", flat, s.add("Concat", s.add("Shape", x, end=2), s.numbers(out), axis=0))

    heads = [s.add("Reshape", project(x), s.numbers(0, 0, HEADS, E // HEADS)) for _ in range(3)]
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (s.add("Transpose", y, perm=perm) for y, perm in zip(heads, orders, strict=True))
    shares = s.add("Softmax", s.add("MatMul", q, k), axis=-1)
    y = s.add("Transpose", s.add("MatMul", shares, v), perm=[0, 2, 1, 3])
    return project(s.add("Reshape", y, s.numbers(0, 0, E)))


def block(s: Sketch, x: str, *, rows: bool = False) -> str:
    """Attention and two layers, each behind a norm and beside a residual."""
    x = s.add("Add", x, attend(s, s.add("LayerNormalization", x, s.weight(E), s.weight(E)), rows=rows))
    y = s.add("MatMul", s.add("LayerNormalization", x, s.weight(E), s.weight(E)), s.weight(E, 2 * E))
    return s.add("Add", x, s.add("MatMul", s.add("Relu", y), s.weight(2 * E, E)))


def tokens(batch: int | str = "n", *, rows: bool = False) -> onnx.ModelProto:
    s = Sketch(batch, "t", E)
    return s.model(block(s, block(s, "x", rows=rows), rows=rows))


def steps_first() -> onnx.ModelProto:
    """x [t, n, E], heads joined with the batch: [n * HEADS, t, E / HEADS]."""
    s = Sketch("t", "n", E)
    heads = [
        s.add("Transpose", s.add("Reshape", y, s.numbers(0, -1, E // HEADS)), perm=[1, 0, 2])
        for y in (s.add("MatMul", "x", s.weight(E, E)) for _ in range(3))
    ]
    scores = s.add("MatMul", heads[0], s.add("Transpose", heads[1], perm=[0, 2, 1]))
    y = s.add("Transpose", s.add("MatMul", s.add("Softmax", scores, axis=-1), heads[2]), perm=[1, 0, 2])
    y = s.add("Reshape", y, s.add("Shape", "x"))
    return s.model(s.add("Add", "x", s.add("MatMul", y, s.weight(E, E))))


def patches() -> onnx.ModelProto:
    """A convolution, attention between all its pixels, and a map again."""
    s = Sketch("n", 3, "h", "w")
    x = s.add("Conv", "x", s.weight(E, 3, 4, 4), strides=[4, 4])
    y = s.add("Transpose", s.add("Reshape", x, s.numbers(0, 0, -1)), perm=[0, 2, 1])
    y = s.add("Transpose", block(s, y), perm=[0, 2, 1])
    y = s.add("Add", x, s.add("Reshape", y, s.add("Shape", x)))
    return s.model(s.add("Conv", y, s.weight(8, E, 3, 3), pads=[1] * 4))


def sampled() -> onnx.ModelProto:
    """A sequence half as long by a strided convolution, then a transformer of it."""
    s = Sketch("n", 8, "t")
    x = s.add("Relu", s.add("Conv", "x", s.weight(E, 8, 3), strides=[2], pads=[1, 1]))
    return s.model(block(s, s.add("Transpose", x, perm=[0, 2, 1])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "regions", "sizes"),
    [
        (tokens, 1, [(1, 1, E), (2, 7, E), (3, 130, E)]),
        (lambda: tokens(1), 1, [(1, 1, E), (1, 7, E), (1, 600, E)]),  # more keys than one pass takes
        (lambda: tokens(rows=True), 1, [(1, 1, E), (2, 7, E), (3, 130, E)]),
        (steps_first, 1, [(1, 1, E), (7, 2, E), (130, 3, E)]),
        (patches, 2, [(1, 3, 4, 4), (2, 3, 13, 40), (1, 3, 64, 36)]),
        (sampled, 1, [(1, 8, 1), (2, 8, 7), (3, 8, 131)]),
    ],
)
def test_a_transformer_runs_at_every_size(
    make: Callable[[], onnx.ModelProto], regions: int, sizes: list[tuple[int, ...]]
) -> None:
    both = Both(make(), "portable")
    assert both.left == []
    assert len(both.report.regions) <= regions
    assert any("attention" in step for region in both.report.regions for step in region.steps)
    for size in sizes:
        both.check(*size)


def test_a_mask_of_open_lengths_is_read_in_place() -> None:
    # scores + a mask that is computed, one number a query and key
    s = Sketch("n", "t", E)
    mask = s.add("Mul", s.add("MatMul", "x", s.add("Transpose", "x", perm=[0, 2, 1])), s.weight(1))
    scores = s.add("MatMul", s.add("MatMul", "x", s.weight(E, E)), s.add("Transpose", "x", perm=[0, 2, 1]))
    shares = s.add("Softmax", s.add("Add", scores, mask), axis=-1)
    both = Both(s.model(s.add("MatMul", shares, "x")), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in ((1, 1, E), (2, 9, E), (3, 70, E)):
        both.check(*size)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [2, 3, 4])
def test_a_causal_mask_of_open_lengths_is_of_no_image(axes: int) -> None:
    # behind a cache: t queries, of which each sees the t keys before and those up to itself
    s = Sketch("n", "t", E)
    keys = s.add("Concat", "x", "x", axis=1)
    length = s.add("Gather", s.add("Shape", "x"), s.numbers(1), axis=0)
    shape = s.add("Concat", *[s.numbers(1)] * (axes - 2), length, s.add("Add", length, length), axis=0)
    hidden = s.add("ConstantOfShape", shape, value=numpy_helper.from_array(np.full(1, -1e9, np.float32)))
    diagonal = s.add("Squeeze", s.add("Add", length, s.numbers(1)))
    mask = s.add("Trilu", hidden, diagonal, upper=1)
    q, k, v = (
        s.add(
            "Transpose",
            s.add("Reshape", s.add("MatMul", y, s.weight(E, E)), s.numbers(0, 0, HEADS, E // HEADS)),
            perm=perm,
        )
        for y, perm in (("x", [0, 2, 1, 3]), (keys, [0, 2, 3, 1]), (keys, [0, 2, 1, 3]))
    )
    shares = s.add("Softmax", s.add("Add", s.add("MatMul", q, k), mask), axis=-1)
    both = Both(s.model(s.add("MatMul", shares, v)), "portable")
    assert len(both.report.regions) == 1
    assert any("attention" in step for step in both.report.regions[0].steps)
    for size in ((1, 1, E), (2, 9, E), (3, 70, E)):
        both.check(*size)


@pytest.mark.slow
def test_where_only_the_number_of_images_is_open_what_mixes_them_is_read_without() -> None:
    # a mixture of experts has them along axis 0, and its tokens behind
    s = Sketch("n", E)
    tokens = s.add("Expand", s.add("Unsqueeze", "x", s.numbers(0)), s.numbers(4, 1, 1))
    hidden = s.add("Relu", s.add("MatMul", tokens, s.weight(4, E, E)))
    shares = s.add("Softmax", s.add("MatMul", hidden, s.weight(4, E, E)), axis=1)
    both = Both(s.model(s.add("ReduceSum", shares, s.numbers(0), keepdims=0)), "portable")
    assert all("given back" in reason for reason in both.left)  # they are small
    assert [region.ops for region in both.report.regions] == [("product",), ("product", "softmax")]
    for tokens_fed in (1, 5):
        both.check(tokens_fed, E)


def test_a_cut_at_an_open_place_is_in_the_region() -> None:
    # x[:, t - 1] of x [n, t, E], as a classifier reads the last of its tokens
    s = Sketch("n", "t", E)
    x = s.add("Relu", s.add("MatMul", "x", s.weight(E, E)))
    last = s.add("Slice", x, s.numbers(-1), s.numbers(2**63 - 1), s.numbers(1))
    both = Both(s.model(s.add("MatMul", last, s.weight(E, E))), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in ((1, 1, E), (2, 9, E), (3, 70, E)):
        both.check(*size)


def test_a_bound_that_may_lie_outside_is_left() -> None:
    # the twin: x[:, t - 3] is another row where there are two
    s = Sketch("n", "t", E)
    x = s.add("Relu", s.add("MatMul", "x", s.weight(E, E)))
    cut = s.add("Slice", x, s.numbers(-3), s.numbers(-1), s.numbers(1))
    both = Both(s.model(s.add("MatMul", cut, s.weight(E, E))), "portable")
    assert any("expected bounds that lie within the data at every call" in reason for reason in both.left)
    for size in ((1, 3, E), (2, 9, E)):
        both.check(*size)


def test_a_bound_that_lies_within_since_a_window_does_is_in_the_region() -> None:
    # 5 taps without padding want t >= 5, or the call ends before: then x[:, :, 4:] has elements
    s = Sketch("n", E, "t")
    x = s.add("Relu", "x")
    cut = s.add("Slice", x, s.numbers(4), s.numbers(2**63 - 1), s.numbers(2))
    both = Both(s.model(s.add("Add", s.add("Conv", x, s.weight(E, E, 5)), cut)), "portable")
    assert not both.left
    for size in ((1, E, 5), (2, E, 70)):
        both.check(*size)
    with pytest.raises(RuntimeError, match="is less than 1; let t be at least 5"):
        both.machine["main"](tvm.runtime.tensor(np.ones((1, E, 4), np.float32)))


def cut_behind_three(**noted: dict[str, int]) -> IRModule:
    """relu(x)[:, 3:] of x [1, t, E], as torch.export leaves it where it knows how long a sequence is."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, "t", 32), "float32")) -> R.Tensor((1, "t - 3", 32), "float32"):
            t = T.int64()
            with R.dataflow():
                y = R.nn.relu(x)
                z = R.strided_slice(y, [1], [3], [t], [1], assume_inbound=True)
                R.output(z)
            return z

    main = Module["main"]
    Module["main"] = main.with_attrs(noted) if noted else main
    return Module


def test_a_bound_that_lies_within_by_what_a_module_notes_is_in_the_region() -> None:
    options = Options(merge=False)
    noted, plain = cut_behind_three(tir_var_lower_bound={"t": 4}), cut_behind_three()
    for module, left in ((noted, 0), (plain, 1)):
        report = Report()
        machine = relax.VirtualMachine(
            convoy.compile(module, "portable", options=options, report=report), tvm.cpu()
        )
        assert len([d for d in report.decisions if d.choice == "left"]) == left
        for length in (4, 9):
            x = np.random.default_rng(length).standard_normal((1, length, E)).astype(np.float32)
            np.testing.assert_array_equal(
                machine["main"](tvm.runtime.tensor(x)).numpy(), np.maximum(x, 0)[:, 3:]
            )
        with pytest.raises(
            Exception, match=r"t - 3.* is less than 0|at least"
        ):  # nobody holds a call to it
            machine["main"](tvm.runtime.tensor(np.ones((1, 2, E), np.float32)))


@pytest.mark.slow
def test_a_call_may_be_smaller_than_a_module_notes_where_nothing_needs_that() -> None:
    # torch.export notes 2 of each open size, and TVM runs 1, and a cache of nothing
    weight = np.random.default_rng(3).standard_normal((E, E)).astype(np.float32)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, "t", 32), "float32"), y: R.Tensor((1, "u", 32), "float32")):
            with R.dataflow():
                made = R.matmul(R.concat((R.nn.relu(x), y), axis=1), R.const(weight))
                R.output(made)
            return made

    Module["main"] = Module["main"].with_attr("tir_var_lower_bound", {"t": 2, "u": 2})
    machine = relax.VirtualMachine(convoy.compile(Module, "portable"), tvm.cpu())
    for sizes in ((1, 1), (3, 0), (1, 4)):
        x, y = (np.random.default_rng(n).standard_normal((1, n, E)).astype(np.float32) for n in sizes)
        got = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
        want = np.concatenate((np.maximum(x, 0), y), axis=1) @ weight
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_images_that_become_the_steps_of_a_sequence() -> None:
    # features of t windows, each an image, then a recurrent layer along them
    cells = 16
    s = Sketch("t", 3, 40)
    x = s.add("Relu", s.add("Conv", "x", s.weight(E, 3, 40)))
    steps = s.add("Transpose", x, perm=[0, 2, 1])
    s.add("LSTM", steps, s.weight(1, 4 * cells, E), s.weight(1, 4 * cells, cells), hidden_size=cells)
    both = Both(s.model(s.add("MatMul", s.nodes[-1].output[0], s.weight(cells, 5))), "portable")
    assert any("recurrent" in op for region in both.report.regions for op in region.ops)
    for size in ((1, 3, 40), (9, 3, 40)):
        both.check(*size)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_the_rows_of_each_image_are_sequences(kind: str) -> None:
    # as Sequencer2D has them: [n, C, 7, 5] -> [n * 7, 5, C], a layer along the rows, and a map again
    cells, gates = 16, {"LSTM": 4, "RNN": 1}[kind]
    s = Sketch("n", 3, 7, 5)
    x = s.add("Relu", s.add("Conv", "x", s.weight(E, 3, 1, 1)))
    rows = s.add("Reshape", s.add("Transpose", x, perm=[0, 2, 3, 1]), s.numbers(-1, 5, E))
    steps = s.add("Transpose", rows, perm=[1, 0, 2])
    s.add(
        kind, steps, s.weight(2, gates * cells, E), s.weight(2, gates * cells, cells), hidden_size=cells,
        direction="bidirectional",
    )  # fmt: skip
    flat = s.add("Reshape", s.add("Transpose", "t5", perm=[0, 2, 1, 3]), s.numbers(0, 0, -1))
    back = s.add("Reshape", s.add("Transpose", flat, perm=[1, 0, 2]), s.numbers(-1, 7, 5, 2 * cells))
    mixed = s.add("Conv", s.add("Transpose", back, perm=[0, 3, 1, 2]), s.weight(5, 2 * cells, 3, 3))
    both = Both(s.model(mixed), "portable")
    assert not both.left
    assert len(both.report.regions) == 1
    for images in (1, 3):
        both.check(images, 3, 7, 5)


def spectrogram() -> onnx.ModelProto:
    """Sound x [n, samples], mirrored at its start, in frames of 8 samples, 3 apart."""
    s = Sketch("n", "samples")
    start = s.add("Slice", "x", s.numbers(4), s.numbers(-(2**63)), s.numbers(1), s.numbers(-1))
    whole = s.add("Pad", s.add("Concat", start, "x", axis=1), s.numbers(0, 0, 0, 2))
    signal = s.add("Unsqueeze", whole, s.numbers(1))
    frames = s.add("Conv", signal, s.weight(40, 1, 8), strides=[3])
    return s.model(s.add("MatMul", s.add("Transpose", frames, perm=[0, 2, 1]), s.weight(40, 6)))


@pytest.mark.slow
def test_frames_of_a_sound_of_any_length_are_of_a_region() -> None:
    # how many there are follows from how long the mirrored sound is, a sum with a minimum in it
    both = Both(spectrogram())
    assert not [reason for reason in both.left if "sizes that follow" in reason]
    assert any("conv" in op for region in both.report.regions for op in region.ops)
    for shape in ((1, 3), (2, 4), (1, 500)):
        both.check(*shape)
