"""The fused network as ONNX, for viewers such as Netron: a node for each kernel; nothing runs it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import onnx
from onnx import TensorProto, helper

from convoy.text import line

DOMAINS = {"step": "convoy", "tvm": "tvm"}
"""Those of Convoy's kernels, and of ops that were left to TVM."""
_TYPES = {
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
} | {name.lower(): number for name, number in TensorProto.DataType.items()}
"""ONNX's number of each type of TVM's."""
_NOT_IN_TYPES = re.compile(r"[^A-Za-z0-9]+")
_ATTRIBUTES = {
    "kernel": "kernel", "tiling": "tile", "region": "region", "step": "step", "text": "computes",
    "ops": "ops", "flops": "flops", "bytes": "bytes",
}  # fmt: skip
"""What is said of a node (``pages/content.py``), and the attribute it becomes."""


def make_fused_model(content: dict[str, Any]) -> onnx.ModelProto:
    """The model of what is on a page (``explain_content``, ``profile_content``).

    What a node makes is one tensor of its name, whose shape is that of one image.
    """
    makers: dict[str, list[str]] = defaultdict(list)
    for source, reader in content["edges"]:
        makers[reader].append(line(source))
    read = {name for sources in makers.values() for name in sources}
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    between: list[onnx.ValueInfoProto] = []
    for node in content["nodes"]:
        name = line(node["id"])
        value = _describe_value(name, node)
        if node["kind"] == "input":
            inputs.append(value)
            continue
        (between if name in read else outputs).append(value)
        kernel = node["kernel"] if node["kind"] == "step" else node["label"].partition(" ")[0]
        made = helper.make_node(
            _NOT_IN_TYPES.sub("_", kernel).strip("_") or "kernel",
            makers[node["id"]],
            [name],
            name=line(node["label"]),
            domain=DOMAINS[node["kind"]],
        )
        made.attribute.extend(_attributes(node))
        nodes.append(made)
    graph = helper.make_graph(nodes, line(content["title"]), inputs, outputs, value_info=between)
    opsets = [helper.make_opsetid(domain, 1) for domain in ("", *DOMAINS.values())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="convoy")


def _attributes(node: dict[str, Any]) -> list[onnx.AttributeProto]:
    given = {new: node[old] for old, new in _ATTRIBUTES.items() if node.get(old) not in (None, "", [])}
    times = {"estimated_ms": node.get("estimate"), "measured_ms": node.get("measured")}
    given |= {name: 1e3 * seconds for name, seconds in times.items() if seconds is not None}
    return [
        helper.make_attribute(
            name, [line(text) for text in value] if isinstance(value, list) else _plain(value)
        )
        for name, value in given.items()
    ]


def _plain(value: object) -> object:
    return line(value) if isinstance(value, str) else value


def _describe_value(name: str, node: dict[str, Any]) -> onnx.ValueInfoProto:
    """Name, type and shape of what a node makes."""
    dtype = _TYPES.get(node.get("dtype", ""), TensorProto.FLOAT)
    sizes = [
        int(size) if size.isdigit() else line(size) for size in node.get("shape", "").split("×") if size
    ]
    return helper.make_tensor_value_info(name, dtype, sizes)
