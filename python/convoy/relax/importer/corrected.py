"""Conversions of ops of which TVM's frontend leaves out what a node says."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import GridSample, ScatterElements, ScatterND

from convoy.relax.dataflow import dims, is_constant, read_array
from convoy.relax.importer.assign import assign_rows
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.late import expect_none, name_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.roi_align import align, call_align

FLOATS = ("float16", "float32", "float64")


def convert_is_inf(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Infinities of one sign; the frontend's are those of both."""
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if attrs.get(name, 1)]
    dtype = str(inputs[0].ty.dtype)
    if len(signs) == 2 or dtype not in FLOATS:
        return None
    if not signs:
        return relax.op.zeros_like(inputs[0], "bool")
    return relax.op.equal(inputs[0], relax.const(signs[0] * np.inf, dtype))


def convert_thresholded_relu(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """x where it is above alpha, of every type; the frontend multiplies by 0 what is not, NaN and -inf."""
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    above = bb.emit(relax.op.greater(x, relax.const(attrs.get("alpha", 1.0), dtype)))
    return relax.op.where(above, x, relax.const(0, dtype))


def convert_equal(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Truths are compared by what they are; TVM compares them as floats, which LLVM refuses."""
    truths = [x for x in inputs[:2] if isinstance(x.ty, relax.TensorType) and str(x.ty.dtype) == "bool"]
    if len(truths) < 2 or all(map(is_constant, truths)):
        return None
    return relax.op.logical_not(bb.normalize(relax.op.logical_xor(*truths)))


def convert_div(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """By the number 0: as by an infinity of its sign times.  TVM refuses what is divided by it."""
    x, by = inputs[:2]
    if not is_constant(by) or str(by.ty.dtype) not in FLOATS:
        return None
    zero = by.value.numpy()
    if zero.size != 1 or zero.any():
        return None
    return relax.op.multiply(x, relax.const(np.copysign(np.asarray(np.inf, zero.dtype), zero)))


def convert_grid_sample(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Floats at places of another type: TVM says the type of one and computes that of the other.

    Both are taken in the wider; places between pixels of float32 in float32, for which there is a kernel.
    """
    kinds = [str(x.ty.dtype) for x in inputs[:2]]
    if kinds[0] == kinds[1] or not {*kinds} <= {*FLOATS}:
        return None
    wider = max(kinds, key=FLOATS.index)
    if kinds[0] == "float32" and attrs.get("mode", b"linear") in (b"linear", b"bilinear"):
        wider = "float32"
    both = [bb.emit(relax.op.astype(x, wider)) for x in inputs[:2]]
    made = bb.emit(GridSample._impl_v16(bb, both, attrs, {}))
    return relax.op.astype(made, kinds[0])


def convert_roi_align(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Boxes half a pixel of the map further; the frontend's are half a pixel of the image.

    What is largest is that of the pixels around samples, each times its share.
    """
    usual = b"half_pixel" if attrs["tvm_custom"]["opset"] >= 16 else b"output_half_pixel"
    aligned = attrs.get("coordinate_transformation_mode", usual) == b"half_pixel"
    scale, kinds = float(attrs.get("spatial_scale", 1.0)), [str(x.ty.dtype) for x in inputs[:2]]
    largest = attrs.get("mode", b"avg") == b"max" and kinds == ["float32"] * 2
    channels = dims(inputs[0])
    if largest and channels is not None and isinstance(channels[1], int):
        rows, columns = (int(attrs.get(f"output_{side}", 1)) for side in ("height", "width"))
        further = 0.5 / scale if aligned else 0.0
        expect_none(bb, bb.emit_te(_outside, inputs[0], inputs[2]))
        image = relax.op.astype(bb.emit(relax.op.expand_dims(inputs[2], 1)), "float32")
        boxes = bb.emit(relax.op.subtract(inputs[1], relax.const(np.float32(further))))
        rois = bb.emit(relax.op.concat([bb.emit(image), boxes], 1))
        ratio = int(attrs.get("sampling_ratio", 0))
        function = align(channels[1], rows, columns, scale, ratio, aligned, largest=True)
        return call_align(bb, function, inputs[0], rois, [rows, columns])
    if aligned and scale != 1:
        further = relax.const(np.asarray(0.5 - 0.5 / scale, kinds[1]))
        inputs[1] = bb.emit(relax.op.add(inputs[1], further))
    return None


def _outside(data: te.Tensor, images: te.Tensor) -> te.Tensor:
    """How many boxes are of images that there are not."""
    k = te.reduce_axis((0, images.shape[0]), name="k")

    def count(_: Any) -> Any:
        image = images[k].astype("int64")
        return te.sum(tirx.any(image < 0, image >= data.shape[0]).astype("int64"), axis=k)

    return te.compute((1,), count, name="outside")


def convert_bit_shift(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """By the width of a number, or by more, only the sign stays of its bits; LLVM leaves that open.

    A number of bits below 0 is as many as that.
    """
    x, by = inputs[:2]
    dtype = str(x.ty.dtype)
    info = np.iinfo(dtype)
    left = attrs.get("direction", b"LEFT") == b"LEFT"
    some_stay = bb.emit(relax.op.less(by, relax.const(info.bits, dtype)))
    if info.min < 0:
        none_less = bb.emit(relax.op.greater_equal(by, relax.const(0, dtype)))
        some_stay = bb.emit(relax.op.logical_and(some_stay, none_less))
    by = bb.emit(relax.op.where(some_stay, by, relax.const(info.bits - 1, dtype)))
    if not left and info.min < 0:
        return relax.op.right_shift(x, by)
    shifted = bb.emit((relax.op.left_shift if left else relax.op.right_shift)(x, by))
    return relax.op.where(some_stay, shifted, relax.const(0, dtype))


def _is_all(x: relax.Expr, number: float) -> bool:
    """Whether a tensor is known to hold no other number."""
    return is_constant(x) and not np.any(read_array(x) != number)


def convert_dropout(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """At inference dropout is nothing, and its mask keeps all; so it is in training that drops none.

    Where a call says which it is, one that would drop some at random is refused.

    Raises
    ------
    NodeError
        For a dropout of which it is known that it drops some.
    """
    ratio, training = [*inputs[1:], None, None][:2]
    if training is not None and not _is_all(training, 0) and (ratio is None or not _is_all(ratio, 0)):
        said = [x for x in (training, ratio) if x is not None and not is_constant(x)]
        if not said:
            problem = "expected training_mode to be False, or a ratio of 0, got True"
            raise NodeError(problem, "export the model for inference")
        expect_none(bb, _count_drops(bb, said))
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]
    return relax.Tuple([inputs[0], bb.emit(relax.op.ones_like(inputs[0], "bool"))])


def _count_drops(bb: relax.BlockBuilder, numbers: list[relax.Expr]) -> relax.Expr:
    """An int64 [1]: 1 where none of these is 0."""
    count: relax.Expr = constant(np.ones(1, np.int64))
    for number in numbers:
        dtype = str(number.ty.dtype)
        if dtype != "bool":
            number = bb.emit(relax.op.not_equal(number, relax.const(0, dtype)))
        each = bb.emit(relax.op.reshape(relax.op.astype(number, "int64"), [1]))
        count = bb.emit(relax.op.multiply(count, each))
    return count


def convert_hardmax(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """A 1 at the first of the largest, along an axis of an open size, too."""
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    if dtype not in FLOATS or x.ty.shape is None:
        return None
    axis = attrs.get("axis", -1) % x.ty.ndim
    best = bb.emit(relax.op.argmax(x, axis, keepdims=True))
    places = bb.emit(relax.op.arange(0, relax.prim_value(x.ty.shape.values[axis]), 1, "int64"))
    along = bb.emit(
        relax.op.expand_dims(places, list(range(1, x.ty.ndim - axis))) if axis < x.ty.ndim - 1 else places
    )
    # where all are -inf TVM's best is -1, and the first is below 0 with it
    first = bb.emit(relax.op.less(bb.emit(relax.op.add(along, best)), relax.const(0, "int64")))
    chosen = bb.emit(relax.op.logical_or(bb.emit(relax.op.equal(along, best)), first))
    return relax.op.astype(chosen, dtype)


def convert_eye_like(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """A matrix of open sizes, or of another type than the tensor's."""
    x, k = inputs[0], attrs.get("k", 0)
    dtype = str(helper.tensor_dtype_to_np_dtype(attrs["dtype"])) if "dtype" in attrs else str(x.ty.dtype)
    if x.ty.shape is None or x.ty.ndim != 2:
        return None

    def compute(sizes: Any) -> te.Tensor:
        return te.compute(list(sizes), lambda i, j: (j - i == k).astype(dtype), name="eye")

    return bb.emit_te(compute, x.ty.shape, primfunc_name_hint="eye_like")


def convert_mod(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Floats without ``fmod`` leave the remainder that C has, moved to the sign of the divisor.

    The frontend's is x - floor(x / y) · y, which is NaN by an infinity and inexact by others.
    """
    x, y = inputs[:2]
    dtype = str(x.ty.dtype)
    if dtype not in FLOATS or attrs.get("fmod", 0) or (is_constant(x) and is_constant(y)):
        return None
    if dtype == "float16":
        x, y = (bb.emit(relax.op.astype(i, "float32")) for i in (x, y))
    zero = relax.const(0, str(x.ty.dtype))
    rest = bb.emit(relax.op.mod(x, y))
    apart = relax.op.logical_xor(relax.op.less(rest, zero), relax.op.less(y, zero))
    moves = bb.emit(relax.op.logical_and(relax.op.not_equal(rest, zero), apart))
    made = bb.emit(relax.op.where(moves, relax.op.add(rest, y), rest))
    return made if dtype != "float16" else relax.op.astype(made, dtype)


def convert_sign(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """The sign of numbers without one: 0 or 1.  TVM compares them with -1, which they cannot be."""
    dtype = str(inputs[0].ty.dtype)
    return relax.op.minimum(inputs[0], relax.const(1, dtype)) if dtype.startswith("uint") else None


def convert_dynamic_quantize(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Bytes of what a run finds; of zeros alone the scale is 1, where TVM divides by 0."""
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    none, one, most = (relax.const(n, dtype) for n in (0, 1, 255))
    high = bb.emit(relax.op.maximum(none, bb.emit(relax.op.max(x))))
    low = bb.emit(relax.op.minimum(none, bb.emit(relax.op.min(x))))
    step = bb.emit(relax.op.divide(bb.emit(relax.op.subtract(high, low)), most))
    scale = bb.emit(relax.op.where(bb.emit(relax.op.equal(high, low)), one, step))
    below = bb.emit(relax.op.subtract(none, bb.emit(relax.op.divide(low, scale))))
    place = bb.emit(relax.op.astype(bb.emit(relax.op.round(relax.op.clip(below, 0, 255))), "uint8"))
    made = bb.emit(relax.op.quantize(x, scale, place, axis=0, out_dtype="uint8"))
    return relax.Tuple([made, scale, place])


def convert_scatter_elements(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """As in opset 18, whatever the file says: PyTorch writes maxima into files of opset 16, too."""
    return ScatterElements._impl_v18(bb, inputs, attrs, {})


def convert_scatter(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Rows with a size that is an expression: TVM takes no two for equal (0.27), so they get symbols.

    That the sizes are equal is certain, or checked, by now.  What is assigned to rows one after the other
    lies between those before and behind.  All is as in opset 18, as in ``convert_scatter_elements``.
    """
    assigned = assign_rows(bb, inputs, attrs)
    if assigned is not None:
        return assigned
    data, places, updates = (bb.algebra.sizes(x) for x in inputs[:3])
    if data is None or places is None or updates is None or not isinstance(places[-1], int):
        return ScatterND._impl_v18(bb, inputs, attrs, {})
    each, count = places[-1], len(updates) - len(data) + places[-1]
    rest = data[each:]
    if all(isinstance(size, int | tirx.Var) for size in rest):
        return ScatterND._impl_v18(bb, inputs, attrs, {})
    rest = name_sizes(bb, rest)
    for i, sizes in ((0, [*data[:each], *rest]), (2, [*updates[:count], *rest])):
        inputs[i] = bb.emit(relax.op.reshape(inputs[i], relax.ShapeExpr(sizes)))
    made = bb.emit(ScatterND._impl_v18(bb, inputs, attrs, {}))
    return relax.op.reshape(made, relax.ShapeExpr(data))
