"""Conversions of our own, for the ONNX ops TVM's frontend shreds into loops or gets wrong.

A converter returns None for a form it does not take; the frontend's own conversion is used then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from onnx import helper
from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.axes import convert_squeeze, convert_unsqueeze
from convoy.relax.importer.bag_sums import convert_bags
from convoy.relax.importer.bags import BAGS
from convoy.relax.importer.casts import convert_cast, convert_cast_like
from convoy.relax.importer.computed_weights import convert_computed_weight
from convoy.relax.importer.corrected import (
    FLOATS,
    convert_bit_shift,
    convert_div,
    convert_dropout,
    convert_dynamic_quantize,
    convert_equal,
    convert_eye_like,
    convert_grid_sample,
    convert_hardmax,
    convert_is_inf,
    convert_mod,
    convert_roi_align,
    convert_scatter,
    convert_scatter_elements,
    convert_sign,
    convert_thresholded_relu,
)
from convoy.relax.importer.counts import (
    convert_constant_of_shape,
    convert_one_hot,
    convert_split,
)
from convoy.relax.importer.depths import convert_open_depth, convert_open_depth_transposed
from convoy.relax.importer.draws import convert_normal, convert_uniform
from convoy.relax.importer.einsum import convert_einsum
from convoy.relax.importer.frames import FRAMES, convert_frames
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.lengths import convert_reverse
from convoy.relax.importer.naming import name_call
from convoy.relax.importer.pad import convert_pad
from convoy.relax.importer.pool import convert_lp_pool, convert_pool
from convoy.relax.importer.ranges import convert_range
from convoy.relax.importer.recurrent import RECURRENT
from convoy.relax.importer.reduce import REDUCTIONS
from convoy.relax.importer.repeat_each import convert_repeats
from convoy.relax.importer.repeats import REPEATS
from convoy.relax.importer.reshape import (
    convert_expand,
    convert_flatten,
    convert_reshape,
    convert_tile,
)
from convoy.relax.importer.resize import convert_resize
from convoy.relax.importer.scans import SAME_LENGTH, convert_same_length
from convoy.relax.importer.slice import convert_slice
from convoy.relax.importer.suppression import convert_suppression
from convoy.relax.importer.top import convert_top
from convoy.relax.importer.triangles import convert_trilu
from convoy.relax.importer.windows import (
    convert_col2im,
    convert_deform_conv,
    convert_max_pool,
    convert_max_unpool,
)

Inputs = list[Any]
Attributes = dict[str, Any]
Converter = Callable[[relax.BlockBuilder, Inputs, Attributes], Any]


def broadcast_bias(op: str, anchor: Any, bias: Any, beta: float) -> relax.Expr:
    """The constant to add: [O] over the channel axis of a convolution, or beta·C of a Gemm."""
    array, dtype = bias.value.numpy(), str(bias.ty.dtype)  # without a type, float64 becomes float32
    if op == "Gemm":
        return relax.const(array if beta == 1.0 else (array * np.float64(beta)).astype(array.dtype), dtype)
    return relax.const(array.reshape(1, -1, *[1] * (anchor.ty.ndim - 2)), dtype)


def convert_clip(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """Constant bounds make one ``relax.clip``; ONNX reads a NaN bound as none.

    Bounds are inputs from opset 11 on, attributes before.  One that is left out is the largest finite
    number of the data's type, so that infinities become it.
    """
    dtype = str(inputs[0].ty.dtype)
    if dtype not in FLOATS:
        return None
    largest = float(np.finfo(dtype).max)
    bounds = []
    for i, name, default in ((1, "min", -largest), (2, "max", largest)):
        bound = attrs.get(name, default) if inputs[i] is None else _scalar(inputs[i])
        if bound is None:
            return None
        bounds.append(default if math.isnan(bound) else float(bound))
    low, high = bounds
    return relax.op.clip(inputs[0], low, high) if low <= high else None


def fold_pairwise(operation: Callable[[Any, Any], Any], *, mean: bool = False) -> Converter:
    """Sum, Max, Min, Mean of many tensors as a chain of binary ops, which broadcast by themselves."""

    def convert(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
        if all(is_constant(i) for i in inputs):
            return None
        total = reduce(lambda a, b: bb.normalize(operation(a, b)), inputs)
        if not mean or len(inputs) == 1:
            return total
        return relax.op.multiply(total, relax.const(1.0 / len(inputs), str(inputs[0].ty.dtype)))

    return convert


def convert_batch_norm(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """Inference: ``batch_norm(...)[0]`` and nothing else, as folding expects it.

    ONNX's momentum weighs the old statistics, TVM's the new ones; the frontend passes it on as it is.
    """
    if attrs.get("training_mode", 0):
        attrs["momentum"] = 1.0 - attrs.get("momentum", 0.9)
        return None
    if attrs["tvm_custom"]["num_outputs"] > 1:
        return None
    if len({str(i.ty.dtype) for i in inputs}) > 1:
        return None
    name = attrs["tvm_custom"]["name"]
    normal = relax.op.nn.batch_norm(*inputs, axis=1, epsilon=attrs.get("epsilon", 1e-5), training=False)
    whole = bb.emit(name_call(normal, name), name_hint=f"{name}_stats")
    return bb.emit(relax.TupleGetItem(whole, 0), name_hint=name)


def convert_lrn(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """LRN of [N, C, H, W], in the one form the importer leaves; the frontend's, but for padding.

    ::

        sq    = multiply(x, x)
        d5    = expand_dims(sq, axis=[1])                                  # [N, 1, C, H, W]
        mean  = nn.avg_pool3d(d5, pool_size=[size, 1, 1], strides=[1, 1, 1], dilation=[1, 1, 1],
                              padding=[(size - 1) // 2, 0, 0, size // 2, 0, 0], layout="NCDHW",
                              ceil_mode=False, count_include_pad=True)
        d4    = squeeze(mean, axis=[1])                                    # [N, C, H, W]
        scale = add(multiply(d4, const(alpha)), const(bias))               # scalar float32 constants
        y     = divide(x, power(scale, const(beta)))

    The frontend pads size // 2 on both sides, which for an even size makes C + 1 channels.
    """
    x, size = inputs[0], int(attrs["size"])
    if x.ty.ndim != 4 or str(x.ty.dtype) != "float32":
        return None
    squares = relax.op.expand_dims(relax.op.multiply(x, x), axis=1)
    mean = relax.op.nn.avg_pool3d(
        squares,
        pool_size=(size, 1, 1),
        strides=(1, 1, 1),
        padding=[(size - 1) // 2, 0, 0, size // 2, 0, 0],
        layout="NCDHW",
        count_include_pad=True,
    )
    scale = relax.op.multiply(
        relax.op.squeeze(mean, axis=1), relax.const(attrs.get("alpha", 1e-4), "float32")
    )
    scale = relax.op.add(scale, relax.const(attrs.get("bias", 1.0), "float32"))
    return relax.op.divide(x, relax.op.power(scale, relax.const(attrs.get("beta", 0.75), "float32")))


def convert_layer_norm(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """A scale that broadcasts; and the mean and 1/deviation where they are asked for.

    The frontend wants scale and shift of one shape, that of the axes, and gives the others as zeros.  Of
    float64 TVM has no kernel.
    """
    _broadcast_scales(bb, inputs, attrs.get("axis", -1))
    if inputs[2] is None and static_shape(inputs[1]) is None:  # the frontend's zeros have no open shape
        inputs[2] = bb.normalize(relax.op.zeros(inputs[1].ty.shape, inputs[1].ty.dtype))
    x = inputs[0]
    dtype = str(x.ty.dtype)
    if dtype != "float64" and (attrs["tvm_custom"]["num_outputs"] == 1 or dtype != "float32"):
        return None
    axes = list(range(attrs.get("axis", -1) % x.ty.ndim, x.ty.ndim))
    mean = bb.emit(relax.op.mean(x, axes, keepdims=True))
    centered = bb.emit(relax.op.subtract(x, mean))
    variance = relax.op.mean(relax.op.multiply(centered, centered), axes, keepdims=True)
    shifted = relax.op.add(variance, relax.const(attrs.get("epsilon", 1e-5), dtype))
    inverse = bb.emit(relax.op.divide(relax.const(1.0, dtype), relax.op.sqrt(shifted)))
    result = relax.op.multiply(relax.op.multiply(centered, inverse), inputs[1])
    if inputs[2] is not None:
        result = relax.op.add(result, inputs[2])
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return result
    result = bb.emit(result, name_hint=attrs["tvm_custom"]["name"])
    if dtype == "float64":  # ONNX keeps what it says beside in float32
        mean, inverse = (relax.op.astype(said, "float32") for said in (mean, inverse))
    return relax.Tuple([result, mean, inverse])


def _broadcast_scales(bb: relax.BlockBuilder, inputs: Inputs, axis: int) -> None:
    sizes = bb.algebra.sizes(inputs[0])
    given = [static_shape(i) for i in inputs[1:3] if i is not None]
    if sizes is None and given[1:] in ([], given[:1]):
        return
    wanted = sizes[axis % len(sizes) :] if sizes is not None else max(filter(None, given), key=len)
    for i, value in enumerate(inputs[1:3], 1):
        shape = None if value is None else static_shape(value)
        if shape is None or shape == wanted:
            continue
        while len(shape) > len(wanted) and shape[0] == 1:
            shape = shape[1:]
        inputs[i] = bb.normalize(
            relax.op.broadcast_to(bb.normalize(relax.op.reshape(value, shape)), relax.ShapeExpr(wanted))
        )


def convert_cumulative_product(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """Which the frontend lacks; along an axis that is not known yet it has a body."""
    axis = _scalar(inputs[1])
    if axis is None:
        return None
    along, x = int(axis) % inputs[0].ty.ndim, inputs[0]
    x = bb.normalize(relax.op.flip(x, along)) if attrs.get("reverse", 0) else x
    product = bb.normalize(relax.op.cumprod(x, along, exclusive=bool(attrs.get("exclusive", 0))))
    return relax.op.flip(product, along) if attrs.get("reverse", 0) else product


def convert_bit_cast(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """The same bits as another type of the same width; LLVM has a bool in one bit."""
    dtype = str(helper.tensor_dtype_to_np_dtype(attrs["to"]))
    if "bool" in (dtype, str(inputs[0].ty.dtype)):
        return relax.op.astype(inputs[0], dtype)

    def compute(x: Any) -> Any:
        return te.compute(x.shape, lambda *i: tirx.reinterpret(dtype, x(*i)))

    return bb.emit_te(compute, inputs[0], primfunc_name_hint="bit_cast")


def convert_rms_norm(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """Over several axes TVM has no loop for it, and ONNX a definition."""
    if attrs.get("axis", -1) not in (-1, inputs[0].ty.ndim - 1):
        raise ValueError("RMSNormalization over several axes")
    _broadcast_scales(bb, inputs, -1)


def convert_space_to_depth(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """In the order of opset 13; the frontend knows no other, and ONNX has a definition."""
    if attrs.get("mode", b"DCR") != b"DCR":
        raise ValueError("SpaceToDepth in another order")


def convert_power(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """Powers of one type of floats, as constant exponents become; TVM compiles none of whole numbers."""
    dtype = str(inputs[0].ty.dtype) if isinstance(inputs[0].ty, relax.TensorType) else ""
    if dtype in FLOATS and is_constant(inputs[1]):
        inputs[1] = constant(inputs[1].value.numpy().astype(dtype))
    types = {str(i.ty.dtype) for i in inputs[:2] if isinstance(i.ty, relax.TensorType)}
    if len(types) > 1 or not types <= set(FLOATS):
        raise ValueError(f"a power of {' and '.join(sorted(types))}")


def first_where_none(arg: Callable[..., Any]) -> Converter:
    """ArgMax or ArgMin: where no element is beyond infinity, TVM gives -1, and ONNX the first place."""

    def convert(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
        x = inputs[0]
        if attrs.get("select_last_index", 0) or str(x.ty.dtype) not in FLOATS or x.ty.ndim < 1:
            return None
        found = arg(x, attrs.get("axis", 0) % x.ty.ndim, bool(attrs.get("keepdims", 1)))
        return relax.op.maximum(bb.normalize(found), relax.const(0, "int64"))

    return convert


def convert_conv(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> Any:
    """Conv: forms whose kernels want another."""
    made = convert_open_depth(bb, inputs, attrs)
    return convert_computed_weight(bb, inputs, attrs) if made is None else made


def _scalar(expr: Any) -> float | None:
    if not is_constant(expr):
        return None
    array = expr.value.numpy()
    return float(array.item()) if array.size == 1 else None


DIRECT: dict[str, Converter] = {
    "ArgMax": first_where_none(relax.op.argmax),
    "ArgMin": first_where_none(relax.op.argmin),
    "AveragePool": convert_pool,
    "BatchNormalization": convert_batch_norm,
    "BitCast": convert_bit_cast,
    "BitShift": convert_bit_shift,
    "Cast": convert_cast,
    "CastLike": convert_cast_like,
    "Clip": convert_clip,
    "Col2Im": convert_col2im,
    "ConstantOfShape": convert_constant_of_shape,
    "Conv": convert_conv,
    "ConvTranspose": convert_open_depth_transposed,
    "CumProd": convert_cumulative_product,
    "DeformConv": convert_deform_conv,
    "Dropout": convert_dropout,
    "DynamicQuantizeLinear": convert_dynamic_quantize,
    "Einsum": convert_einsum,
    "Div": convert_div,
    "Equal": convert_equal,
    "Expand": convert_expand,
    "EyeLike": convert_eye_like,
    "Flatten": convert_flatten,
    "GridSample": convert_grid_sample,
    "Hardmax": convert_hardmax,
    "IsInf": convert_is_inf,
    "LRN": convert_lrn,
    "LayerNormalization": convert_layer_norm,
    "LpPool": convert_lp_pool,
    "Max": fold_pairwise(relax.op.maximum),
    "MaxPool": convert_max_pool,
    "MaxUnpool": convert_max_unpool,
    "Mean": fold_pairwise(relax.op.add, mean=True),
    "Min": fold_pairwise(relax.op.minimum),
    "Mod": convert_mod,
    "NonMaxSuppression": convert_suppression,
    "OneHot": convert_one_hot,
    "Pad": convert_pad,
    "Pow": convert_power,
    "RMSNormalization": convert_rms_norm,
    "RandomNormal": convert_normal,
    "RandomNormalLike": convert_normal,
    "RandomUniform": convert_uniform,
    "RandomUniformLike": convert_uniform,
    "Range": convert_range,
    "Reshape": convert_reshape,
    "Resize": convert_resize,
    "ReverseSequence": convert_reverse,
    "RoiAlign": convert_roi_align,
    "ScatterElements": convert_scatter_elements,
    "ScatterND": convert_scatter,
    "Sign": convert_sign,
    "Slice": convert_slice,
    "SpaceToDepth": convert_space_to_depth,
    "Split": convert_split,
    "Squeeze": convert_squeeze,
    "Sum": fold_pairwise(relax.op.add),
    "ThresholdedRelu": convert_thresholded_relu,
    "Tile": convert_tile,
    "TopK": convert_top,
    "Trilu": convert_trilu,
    "Unsqueeze": convert_unsqueeze,
    BAGS: convert_bags,
    REPEATS: convert_repeats,
    FRAMES: convert_frames,
    SAME_LENGTH: convert_same_length,
    **REDUCTIONS,
    **RECURRENT,
}
COMPLETE = frozenset({"Range"})
"""Ops of which every form is taken here: what is refused has no body that computes it."""
