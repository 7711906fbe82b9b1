"""TVM's ONNX frontend, with three things added: names, errors that say where, corrections.

The frontend drops the names of nodes.  Here the tensor a node makes is bound to a variable
named after the node (its first output, if it has no name), so that a ``Decision`` can name it;
of a convolution or Gemm with a bias it is the convolution that carries the name, and the add is
``<name>_bias``.  TVM turns a ``.`` of a variable into ``_``; the span keeps the name as it is.

The ops the frontend shreds into loops or converts wrongly are converted in ``direct.py``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper
from tvm import relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, onnx_input

from convoy.errors import ModelError
from convoy.onnx_file import names_read
from convoy.relax.dataflow import is_constant, read_array
from convoy.relax.importer.agree import Settled, agree, require, settle
from convoy.relax.importer.arguments import check_arguments
from convoy.relax.importer.bodies import write_out
from convoy.relax.importer.bodies.fused import FUSED, MICROSOFT
from convoy.relax.importer.branches import (
    MOST_DEEP,
    Captured,
    call_branch,
    capture,
    only_reshaped,
    squeezing_branch,
)
from convoy.relax.importer.check import check_result
from convoy.relax.importer.derived import write_derived
from convoy.relax.importer.direct import DIRECT, Attributes, Inputs, broadcast_bias
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.late import NEAR, SIZES, expect_near, names_of_sizes, read_known
from convoy.relax.importer.lists import stack_lists
from convoy.relax.importer.loop_numbers import take_numbers
from convoy.relax.importer.loops import Varying, call_loop, carried_by, check_loop, find_varying
from convoy.relax.importer.multiples import Divided, Multiple
from convoy.relax.importer.naming import NamingBuilder, name_call
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.open_sizes import Unfixed
from convoy.relax.importer.ranks import followers
from convoy.relax.importer.read import Model
from convoy.relax.importer.refused import why_refused
from convoy.relax.importer.resize_axes import scaled_sizes
from convoy.relax.importer.same import pad_as_same, resolve_output_shape
from convoy.relax.importer.sequences import (
    SEQUENCES,
    convert_sequence,
    holds_no_tensor,
    is_sequence,
    join_rows,
)
from convoy.relax.importer.sizes import (
    LARGEST,
    MOST_ELEMENTS,
    Known,
    fold_node,
    is_late,
    is_whole,
    known_array,
    known_numbers,
)
from convoy.relax.importer.sizes.algebra import Filled
from convoy.relax.importer.weights import fit_to_weights

BIASED = frozenset({"Conv", "ConvTranspose", "Gemm"})
NO_NUMBERS = (onnx.TensorProto.STRING, onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)
"""Types of elements that TVM has no tensors of."""
OTHERS = frozenset({"Attention"})
"""Ops of ONNX by whose name the frontend means one of another domain."""
OPEN_SIZES = {
    **SIZES,
    "Range": (0, 1, 2),
    "Resize": (2, 3),
    **dict.fromkeys(("Col2Im", "Squeeze", "Trilu"), (1,)),
}
"""Inputs that say sizes: of open ones a ``ShapeExpr`` stands in their place."""
STEPS = {"Range": (2,), "Slice": (3, 4)}
"""Inputs that have to be constants, else those that a run computes stay tensors; so in a backward slice."""


class Unconverted(Exception):
    """A node that the frontend could not convert: its op, and what to say of it."""

    def __init__(self, op: str, error: ModelError) -> None:
        super().__init__(op)
        self.op = op
        self.error = error


class Chosen(Exception):
    """An If whose condition turned out to be known, and the condition."""

    def __init__(self, node: str, condition: bool) -> None:
        super().__init__(node)
        self.node = node
        self.condition = condition


class Parted(Exception):
    """An If that more is computed of, and whose branches turned out to be of other ranks."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


Convert = Callable[[Model, Captured], tvm.IRModule]


def import_graph(model: Model, captured: Captured, convert: Convert) -> tvm.IRModule:
    """Convert the prepared model to Relax, its weights bound as constants.

    Parameters
    ----------
    captured : Captured
        What a branch reads of the graph around it; nothing in a model.
    convert : Convert
        Converts the branches of an If.

    Raises
    ------
    ModelError
        Naming op and node, if the frontend does not know one.
    Unconverted
        If it cannot convert one.
    Chosen
        If an If is to be replaced by one of its branches first.
    Settled
        If an open size of an input is to become a number first.
    Multiple
        If one is to become a multiple of a number first.
    """
    importer = _Importer(model, captured, convert)
    importer.refuse_unknown_ops()
    try:
        module = importer.from_onnx(model.graph, model.opset)
        return require(module, importer.filled, importer.bb.algebra.learned)
    except (_ConverterError, Exception) as stop:  # the frontend raises whatever its converters raise
        with contextlib.suppress(RuntimeError):  # TVM warns of a builder that goes with an open block
            importer.bb._end_block()
        error = stop.error if isinstance(stop, _ConverterError) else stop
        if isinstance(error, Chosen | Multiple | Parted | Settled):
            raise error from None
        raise Unconverted(importer.op, importer.explain(error)) from error


