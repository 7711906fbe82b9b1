"""Convolutions and their transposes."""

from __future__ import annotations

from dataclasses import replace

from convoy.graph.ops import Conv2d, ConvTranspose2d
from convoy.ops.attributes import pair
from convoy.ops.layouts import layouts, remedy, steps
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Check, Cost, Lowering, OpRow, nothing


def _check_layouts(data: str, weight: str) -> Check:
    def check(at: Reader, call: Call) -> str | None:
        attrs = call.attrs
        given = (attrs.data_layout, data, attrs.out_layout, attrs.kernel_layout, weight)
        wrong = layouts(*given, remedy=remedy(at, call)) or steps(attrs)
        return wrong or _open_channels(at, call)

    return check


def _open_channels(at: Reader, call: Call) -> str | None:
    (channels,) = (at.dims(call.args[0]) or (0, 0))[1:2]
    if isinstance(channels, int):
        return None
    return "expected a known number of input channels, got an open length; fix it with --shape"


def _check_conv2d(at: Reader, call: Call) -> str | None:
    """A weight has its filters along axis 0; Relay allows [C, M, kh, kw] for M filters a channel, too."""
    data, weight = (at.dims(tensor) or () for tensor in call.args)
    wrong = _check_layouts("NCHW", "OIHW")(at, call)
    channels = data[1] // int(call.attrs.groups)
    if wrong is not None or weight[1] == channels:
        return wrong
    found = f"expected a weight of {channels} input channels a group, got {weight[1]}"
    return f"{found}; fold's normalize_layout reshapes it"


def _lower_conv(at: Operands, call: Call) -> str:
    weight = at.array(call.args[1])
    return at.build.windowed(
        Conv2d,
        at.tensor(call.args[0]),
        at.shape(call),
        weight if weight.ndim == 4 else weight[:, :, None, :],
        pattern="conv1d" * (weight.ndim == 3),
        stride=pair(call.attrs.strides),
        padding=at.attributes.padding(call),
        dilation=pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_conv_transpose(at: Operands, call: Call) -> str:
    weight, more = at.array(call.args[1]), [int(side) for side in call.attrs.output_padding]
    return at.build.windowed(
        ConvTranspose2d,
        at.tensor(call.args[0]),
        at.shape(call),
        weight if weight.ndim == 4 else weight[:, :, None, :],
        pattern="conv1d_transpose" * (weight.ndim == 3),
        stride=pair(call.attrs.strides),
        padding=at.attributes.padding(call),
        output_padding=(0, more[0]) if weight.ndim == 3 else pair(more),
        dilation=pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


_HEAVY = OpRow(images=True, heavy=True, open_sizes=True, constants={1: "weight"})


def _row(name: str, cost: Cost, check: Check = nothing, lower: Lowering | None = None) -> OpRow:
    return replace(_HEAVY, relax=name, relay=name, cost=cost, check=check, lower=lower)


ROWS = (
    _row("nn.conv1d", "convolution", _check_layouts("NCW", "OIW"), _lower_conv),
    _row("nn.conv2d", "convolution", _check_conv2d, _lower_conv),
    _row("nn.conv1d_transpose", "transposed", _check_layouts("NCW", "IOW"), _lower_conv_transpose),
    _row("nn.conv2d_transpose", "transposed", _check_layouts("NCHW", "IOHW"), _lower_conv_transpose),
)
