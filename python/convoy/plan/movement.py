"""Ops that move or reduce data: pooling, concat, resize, reshape, transpose, pad, softmax, …"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from convoy.graph.coordinates import bilinear_weights, nearest_indices
from convoy.graph.ops import (
    ChannelShuffle,
    Concat,
    Lrn,
    MatMul,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
)
from convoy.plan.convolution import activation, describe, make_epilogue
from convoy.plan.fuse import Group
from convoy.plan.recipes import PackMatrix
from convoy.plan.steps import (
    Array,
    ClearHalo,
    CopyChannels,
    CopyRows,
    Gemm,
    LrnMap,
    PadArray,
    Pool,
    ReduceArray,
    ReduceMap,
    ResizeBilinear,
    ResizeNearest,
    ShuffleMap,
    SoftmaxArray,
    TransposeArray,
)
from convoy.plan.values import NO_HALO, Values

GEMM_BLOCKS = 2
"""CV_GEMM_BLOCKS of kernels/gemm.h."""


def plan_matmul(group: Group, values: Values) -> None:
    node, graph = group.anchor, values.graph
    assert isinstance(node, MatMul)
    k, n = graph.shape(node.inputs[1])
    width = GEMM_BLOCKS * values.lanes
    x = values.array(node.inputs[0])
    residual = values.array(group.residual) if group.residual else None
    size = -(-n // width) * k * width
    w = Array(values.weight(PackMatrix(node.inputs[1], width), size), 0, (size,))
    values.steps.append(
        Gemm(
            note=describe(group, graph), x=x, w=w, y=values.define_array(group.output),
            epilogue=make_epilogue(group, n, residual, values), m=x.size // k, k=k, n=n, panel=width,
        )
    )  # fmt: skip


def plan_pool(group: Group, values: Values) -> None:
    node = group.anchor
    assert isinstance(node, Pool2d)
    x = values.map(node.inputs[0])
    values.steps.append(
        Pool(
            note=describe(group, values.graph), x=x, y=values.define_map(group.output), kind=node.kind,
            kernel=node.kernel, stride=node.stride, dilation=node.dilation, padding=node.padding,
            count_include_pad=node.count_include_pad, outer=activation(group.outer),
        )
    )  # fmt: skip


def plan_reduce(group: Group, values: Values) -> None:
    node, graph = group.anchor, values.graph
    assert isinstance(node, Reduce)
    note = describe(group, graph)
    if values.blocked[group.output]:
        x = values.map(node.inputs[0])
        values.steps.append(ReduceMap(note=note, x=x, y=values.define_map(group.output), kind=node.kind))
        return
    x_array = values.array(node.inputs[0])
    shape = graph.shape(node.inputs[0])
    first, last = node.axes[0], node.axes[-1]
    if node.axes != tuple(range(first, last + 1)):  # bring the reduced axes to the end
        kept = [i for i in range(len(shape)) if i not in node.axes]
        perm = (*kept, *node.axes)
        x_array = _transpose(note, x_array, shape, perm, values)
        shape = tuple(shape[p] for p in perm)
        first, last = len(kept), len(shape) - 1
    values.steps.append(
        ReduceArray(
            note=note, x=x_array, y=values.define_array(group.output), kind=node.kind,
            outer=math.prod(shape[:first]), axis=math.prod(shape[first : last + 1]),
            inner=math.prod(shape[last + 1 :]),
        )
    )  # fmt: skip


def plan_softmax(group: Group, values: Values) -> None:
    node, graph = group.anchor, values.graph
    assert isinstance(node, Softmax)
    shape = graph.shape(node.inputs[0])
    values.steps.append(
        SoftmaxArray(
            note=describe(group, graph), x=values.array(node.inputs[0]),
            y=values.define_array(group.output), outer=math.prod(shape[: node.axis]), axis=shape[node.axis],
            inner=math.prod(shape[node.axis + 1 :]), log=node.log,
        )
    )  # fmt: skip


def plan_concat(group: Group, values: Values) -> None:
    """Copies only the operands that were not computed in place."""
    node, graph = group.anchor, values.graph
    assert isinstance(node, Concat)
    note = describe(group, graph)
    if values.blocked[group.output]:
        copied = [name for name in node.inputs if _root_view(name, group.output, values) is None]
        y = values.define_map(group.output)
        if copied and y.halo != NO_HALO:
            values.steps.append(ClearHalo(note=f"clear the halo of {group.output}", y=y))
        channel = 0
        for name in node.inputs:
            count = graph.shape(name)[1]
            if name in copied:
                values.steps.append(
                    CopyChannels(
                        note=note, x=values.map(name), y=y, y_channel=channel, x_channel=0, count=count
                    )
                )
            channel += count
        return
    y_array = values.define_array(group.output)
    shape = graph.shape(group.output)
    inner = math.prod(shape[node.axis + 1 :])
    begin = 0
    for name in node.inputs:
        columns = graph.shape(name)[node.axis] * inner
        if columns:
            values.steps.append(
                CopyRows(
                    note=note, x=values.array(name), y=y_array, rows=math.prod(shape[: node.axis]),
                    columns=columns, y_start=begin, y_stride=shape[node.axis] * inner, x_stride=columns,
                )
            )  # fmt: skip
        begin += columns


def _root_view(name: str, concat: str, values: Values) -> int | None:
    view = values.views.get(name)
    return view.channel if view is not None and view.source == concat else None


def plan_slice(group: Group, values: Values) -> None:
    node, graph = group.anchor, values.graph
    assert isinstance(node, Slice)
    if group.output in values.views and values.views[group.output].source == node.inputs[0]:
        values.define_map(group.output)
        return
    note = describe(group, graph)
    if values.blocked[group.output]:
        x = values.map(node.inputs[0])
        y = values.define_map(group.output)
        if y.halo != NO_HALO:
            values.steps.append(ClearHalo(note=f"clear the halo of {group.output}", y=y))
        values.steps.append(
            CopyChannels(
                note=note, x=x, y=y, y_channel=0, x_channel=node.begin, count=node.end - node.begin
            )
        )
        return
    x_array = values.array(node.inputs[0])
    strides = list(row_major(x_array.shape))
    start = node.begin * strides[node.axis]
    strides[node.axis] *= node.step
    values.steps.append(
        TransposeArray(
            note=note, x=x_array, y=values.define_array(group.output), strides=tuple(strides), start=start
        )
    )


def plan_reshape(group: Group, values: Values) -> None:
    node = group.anchor
    assert isinstance(node, Reshape)
    x = values.array(node.inputs[0])
    if group.output not in values.graph.outputs:
        values.alias_array(group.output, x)
        return
    y = values.define_array(group.output)
    values.steps.append(
        CopyRows(
            note=describe(group, values.graph), x=x, y=y, rows=1, columns=x.size, y_start=0,
            y_stride=x.size, x_stride=x.size,
        )
    )  # fmt: skip


def plan_transpose(group: Group, values: Values) -> None:
    node = group.anchor
    assert isinstance(node, Transpose)
    x = values.array(node.inputs[0])
    strides = row_major(x.shape)
    values.steps.append(
        TransposeArray(
            note=describe(group, values.graph), x=x, y=values.define_array(group.output),
            strides=tuple(strides[p] for p in node.perm),
        )
    )  # fmt: skip


def _transpose(note: str, x: Array, shape: Sequence[int], perm: Sequence[int], values: Values) -> Array:
    strides = row_major(shape)
    y = values.scratch_array(*(shape[p] for p in perm))
    values.steps.append(TransposeArray(note=note, x=x, y=y, strides=tuple(strides[p] for p in perm)))
    return y


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def plan_pad(group: Group, values: Values) -> None:
    node = group.anchor
    assert isinstance(node, Pad)
    values.steps.append(
        PadArray(
            note=describe(group, values.graph), x=values.array(node.inputs[0]),
            y=values.define_array(group.output), before=tuple(w[0] for w in node.widths), value=node.value,
        )
    )  # fmt: skip


def plan_shuffle(group: Group, values: Values) -> None:
    node = group.anchor
    assert isinstance(node, ChannelShuffle)
    x = values.map(node.inputs[0])
    values.steps.append(
        ShuffleMap(
            note=describe(group, values.graph), x=x, y=values.define_map(group.output), groups=node.groups
        )
    )


def plan_lrn(group: Group, values: Values) -> None:
    node = group.anchor
    assert isinstance(node, Lrn)
    x = values.map(node.inputs[0])
    values.steps.append(
        LrnMap(
            note=describe(group, values.graph), x=x, y=values.define_map(group.output), size=node.size,
            alpha=node.alpha, beta=node.beta, bias=node.bias,
        )
    )  # fmt: skip


def plan_resize(group: Group, values: Values) -> None:
    node, graph = group.anchor, values.graph
    assert isinstance(node, Resize)
    x = values.map(node.inputs[0])
    y = values.define_map(group.output)
    note = describe(group, graph)
    if node.mode == "nearest":
        values.steps.append(
            ResizeNearest(
                note=note, x=x, y=y,
                rows=_integers(nearest_indices(node, 0, x.height, y.height)),
                columns=_integers(nearest_indices(node, 1, x.width, y.width)),
            )
        )  # fmt: skip
        return
    rows, row_weights = bilinear_weights(node, 0, x.height, y.height)
    columns, column_weights = bilinear_weights(node, 1, x.width, y.width)
    values.steps.append(
        ResizeBilinear(
            note=note, x=x, y=y, rows=_integers(rows), row_weights=tuple(map(float, row_weights)),
            columns=_integers(columns), column_weights=tuple(map(float, column_weights)),
        )
    )  # fmt: skip


def _integers(indices: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(i) for i in indices)
