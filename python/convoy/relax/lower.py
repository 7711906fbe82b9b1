"""An external function → ``Graph``: ``lower`` walks, the tables say what each op becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from convoy.errors import LoweringError
from convoy.graph import Graph
from convoy.graph.ops import (
    Binary,
    BinaryKind,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Lrn,
    MatMul,
    Node,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
    Unary,
    UnaryKind,
)
from convoy.relax import attributes, idioms
from convoy.relax.annotate import bias_axis, is_bias
from convoy.relax.builder import Builder
from convoy.relax.dataflow import Dataflow, dims, node_name, number, op_name
from convoy.relax.extract import AXIS_ZERO
from convoy.relax.patterns import INTERPOLATIONS, TUPLE_OPS

Array = NDArray[Any]


def lower(function: relax.Function) -> Graph:
    """The graph an external function computes, its composites written out op by op.

    Parameters
    ----------
    function : as ``partition`` makes it; one without composites is lowered too
    Returns
    -------
    Graph with the inputs and outputs of the function, in its order
    Raises
    ------
    LoweringError  for an op or a form of it that ``partition`` would not have taken
    """
    return _Lowering(function).run()


class _Lowering:
    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self.build = Builder(_reading(function))
        self.flow = Dataflow(_only_block(function))
        self.names: dict[relax.Var, str] = {}
        """The graph's tensor for each variable of the block being lowered."""

    def run(self) -> Graph:
        inputs = [self._input(param) for param in self.function.params]
        outer = self.flow
        for binding in outer.bindings:
            callee = outer.value(binding.value.op) if isinstance(binding.value, relax.Call) else None
            if isinstance(callee, relax.Function):
                self.names[binding.var] = self._composite(callee, binding.value, outer)
            elif isinstance(binding.value, relax.Call):
                self.names[binding.var] = self._call(binding)
        result = outer.value(self.function.body.body)
        fields = result.fields if isinstance(result, relax.Tuple) else [self.function.body.body]
        outputs = [self._output(field) for field in fields]
        return self.build.finish(tuple(inputs), tuple(outputs), self._batch())

    def _input(self, param: relax.Var) -> str:
        if not self.build.lift:
            self.names[param] = self.build.input(param.name, self.build.shape(param))
            return self.names[param]
        shape = self.build.shape(param)
        name = self.build.input(param.name, shape[1:])
        self.names[param] = self.build.node(Reshape, (name,), shape)
        return name

    def _output(self, field: relax.Expr) -> str:
        name = self.tensor(field)
        return self.build.node(Reshape, (name,), self.build.shape(field)[1:]) if self.build.lift else name

    def _batch(self) -> int | None:
        if self.build.reading != "images":
            return 1
        images = (dims(self.function.params[0]) or (1,))[0]
        return images if isinstance(images, int) else None

    def _composite(self, function: relax.Function, call: relax.Call, outer: Dataflow) -> str:
        """Lower the body of a composite where it is called."""
        block = _only_block(function)
        arguments = [self.names[outer.root(arg)] for arg in call.args]
        before, self.flow = self.flow, Dataflow(block)
        self.names |= dict(zip(function.params, arguments, strict=True))
        idiom = idioms.match(self.flow, self._last())
        pattern = str(function.attrs["Composite"])
        if idiom is not None and pattern == f"convoy.{idiom.name}":
            self._idiom(idiom)
        else:
            self._bindings(idiom)
        result = self.tensor(function.body.body)
        self.flow = before
        return result

    def _last(self) -> int:
        """Position of the last call of the block."""
        return max(i for i, b in enumerate(self.flow.bindings) if isinstance(b.value, relax.Call))

    def _bindings(self, ending: idioms.Idiom | None) -> None:
        """Lower a composite op by op: an anchor with its bias, then the rest, an idiom in one."""
        bindings = self.flow.bindings
        skipped: set[int] = set()
        for i, binding in enumerate(bindings):
            if i in skipped or not isinstance(binding.value, relax.Call | relax.TupleGetItem):
                continue
            if ending is not None and i == ending.positions[0]:
                self._idiom(ending)
                return
            name = op_name(binding.value)
            if name in ANCHORS:
                bias = None if ending is not None and i + 1 in ending.positions else self._bias(i)
                skipped |= {i + 1} if bias is not None else set()
                self._note(binding)
                made = ANCHORS[name](self, binding.value, bias)
                self.names[binding.var] = self.names[bindings[i + (bias is not None)].var] = made
            elif name not in TUPLE_OPS:
                self.names[binding.var] = self._call(binding)

    def _bias(self, i: int) -> Array | None:
        """The bias that the binding after an anchor adds to it."""
        anchor = self.flow.bindings[i]
        if i + 1 >= len(self.flow.bindings):
            return None
        add = self.flow.bindings[i + 1].value
        reads = isinstance(add, relax.Call) and any(anchor.var.same_as(arg) for arg in add.args)
        if not reads or op_name(add) != "add" or dims(add) != dims(anchor.var):
            return None
        channel = bias_axis(anchor.value)
        if not is_bias(add, channel, self.flow):
            return None
        constant = next(c for arg in add.args if (c := self.flow.constant(arg)) is not None)
        channels = (dims(add) or ())[channel]
        return np.ascontiguousarray(np.broadcast_to(constant.reshape(-1), (channels,)))

    def _call(self, binding: relax.Binding) -> str:
        value, item = binding.value, 0
        if isinstance(value, relax.TupleGetItem):
            value, item = self.flow.value(value.tuple_value), int(value.index)
        name = op_name(value)
        self._note(binding)
        if name in ANCHORS:
            return ANCHORS[name](self, value, None)
        if name in ITEMS:
            return ITEMS[name](self, value, item)
        if name in OPS:
            return OPS[name](self, value)
        raise LoweringError(
            "lower",
            self.build.origin,
            f"expected an op Convoy takes, got {name or type(value).__name__}",
            "let convoy.relax.partition make the external functions",
        )

    def _idiom(self, idiom: idioms.Idiom) -> None:
        binding = self.flow.bindings[idiom.positions[-1]]
        data, shape = self.tensor(idiom.data), self.build.shape(binding.var)
        self.build.origin = f"{idiom.name} {node_name(binding)}"
        op, given = IDIOMS[idiom.name]
        numbers: dict[str, object] = {
            key: int(value) if key in ("size", "groups") else value for key, value in idiom.numbers.items()
        }
        self.names[binding.var] = self.build.node(op, (data,), shape, **given, **numbers)

    def _note(self, binding: relax.Binding) -> None:
        value = binding.value
        call = self.flow.value(value.tuple_value) if isinstance(value, relax.TupleGetItem) else value
        self.build.origin = f"{op_name(call).rpartition('.')[2]} {node_name(binding)}"

    # What the tables use ------------------------------------------------------------------------

    def tensor(self, expr: relax.Expr) -> str:
        """The graph's tensor for an operand."""
        if isinstance(expr, relax.Var) and self.flow.root(expr) in self.names:
            return self.names[self.flow.root(expr)]
        return self.build.constant(self.array(expr))

    def array(self, expr: relax.Expr) -> Array:
        """The constant an operand is.

        Raises
        ------
        LoweringError  if it is none
        """
        array = self.flow.constant(expr)
        if array is None:
            raise LoweringError(
                "lower",
                self.build.origin,
                f"expected a constant, got {expr}",
                "bind it, or pass strict=False to leave this op to TVM",
            )
        return array

    def node(self, op: type[Node], call: relax.Call, *data: relax.Expr, **given: Any) -> str:
        """A node whose operands and result are the call's."""
        names = tuple(self.tensor(expr) for expr in data or (call.args[0],))
        return self.build.node(op, names, self.build.shape(call), **given)

    def axes(self, found: Sequence[int]) -> tuple[int, ...]:
        """Axes of Relax as axes of the graph."""
        return tuple(a + self.build.lift for a in found)


