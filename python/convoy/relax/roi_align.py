"""RoiAlign by channels: what TVM computes for each number of a box again is computed once for its channels.

A detector's thousand boxes of 7x7 pixels and 256 channels took 70 ms (TVM 0.27).

The largest of a part is, as ONNX defines it, that of the pixels around its samples, each times its share.
TVM's is that of the samples.
"""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import tirx as T

from convoy.relax.dataflow import dims, dtype, op_name
from convoy.relax.rewriting import APART, rewriting

LANES = 16
"""Channels of a vector, at most."""


def align_by_channels() -> Pass:
    """Pass that writes out means over boxes of maps of floats."""
    return rewriting(_Aligning, "convoy.align_by_channels")


@mutator
class _Aligning(PyExprMutator):
    def visit_call_(self, op: Call) -> Any:
        op = super().visit_call_(op)
        if op_name(op) != "vision.roi_align" or not _is_known(op):
            return op
        data, rois = op.args
        channels = dims(data)[1]
        pooled = [int(n) for n in op.attrs.pooled_size]
        scale, ratio = float(op.attrs.spatial_scale), int(op.attrs.sample_ratio)
        function = align(channels, *pooled, scale, ratio, bool(op.attrs.aligned))
        return call_align(self.builder_, function, data, rois, pooled)


def call_align(
    bb: relax.BlockBuilder,
    function: tirx.PrimFunc,
    data: relax.Expr,
    rois: relax.Expr,
    pooled: Sequence[int],
) -> relax.Expr:
    """A call of what ``align`` made, of maps [n, c, h, w] and boxes [r, (image, x, y, x, y)]."""
    last = bb.emit(relax.op.permute_dims(data, [0, 2, 3, 1]))
    made = relax.TensorType([dims(rois)[0], dims(data)[1], *pooled], "float32")
    return relax.call_tir(bb.add_func(function, "roi_align"), [last, rois], made)


def _is_known(op: Call) -> bool:
    shapes = [dims(x) for x in op.args]
    mean = str(op.attrs.mode) == "avg" and str(op.attrs.layout) == "NCHW"
    return (
        mean
        and None not in shapes
        and isinstance(shapes[0][1], int)
        and all(dtype(x) == "float32" for x in op.args)
    )


def align(
    channels: int,
    rows: int,
    columns: int,
    scale: float,
    ratio: int,
    aligned: bool,
    largest: bool = False,
) -> tirx.PrimFunc:
    """The mean of samples between pixels, of each part of each box, or what is largest there.

    Its maps have channels last.
    """
    lanes = next(n for n in range(min(LANES, channels), 0, -1) if channels % n == 0)
    least = tirx.const(-3.4e38 if aligned else 1.0, "float32")

    def samples(length: Any, parts: int) -> Any:
        return T.int32(ratio) if ratio > 0 else tirx.ceil(length / T.float32(parts)).astype("int32")

    def between(start: Any, size: Any, part: Any, number: Any, count: Any) -> Any:
        """Where a sample is along one axis."""
        steps = (tirx.Cast("float32", number) + T.float32(0.5)) * size / tirx.Cast("float32", count)
        return start + tirx.Cast("float32", part) * size + steps

    def within(place: Any, size: Any) -> Any:
        return tirx.all(size > 0, place >= T.float32(-1), place <= tirx.Cast("float32", size))

    def sample(x: Any, image: Any, pixel: Any, share: Any, channel: Any) -> Any:
        if largest:
            around = [(i, j) for i in range(2) for j in range(2)]
            of = [share[i] * share[2 + j] * x[image, pixel[i], pixel[2 + j], channel] for i, j in around]
            return tirx.max(tirx.max(of[0], of[1]), tirx.max(of[2], of[3]))
        row = [x[image, pixel[i], pixel[2], channel] * share[2] for i in range(2)]
        row = [row[i] + x[image, pixel[i], pixel[3], channel] * share[3] for i in range(2)]
        return row[0] * share[0] + row[1] * share[1]

    def taken(before: Any, more: Any) -> Any:
        return tirx.max(before, more) if largest else before + more

    def whole(found: Any, count: Any) -> Any:
        if largest:
            return tirx.Select(count > 0, found, T.float32(0))
        return found / tirx.Cast("float32", tirx.max(count, 1))

    none = T.float32(-math.inf if largest else 0)

    @T.prim_func(private=True, s_tir=True)
    def aligned_boxes(x_: T.handle, rois_: T.handle, y_: T.handle):
        T.func_attr({"tirx.noalias": True})
        N = T.int64()
        H = T.int64()
        W = T.int64()
        R = T.int64()
        x = T.match_buffer(x_, (N, H, W, channels), "float32")
        rois = T.match_buffer(rois_, (R, 5), "float32")
        y = T.match_buffer(y_, (R, channels, rows, columns), "float32")
        for r in T.parallel(R):
            sums = T.alloc_buffer((channels,), "float32")
            box = T.alloc_buffer((4,), "float32", scope="local")  # where it starts, and a part of it
            count = T.alloc_buffer((2,), "int32", scope="local")  # samples of a part
            place = T.alloc_buffer((2,), "float32", scope="local")  # of one
            pixel = T.alloc_buffer((4,), "int64", scope="local")  # those around it
            share = T.alloc_buffer((4,), "float32", scope="local")  # what each is worth
            for i in T.unroll(2):  # along the height, then the width
                box[i] = rois[r, 2 - i] * T.float32(scale)
                box[2 + i] = T.max(rois[r, 4 - i] * T.float32(scale) - box[i], least)
            count[0] = samples(box[2], rows)
            count[1] = samples(box[3], columns)
            box[2] = box[2] / T.float32(rows)
            box[3] = box[3] / T.float32(columns)
            for part in range(rows * columns):
                for c in range(channels):
                    sums[c] = none
                for s, t in T.grid(count[0], count[1]):
                    place[0] = between(box[0], box[2], part // columns, s, count[0])
                    place[1] = between(box[1], box[3], part % columns, t, count[1])
                    if within(place[0], H) and within(place[1], W):
                        for i in T.unroll(2):
                            place[i] = T.min(
                                T.max(place[i], T.float32(0)), T.Cast("float32", T.Select(i == 0, H, W) - 1)
                            )
                            pixel[2 * i] = T.Cast("int64", T.floor(place[i]))
                            pixel[2 * i + 1] = T.min(pixel[2 * i] + 1, T.Select(i == 0, H, W) - 1)
                            share[2 * i + 1] = place[i] - T.Cast("float32", pixel[2 * i])
                            share[2 * i] = T.float32(1) - share[2 * i + 1]
                        for c in range(channels // lanes):
                            for v in T.vectorized(lanes):
                                sums[c * lanes + v] = taken(
                                    sums[c * lanes + v],
                                    sample(x, T.Cast("int64", rois[r, 0]), pixel, share, c * lanes + v),
                                )
                    else:
                        for c in range(channels):
                            sums[c] = taken(sums[c], T.float32(0))
                for c in range(channels):
                    y[r, c, part // columns, part % columns] = whole(sums[c], count[0] * count[1])

    return aligned_boxes.with_attrs(APART)
