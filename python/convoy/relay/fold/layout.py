"""Channels-last convolutions and pools become channels-first, by TVM's ConvertLayout.

A depthwise convolution may have its weight as [C, M, kh, kw], M filters for each channel: it becomes
[C·M, 1, kh, kw], the form of any other grouped convolution.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import IRModule, relay
from tvm.ir import GlobalTypeVar
from tvm.relay.adt import TypeData

from convoy.relay.dataflow import Dataflow, dims, dtype, op_name, with_args
from convoy.relay.fold.node import make_label
from convoy.relay.lets import rebuild_open
from convoy.report.decision import Report

WANTED = {
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
TURNED = "{} rewritten as {}"
MIXED = "expected a convolution's data and weights to be of one type, got {} of two, which TVM lacks as {}"
OPEN = "expected a known number of channels, got {} of an open one, which TVM lacks as {}"
BLOCKS = "expected a function without blocked layouts, got {}, or one in another op; write it as {}"


def normalize_function(
    function: relay.Function, types: Mapping[GlobalTypeVar, TypeData], report: Report
) -> relay.Function:
    """The same function, of a module of these types, with the ops of ``WANTED`` channels-first.

    One that uses variables from around it is no module by itself, and stays.  So does one with blocks, such
    as NCHW4c: where they meet a constant of length 1, ConvertLayout fails, or ends the process.  And one
    with a convolution that TVM has channels-last only: of two types, or of an open number of channels.
    """
    if relay.analysis.free_vars(function):
        return function
    nodes = enumerate(Dataflow(function.body).nodes)
    calls = [(number, node) for number, node in nodes if op_name(node) in WANTED]
    turned = [(number, call) for number, call in calls if _layouts(call) != WANTED[op_name(call)]]
    blocked = any(_has_blocks(layout) for _, call in calls for layout in _layouts(call))
    why = BLOCKS if blocked else next((why for _, call in turned if (why := _beyond_tvm(call))), "")
    choice, how = ("left", why) if why else ("folded", TURNED)
    for number, call in turned:
        given, wanted = "/".join(_layouts(call)), "/".join(WANTED[op_name(call)])
        report.add(make_label(call, number), "fold", choice, how.format(given, wanted))
    if why or not turned:
        return function
    convert = relay.transform.ConvertLayout({op_name(call): WANTED[op_name(call)] for _, call in calls})
    return convert(IRModule({"main": function}, types))["main"]


def _beyond_tvm(call: relay.Call) -> str:
    """Why TVM cannot compute this convolution channels-first; empty if it can."""
    if "conv" not in op_name(call):
        return ""
    if (dims(call.args[0]) or ())[str(call.attrs.data_layout).index("C")] == "?":
        return OPEN
    return MIXED if len(set(map(dtype, call.args))) > 1 else ""


def cancel_turns(function: relay.Function) -> relay.Function:
    """The same function, without changes of layout that the next one undoes.

    Of a module that ConvertLayout made channels-last before, they would stand between a convolution and its
    batch norm.
    """

    def change(_: relay.Call, new: relay.Call) -> relay.Expr:
        return new.args[0].args[0] if _is_undone(new) else new

    return rebuild_open(function, change)


def _is_undone(call: relay.Call) -> bool:
    """Does this turn back what the one before it turned?"""
    if op_name(call) != "layout_transform" or op_name(call.args[0]) != "layout_transform":
        return False
    there, back = call.args[0].attrs, call.attrs
    same = (there.src_layout, there.dst_layout) == (back.dst_layout, back.src_layout)
    return same and not _has_blocks(there.dst_layout)  # which may have been padded


def flatten_filters(function: relay.Function) -> relay.Function:
    """The same function, the filters of its depthwise NCHW convolutions along axis 0 of the weight."""

    def change(old: relay.Call, new: relay.Call) -> relay.Call:
        if not _has_filters_per_channel(old):
            return new
        data, weight = new.args
        _, _, *kernel = dims(old.args[1]) or ()
        return with_args(new, [data, relay.reshape(weight, (-1, 1, *kernel))])

    return rebuild_open(function, change)


def _has_filters_per_channel(call: relay.Call) -> bool:
    """Is this a convolution whose weight is [C, M, kh, kw], M > 1?"""
    if op_name(call) != "nn.conv2d" or _layouts(call) != WANTED["nn.conv2d"]:
        return False
    data, weight = (dims(argument) or () for argument in call.args)
    return weight[0] == data[1] == int(call.attrs.groups) and weight[1] != 1 != weight[0]


def _has_blocks(layout: str) -> bool:
    return any(letter.isdigit() for letter in layout)


def _layouts(call: relay.Call) -> list[str]:
    attrs = call.attrs
    if "conv" not in op_name(call):
        return [str(attrs.layout)]
    return [str(attrs.data_layout), str(attrs.kernel_layout)]
