"""An external function → ``Graph``: ``lower`` walks, rows of ``convoy/ops`` say what each op becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from tvm import relax, tirx

from convoy.errors import LoweringError, UnknownSizeError
from convoy.graph import Graph
from convoy.graph.builder import FIX_SHAPE, Builder, Span
from convoy.graph.least import settle_least
from convoy.graph.ops import Binary, Lrn
from convoy.graph.signals import expect_signals
from convoy.offload import reasons
from convoy.offload.axis_zero import moves_axis
from convoy.offload.refusal import refuse_form
from convoy.ops.operands import Operands
from convoy.ops.reader import Array
from convoy.ops.row import OpRow
from convoy.ops.table import UNKNOWN, row_of
from convoy.relax import attributes, idioms
from convoy.relax.dataflow import Dataflow, dims, dtype, name_of, node_name, op_name, tensor_args
from convoy.relax.expected import noted_sizes
from convoy.relax.extract import AXIS_ZERO
from convoy.relax.images import place_of, reading_of
from convoy.relax.patterns import TAKEN, readings
from convoy.relax.reader import BlockReader, results
from convoy.relax.sizes import Dim, RegionLengths


def lower(function: relax.Function) -> Graph:
    """The graph an external function computes, its composites written out op by op.

    Parameters
    ----------
    function : relax.Function
        As ``partition`` makes it; one without composites is lowered too.

    Returns
    -------
    Graph
        Graph with the inputs and outputs of the function, in its order.

    Raises
    ------
    LoweringError
        For an op or a form of it that ``partition`` would not have taken.
    """
    return Lowering(function).run()


class Lowering(Operands):
    """One external function on its way to a graph."""

    def __init__(self, function: relax.Function) -> None:
        super().__init__(Builder(_reading(function)), attributes)
        self.function = function
        self.least = noted_sizes(function)
        """What open sizes are at least, of those that are more than 1."""
        self.flow = Dataflow(_only_block(function), self.least)
        """The block that is being lowered."""
        self.idiom = False
        """Is it of ops that are taken together, whatever the form of each?"""
        self.names: dict[relax.Var, str] = {}
        """The graph's tensor for each variable."""
        self.lengths: dict[relax.Expr, Sequence[Dim] | None] = {}
        """Those of what composites give, and of what moves it: TVM forgets lengths that no parameter of
        theirs has by itself."""
        self.images: Dim | None = None
        """How many images there are, if axis 0 is read as theirs: the first parameter says it."""
        if self.build.reading == "images":
            self.images = (dims(function.params[0]) or (1,))[0]
        self.sizes = RegionLengths((self._image_lengths(param) for param in function.params), self.least)

    def _image_lengths(self, param: relax.Var) -> list[Dim]:
        """Lengths of an input's axes, 1 for that of the images."""
        lengths = dims(param) or ()
        place = None if self.images is None else place_of(lengths, self.images)
        return [1 if place and axis == place.axis else length for axis, length in enumerate(lengths)]

    def run(self) -> Graph:
        inputs = [self._input(param) for param in self.function.params]
        outer = self.flow
        for binding in outer.bindings:
            callee = outer.value(binding.value.op) if isinstance(binding.value, relax.Call) else None
            if isinstance(callee, relax.Function):
                callee = _in_sizes_of(binding.value, callee)
                self.names[binding.var] = self._composite(callee, binding.value, outer)
                self.lengths[binding.var] = dims(callee.body.body)
            else:
                self.lengths[binding.var] = self.lengths[binding.value] = self._moved_lengths(binding)
                self._bind(binding)
        result = outer.value(self.function.body.body)
        fields = result.fields if isinstance(result, relax.Tuple) else [self.function.body.body]
        outputs = [self.tensor(field) for field in fields]
        if self.images is not None and AXIS_ZERO not in (self.function.attrs or ()):
            for of in (*self.function.params, *fields):
                _check_images(dims(of) or (), self.images)
        graph = self.build.finish(tuple(inputs), tuple(outputs), self._batch())
        for axis in graph.open_axes:  # what sizes are elsewhere binds no call of this
            axis.symbol.least = 1
        return expect_signals(settle_least(graph, self.sizes.often_none, self.sizes.made_of))

    def _input(self, param: relax.Var) -> str:
        self.names[param] = self.build.input(param.name, self.shape(param), dtype(param))
        return self.names[param]

    def _batch(self) -> int | None:
        if self.images is None:
            return 1
        return self.images if isinstance(self.images, int) else None

    def _composite(self, function: relax.Function, call: relax.Call, outer: Dataflow) -> str:
        """Lower the body of a composite where it is called."""
        block = _only_block(function)
        arguments = [self.names[outer.root(arg)] for arg in call.args]
        before, self.flow = self.flow, Dataflow(block, self.least)
        self.names |= dict(zip(function.params, arguments, strict=True))
        idiom = idioms.match(self.flow, self._last())
        if idiom is not None and idiom.name == "lrn":
            self._lrn(idiom)
        elif idiom is not None and idiom.name == "coalesce":
            self._coalesce(idiom)
        else:
            self.idiom = idiom is not None
            for binding in self.flow.bindings:
                self._bind(binding)
            self.idiom = False
        result = self.tensor(function.body.body)
        self.flow = before
        return result

    def _moved_lengths(self, binding: relax.Binding) -> Sequence[Dim] | None:
        """Lengths of what is made between composites: TVM forgets those of moves with theirs."""
        known, value = dims(binding.var), binding.value
        if known is not None or op_name(value) != "permute_dims":
            return known
        lengths = self.lengths.get(value.args[0])
        if lengths is None:
            return None
        return [lengths[int(axis)] for axis in value.attrs.axes or reversed(range(len(lengths)))]

    def _bind(self, binding: relax.Binding) -> None:
        """Lower a call; one that gives a tuple where an item of it is read."""
        gives_tuple = row_of(op_name(binding.value)).item is not None
        if isinstance(binding.value, relax.Call | relax.TupleGetItem) and not gives_tuple:
            self.names[binding.var] = self._call(binding)

    def _last(self) -> int:
        """Position of the last call of the block."""
        return max(i for i, b in enumerate(self.flow.bindings) if isinstance(b.value, relax.Call))

    def _call(self, binding: relax.Binding) -> str:
        value, item = binding.value, 0
        if isinstance(value, relax.TupleGetItem):
            value, item = self.flow.value(value.tuple_value), int(value.index)
        name = op_name(value)
        self._note(binding)
        row = TAKEN.get(name, UNKNOWN)
        self._check_form(value, row, item)
        if row.item is not None:
            lower = partial(row.item, self, value, item)
        elif row.lower is not None:
            lower = partial(row.lower, self, value)
        else:
            raise LoweringError(
                "lower",
                self.build.origin.strip(),
                f"expected an op Convoy takes, got {name or _what(value)}",
                "let convoy.relax.partition make the external functions",
            )
        return self.lower_lifted(binding.var, lower) if self._lifts(value, binding.var) else lower()

    def _check_form(self, call: relax.Call, row: OpRow, item: int) -> None:
        """Who marks a function by hand has asked nobody, and a pass may have changed what was taken."""
        if not row.has_lowering or self.idiom:
            return
        reason = refuse_form(call, BlockReader(self.flow), row)
        if item >= len(results(call)):
            reason = reasons.OTHER_ITEMS
        if reason is not None:
            raise LoweringError("lower", self.build.origin, reason, "leave this op out of the function")

    def _lifts(self, call: relax.Call, made: relax.Var) -> bool:
        """Does an op move axis 0, or are there images elsewhere in what it reads or makes?"""
        at = BlockReader(self.flow)
        if self.images is None:
            return moves_axis(call, at)
        read = tensor_args(call, row_of(op_name(call)).numbers)
        shapes = [dims(made), *(dims(arg) for arg in read if not self.flow.is_constant(arg))]
        places = [place_of(shape or (), self.images) for shape in shapes]
        return not all(place is not None and place.plain for place in places)

    def _coalesce(self, idiom: idioms.Idiom) -> None:
        """Its condition is of a type that a graph has not."""
        binding = self.flow.bindings[idiom.positions[-1]]
        self.build.origin = f"where {node_name(binding)}"
        names = (
            self.tensor(idiom.data),
            self.build.constant(np.float32(idiom.numbers["value"]).reshape(1)),
        )
        shape = self.shape(binding.var)
        self.names[binding.var] = self.build.node(Binary, names, shape, kind="coalesce")

    def _lrn(self, idiom: idioms.Idiom) -> None:
        """An op in several of which a graph cannot say each."""
        binding = self.flow.bindings[idiom.positions[-1]]
        data, shape = self.tensor(idiom.data), self.shape(binding.var)
        self.build.origin = f"lrn {node_name(binding)}"
        numbers: dict[str, object] = {**idiom.numbers, "size": int(idiom.numbers["size"])}
        self.names[binding.var] = self.build.node(Lrn, (data,), shape, **numbers)

    def _note(self, binding: relax.Binding) -> None:
        value = binding.value
        call = self.flow.value(value.tuple_value) if isinstance(value, relax.TupleGetItem) else value
        self.build.origin = name_of(binding, call)

    # What the tables use ------------------------------------------------------------------------

    def tensors(self, expr: relax.Expr) -> tuple[str, ...]:
        """The graph's tensors for an operand that may be a tuple."""
        fields = expr.fields if isinstance(expr, relax.Tuple) else [expr]
        return tuple(self._tensor(field) for field in fields)

    def _tensor(self, expr: relax.Expr) -> str:
        known = self.names.get(self.flow.root(expr)) if isinstance(expr, relax.Var) else None
        if known is None:
            return self.build.constant(self.array(expr))
        same = not self.build.lift or self.build.shape_of(known) == self.shape(expr)
        return known if same else self.build.reshape(known, self.shape(expr))

    def slices(self, call: relax.Call) -> list[Span]:
        spans = attributes.slices(call, self.sizes.size)
        if spans is None:
            bounds = [
                b for b in (*call.args[2], *call.args[3]) if self.sizes.size(getattr(b, "value", b)) is None
            ]
            found = ", ".join(map(str, bounds))
            problem = f"expected bounds that follow from the sizes of the region's inputs, got {found}"
            raise UnknownSizeError("lower", self.build.origin, problem, FIX_SHAPE)
        return spans

    def constant(self, expr: relax.Expr) -> Array | None:
        """The array an operand is, if it is a constant."""
        return self.flow.constant(expr)

    def shape(self, of: relax.Expr | relax.Type) -> tuple[int, ...]:
        """Shape in the graph of a tensor, or a type, of the region.

        One whose images are not along an axis 0 of their own has an axis in front, and there what an image
        has of the one they are along.
        """
        lengths = self.lengths.get(of) if isinstance(of, relax.Expr) else None
        lengths = dims(of) if lengths is None else lengths
        place = None if self.images is None else place_of(lengths or (), self.images)
        known = lengths and self.sizes.sizes(lengths)
        if place is None or known is None or (place.plain and not self.build.lift):
            return self.build.shape(known)
        image = [*known[: place.axis], place.each, *known[place.axis + 1 :]]
        return self.build.shape(image if self.build.lift else [place.images, *image])


