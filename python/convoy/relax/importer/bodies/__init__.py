"""Ops that TVM's frontend lacks, written out in ops it has.

A body is a function of ONNX.  Most come from ONNX itself, which defines many of its ops by simpler ones;
those it does not define so have one of ours in ``OWN``.  The call of an op becomes the call of a function
local to the model, and ONNX's inliner puts the function's nodes in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import onnx
from onnx import defs, helper, inliner, parser

from convoy.onnx_file import all_nodes
from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.fused import FUSED
from convoy.relax.importer.bodies.own import OWN
from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import Model

_DOMAIN = "convoy.bodies"
_MOST_NODES = 200_000
"""Nodes of a graph that is written out, at most: a body can be a thousand times its call."""


def write_out(model: Model, ops: Collection[str]) -> bool:
    """Put its body in the place of every node of ``ops`` that has one; whether there was any.

    Where a type is missing that a body depends on, the node stays.
    """
    return _write_out(model, lambda node: node.op_type in ops)


def write_out_fused(model: Model) -> None:
    """The same for ONNX Runtime's ops, as far as their types are known or get known."""
    while _write_out(model, lambda node: node.op_type in FUSED and not defs.has(node.op_type, node.domain)):
        pass


def _write_out(model: Model, wanted: Callable[[onnx.NodeProto], bool]) -> bool:
    if not any(wanted(node) for node in all_nodes(model.graph)):
        return False
    types = infer_types(model)
    constants = model.constants()
    opsets = {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version
        for entry in model.skeleton.opset_import
    }
    functions: list[onnx.FunctionProto] = []
    size = len(model.graph.node)
    for node in all_nodes(model.graph):
        if not wanted(node):
            continue
        given = [types.get(name, onnx.TypeProto()) if name else onnx.TypeProto() for name in node.input]
        call = Call(node, given, opsets.get("", 1), constants)
        body = _find_body(call, opsets)
        if body is None or size + len(body.node) > _MOST_NODES:
            continue
        size += len(body.node)
        body.name, body.domain = f"{node.op_type}_{len(functions)}", _DOMAIN
        node.op_type, node.domain = body.name, body.domain
        functions.append(body)
    if not functions:
        return False
    _inline(model, functions)
    return True


def _find_body(call: Call, opsets: Mapping[str, int]) -> onnx.FunctionProto | None:
    node = call.node
    own = OWN.get(node.op_type)
    text = None
    with suppress(ArithmeticError, LookupError, TypeError, ValueError):  # what a node says is no number
        text = own(call) if own is not None else None
    if text is None:
        return _standard_body(call, opsets)
    with suppress(parser.ParseError):  # a text has numbers of the node in it, and some are none
        body = parser.parse_function(f'<opset_import: ["": 1], domain: "{_DOMAIN}"> body {text}')
        del body.opset_import[:]
        body.opset_import.extend(helper.make_opsetid(*entry) for entry in opsets.items())
        return body if _is_whole(body) else None
    return None


def _is_whole(body: onnx.FunctionProto) -> bool:
    """Is all that it reads an input, or made before?  A call may lack inputs that its op wants."""
    known = {"", *body.input}
    for node in body.node:
        if not known.issuperset(node.input):
            return False
        known.update(node.output)
    return known.issuperset(body.output)


def _standard_body(call: Call, opsets: Mapping[str, int]) -> onnx.FunctionProto | None:
    """What ONNX says the op is; None if it says nothing, or not for these types."""
    node, version = call.node, opsets.get(call.node.domain, 1)
    if not defs.has(node.op_type, node.domain):
        return None
    body = onnx.FunctionProto()
    with suppress(Exception):  # of many kinds: each means that there is no body for this node
        schema = defs.get_schema(node.op_type, version, node.domain)
        _say_defaults(node, schema)
        if schema.has_context_dependent_function:
            wanted = _newest(schema.context_dependent_function_opset_versions, opsets)
            types = [given.SerializeToString() for given in call.types]
            body.ParseFromString(
                schema.get_context_dependent_function_with_opset_version(
                    wanted, node.SerializeToString(), types
                )
            )
        elif schema.has_function:
            wanted = _newest(schema.function_opset_versions, opsets)
            body.ParseFromString(schema.get_function_with_opset_version(wanted))
    if not body.node:
        return None
    known = {entry.domain for entry in body.opset_import}
    for domain, number in opsets.items():
        if domain not in known:
            body.opset_import.add(domain=domain, version=number)
    for entry in body.opset_import:  # the inliner wants one version; bodies hold for those that follow
        entry.version = opsets.get(entry.domain, entry.version)
    return body


def _newest(versions: Sequence[int], opsets: Mapping[str, int]) -> int:
    """The newest opset of a body that the model has: later ones have axes as inputs, not as attributes."""
    return max([v for v in versions if v <= opsets.get("", 1)] or [min(versions)])


def _say_defaults(node: onnx.NodeProto, schema: defs.OpSchema) -> None:
    """Write out the attributes a node leaves to their defaults, which a body may read."""
    said = {attribute.name for attribute in node.attribute}
    defaults = (attribute.default_value for attribute in schema.attributes.values())
    node.attribute.extend(default for default in defaults if default.name and default.name not in said)


def _inline(model: Model, functions: list[onnx.FunctionProto]) -> None:
    skeleton = model.skeleton
    skeleton.functions.extend(functions)
    skeleton.opset_import.add(domain=_DOMAIN, version=1)
    model.skeleton = inliner.inline_local_functions(skeleton)
    kept = [entry for entry in model.skeleton.opset_import if entry.domain != _DOMAIN]
    del model.skeleton.opset_import[:]
    model.skeleton.opset_import.extend(kept)
    model.name_nodes()
