"""The ranges of every op's attributes, whatever the shapes of its tensors."""

from __future__ import annotations

import math

from convoy.graph.messages import op_name, require
from convoy.graph.ops import (
    PARAMETERS,
    Attention,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dequantize,
    Lrn,
    Node,
    Pad,
    Pool2d,
    Product,
    Quantize,
    Recurrent,
    Reduce,
    Resize,
    Rotate,
    Slice,
    Softmax,
    Transpose,
    Unary,
    UnaryKind,
)
from convoy.graph.sizes import is_open
from convoy.graph.views import View


def check_attributes(node: Node) -> None:
    """Check the number of inputs and the range of every attribute.

    Raises
    ------
    GraphError
        Naming the node and the attribute.
    """
    _check_input_count(node)
    match node:
        case Conv2d() | ConvTranspose2d() | Pool2d():
            _check_window(node)
        case Unary():
            _check_parameters(node, node.kind, node.a, node.b)
        case Reduce(axes=axes):
            legal = bool(axes) and list(axes) == sorted(set(axes)) and axes[0] >= 1
            require(legal, node, "axes sorted, distinct and ≥ 1", axes, "axis 0 is the image axis")
        case Concat(axis=axis):
            require(axis >= 1, node, "an axis ≥ 1", axis, "axis 0 is the image axis")
        case Slice():
            require(node.axis >= 1, node, "an axis ≥ 1", node.axis, "axis 0 is the image axis")
            require(node.step != 0, node, "a step", node.step, "take 1 for all elements")
            span, first, last = f"[{node.begin}, {node.end})", node.begin, node.end - 1
            if node.step < 0:
                first, last = node.end + 1, node.begin
            legal = 0 <= first <= last
            require(legal, node, "bounds in the order of its step", span, "normalise the bounds")
        case Transpose(perm=perm):
            legal = sorted(perm) == list(range(len(perm))) and perm[:1] == (0,)
            require(legal, node, "a permutation that keeps axis 0", perm, "axis 0 is the image axis")
        case ChannelShuffle(groups=groups):
            require(groups >= 1, node, "groups ≥ 1", groups, "give the number of groups")
        case Pad(widths=widths):
            legal = widths[:1] == ((0, 0),) and all(side >= 0 for pair in widths for side in pair)
            require(legal, node, "widths ≥ 0 and (0, 0) on axis 0", widths, "crop with a slice instead")
        case Resize(scales=scales):
            legal = scales is None or all(0 < s < math.inf for s in scales)
            require(legal, node, "positive scales", scales, "leave scales out to use the sizes")
        case Softmax(axis=axis) | Quantize(axis=axis) | Dequantize(axis=axis):
            require(axis >= 0, node, "an axis ≥ 0", axis, "count axes from the front")
        case Product(a=a, b=b, y=y):
            _check_view_attributes(node, node.scale, a=a, b=b, y=y)
        case Rotate(x=x, cos=cos, sin=sin, y=y):
            _check_view_attributes(node, 1.0, x=x, cos=cos, sin=sin, y=y)
        case Attention(q=q, k=k, v=v, mask=mask, y=y):
            _check_view_attributes(node, node.scale, q=q, k=k, v=v, mask=mask or y, y=y)
            inputs = 3 if mask is None else 4
            require(
                len(node.inputs) == inputs, node, f"{inputs} inputs", len(node.inputs), "give a mask's view"
            )
        case Recurrent(clip=clip):
            require(0 <= clip < math.inf, node, "a clip ≥ 0", clip, "leave it at 0")
            for curve in (node.gate, node.inner, node.outer):
                _check_parameters(node, curve.kind, curve.a, curve.b)
        case Lrn():
            require(node.size >= 1, node, "a size ≥ 1", node.size, "give the number of channels summed")


def _check_input_count(node: Node) -> None:
    if not node.counts:
        require(len(node.inputs) >= 1, node, "at least one input", 0, f"drop the empty {op_name(node)}")
        return
    expected = f"{' or '.join(map(str, node.counts))} input{'s' if node.counts != (1,) else ''}"
    require(len(node.inputs) in node.counts, node, expected, len(node.inputs), "see graph/ops.py")


def _check_view_attributes(node: Node, scale: float, **views: View) -> None:
    require(math.isfinite(scale), node, "a finite scale", scale, "multiply by it apart")
    for role, view in views.items():
        legal = len(view.shape) == len(view.strides) >= 2
        require(legal, node, f"a view {role} of ≥ 2 axes with a stride each", view, "check the strides")
        counts = (*view.strides, view.offset)
        # lengths of a call may be 0 where the tensor's are: the tensor is asked
        legal = all(n >= (0 if is_open(n) else 1) for n in view.shape) and all(n >= 0 for n in counts)
        require(
            legal, node, f"a view {role} of lengths ≥ 1, strides and offset ≥ 0", view, "see graph/views.py"
        )


def _check_window(node: Conv2d | ConvTranspose2d | Pool2d) -> None:
    remedy = "see graph/ops.py"
    require(min(node.stride) >= 1, node, "strides ≥ 1", node.stride, remedy)
    require(min(node.dilation) >= 1, node, "dilations ≥ 1", node.dilation, remedy)
    require(
        all(side >= 0 for side in node.padding),
        node,
        "padding ≥ 0",
        node.padding,
        "crop with a slice instead",
    )
    if isinstance(node, Pool2d):
        require(min(node.kernel) >= 1, node, "a kernel ≥ 1", node.kernel, remedy)
    else:
        require(node.groups >= 1, node, "groups ≥ 1", node.groups, remedy)
    if isinstance(node, ConvTranspose2d):
        bounds = tuple(map(max, node.stride, node.dilation))
        legal = all(0 <= p < bound for p, bound in zip(node.output_padding, bounds, strict=True))
        expected = f"0 ≤ output_padding < max(stride, dilation) = {bounds}"
        require(legal, node, expected, node.output_padding, remedy)


def _check_parameters(node: Node, kind: UnaryKind, a: float, b: float) -> None:
    used = PARAMETERS.get(kind, "")
    for name, value in (("a", a), ("b", b)):
        if name not in used:
            require(value == 0, node, f"no parameter {name}", value, "leave it at 0")
        require(
            not math.isnan(value), node, f"a number as {name}", value, "check the constant it came from"
        )
    if kind == "clip":
        require(a <= b, node, "a ≤ b", f"[{a}, {b}]", "exchange the bounds")