def _in_sizes_of(call: relax.Call, function: relax.Function) -> relax.Function:
    """A composite in the sizes of its call: TVM's MergeCompositeFunctions gives each symbols of its own."""
    sizes: dict[tirx.Var, Dim] = {}
    for param, argument in zip(function.params, call.args, strict=True):
        for own, given in zip(dims(param) or (), dims(argument) or (), strict=False):
            if isinstance(own, tirx.Var) and not own.same_as(given):
                sizes.setdefault(own, given)
    return function.bind_symbolic_vars(sizes) if sizes else function


def _check_images(lengths: Sequence[Dim], images: Dim) -> None:
    """Whether images have an axis 0 of their own: around a marked function of a user nobody moves them."""
    place = place_of(lengths, images)
    if place is not None and not place.plain:
        raise LoweringError(
            "lower",
            "function",
            "expected images along an axis 0 of their own in all tensors, got one that has them elsewhere",
            "let convoy.relax.partition make the external functions",
        )


def _reading(function: relax.Function) -> str:
    """How the function reads axis 0: as ``partition`` noted, else as all of its ops allow.

    Raises
    ------
    LoweringError
        If they allow no way that is the same for all.
    """
    if function.attrs is not None and AXIS_ZERO in function.attrs:
        return str(function.attrs[AXIS_ZERO])
    allowed = list(_allowed_readings(function))
    if not allowed:  # no op Convoy knows: an error where it is lowered, if there is one
        return "flat"
    labels = frozenset.intersection(*allowed)
    if not labels:
        raise LoweringError(
            "lower",
            "function",
            "expected ops that all read axis 0 alike, got some that take it for images and others",
            "let convoy.relax.partition make the external functions",
        )
    return reading_of(labels)


