"""An If of which only a call knows the condition: its branches are functions, and one of them is called.

TVM's frontend always computes both branches; one that is for other sizes could not even run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import relax, tirx

from convoy.onnx_file import names_read
from convoy.relax.calls import Calls
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.read import Model
from convoy.relax.importer.sequences import holds_no_tensor
from convoy.relax.importer.sizes import Known

MOST_DEEP = 8
"""Branches in branches, at most."""


@dataclass(frozen=True)
class Captured:
    """What a branch reads of the graph around it, by name."""

    tensors: dict[str, relax.Var]
    known: dict[str, Known]
    depth: int = 0

    @property
    def symbols(self) -> list[tirx.Var]:
        """The open sizes in it."""
        found: dict[tirx.Var, None] = {}
        sizes = [d for x in self.tensors.values() for d in x.ty.shape.values]
        sizes += [
            part
            for known in self.known.values()
            for e in known.elements.flat
            for part in (getattr(e, "top", e), getattr(e, "bottom", 1))
        ]
        for size in sizes:
            if not isinstance(size, int | float):
                found |= dict.fromkeys(tirx.analysis.undefined_vars(size))
        return list(found)


def capture(
    nodes: Mapping[str, Any], known: Mapping[str, Known], graph: onnx.GraphProto, model: Model, depth: int
) -> tuple[Model, Captured]:
    """A branch as a model of its own, and what it reads."""
    skeleton = onnx.ModelProto(ir_version=model.skeleton.ir_version)
    skeleton.opset_import.extend(model.skeleton.opset_import)
    inner = skeleton.graph
    inner.name = graph.name
    inner.node.extend(graph.node)
    inner.output.extend(graph.output)
    for output in inner.output:
        output.type.tensor_type.ClearField("shape")
    branch = Model(model.name, skeleton)
    for tensor in graph.initializer:
        branch.add_constant(tensor.name, numpy_helper.to_array(tensor))
    found = Captured({}, {}, depth)
    for name in dict.fromkeys(_reads(graph)):
        if name in known and not known[name].fixed:
            found.known[name] = known[name]
            inner.input.append(_describe(name, known[name].dtype, list(known[name].elements.shape)))
        elif name in known:
            branch.add_constant(name, known[name].array)
        elif (value := nodes.get(name)) is not None and is_constant(value):
            branch.add_constant(name, value.value.numpy())
        elif holds_no_tensor(value):
            raise NodeError(
                "expected branches that read tensors, got one that reads a sequence or an empty optional",
                "export it with the sequence made within the branch",
            )
        elif value is not None:
            found.tensors[name] = value
            inner.input.append(_describe(name, str(value.ty.dtype), list(value.ty.shape.values)))
    branch.name_nodes()
    return branch, found


def add_branch(bb: Any, module: tvm.IRModule, name: str) -> tvm.ir.GlobalVar:
    """Add a branch to the module that is being built."""
    names = {
        var.name_hint: bb.add_func(function, var.name_hint)
        for var, function in module.functions_items()
        if var.name_hint != "main"
    }
    calls = Calls(names)
    for hint, var in names.items():
        if isinstance(module[hint], relax.Function):
            bb.update_func(var, calls.visit_expr(module[hint]))
    function = calls.visit_expr(relax.utils.copy_with_new_vars(module["main"]))
    return bb.add_func(function.without_attr("global_symbol").without_attr("num_input"), name)


def call_branch(bb: Any, module: tvm.IRModule, captured: Captured, name: str) -> relax.SeqExpr:
    """Add a branch to the module that is being built; the call of it."""
    var = add_branch(bb, module, name)
    arguments = [*captured.tensors.values()]
    if captured.symbols:
        arguments.append(relax.ShapeExpr(captured.symbols))
    return alone(relax.Call(var, arguments))


def alone(value: relax.Expr) -> relax.SeqExpr:
    """An expression as all of a branch."""
    result = relax.Var("taken")
    return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, value)])], result)


def squeezing_branch(node: onnx.NodeProto) -> bool | None:
    """Which branch of an If squeezes, where the other leaves its data as it is; None: it is another If.

    So torch's exporter writes a squeeze of an axis that is open.
    """
    ops = {a.name: [n.op_type for n in a.g.node if n.op_type != "Constant"] for a in node.attribute}
    taken, other = ops.get("then_branch"), ops.get("else_branch")
    if taken == ["Squeeze"] and other == ["Identity"]:
        return True
    return False if taken == ["Identity"] and other == ["Squeeze"] else None


def only_reshaped(graph: onnx.GraphProto, name: str, constants: Mapping[str, np.ndarray]) -> bool:
    """Is this tensor read by reshapes alone, none of which keeps an axis of it?

    Then it does not matter whether an axis of one is squeezed before.  Of a graph that has no reader of
    it, such as that around a loop's body, nothing follows.
    """
    makers = {output: node for node in graph.node for output in node.output}
    readers = [node for node in graph.node if name in names_read(node)]
    given = any(value.name == name for value in graph.output)
    return bool(readers and not given) and all(
        node.op_type == "Reshape"
        and node.input[0] == name
        and not _keeps_axes(node.input[1], makers, constants)
        for node in readers
    )


def _keeps_axes(
    shape: str, makers: Mapping[str, onnx.NodeProto], constants: Mapping[str, np.ndarray]
) -> bool:
    """Is a size of these written as 0, which is that of the tensor?  Those a run computes are sizes."""
    if shape in constants:
        return not constants[shape].all()
    made = makers.get(shape)
    return (
        made is not None
        and made.op_type == "Concat"
        and any(_keeps_axes(part, makers, constants) for part in made.input)
    )


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    own = {t.name for t in graph.initializer}
    for node in graph.node:
        yield from (name for name in names_read(node) if name and name not in own)
        own.update(node.output)
    yield from (output.name for output in graph.output if output.name not in own)


def _describe(name: str, dtype: str, shape: list[Any]) -> onnx.ValueInfoProto:
    sizes = [int(d) if isinstance(d, int | tirx.IntImm) else None for d in shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)
