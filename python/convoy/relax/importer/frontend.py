"""TVM's ONNX frontend, with three things added: names, errors that say where, corrections.

The frontend drops the names of nodes.  Here the tensor a node makes is bound to a variable
named after the node (its first output, if it has no name), so that a ``Decision`` can name it;
of a convolution or Gemm with a bias it is the convolution that carries the name, and the add is
``<name>_bias``.  TVM turns a ``.`` of a variable into ``_``; the span keeps the name as it is.

The ops the frontend shreds into loops or converts wrongly are converted in ``direct.py``.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, onnx_input

from convoy.errors import ModelError
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.bodies import write_out
from convoy.relax.importer.direct import DIRECT, Attributes, Inputs, broadcast_bias
from convoy.relax.importer.naming import NamingBuilder, name_call
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.open_sizes import has_open_sizes, tell_how_to_fix
from convoy.relax.importer.read import Model

BIASED = frozenset({"Conv", "ConvTranspose", "Gemm"})
OTHERS = frozenset({"Attention"})
"""Ops of ONNX by whose name the frontend means one of another domain."""


class Unconverted(Exception):
    """A node that the frontend could not convert: its op, and what to say of it."""

    def __init__(self, op: str, error: ModelError) -> None:
        super().__init__(op)
        self.op = op
        self.error = error


def import_graph(model: Model) -> tvm.IRModule:
    """Convert the prepared model to Relax, its weights bound as constants.

    Raises
    ------
    ModelError
        Naming op and node, if the frontend does not know one.
    Unconverted
        If it cannot convert one.
    """
    importer = _Importer(model)
    importer.refuse_unknown_ops()
    try:
        return importer.from_onnx(model.graph, model.opset)
    except (_ConverterError, Exception) as stop:  # the frontend raises whatever its converters raise
        with contextlib.suppress(RuntimeError):  # TVM warns of a builder that goes with an open block
            importer.bb._end_block()
        error = stop.error if isinstance(stop, _ConverterError) else stop
        raise Unconverted(importer.op, importer.explain(error)) from error


class _ConverterError(BaseException):
    """What a converter raised, in a form the frontend lets pass: it prints the node of an ``Exception``."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def expand_unknown_ops(model: Model) -> None:
    """Replace ops TVM does not know (Celu, Swish, …) by the simpler ones that define them."""
    before: set[str] = set()
    while (unknown := _Importer(model).unknown_ops()) and unknown != before and write_out(model, unknown):
        before = unknown  # the ops it wrote may be unknown in turn


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    def __init__(self, model: Model) -> None:
        super().__init__(shape_dict={}, dtype_dict={})
        self.bb = NamingBuilder()
        self.model = model
        self.at = "graph"
        """The node being converted, for errors."""
        self.op = ""
        """Its op."""

    def unknown_ops(self) -> set[str]:
        unknown = {
            node.op_type for node in self.model.graph.node if node.op_type in OTHERS and not node.domain
        }
        try:
            super()._check_for_unsupported_ops(self.model.graph)
        except Exception as error:
            # Its text ends in the names of the ops: "... not supported for frontend ONNX: A, B"
            unknown |= {name.strip() for name in str(error).rpartition(":")[2].split(",")} - DIRECT.keys()
        return unknown

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Nothing: ``refuse_unknown_ops`` has looked, and knows of the conversions of ours."""

    def refuse_unknown_ops(self) -> None:
        unknown = self.unknown_ops()
        if unknown:
            at = [f"{n.op_type} {n.name}" for n in self.model.graph.node if n.op_type in unknown]
            raise ModelError(
                "import",
                f"{self.model.name}: {at[0] if at else 'graph'}",
                f"expected ops that TVM's ONNX frontend knows, got {', '.join(sorted(unknown))}",
                "export the model without them",
            )

    def explain(self, error: Exception) -> ModelError:
        if isinstance(error, NodeError):
            computed = "export the model with constants in place of what is computed as it runs"
            remedy = error.remedy or (
                tell_how_to_fix(self.model) if has_open_sizes(self.model) else computed
            )
            return ModelError("import", f"{self.model.name}: {self.at}", error.problem, remedy)
        text = str(error).strip().splitlines() or [type(error).__name__]
        return ModelError(
            "import",
            f"{self.model.name}: {self.at}",
            f"expected a node that TVM's ONNX frontend can convert, got: {text[-1].strip()}",
            tell_how_to_fix(self.model)
            if has_open_sizes(self.model)
            else "export the model without it, or with static shapes and float32",
        )

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        super()._parse_graph_initializers(graph)
        for name, array in self.model.weights.items():
            self._nodes[name] = relax.const(tvm.runtime.tensor(np.asarray(array, order="C")))

    def _sanitize_name(self, name: str) -> str:
        """A variable's name for an input; the frontend's own would warn of each it changes."""
        plain = name.replace(".", "_")
        if not plain[:1].isalpha() and plain[:1] != "_":
            plain = f"input_{plain}" if plain else "empty_"
        return str(self._name_supply.fresh_name(plain))

    def _convert_operator(self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int) -> Any:
        try:
            return self._convert(op_name, inputs, attrs, opset)
        except Exception as error:
            raise _ConverterError(error) from error

    def _convert(self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int) -> Any:
        # Only a node inside a branch still may have no name.
        name = attrs["tvm_custom"]["name"] = attrs["tvm_custom"]["name"] or op_name
        self.at, self.op = f"{op_name} {name}", op_name
        self.bb.node = name
        bias = inputs[2] if op_name in BIASED else None
        if bias is not None and is_constant(bias):
            beta = attrs.pop("beta", 1.0)
            unbiased = onnx_input(inputs[:2])
            anchor = self.bind(super()._convert_operator(op_name, unbiased, attrs, opset), name)
            return self.bind(
                relax.op.add(anchor, broadcast_bias(op_name, anchor, bias, beta)), f"{name}_bias"
            )
        convert = DIRECT.get(op_name)
        made = convert(self.bb, inputs, attrs) if convert else None
        if made is None:
            made = super()._convert_operator(op_name, inputs, attrs, opset)
        return self.bind(made, name)

    def bind(self, made: Any, name: str) -> Any:
        """Bind a tensor just made to a variable of the node's name; other things pass."""
        if not isinstance(made, tvm.ir.Call):
            return made
        made = self.bb.normalize(name_call(made, name))
        return self.bb.emit(made, name_hint=name) if isinstance(made.ty, relax.TensorType) else made
