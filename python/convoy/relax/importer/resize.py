"""Resize of [N, C, H, W].

``relax.image.resize2d`` knows an output size but no scale: it is right where the scale is the
quotient of the sizes.  ONNX also has fractional scales (4 · 0.6 makes 2, sampled every 1/0.6),
antialiasing and symmetric coordinates.  Resizing is linear and separable, so those become one
constant per axis: the matrix that ONNX's own reference makes of the identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.idioms.scope import static_shape

COORDINATES = frozenset({"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"})
METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
OPSET = 19
"""The first whose reference knows every attribute used here."""

Axis = tuple[int, int, float]
"""Input size, output size, scale."""


def convert_resize(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> Any:
    """resize2d where it says the same, else a constant matrix (nearest: ``take``) per axis.

    None (the frontend's own way) for other ranks, open sizes, and cropping.
    """
    axes = _spatial_axes(inputs, attrs)
    mode = attrs.get("mode", b"nearest").decode()
    coordinates = attrs.get("coordinate_transformation_mode", b"half_pixel").decode()
    if axes is None or mode not in METHODS or coordinates == "tf_crop_and_resize":
        return None
    exact = all(abs(i * s - o) < 1e-4 for i, o, s in axes)
    single = coordinates == "align_corners" and any(o == 1 for _, o, _ in axes)
    if coordinates in COORDINATES and exact and not single and not attrs.get("antialias", 0):
        return relax.op.image.resize2d(
            inputs[0],
            size=relax.ShapeExpr([o for _, o, _ in axes]),
            layout="NCHW",
            method=METHODS[mode],
            coordinate_transformation_mode=coordinates,
            rounding_method=attrs.get("nearest_mode", b"round_prefer_floor").decode(),
            cubic_alpha=attrs.get("cubic_coeff_a", -0.75),
            cubic_exclude=attrs.get("exclude_outside", 0),
            extrapolation_value=attrs.get("extrapolation_value", 0.0),
        )
    rows, columns = (_matrix(axis, mode, coordinates, attrs) for axis in axes)
    if mode == "nearest":
        picked = relax.op.take(inputs[0], relax.const(rows.argmax(0), "int64"), axis=2)
        return relax.op.take(picked, relax.const(columns.argmax(0), "int64"), axis=3)
    tall = relax.op.matmul(relax.const(rows.T.copy(), "float32"), inputs[0])
    return relax.op.matmul(tall, relax.const(columns, "float32"))


def _spatial_axes(inputs: Any, attrs: dict[str, Any]) -> tuple[Axis, Axis] | None:
    """H and W, if the batch and channels stay as they are and all is known."""
    data, _, scales, sizes = (inputs[i] for i in range(4))
    if data.ty.ndim != 4 or str(data.ty.dtype) != "float32":
        return None
    spatial = [static_shape(relax.ShapeExpr([d])) for d in data.ty.shape.values[2:]]
    if any(d is None for d in spatial):
        return None
    here = [d[0] for d in spatial if d is not None]
    axes = [a % 4 for a in attrs.get("axes", range(4))]
    if scales is not None and is_constant(scales) and scales.value.numpy().size:
        given = dict(zip(axes, scales.value.numpy().tolist(), strict=True))
        if given.get(0, 1.0) != 1.0 or given.get(1, 1.0) != 1.0:
            return None
        factors = [given.get(2, 1.0), given.get(3, 1.0)]
        out = [int(np.floor(size * f)) for size, f in zip(here, factors, strict=True)]
    elif sizes is not None and is_constant(sizes):
        wanted = dict(zip(axes, sizes.value.numpy().tolist(), strict=True))
        channels = static_shape(relax.ShapeExpr([data.ty.shape.values[1]]))
        if 1 in wanted and [wanted[1]] != channels:
            return None
        target = [wanted.get(2, here[0]), wanted.get(3, here[1])]
        policy = attrs.get("keep_aspect_ratio_policy", b"stretch").decode()
        factors = [o / i for o, i in zip(target, here, strict=True)]
        if policy != "stretch":
            chosen = [f for f, axis in zip(factors, (2, 3), strict=True) if axis in wanted]
            factor = min(chosen) if policy == "not_larger" else max(chosen)
            factors = [factor if axis in wanted else 1.0 for axis in (2, 3)]
            target = [int(np.floor(size * factor + 0.5)) for size in here]
        out = target
    else:
        return None
    height, width = zip(here, out, factors, strict=True)
    return height, width


def _matrix(axis: Axis, mode: str, coordinates: str, attrs: dict[str, Any]) -> NDArray[np.float32]:
    """[input, output]: what each output position takes from each input position of one axis."""
    size, out, scale = axis
    node = helper.make_node(
        "Resize",
        ["x", "", "scales"] if int(np.floor(size * scale)) == out else ["x", "", "", "sizes"],
        ["y"],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=attrs.get("nearest_mode", b"round_prefer_floor").decode(),
        antialias=attrs.get("antialias", 0),
        cubic_coeff_a=attrs.get("cubic_coeff_a", -0.75),
        exclude_outside=attrs.get("exclude_outside", 0),
    )
    feeds: dict[str, Any] = {"x": np.eye(size, dtype=np.float32)}
    if "scales" in node.input:
        feeds["scales"] = np.array([1.0, scale], np.float32)
    else:
        feeds["sizes"] = np.array([size, out], np.int64)
    made = ReferenceEvaluator(node, opsets={"": OPSET}).run(None, feeds)[0]
    return np.asarray(made, np.float32)
