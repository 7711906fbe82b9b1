"""Models whose height, width or length is known at the call: one library runs every size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto
from open_models import Both, Sketch


def residual_network(batch: int | str = 1) -> onnx.ModelProto:
    s = Sketch(batch, 3, "h", "w")
    x = s.add("Conv", "x", s.weight(16, 3, 7, 7), s.weight(16), strides=[2, 2], pads=[3] * 4)
    x = s.add("MaxPool", s.add("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = s.add("Relu", s.add("Conv", x, s.weight(16, 16, 3, 3), s.weight(16), pads=[1] * 4))
    y = s.add("Conv", y, s.weight(16, 16, 3, 3), s.weight(16), pads=[1] * 4)
    x = s.add("Relu", s.add("Add", y, x))
    y = s.add("Conv", x, s.weight(24, 16, 1, 1), s.weight(24), strides=[2, 2])
    flat = s.add("Flatten", s.add("GlobalAveragePool", y))
    return s.model(s.add("Gemm", flat, s.weight(10, 24), s.weight(10), transB=1), y)


SIZES = ((64, 64), (1, 1), (2, 3), (33, 57), (224, 160), (17, 400))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "threads"),
    [("portable", 2), *(pytest.param("haswell", n, marks=pytest.mark.slow) for n in (1, 3))],
)
def test_a_residual_network_runs_at_every_size(target: str, threads: int) -> None:
    both = Both(residual_network(), target, threads)
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in SIZES:
        both.check(1, 3, *size)


@pytest.mark.slow
def test_batch_and_sizes_are_open_together() -> None:
    both = Both(residual_network("n"), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for images, size in zip((1, 2, 5), SIZES, strict=False):
        both.check(images, 3, *size)


@pytest.mark.slow
def test_arguments_of_a_call_are_checked() -> None:
    s = Sketch(1, 3, "h", "w")
    both = Both(s.model(s.add("Relu", s.add("Conv", "x", s.weight(8, 3, 5, 5)))), "portable")
    both.check(1, 3, 5, 5)
    with pytest.raises(
        Exception, match=r"h - 4, axis 2 of conv2d t\d, is less than 1; let h be at least 5"
    ):
        both.machine["main"](tvm.runtime.tensor(np.zeros((1, 3, 4, 9), np.float32)))


@pytest.mark.slow
def test_a_call_without_elements_has_nothing_to_compute() -> None:
    s = Sketch(1, 3, "h", "w")
    both = Both(s.model(s.add("Relu", s.add("Conv", "x", s.weight(8, 3, 1, 1)))), "portable")
    none = tvm.runtime.tensor(np.zeros((1, 3, 0, 4), np.float32))
    assert both.machine["main"](none).shape == (1, 8, 0, 4)
    s = Sketch(1, 3, "h", "w")  # the twin: a mean of nothing is an error of the call, and no number
    both = Both(s.model(s.add("GlobalAveragePool", s.add("Conv", "x", s.weight(8, 3, 1, 1)))), "portable")
    with pytest.raises(Exception, match=r"pass at least 1 along axis 2"):
        both.machine["main"](none)


def padded_as_same(s: Sketch, x: str, kernel: int, stride: int) -> str:
    """As timm's networks pad, in the words of PyTorch's older exporter."""
    widths = {}
    for axis in (2, 3):
        whole = s.add("Cast", s.add("Gather", s.add("Shape", x), s.scalar(axis)), to=TensorProto.FLOAT)
        rows = s.add("Sub", s.add("Ceil", s.add("Div", whole, s.number(stride))), s.number(1))
        reach = s.add("Add", s.add("Mul", rows, s.number(stride)), s.number(kernel))
        total = s.add("Clip", s.add("Sub", reach, whole), s.number(0))
        before = s.add("Cast", s.add("Div", total, s.number(2)), to=TensorProto.INT64)
        after = s.add("Sub", s.add("Cast", total, to=TensorProto.INT64), before)
        widths[axis] = [s.add("Unsqueeze", each, s.numbers(0)) for each in (before, after)]
    zeros = s.numbers(0, 0)
    front, back = ([widths[axis][side] for axis in (2, 3)] for side in (0, 1))
    return s.add("Pad", x, s.add("Concat", zeros, *front, zeros, *back, axis=0))


@pytest.mark.slow
def test_paddings_that_are_computed_in_floats_are_sizes() -> None:
    s = Sketch("n", 3, "h", "w")
    x = s.add("Conv", padded_as_same(s, "x", 3, 2), s.weight(8, 3, 3, 3), strides=[2, 2])
    x = s.add("Conv", padded_as_same(s, x, 3, 2), s.weight(8, 8, 3, 3), strides=[2, 2])
    pool = s.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    x = s.add("Conv", padded_as_same(s, pool, 3, 2), s.weight(8, 8, 3, 3), strides=[2, 2])
    both = Both(s.model(x, pool), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for images, size in zip((1, 2, 5), SIZES, strict=False):
        both.check(images, 3, *size)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "stride"), [(7, 2), (11, 4)])
def test_paddings_of_wide_windows_have_a_most(kernel: int, stride: int) -> None:
    # those of a BiT: they were more than what is divided by says, and a loop of TVM's padded
    s = Sketch("n", 3, "h", "w")
    padded = padded_as_same(s, "x", kernel, stride)
    x = s.add("Conv", padded, s.weight(8, 3, kernel, kernel), strides=[stride, stride])
    both = Both(s.model(x), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for images, size in zip((1, 2, 5), SIZES, strict=False):
        both.check(images, 3, *size)


@pytest.mark.slow
def test_lengths_beside_others_are_compared_as_sizes() -> None:
    # Funnel's masks: of (1, s) and (s, s) one has its axis 1 read as that of images
    s = Sketch("s", "s")
    x = s.add("Pad", "x", s.numbers(1, 1, 0, 0))
    first = s.add("Slice", x, s.numbers(0), s.numbers(1), s.numbers(0))
    both = Both(s.model(s.add("MatMul", s.add("Concat", first, x, axis=0), x)), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in (1, 6, 40):
        both.check(size, size)
    s = Sketch("n", "t")  # the twin: t is not 1 at every call, and the reason says so in words for people
    whole = s.add("Concat", s.add("Shape", "x"), s.add("Shape", "x", start=1), axis=0)
    both = Both(s.model(s.add("Expand", s.add("Unsqueeze", "x", s.numbers(2)), whole)), "portable")
    assert both.left[1:] == ["expected axis 2 repeated a known number of times, got t of 1"]
    both.check(2, 5)


def test_the_last_rows_of_a_sequence_are_in_its_region() -> None:
    s = Sketch(1, "length", 8)
    x = s.add("MatMul", "x", s.weight(8, 8))
    last = s.add("Slice", x, s.numbers(-64), s.numbers(2**63 - 1), s.numbers(1))
    both = Both(s.model(s.add("MatMul", x, s.add("Transpose", last, perm=[0, 2, 1]))), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for length in (1, 5, 64, 100):
        both.check(1, length, 8)


def rows_behind(s: Sketch, x: str, first: int) -> str:
    return s.add("Slice", x, s.numbers(first), s.numbers(2**63 - 1), s.numbers(1))


def turned(s: Sketch, x: str) -> str:
    return s.add("Transpose", x, perm=[0, 2, 1])


EMPTY: dict[str, Callable[[Sketch, str, str], str]] = {
    # of all rows and those behind the 64th: what has no element, and what is made of none
    "a product without columns": lambda s, x, rest: s.add("MatMul", x, turned(s, rest)),
    "a sum of no products": lambda s, _, rest: s.add("MatMul", turned(s, rest), rest),
    "attention without keys": lambda s, x, rest: s.add(
        "MatMul", s.add("Softmax", s.add("MatMul", x, turned(s, rest)), axis=-1), rest
    ),
    "nothing beside others": lambda s, x, rest: s.add(
        "MatMul", s.add("Concat", s.add("MatMul", rest, s.weight(8, 8)), x, axis=1), s.weight(8, 8)
    ),
    "a sum of nothing beside others": lambda s, x, rest: s.add(
        "Add", x, s.add("ReduceSum", s.add("MatMul", rest, s.weight(8, 8)), s.numbers(1), keepdims=1)
    ),
    "a chain": lambda s, _, rest: s.add("Relu", s.add("LayerNormalization", rest, s.weight(8))),
}


@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize("threads", [1, 2])
def test_only_what_needs_an_element_asks_for_one(case: str, threads: int) -> None:
    s = Sketch(1, "length", 8)
    x = s.add("MatMul", "x", s.weight(8, 8))
    y = EMPTY[case](s, x, rows_behind(s, x, 64))
    both = Both(s.model(y, x), "portable", threads)
    assert both.report.regions
    for length in (1, 5, 64, 65, 100):
        both.check(1, length, 8)


@pytest.mark.slow
def test_a_number_of_rows_that_data_say_may_be_none() -> None:
    s = Sketch("n", 8)
    more = s.add("Greater", s.add("ReduceSum", "x", s.numbers(1), keepdims=0), s.number(3.0))
    rows = s.add("Gather", "x", s.add("Squeeze", s.add("NonZero", more), s.numbers(0)), axis=0)
    x = s.add("Relu", s.add("MatMul", rows, s.weight(8, 16)))
    whole = s.add("MatMul", s.add("Concat", x, s.weight(3, 16), axis=0), s.weight(16, 16))
    both = Both(s.model(whole, s.add("MatMul", s.add("Transpose", x, perm=[1, 0]), x)), "portable")
    assert both.report.regions
    for images in (1, 2, 40):
        both.check(images, 8)


@pytest.mark.slow
def test_a_mean_of_rows_that_may_be_none_asks_for_one() -> None:
    # the twin: what has no answer without an element is an error of the call, and no number
    s = Sketch(1, 4, "h", "w")
    x = s.add("Conv", "x", s.weight(8, 4, 3, 3), pads=[1] * 4)
    rest = s.add("Slice", x, s.numbers(2), s.numbers(2**63 - 1), s.numbers(2))
    pooled = s.add("GlobalAveragePool", s.add("Conv", rest, s.weight(8, 8, 1, 1)))
    both = Both(s.model(s.add("Conv", pooled, s.weight(8, 8, 1, 1))), "portable")
    both.check(1, 4, 3, 5)
    with pytest.raises(
        Exception, match=r"max\(h - 2, 0\), axis 2 of conv2d t\d, is less than 1; let h be at least 3"
    ):
        both.machine["main"](tvm.runtime.tensor(np.zeros((1, 4, 2, 5), np.float32)))


@pytest.mark.slow
def test_a_normalisation_over_channels_is_a_pool_of_volumes_at_every_size() -> None:
    s = Sketch(1, 8, "h", "w")
    x = s.add("Conv", "x", s.weight(8, 8, 3, 3), pads=[1] * 4)
    x = s.add("LRN", x, size=3)
    both = Both(s.model(s.add("Conv", x, s.weight(8, 8, 3, 3), pads=[1] * 4)), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in SIZES[:4]:
        both.check(1, 8, *size)


@pytest.mark.slow
def test_what_has_no_kernel_for_open_sizes_is_left_with_a_reason_and_right() -> None:
    # the twin: height and width may be open where the depth is known
    s = Sketch(1, 4, "d", "h", "w")
    x = s.add("Relu", s.add("Conv", "x", s.weight(8, 4, 2, 3, 3), pads=[0, 1, 1] * 2))
    both = Both(s.model(s.add("MaxPool", x, kernel_shape=[2, 2, 2])), "portable")
    pool, slices = sorted(both.left)
    assert slices == "expected an op, got a call of slices_side_by_side"  # the convolution is one of images
    assert pool.startswith("expected a known depth, got an open one; fix the input's shape")
    for size in SIZES[2:5]:
        both.check(1, 4, 3, *size)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_an_op_whose_size_no_input_of_its_region_tells_is_left_alone() -> None:
    # a region behind TVM's op knows half the height, rounded up, and not the height
    s = Sketch(1, 3, "h", "w")
    x = s.add("Relu", s.add("Conv", "x", s.weight(8, 3, 3, 3), strides=[2, 2], pads=[1] * 4))
    x = s.add("CumSum", x, s.numbers(1))
    x = s.add("Relu", s.add("Conv", x, s.weight(8, 8, 3, 3), pads=[1] * 4))
    sizes = s.add("Concat", s.numbers(1, 8), s.add("Shape", "x", start=2), axis=0)
    x = s.add("Resize", x, "", "", sizes, mode="linear")
    both = Both(s.model(s.add("Mul", x, x)), "portable")
    ops = [op for region in both.report.regions for op in region.ops]
    assert ops.count("conv2d") == 2
    reason = "expected sizes that follow from those of the region's inputs, got [1, 8, h, w]"
    assert sum(left.startswith(reason) for left in both.left) == 1
    for size in SIZES[2:4]:
        both.check(1, 3, *size)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_slice_whose_bounds_no_input_of_its_region_tells_is_left_alone() -> None:
    # a region behind TVM's op knows half the height, rounded up, and not the height
    s = Sketch(1, 3, "h", "w")
    x = s.add("Relu", s.add("Conv", "x", s.weight(8, 3, 3, 3), strides=[2, 2], pads=[1] * 4))
    x = s.add("CumSum", x, s.numbers(1))
    x = s.add("ConvTranspose", x, s.weight(8, 8, 2, 2), strides=[2, 2])
    x = s.add("Slice", x, s.numbers(0, 0), s.add("Shape", "x", start=2), s.numbers(2, 3))
    both = Both(s.model(s.add("Mul", x, x)), "portable")
    ops = [op for region in both.report.regions for op in region.ops]
    assert {"conv2d", "conv_transpose2d"} <= set(ops)
    reason = "expected bounds that follow from the sizes of the region's inputs, got h, w"
    assert sum(left.startswith(reason) for left in both.left) == 1
    for size in SIZES[2:4]:
        both.check(1, 3, *size)


@pytest.mark.slow
@pytest.mark.parametrize("front", [False, True])
def test_padding_to_a_multiple_is_of_its_region(front: bool) -> None:
    # as Python writes it: (8 - h % 8) % 8
    s = Sketch("n", 3, "h", "w")
    sizes = s.add("Shape", "x", start=2)
    more = s.add("Mod", s.add("Sub", s.numbers(8, 8), s.add("Mod", sizes, s.numbers(8))), s.numbers(8))
    before = s.add("Div", more, s.numbers(2)) if front else s.numbers(0, 0)
    pads = [s.numbers(0, 0), before, s.numbers(0, 0), s.add("Sub", more, before)]
    x = s.add("Pad", "x", s.add("Concat", *pads, axis=0))
    y = s.add("Relu", s.add("Conv", x, s.weight(8, 3, 3, 3), pads=[1] * 4))
    z = s.add("Conv", y, s.weight(16, 8, 4, 4), strides=[4, 4])
    z = s.add("ConvTranspose", z, s.weight(16, 8, 4, 4), strides=[4, 4])
    ends = s.add("Add", before, sizes)
    cut = s.add("Slice", s.add("Add", y, z), before, ends, s.numbers(2, 3))
    both = Both(s.model(cut), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for images, size in ((2, (8, 16)), (1, (1, 9)), (1, (31, 15)), (3, (7, 40))):
        both.check(images, 3, *size)


def test_padding_without_a_bound_stays_beside_the_region() -> None:
    s = Sketch("n", 3, "h", "w")
    pads = s.add("Concat", s.numbers(0, 0, 0, 0, 0, 0), s.add("Shape", "x", start=2), axis=0)
    x = s.add("Conv", s.add("Pad", "x", pads), s.weight(8, 3, 3, 3), pads=[1] * 4)
    both = Both(s.model(x), "portable")
    assert any("got a call of" in left for left in both.left)
    both.check(1, 3, 5, 9)


@pytest.mark.slow
def test_attention_over_the_pixels_of_an_open_image_is_whole() -> None:
    # at likely sizes there are more scores than an int counts; none of them is in memory
    s = Sketch("n", 16, "h", "w")
    shape = s.numbers(0, 4, 16, -1)
    parts = [s.add("Conv", "x", s.weight(64, 16, 1, 1)) for _ in range(3)]
    q, k, v = (s.add("Reshape", part, shape) for part in parts)
    scores = s.add("Softmax", s.add("MatMul", s.add("Transpose", q, perm=[0, 1, 3, 2]), k), axis=-1)
    rows = s.add("MatMul", v, s.add("Transpose", scores, perm=[0, 1, 3, 2]))
    back = s.add("Concat", s.numbers(0, 64), s.add("Shape", "x", start=2), axis=0)
    both = Both(s.model(s.add("Reshape", rows, back)), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in ((6, 7), (16, 4)):
        both.check(2, 16, *size)


def repeated(count: str) -> onnx.ModelProto:
    """Columns of two groups for each of three heads, or for as many as there are columns, and a product."""
    s = Sketch(1, 2, "n", 8)
    rows = s.add("Unsqueeze", s.add("MatMul", "x", s.weight(8, 16)), s.numbers(2))
    length = s.add("Shape", "x", start=2, end=3)
    heads = s.numbers(3) if count == "3" else length
    shape = s.add("Concat", s.numbers(1, 1), heads, s.numbers(1, 1), axis=0)
    whole = s.add("Reshape", s.add("Expand", rows, shape), s.numbers(0, -1, 8, 2))
    return s.model(s.add("MatMul", whole, s.weight(2, 16)))


def test_rows_of_an_open_length_are_repeated_a_known_number_of_times() -> None:
    both = Both(repeated("3"), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for n in (1, 3, 24):
        both.check(1, 2, n, 8)


def test_rows_repeated_an_open_number_of_times_are_left_and_right() -> None:
    both = Both(repeated("n"), "portable")
    assert any(left.startswith("expected axis 2 repeated a known number of times") for left in both.left)
    for n in (1, 3, 24):
        both.check(1, 2, n, 8)


@pytest.mark.parametrize(
    ("images", "left"),
    [
        ("n", ["expected an operand known only at run time, got constants and a size that a call tells"]),
        (2, []),
    ],
)
def test_a_class_token_for_each_image(images: int | str, left: list[str]) -> None:
    # of an open batch nothing but a call knows how many; of a fixed one it is folded
    s = Sketch(images, 4, 8)
    shape = s.add("Concat", s.add("Shape", "x", end=1), s.numbers(1, 8), axis=0)
    x = s.add("Concat", s.add("Expand", s.weight(1, 1, 8), shape), "x", axis=1)
    both = Both(s.model(s.add("MatMul", x, s.weight(8, 16))), "portable")
    assert both.left == left
    both.check(2, 4, 8)


@pytest.mark.slow
def test_lengths_that_may_differ_are_not_added_by_one_kernel() -> None:
    s = Sketch(1, 8, "h", "w")
    x = s.add("Conv", "x", s.weight(8, 8, 3, 3), strides=[2, 2], pads=[1] * 4)
    y = s.add("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])  # one fewer where h is odd
    both = Both(s.model(x, y), "portable")
    for size in ((8, 8), (9, 15)):
        both.check(1, 8, *size)


@pytest.mark.slow
@pytest.mark.parametrize(("pads", "least"), [((1, 1, 1, 1), (1, 1)), ((1, 1, 2, 2), (2, 2))])
def test_a_phase_of_a_transposed_convolution_may_have_no_pixel(
    pads: tuple[int, ...], least: tuple[int, int]
) -> None:
    # 2h - 1 pixels of h: every second one, from the second on, is none of one; and (2h - 2)(2w - 2) a map
    s = Sketch(1, 4, "h", "w")
    x = s.add("ConvTranspose", "x", s.weight(4, 8, 3, 3), s.weight(8), strides=[2, 2], pads=pads)
    x = s.add("Conv", x, s.weight(8, 8, 3, 3), dilations=[2, 2], pads=[2] * 4)
    both = Both(s.model(s.add("Relu", x)), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in (least, (least[0], 5), (4, least[1]), (17, 33)):
        both.check(1, 4, *size)


@pytest.mark.slow
def test_a_tile_of_axes_of_length_1_stays_in_the_region() -> None:
    s = Sketch("n", 16, "h", "w")
    row = s.add("Relu", s.add("ReduceMean", s.add("Conv", "x", s.weight(16, 16, 1, 1)), axes=[2]))
    rows = s.add("Tile", row, s.numbers(1, 1, 4, 1))
    same = s.add("Tile", rows, s.numbers(1, 1, 1, 1))
    both = Both(s.model(s.add("Conv", same, s.weight(8, 16, 3, 3))), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for images, size in ((1, (4, 7)), (3, (9, 5))):
        both.check(images, 16, *size)
    s = Sketch("n", 16, "h", "w")  # the twin: an axis of more elements is repeated by TVM
    both = Both(s.model(s.add("Relu", s.add("Tile", "x", s.numbers(1, 1, 2, 1)))), "portable")
    assert both.left == ["expected an op, got a call of tile"]
    both.check(2, 16, 3, 5)


@pytest.mark.slow
def test_a_copy_that_tvm_cannot_tell_from_a_view_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    # its pass that makes views of copies would end by an error, and a warning, at the parts of t3
    s = Sketch(2, 16, "h", "w")
    x = s.add("Tile", "x", s.numbers(1, 1, 3, 1))
    x = s.add("Conv", x, s.weight(16, 16, 1, 3), pads=[0, 0, 0, 4], dilations=[1, 2], strides=[1, 2])
    x = s.add("Pad", x, s.numbers(0, 0, 3, 1, 0, 0, 0, 0), mode="reflect")
    s.add("Split", x, s.numbers(17, 5, 9, 11), axis=2)
    s.nodes[-1].output.extend(f"part{i}" for i in range(3))
    both = Both(s.model(s.add("Conv", "part2", s.weight(2, 16, 2, 2), strides=[3, 1])), "portable")
    assert "Warning" not in capfd.readouterr().err
    both.check(2, 16, 13, 5)