class _ConverterError(BaseException):
    """What a converter raised, in a form the frontend lets pass: it prints the node of an ``Exception``."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def expand_unknown_ops(model: Model) -> None:
    """Replace ops TVM does not know (Celu, Swish, …) by the simpler ones that define them."""
    before: Counter[str] = Counter()
    while unknown := _Importer(model, Captured({}, {}), _refuse).unknown_ops():
        # the ops it wrote may be unknown in turn, and a body may need types that another's tells
        left = Counter(node.op_type for node in model.graph.node if node.op_type in unknown)
        if left == before or not write_out(model, unknown):
            return
        before = left


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    def __init__(self, model: Model, captured: Captured, convert: Convert) -> None:
        super().__init__(shape_dict={}, dtype_dict={})
        self.bb = NamingBuilder()
        self.model = model
        self.divided = Divided(self.bb, model.multiples)  # a branch has none
        self.captured = captured
        self.convert = convert
        self.at = "graph"
        """The node being converted, for errors."""
        self.op = ""
        """Its op."""
        self.node: onnx.NodeProto | None = None
        """It, unless it is in an inner graph."""
        self.known: dict[str, Known] = {}
        """Tensors that are computed from open sizes."""

    @property
    def filled(self) -> list[Filled]:
        """Sizes of the inputs of which something was concluded that is wrong where all together are 0."""
        whole = self.divided.whole
        return [tuple(whole.get(symbol, symbol) for symbol in sizes) for sizes in self.bb.algebra.filled]

    def unknown_ops(self) -> set[str]:
        unknown = {
            node.op_type
            for node in self.model.graph.node
            if (node.op_type in OTHERS and not node.domain)
            or (node.op_type in FUSED and node.domain == MICROSOFT)
        }
        try:
            super()._check_for_unsupported_ops(self.model.graph)
        except Exception as error:
            # Its text ends in the names of the ops: "... not supported for frontend ONNX: A, B"
            unknown |= {name.strip() for name in str(error).rpartition(":")[2].split(",")}
            unknown -= DIRECT.keys() | {"Loop"}
        return unknown

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Nothing: ``refuse_unknown_ops`` has looked, and knows of the conversions of ours."""

    def refuse_unknown_ops(self) -> None:
        unknown = self.unknown_ops()
        if unknown:
            at = [f"{n.op_type} {n.name}" for n in self.model.graph.node if n.op_type in unknown]
            problem, remedy = (
                f"expected ops that TVM's ONNX frontend knows, got {', '.join(sorted(unknown))}",
                "export the model without them",
            )
            if unknown <= FUSED.keys():
                problem = f"expected a form that Convoy writes out in ONNX's ops, got another of {at[0]}"
                remedy = "take the model as it was before ONNX Runtime optimised it"
            raise ModelError("import", f"{self.model.name}: {at[0] if at else 'graph'}", problem, remedy)

    def explain(self, error: Exception) -> ModelError:
        if isinstance(error, ModelError):
            return error
        at = f"{self.model.name}: {self.at}"
        if isinstance(error, NodeError):
            problem, known = error.problem, error.remedy
            other = "export the model with constants in place of what is computed as it runs"
        else:
            problem, known = why_refused(self.model, self.node, error)
            other = "export the model without it, or with static shapes and float32"
        return (
            ModelError("import", at, problem, known)
            if known
            else Unfixed.of(self.model, at, problem, other)
        )

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        super()._parse_graph_initializers(graph)
        for name, array in self.model.weights.items():
            self._nodes[name] = relax.const(tvm.runtime.tensor(np.asarray(array, order="C")))

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        for value in graph.input:
            kind = value.type.tensor_type.elem_type
            if kind in NO_NUMBERS:
                named = onnx.TensorProto.DataType.Name(kind).lower()
                where, problem = f"{self.model.name}: input {value.name}", f"expected numbers, got {named}"
                raise ModelError("import", where, problem, "export the part without it")
        self.known |= self.captured.known
        self._nodes |= {n: relax.Var(x.name, x.ty) for n, x in self.captured.tensors.items()}
        super()._parse_graph_input(
            SimpleNamespace(input=[i for i in graph.input if i.name not in self.known])
        )
        made = write_derived(self._inputs.values(), self.model.derived)
        told = {name: made[x] for name, x in self._inputs.items() if x in made}
        self._inputs |= told
        self._nodes |= told
        symbols = self.captured.symbols
        if symbols:
            self._inputs["sizes of the graph around"] = relax.Var("sizes", relax.ShapeType(symbols))
        for value in self._inputs.values():
            symbols += () if isinstance(value.ty, relax.ShapeType) else self.bb.algebra.sizes(value) or ()
        self.bb.algebra.bind(symbols)
        if not self.captured.depth:
            own = [s for s in symbols if isinstance(s, tirx.Var)]
            self.bb.algebra.given = {symbol: (str(symbol.name), 1) for symbol in own}
        self.bb.algebra.filled |= dict.fromkeys((s,) for s in symbols if str(s) in self.model.filled)

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        """One after the other; those that only compute sizes are computed here."""
        for name in self._inputs if self.divided.times else ():
            self._nodes[name] = self.divided.divide(self._nodes[name])
        self.bb.algebra.given |= self.divided.given
        sizes = names_of_sizes(graph)
        self.read_sizes(sizes, [value.name for value in graph.input])
        for node in graph.node:
            if self.fold(node):
                continue
            self.write_known(names_read(node))
            while node.output and not node.output[-1]:  # TVM would count it
                del node.output[-1]
            if node.op_type == "If":
                self.choose(node)
            elif node.op_type == "Loop":
                self.repeat(node)
            elif node.op_type in SEQUENCES:
                self.convert_sequence(node)
            elif node.op_type == "Identity" and holds_no_tensor(self._nodes[node.input[0]]):
                self._nodes[node.output[0]] = self._nodes[node.input[0]]
            else:
                self.node = node
                super()._construct_nodes(SimpleNamespace(node=[node]))
            for name in filter(None, node.output):
                if isinstance(made := self._nodes.get(name), relax.Expr):
                    self._nodes[name] = settle(self.bb, made)
            self.read_sizes(sizes, node.output)
        self.write_known(output.name for output in graph.output)
        for output in graph.output:
            self._nodes[output.name] = self.divided.restore(self._nodes[output.name])

    def choose(self, node: onnx.NodeProto) -> None:
        """An If: as the branch it takes, where that is known, else as the call of one of two functions.

        Raises
        ------
        Chosen
            If it is known.
        Parted
            If what follows from it has to be computed in its branches.
        """
        found = self.read_known(node.input[0])
        self.at, self.op, self.bb.node = f"If {node.name}", "If", node.name
        if found is not None and found.fixed and found.elements.size == 1:
            self.model.filled |= {str(symbol) for sizes in self.filled for symbol in sizes}
            raise Chosen(node.name, bool(found.elements.item()))
        graph = self.model.graph
        if (squeezing := squeezing_branch(node)) is not None:
            kept = only_reshaped(graph, node.output[0], self.model.constants())
            raise Chosen(node.name, squeezing != kept)
        if self.captured.depth >= MOST_DEEP:
            raise NodeError(f"expected {MOST_DEEP} branches in branches at most", "export it without them")
        taken = {}
        for attribute in node.attribute:
            branch, captured = capture(
                self._nodes, self.known, attribute.g, self.model, self.captured.depth + 1
            )
            module = self.convert(branch, captured)
            expect_near(self.bb, (e for known in captured.known.values() for e in known.elements.flat))
            taken[attribute.name] = call_branch(self.bb, module, captured, attribute.name)
        condition = self.bb.emit(relax.op.reshape(self._nodes[node.input[0]], ()))
        made = self.bb.emit(relax.If(condition, taken["then_branch"], taken["else_branch"]))
        if any(t.ndim < 0 for t in getattr(made.ty, "fields", [made.ty])) and followers(graph, node.name):
            raise Parted(node.name)
        if len(node.output) == 1:
            self._nodes[node.output[0]] = made
        else:
            fields = [self.bb.emit(relax.TupleGetItem(made, i)) for i in range(len(node.output))]
            self._nodes |= dict(zip(node.output, fields, strict=True))

    def repeat(self, node: onnx.NodeProto) -> None:
        """A Loop that was not written out, as calls of a function that is its body."""
        self.at, self.op, self.bb.node = f"Loop {node.name}", "Loop", node.name
        if self.captured.depth >= MOST_DEEP:
            raise NodeError(f"expected {MOST_DEEP} branches in branches at most", "export it without them")
        check_loop(node, *(self._nodes[name] if name else None for name in node.input[:2]))
        given = [self._nodes[name] for name in node.input[2:]]
        node, stacked = stack_lists(
            take_numbers(node), [i for i, state in enumerate(given) if is_sequence(state)]
        )
        before = [state for i, state in enumerate(given) if i not in stacked]
        body, (most, going, *_) = node.attribute[0].g, node.input
        names = [value.name for value in body.input]
        known = {name: value for name, value in self.known.items() if name not in names}
        varying: Varying = frozenset()
        while True:
            carried = dict(zip(names, carried_by(before, varying), strict=True))
            branch, captured = capture(
                {**self._nodes, **carried}, known, body, self.model, self.captured.depth + 1
            )
            module = self.convert(branch, captured)
            more = find_varying(module, captured, carried)
            if more <= varying:
                break
            varying |= more
        expect_near(self.bb, (e for known in captured.known.values() for e in known.elements.flat))
        count = self.scalar(most, "int64") if most else None
        first = self.scalar(going, "bool") if going else constant(np.array(True))
        made = call_loop(self.bb, module, captured, carried, count, first, before, varying)
        at = len(made) - len(stacked)
        lists = [join_rows(self.bb, given[i], rows) for i, rows in zip(stacked, made[at:], strict=True)]
        made[at:] = lists
        self._nodes |= {n: made for n, made in zip(node.output, made, strict=False) if n}

    def convert_sequence(self, node: onnx.NodeProto) -> None:
        """A node that makes or reads a sequence or an optional."""
        self.at, self.op, self.node = f"{node.op_type} {node.name}", node.op_type, node
        self.bb.node = node.name

        def convert(op: str, inputs: list[Any], attributes: dict[str, Any]) -> Any:
            custom = {"name": node.name, "num_outputs": 1}
            return self._convert(op, onnx_input(inputs), {"tvm_custom": custom, **attributes}, self.opset)

        values = [self._nodes[name] if name else None for name in node.input]
        known = [self.read_known(name) for name in node.input]
        self._nodes[node.output[0]] = convert_sequence(self.bb, node, values, known, convert)

    def scalar(self, name: str, dtype: str) -> Any:
        value = self._nodes[name]
        if is_constant(value):
            return constant(value.value.numpy().reshape(()).astype(dtype))
        return self.bb.emit(relax.op.astype(self.bb.emit(relax.op.reshape(value, ())), dtype))

    def read_sizes(self, sizes: Mapping[str, bool], names: Iterable[str]) -> None:
        """Let the elements of those of these tensors be symbols that say sizes."""
        for name in names:
            if name in sizes and name not in self.known:
                found = read_known(self.bb, self._nodes.get(name), signed=sizes[name])
                self.known |= {name: found} if found else {}

    def fold(self, node: onnx.NodeProto) -> bool:
        """Is a node computed here?"""
        if node.op_type in ("Shape", "Size") and node.input[0] not in self.known:
            sizes = self.bb.algebra.sizes(self._nodes[node.input[0]])
            if sizes is None:
                return False
            attributes = {a.name: a.i for a in node.attribute}
            dims = sizes[attributes.get("start", 0) : attributes.get("end", len(sizes))]
            if node.op_type == "Size":
                self.known[node.output[0]] = known_numbers([self.bb.algebra.product(sizes)], (), "int64")
            else:
                self.known[node.output[0]] = known_numbers(dims, (len(dims),), "int64")
            return True
        if not any(name in self.known for name in node.input):
            return False
        inputs = [self.read_known(name) for name in node.input]
        if any(name and found is None for name, found in zip(node.input, inputs, strict=True)):
            return False
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        made = fold_node(node.op_type, attributes, inputs, len(node.output), self.bb.algebra)
        if made is not None and node.op_type in NEAR:
            expect_near(self.bb, [e for known in inputs if known is not None for e in known.elements.flat])
        self.known |= dict(zip(node.output, made or (), strict=False))
        return made is not None

    def read_known(self, name: str) -> Known | None:
        if name in self.known or not name:
            return self.known.get(name)
        found = self._nodes[name]
        if not isinstance(found, relax.Expr) or not is_constant(found):
            return None
        array = found.value.numpy()
        return known_array(array) if array.size <= MOST_ELEMENTS and array.dtype.kind in "iufb" else None

    def write_known(self, names: Iterable[str]) -> None:
        """Let these tensors be computed when the model runs, if they were computed here."""
        for name in names:
            if name in self.known and name not in self._nodes:
                expect_near(self.bb, self.known[name].elements.flat)
                self._nodes[name] = self.known[name].compute(self.bb)

    def _sanitize_name(self, name: str) -> str:
        """A variable's name for an input; the frontend's own would warn of each it changes."""
        plain = name.replace(".", "_")
        if not plain[:1].isalpha() and plain[:1] != "_":
            plain = f"input_{plain}" if plain else "empty_"
        return str(self._name_supply.fresh_name(plain))

    def _convert_operator(self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int) -> Any:
        try:
            made = self._convert(op_name, inputs, attrs, opset)
            check_result(op_name, made)
            return made
        except Exception as error:
            raise _ConverterError(error) from error

    def _convert(self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int) -> Any:
        # Only a node inside a branch still may have no name.
        name = attrs["tvm_custom"]["name"] = attrs["tvm_custom"]["name"] or op_name
        attrs["tvm_custom"]["opset"] = opset
        self.at, self.op = f"{op_name} {name}", op_name
        self.bb.node = name
        self.give_sizes(op_name, inputs, attrs)
        check_arguments(self.bb, op_name, inputs, attrs)
        agree(self.bb, op_name, inputs, attrs)
        fit_to_weights(self.bb, op_name, inputs, attrs)
        pad_as_same(self.bb, op_name, inputs, attrs)
        if op_name == "ConvTranspose":
            resolve_output_shape(self.bb, inputs, attrs)
        bias = inputs[2] if op_name in BIASED else None
        if bias is not None and is_constant(bias):
            beta = attrs.pop("beta", 1.0)
            unbiased = onnx_input(inputs[:2])
            anchor = self.bind(self._convert_unbiased(op_name, unbiased, attrs, opset), name)
            return self.bind(
                relax.op.add(anchor, broadcast_bias(op_name, anchor, bias, beta)), f"{name}_bias"
            )
        return self.bind(self._convert_unbiased(op_name, inputs, attrs, opset), name)

    def _convert_unbiased(self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int) -> Any:
        convert = DIRECT.get(op_name)
        made = convert(self.bb, inputs, attrs) if convert else None
        return super()._convert_operator(op_name, inputs, attrs, opset) if made is None else made

    def give_sizes(self, op_name: str, inputs: Inputs, attrs: Attributes) -> None:
        """Put open sizes in the place of the inputs that say them."""
        constant = not _turns(op_name, inputs) and all(
            given is None or is_constant(given)
            for i in STEPS.get(op_name, ())
            for given in inputs[i : i + 1]
        )
        for i in OPEN_SIZES.get(op_name, ()):
            found = self.known.get(self.node.input[i]) if self.node and i < len(self.node.input) else None
            if found is None or not found.elements.size:
                continue
            if not constant and any(is_whole(e) and is_late(e) for e in found.elements.flat):
                continue
            if found.fixed:  # as of an axis that is not open, beside one that is
                inputs[i] = found.compute(self.bb)
            elif op_name == "Resize" and i == 2:
                inputs.extend([None] * (4 - len(inputs)))
                if sizes := scaled_sizes(self.bb.algebra, inputs[0], found):
                    inputs[2], inputs[3] = None, sizes
            elif (shape := found.shape_expr()) is not None:
                inputs[i] = shape
                attrs["tvm_custom"]["dtype"] = found.dtype

    def bind(self, made: Any, name: str) -> Any:
        """Bind a tensor just made to a variable of the node's name; other things pass."""
        if not isinstance(made, tvm.ir.Call):
            return made
        made = self.bb.normalize(name_call(made, name))
        return self.bb.emit(made, name_hint=name) if isinstance(made.ty, relax.TensorType) else made


def _refuse(model: Model, _: Captured) -> tvm.IRModule:
    raise AssertionError(f"{model.name} is only looked at")


def _turns(op_name: str, inputs: Inputs) -> bool:
    """Whether a node is a slice or a range with a step below 0, or a range with one that is no size."""
    at = STEPS.get(op_name, (len(inputs),))[-1]
    step = inputs[at] if at < len(inputs) else None
    if step is None or not is_constant(step):
        return False
    numbers = read_array(step)
    large = op_name == "Range" and bool((np.abs(numbers.astype(np.float64)) > LARGEST).any())
    return large or int(numbers.astype(np.int64).min(initial=0)) < 0
