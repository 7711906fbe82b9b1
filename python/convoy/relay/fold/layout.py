"""Channels-last convolutions and pools become channels-first, by TVM's ConvertLayout."""

from __future__ import annotations

from tvm import IRModule, relay

from convoy.relay.dataflow import Dataflow, op_name

_WANTED = {
    "nn.conv2d": ["NCHW", "OIHW"],
    "nn.conv2d_transpose": ["NCHW", "IOHW"],
    "nn.conv3d": ["NCDHW", "OIDHW"],
    "nn.conv3d_transpose": ["NCDHW", "IODHW"],
    "nn.max_pool2d": ["NCHW"],
    "nn.avg_pool2d": ["NCHW"],
    "nn.global_max_pool2d": ["NCHW"],
    "nn.global_avg_pool2d": ["NCHW"],
}
"""Data and kernel layout, for the ops that ConvertLayout knows."""


def normalize_function(function: relay.Function) -> relay.Function:
    """The same function with the ops of ``_WANTED`` in their channels-first layouts."""
    calls = Dataflow(function.body).calls
    layouts = {op_name(call): _layouts(call) for call in calls if op_name(call) in _WANTED}
    if all(_layouts(call) == _WANTED[op_name(call)] for call in calls if op_name(call) in _WANTED):
        return function
    convert = relay.transform.ConvertLayout({name: _WANTED[name] for name in layouts})
    return convert(IRModule({"main": function}))["main"]


def _layouts(call: relay.Call) -> list[str]:
    attrs = call.attrs
    if "conv" not in op_name(call):
        return [str(attrs.layout)]
    return [str(attrs.data_layout), str(attrs.kernel_layout)]
