"""TopK in order: two engines answer one of no order (``sorted=0``) each in its own."""

from __future__ import annotations

import onnx

from convoy.onnx_file import all_nodes


def order_tops(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each TopK in order; one that has no other is returned as is."""
    if not _unordered(model):
        return model
    ordered = onnx.ModelProto()
    ordered.CopyFrom(model)
    for attribute in _unordered(ordered):
        attribute.i = 1
    return ordered


def _unordered(model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    return [
        attribute
        for graph in (model.graph, *model.functions)
        for node in all_nodes(graph)
        if node.op_type == "TopK" and node.domain in ("", "ai.onnx")
        for attribute in node.attribute
        if attribute.name == "sorted" and not attribute.i
    ]
