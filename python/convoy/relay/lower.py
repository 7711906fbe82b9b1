"""An external function → ``Graph``: ``lower`` walks, rows of ``convoy/ops`` say what each op becomes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import ir, relay

from convoy.errors import LoweringError
from convoy.graph import Graph
from convoy.graph.builder import Builder, Span
from convoy.offload import reasons
from convoy.offload.names import stem
from convoy.offload.refusal import refuse_form
from convoy.ops.operands import Operands
from convoy.ops.reader import Array
from convoy.relay import attributes
from convoy.relay.dataflow import Dataflow, constant, dims, dtype, given_name, op_name, without_composites
from convoy.relay.lets import without_lets
from convoy.relay.opaque import OPAQUE
from convoy.relay.patterns import TAKEN
from convoy.relay.reader import READER, flat_types, results
from convoy.relay.readings import FLAT, count_images, moves_axis_zero


def lower(function: relay.Function) -> Graph:
    """The graph an external function computes, its composites written out op by op.

    Parameters
    ----------
    function : relay.Function
        As ``partition`` makes it; one without composites is lowered too.

    Returns
    -------
    Graph
        Graph with the inputs and outputs of the function, in its order; tuples give their fields.

    Raises
    ------
    LoweringError
        For an op or a form of it that ``partition`` would not have taken.
    """
    return Lowering(function).run()


def _count_images(params: Sequence[relay.Var], flow: Dataflow) -> int | None:
    """How many images the region computes at once; None where that is known only at run time."""
    dynamic = any((dims(field) or (1,))[0] == "?" for param in params for field in flat_types([param]))
    return None if dynamic else next(iter(count_images(flow.calls)), FLAT)


def _beyond_dataflow(node: relay.Expr) -> str:
    """What a function may hold beside ops, in words; empty for an op, a tuple or what they read."""
    if isinstance(node, relay.If):
        return "a branch"
    if isinstance(node, relay.Function):
        return "a function that is bound or handed on"
    if isinstance(node, relay.Call | relay.Let) and not op_name(node):
        return "a call of a function"
    return "a match or a reference" if isinstance(node, OPAQUE) else ""


class Lowering(Operands):
    """One external function on its way to a graph."""

    def __init__(self, function: relay.Function) -> None:
        flat = without_lets(relay.Function(list(function.params), without_composites(function.body)))
        flat = relay.transform.InferType()(ir.IRModule.from_expr(flat))["main"]
        self.params: list[relay.Var] = list(flat.params)
        self.flow = Dataflow(flat.body)
        self.images = _count_images(self.params, self.flow)
        super().__init__(Builder("flat" if self.images == FLAT else "images"), attributes)
        self.names: dict[relay.Expr, tuple[str, ...]] = {}
        """The graph's tensors for each node: one, or those of a tuple."""

    def run(self) -> Graph:
        for node in self.flow.nodes:
            if what := _beyond_dataflow(node):
                raise LoweringError(
                    "lower", "function", f"expected ops alone, got {what}", "leave it outside"
                )
        inputs = [name for param in self.params for name in self._inputs(param)]
        for node in self.flow.nodes:
            if node in self.names or isinstance(node, relay.Var | relay.Constant):
                continue
            if isinstance(node, relay.Tuple):
                self.names[node] = tuple(self.tensor(field) for field in node.fields)
            elif isinstance(node, relay.TupleGetItem):
                self.names[node] = (self._item(node),)
            else:
                self._call(node)
        outputs = self.tensors(self.flow.result)
        return self.build.finish(tuple(inputs), outputs, self.images)

    def _inputs(self, param: relay.Var) -> tuple[str, ...]:
        names = (self.build.input(param.name_hint, self.shape(ty), dtype(ty)) for ty in flat_types([param]))
        self.names[param] = tuple(names)
        return self.names[param]

    def _item(self, item: relay.TupleGetItem) -> str:
        fields: tuple[str, ...] = self.names[item.tuple_value]
        if item.index >= len(fields):
            origin = stem(op_name(item.tuple_value))
            raise LoweringError("lower", origin, reasons.OTHER_ITEMS, "leave this op out of the function")
        return fields[int(item.index)]

    def _call(self, call: relay.Call) -> None:
        """Lower one op."""
        name = op_name(call)
        self.build.origin = f"{stem(name)} {given_name(call)}".strip()
        if name not in TAKEN:
            raise LoweringError(
                "lower",
                self.build.origin,
                f"expected an op Convoy takes, got {name}",
                "let convoy.relay.partition_for_convoy make the external functions",
            )
        lifted = self.build.reading == "flat" and moves_axis_zero(call)
        row, types = TAKEN[name], results(call)
        reason = refuse_form(call, READER, row)  # who marks a function by hand has asked nobody
        if reason is not None:
            raise LoweringError("lower", self.build.origin, reason, "leave this op out of the function")
        if row.item is not None:
            makers = [partial(row.item, self, call, i) for i in range(len(types))]
        else:
            assert row.lower is not None
            makers = [partial(row.lower, self, call)]
        self.names[call] = tuple(
            self.lower_lifted(ty, make) if lifted else make()
            for ty, make in zip(types, makers, strict=True)
        )

    # What the tables use ------------------------------------------------------------------------

    def tensors(self, expr: relay.Expr) -> tuple[str, ...]:
        """The graph's tensors for an operand that may be a tuple."""
        if isinstance(expr, relay.Constant):
            return (self.build.constant(self.array(expr)),)
        return self.lift(self.names[expr])

    def slices(self, call: relay.Call) -> list[Span]:
        spans = attributes.slices(call)
        assert spans is not None, "checked before"
        return spans

    def constant(self, expr: relay.Expr) -> Array | None:
        """The array an operand is, if it is a constant."""
        return constant(expr)

    def shape(self, of: relay.Expr | ir.Type) -> tuple[int, ...]:
        """Shape in the graph of a tensor, or a type, of the region."""
        return self.build.shape(dims(of))