# Anchors -------------------------------------------------------------------------------------------


def _with_constants(
    at: _Lowering, op: type[Node], call: relax.Call, weight: Array | None, bias: Array | None, **given: Any
) -> str:
    """An anchor op; a 1-D one becomes a 2-D one of height 1."""
    data, shape = at.tensor(call.args[0]), at.build.shape(call)
    constants = [at.build.constant(array) for array in (weight, bias) if array is not None]
    if len(shape) != 3 or op is MatMul:
        return at.build.node(op, (data, *constants), shape, **given)
    wide = at.build.node(Reshape, (data,), _of_height_one(at.build.shape(call.args[0])))
    made = at.build.node(op, (wide, *constants), _of_height_one(shape), **given)
    return at.build.node(Reshape, (made,), shape)


def _of_height_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], 1, *shape[2:])


def _lower_conv(at: _Lowering, call: relax.Call, bias: Array | None) -> str:
    weight = at.array(call.args[1])
    return _with_constants(
        at,
        Conv2d,
        call,
        weight if weight.ndim == 4 else weight[:, :, None, :],
        bias,
        stride=attributes.pair(call.attrs.strides),
        padding=attributes.padding(call.attrs.padding),
        dilation=attributes.pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_conv_transpose(at: _Lowering, call: relax.Call, bias: Array | None) -> str:
    return _with_constants(
        at,
        ConvTranspose2d,
        call,
        at.array(call.args[1]),
        bias,
        stride=attributes.pair(call.attrs.strides),
        padding=attributes.padding(call.attrs.padding),
        output_padding=attributes.output_padding(call),
        dilation=attributes.pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_matmul(at: _Lowering, call: relax.Call, bias: Array | None) -> str:
    return _with_constants(at, MatMul, call, at.array(call.args[1]), bias)


ANCHORS: dict[str, Callable[[_Lowering, relax.Call, Array | None], str]] = {
    "nn.conv1d": _lower_conv,
    "nn.conv2d": _lower_conv,
    "nn.conv2d_transpose": _lower_conv_transpose,
    "matmul": _lower_matmul,
}

# Items of tuples -----------------------------------------------------------------------------------


def _lower_batch_norm(at: _Lowering, call: relax.Call, item: int) -> str:
    """x · scale + shift with scale = gamma / √(var + epsilon), shift = beta - mean · scale."""
    data, *rest = call.args
    gamma, beta, mean, variance = (at.array(arg).astype(np.float64) for arg in rest)
    scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + attributes.epsilon(call))
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    shape = at.build.shape(data)
    behind = (1,) * (len(shape) - 1 - at.axes([attributes.axis(call)])[0])
    name = at.tensor(data)
    for kind, values in (("mul", scale), ("add", shift)):
        constant = at.build.constant(values.reshape(-1, *behind).astype(np.float32))
        name = at.build.node(Binary, (name, constant), shape, kind=kind)
    return name


def _lower_split(at: _Lowering, call: relax.Call, item: int) -> str:
    axis, begin, end, step = attributes.piece(call, item)
    axis += at.build.lift
    shape = at.build.shape(call.ty.fields[item])
    name = at.tensor(call.args[0])
    return at.build.node(Slice, (name,), shape, axis=axis, begin=begin, end=end, step=step)


def _lower_dropout(at: _Lowering, call: relax.Call, item: int) -> str:
    return at.build.node(Reshape, (at.tensor(call.args[0]),), at.build.shape(call.args[0]))


ITEMS: dict[str, Callable[[_Lowering, relax.Call, int], str]] = {
    "nn.batch_norm": _lower_batch_norm,
    "nn.dropout": _lower_dropout,
    "split": _lower_split,
}

# Ops -----------------------------------------------------------------------------------------------

OpLowering = Callable[[_Lowering, relax.Call], str]


def _unary(kind: UnaryKind, a: float = 0.0, b: float = 0.0) -> OpLowering:
    return lambda at, call: at.node(Unary, call, kind=kind, a=a, b=b)


def _binary(kind: BinaryKind) -> OpLowering:
    return lambda at, call: at.node(Binary, call, *call.args, kind=kind)


def _lower_clip(at: _Lowering, call: relax.Call) -> str:
    low, high = (float(number(bound) or 0) for bound in call.args[1:])
    return at.node(Unary, call, kind="clip", a=low, b=high)


def _lower_leaky_relu(at: _Lowering, call: relax.Call) -> str:
    return at.node(Unary, call, kind="leaky_relu", a=float(call.attrs.alpha))


def _lower_prelu(at: _Lowering, call: relax.Call) -> str:
    slope = float(at.array(call.args[1]).reshape(()))
    return at.node(Unary, call, call.args[0], kind="leaky_relu", a=slope)


def _pool(kind: Literal["max", "avg"]) -> OpLowering:
    def lower_pool(at: _Lowering, call: relax.Call) -> str:
        return _with_constants(
            at,
            Pool2d,
            call,
            None,
            None,
            kind=kind,
            kernel=attributes.pair(call.attrs.pool_size),
            stride=attributes.pair(call.attrs.strides),
            padding=attributes.padding(call.attrs.padding),
            dilation=attributes.pair(call.attrs.dilation),
            count_include_pad=bool(call.attrs.count_include_pad),
        )

    return lower_pool


def _lower_adaptive_pool(at: _Lowering, call: relax.Call) -> str:
    _, _, height, width = at.build.shape(call.args[0])
    _, _, rows, columns = at.build.shape(call)
    if rows == columns == 1:
        return at.node(Reduce, call, kind="mean", axes=(2, 3))
    tile = (height // rows, width // columns)
    return at.node(Pool2d, call, kind="avg", kernel=tile, stride=tile)


def _reduce(kind: Literal["mean", "sum", "max", "min"]) -> OpLowering:
    def lower_reduce(at: _Lowering, call: relax.Call) -> str:
        axes = at.axes(attributes.axes(call))
        if not axes:
            return _lower_reshape(at, call)
        return at.node(Reduce, call, kind=kind, axes=axes, keepdims=bool(call.attrs.keepdims))

    return lower_reduce


def _softmax(log: bool) -> OpLowering:
    return lambda at, call: at.node(Softmax, call, axis=at.axes([attributes.axis(call)])[0], log=log)


def _lower_concat(at: _Lowering, call: relax.Call) -> str:
    return at.node(Concat, call, *call.args[0].fields, axis=at.axes([attributes.axis(call)])[0])


def _lower_reshape(at: _Lowering, call: relax.Call) -> str:
    return at.node(Reshape, call, call.args[0])


def _lower_permute_dims(at: _Lowering, call: relax.Call) -> str:
    lifted = at.axes(attributes.permutation(call))
    return at.node(Transpose, call, perm=(*range(at.build.lift), *lifted))


def _lower_pad(at: _Lowering, call: relax.Call) -> str:
    widths = ((0, 0),) * at.build.lift + attributes.pad_widths(call)
    return at.node(Pad, call, widths=widths, value=float(call.attrs.pad_value))


def _lower_strided_slice(at: _Lowering, call: relax.Call) -> str:
    name, shape = at.tensor(call.args[0]), list(at.build.shape(call.args[0]))
    cuts = list(attributes.slices(call) or ())
    for axis, begin, end, step in cuts:
        axis += at.build.lift
        shape[axis] = len(range(begin, end, step))
        name = at.build.node(Slice, (name,), tuple(shape), axis=axis, begin=begin, end=end, step=step)
    return name if cuts else _lower_reshape(at, call)


def _lower_resize2d(at: _Lowering, call: relax.Call) -> str:
    mode = INTERPOLATIONS[str(call.attrs.method)]
    coordinates = str(call.attrs.coordinate_transformation_mode)
    rounding = {"rounding": attributes.rounding(call)} if mode == "nearest" else {}
    return at.node(Resize, call, call.args[0], mode=mode, coordinates=coordinates, **rounding)


def _lower_pixel_shuffle(at: _Lowering, call: relax.Call) -> str:
    """[1, C·r·r, H, W] → [1, C, r, r, H, W] → [1, C, H, r, W, r] → [1, C, H·r, W·r]."""
    r = attributes.pixel_shuffle(call)
    (_, packed, height, width), shape = at.build.shape(call.args[0]), at.build.shape(call)
    channels = packed // (r * r)
    name = at.build.node(Reshape, (at.tensor(call.args[0]),), (1, channels, r, r, height, width))
    name = at.build.node(Transpose, (name,), (1, channels, height, r, width, r), perm=(0, 1, 4, 2, 5, 3))
    return at.build.node(Reshape, (name,), shape)


OPS: dict[str, OpLowering] = {
    "nn.relu": _unary("relu"),
    "nn.relu6": _unary("clip", 0.0, 6.0),
    "clip": _lower_clip,
    "nn.leakyrelu": _lower_leaky_relu,
    "nn.prelu": _lower_prelu,
    "sigmoid": _unary("sigmoid"),
    "tanh": _unary("tanh"),
    "nn.silu": _unary("silu"),
    "nn.gelu": _unary("gelu"),
    "nn.gelu_tanh": _unary("gelu_tanh"),
    "exp": _unary("exp"),
    "log": _unary("log"),
    "sqrt": _unary("sqrt"),
    "rsqrt": _unary("rsqrt"),
    "abs": _unary("abs"),
    "negative": _unary("neg"),
    "erf": _unary("erf"),
    "square": _unary("square"),
    "round": _unary("round"),
    "floor": _unary("floor"),
    "ceil": _unary("ceil"),
    "nn.softplus": _unary("softplus"),
    "add": _binary("add"),
    "subtract": _binary("sub"),
    "multiply": _binary("mul"),
    "divide": _binary("div"),
    "maximum": _binary("max"),
    "minimum": _binary("min"),
    "power": _binary("pow"),
    "nn.max_pool2d": _pool("max"),
    "nn.avg_pool2d": _pool("avg"),
    "nn.max_pool1d": _pool("max"),
    "nn.avg_pool1d": _pool("avg"),
    "nn.adaptive_avg_pool2d": _lower_adaptive_pool,
    "mean": _reduce("mean"),
    "sum": _reduce("sum"),
    "max": _reduce("max"),
    "min": _reduce("min"),
    "nn.softmax": _softmax(log=False),
    "nn.log_softmax": _softmax(log=True),
    "concat": _lower_concat,
    "permute_dims": _lower_permute_dims,
    "nn.pad": _lower_pad,
    "strided_slice": _lower_strided_slice,
    "image.resize2d": _lower_resize2d,
    "nn.pixel_shuffle": _lower_pixel_shuffle,
    **dict.fromkeys(attributes.RESHAPES, _lower_reshape),
}

IDIOMS: dict[str, tuple[type[Node], dict[str, object]]] = {
    "lrn": (Lrn, {}),
    "channel_shuffle": (ChannelShuffle, {}),
    "hardswish": (Unary, {"kind": "hardswish"}),
    "hardsigmoid": (Unary, {"kind": "hardsigmoid"}),
}


def _reading(function: relax.Function) -> str:
    if function.attrs is not None and AXIS_ZERO in function.attrs:
        return str(function.attrs[AXIS_ZERO])
    known = all(isinstance(d, int) for param in function.params for d in dims(param) or ())
    return "flat" if known else "images"


def _only_block(function: relax.Function) -> relax.DataflowBlock:
    """The one block an external function or a composite is made of.

    Raises
    ------
    LoweringError  if it is made otherwise
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
