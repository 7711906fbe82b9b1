"""Why a node that TVM's frontend could not convert is refused: in ONNX's words, or else in TVM's."""

from __future__ import annotations

import re

import onnx
from onnx import shape_inference

from convoy.relax.importer.read import Model

_REFUSED = re.compile(r"\(op_type:(\w+)(?:, node name: (.*?))?\): \[\w+\] (.*)")
"""One node in the error of a strict inference, which names a node only where it has a name."""
_OF_OP = re.compile(r'(?:In )?ir\.Op\(.*?name="(?:relax\.)?([\w.]+)".*?support_level=\d+\)')
"""How TVM writes an op in what it says."""
_OF_TYPES = re.compile(r"uses datatype T\.(\w+) on the LHS .*? datatype T\.(\w+) on the RHS", re.DOTALL)
"""What it says of two operands, among prints of them."""


def why_refused(model: Model, node: onnx.NodeProto | None, error: Exception) -> tuple[str, str | None]:
    """Why a node cannot be converted, in one line, and what to do, where that is clear.

    The standard's word goes first: where ONNX's shape inference refuses the node, too, it says what is
    wrong with it in terms of the model, and TVM in terms of its own ops.

    Parameters
    ----------
    node : onnx.NodeProto | None
        The node; None if it is in a graph within a node, which is not asked about.
    error : Exception
        What TVM's frontend raised.
    """
    reason = None if node is None else _reason_of_onnx(model, node)
    if reason is not None:
        said = reason.strip().rstrip(".")
        return f"expected a node that ONNX's shape inference takes, got: {said}", "export the model again"
    types = _OF_TYPES.search(str(error))
    if types is not None:
        return f"expected operands of one type, got {types[1]} and {types[2]}", None
    text = str(error).strip().splitlines() or [type(error).__name__]
    said = _OF_OP.sub(r"\1", text[-1].strip())
    return f"expected a node that TVM's ONNX frontend can convert, got: {said}", None


def _reason_of_onnx(model: Model, node: onnx.NodeProto) -> str | None:
    try:
        shape_inference.infer_shapes(model.skeleton, strict_mode=True, data_prop=True)
    except Exception as refusal:
        found = [(op, name or "", reason) for op, name, reason in _REFUSED.findall(str(refusal))]
        return next((reason for op, name, reason in found if (op, name) == (node.op_type, node.name)), None)
    return None