def _allowed_readings(function: relax.Function) -> Iterator[frozenset[str]]:
    """The readings each op of a function allows, those in its composites included."""
    flow = Dataflow(_only_block(function))
    for binding in flow.bindings:
        callee = flow.value(binding.value.op) if isinstance(binding.value, relax.Call) else None
        if isinstance(callee, relax.Function):
            yield from _allowed_readings(_in_sizes_of(binding.value, callee))
        elif op_name(binding.value) in TAKEN:
            yield readings(binding.value, flow)


def _only_block(function: relax.Function) -> relax.DataflowBlock:
    """The one block an external function or a composite is made of.

    Raises
    ------
    LoweringError
        If it is made otherwise.
    """
    body = function.body
    if not isinstance(body, relax.SeqExpr) or len(body.blocks) != 1:
        raise LoweringError(
            "lower",
            "function",
            "expected one dataflow block, got another body",
            "let convoy.relax.partition make the external functions, and no pass change them",
        )
    return body.blocks[0]


def _what(value: relax.Expr) -> str:
    """What is no call of an op, in words."""
    if isinstance(value, relax.Call):
        return (
            f"a call of {getattr(value.op, 'name_hint', None) or getattr(value.op, 'name', 'a function')}"
        )
    return "a branch" if isinstance(value, relax.If) else type(value).__name__
