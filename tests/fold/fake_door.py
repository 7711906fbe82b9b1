"""A door to neither TVM: functions of a few ops, which the folds read and write, and which NumPy runs.

``Function`` is written one op a line, as ``Builder`` writes graphs:

    f = Function(x=(1, 3, 8, 8))
    y = f.add("multiply", f.add("nn.conv2d", "x", f.constant(w), **CONV), f.constant(s))

``fold(f)`` gives the folded function and the report; ``run`` computes what either gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from convoy.fold.affine import Vector
from convoy.fold.constants import Array, Const, evaluate, multiply_into
from convoy.fold.node import Node, Shape, Value
from convoy.fold.scale import FoldScales
from convoy.report.decision import Report

CONV = {
    "data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "groups": 1, "padding": (0, 0, 0, 0),
}  # fmt: skip
"""Attributes of a plain convolution, of stride 1."""
NORM = {"axis": 1, "epsilon": 1e-5, "center": True, "scale": True, "training": False}
POOL = {
    "layout": "NCHW", "pool_size": (2, 2), "strides": (2, 2), "padding": (0, 0, 0, 0), "dilation": (1, 1),
    "ceil_mode": False, "count_include_pad": False,
}  # fmt: skip


@dataclass(eq=False)
class Expr:
    """What the folds hold on to: known by identity, as both TVMs' values are."""

    shape: tuple[int, ...]
    dtype: str

    def same_as(self, other: object) -> bool:
        return self is other


@dataclass(eq=False)
class Var(Expr):
    name: str


@dataclass(eq=False)
class Literal(Expr):
    array: Array


@dataclass(eq=False)
class Call(Expr):
    name: str
    args: Sequence[Expr]
    attrs: Mapping[str, Any]


@dataclass(eq=False)
class Item(Expr):
    """A field of a batch norm's results."""

    source: Var
    index: int


@dataclass
class Function:
    """Bindings in order; the last one's variable is the result."""

    inputs: dict[str, Var]
    bindings: list[tuple[Var, Expr]] = field(default_factory=list)
    result: Var | None = None

    def __init__(self, dtype: str = "float32", **inputs: tuple[int, ...]) -> None:
        self.inputs = {name: Var(shape, dtype, name) for name, shape in inputs.items()}
        self.bindings = []
        self.result = None
        self.dtype = dtype

    def constant(self, values: Any) -> Literal:
        array = np.asarray(values, self.dtype)
        return Literal(array.shape, self.dtype, array)

    def add(self, name: str, *args: Expr | str, **attrs: Any) -> Var:
        """Append a call.  Its shape is what NumPy computes of zeros."""
        values = [self.inputs[a] if isinstance(a, str) else a for a in args]
        zeros = [np.zeros(value.shape, self.dtype) for value in values]
        with np.errstate(all="ignore"):
            shape = _OPS[name](SimpleNamespace(**attrs), *zeros).shape
        return self.bind(Call(shape, self.dtype, name, values, attrs))

    def norm(self, x: Expr | str, *parameters: Expr | str, **attrs: Any) -> Var:
        """A batch norm, and the first of its results."""
        norm = self.add("nn.batch_norm", x, *parameters, **{**NORM, **attrs})
        return self.bind(Item(norm.shape, self.dtype, norm, 0))

    def bind(self, value: Expr) -> Var:
        self.result = Var(value.shape, value.dtype, f"v{len(self.bindings)}")
        self.bindings.append((self.result, value))
        return self.result

    @property
    def ops(self) -> list[str]:
        """The ops, in order."""
        return [value.name for _, value in self.bindings if isinstance(value, Call)]


def run(function: Function, **inputs: Array) -> Array:
    """The result, computed in float64."""
    found: dict[Expr, Any] = {var: inputs[name] for name, var in function.inputs.items()}

    def value_of(expr: Expr) -> Any:
        if isinstance(expr, Literal):
            return np.asarray(expr.array, np.float64)
        if isinstance(expr, Call):
            return _OPS[expr.name](SimpleNamespace(**expr.attrs), *map(value_of, expr.args))
        return found[expr.source if isinstance(expr, Item) else expr]

    for var, value in function.bindings:
        found[var] = value_of(value)
    assert function.result is not None
    result: Array = found[function.result]
    return result


def fold(function: Function) -> tuple[Function, Report]:
    """The function after ``FoldScales``, and what it said."""
    report = Report()
    return _Walk(function, report).rewrite(), report


def node_of(call: Call, label: str = "") -> Node:
    """The call as the folds see it."""
    return Node(
        name=call.name,
        label=label or call.name.removeprefix("nn."),
        call=call,
        args=list(call.args),
        attrs=SimpleNamespace(**call.attrs),
        arg_shapes=[argument.shape for argument in call.args],
        arg_dtypes=[argument.dtype for argument in call.args],
        shape=call.shape,
        dtype=call.dtype,
    )


def make_node(name: str, *shapes: Shape | None, result: Shape | None = None, **attrs: Any) -> Node:
    """A call by its shapes alone, of float32."""
    dtypes = ["float32"] * len(shapes)
    args = [Var((), "float32", f"x{i}") for i in range(len(shapes))]
    label = name.removeprefix("nn.")
    return Node(name, label, None, args, SimpleNamespace(**attrs), shapes, dtypes, result, "float32")


class _Walk:
    """Front to back, once; ``convoy.fold.scale.Door`` says what each method does."""

    def __init__(self, function: Function, report: Report) -> None:
        self.function = function
        self.constants: dict[Value, Const] = {}
        self.uses: Counter[Value] = Counter([function.result])
        self._items: dict[Value, list[int]] = {}
        for _, value in function.bindings:
            if isinstance(value, Call):
                self.uses.update(value.args)
            elif isinstance(value, Item):
                self.uses[value.source] += 1
                self._items.setdefault(value.source, []).append(value.index)
            else:
                self.uses[value] += 1
        self._out: list[tuple[Var, Expr]] = []
        self._folds = FoldScales(self, report)

    def rewrite(self) -> Function:
        for var, value in self.function.bindings:
            if not self._interpret(var, value):
                for operand in value.args if isinstance(value, Call) else [value]:
                    self._folds.force(operand)
                self.bind(value, var)
        assert self.function.result is not None
        self._folds.force(self.function.result)
        assert self._folds.held() == []
        new = Function(self.function.dtype)
        new.inputs, new.bindings, new.result = self.function.inputs, self._out, self.function.result
        return new

    def _interpret(self, var: Var, value: Expr) -> bool:
        if isinstance(value, Item):
            return self._folds.interpret_item(var, value.source, value.index)
        if isinstance(value, Var):
            return self._folds.interpret_alias(var, value)
        assert isinstance(value, Call)
        node = node_of(value, f"{value.name.removeprefix('nn.')} {var.name}")
        constant = evaluate(node, self.constant)
        if constant is not None:
            self.constants[var] = constant
            return True
        return self._folds.interpret(var, node)

    # What the fold asks of a door.

    def constant(self, value: Value) -> Const | None:
        if isinstance(value, Literal):
            return Const(value.dtype, value.array, value)
        return self.constants.get(value)

    def only_projected(self, value: Value) -> bool:
        items = self._items.get(value, [])
        return len(items) == self.uses[value] == len(set(items))

    def operand(self, value: Value) -> Value:
        known = self.constants.get(value)
        return value if known is None else Literal(known.array.shape, known.dtype, known.array)

    def rebuilt(self, call: Value) -> Value:
        args = [self.operand(argument) for argument in call.args]
        same = all(new is old for new, old in zip(args, call.args, strict=True))
        return call if same else Call(call.shape, call.dtype, call.name, args, call.attrs)

    def with_args(self, node: Node, args: Sequence[Value]) -> Value:
        return Call(node.call.shape, node.dtype, node.name, args, node.call.attrs)

    def product(self, array: Array, factor: Vector, dtype: str) -> Value:
        memory = np.empty(array.shape, dtype)
        multiply_into(memory, array, factor)
        return Literal(memory.shape, dtype, memory)

    def binary(self, name: str, x: Value, constant: Array, like: Node) -> Value:
        array = np.asarray(constant, like.dtype)
        return Call(x.shape, like.dtype, name, [x, Literal(array.shape, like.dtype, array)], {})

    def bind(self, value: Value, var: Value = None, near: Value = None) -> Value:
        if var is None:
            var = Var(value.shape, value.dtype, "new" if near is None else f"{near.name}_new")
        assert var not in [bound for bound, _ in self._out], f"{var.name} is bound twice"
        self._out.append((var, value))
        return var


# What the ops compute -----------------------------------------------------------------------------


def _conv2d(attrs: Any, x: Array, w: Array) -> Array:
    assert (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    top, left, bottom, right = attrs.padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    n, _, *out = windows.shape[:4]
    grouped = windows.reshape(n, attrs.groups, -1, *windows.shape[2:])
    weights = w.reshape(attrs.groups, -1, *w.shape[1:])
    return np.einsum("ngihwyx,goiyx->ngohw", grouped, weights).reshape(n, -1, *out)


def _pool(attrs: Any, x: Array, reduce: Any, fill: float) -> Array:
    top, left, bottom, right = attrs.padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, attrs.pool_size, axis=(2, 3))
    pooled: Array = reduce(windows[:, :, :: attrs.strides[0], :: attrs.strides[1]], axis=(-2, -1))
    return pooled


def _batch_norm(attrs: Any, x: Array, *parameters: Array) -> Array:
    shape = [-1 if axis == attrs.axis % x.ndim else 1 for axis in range(x.ndim)]
    gamma, beta, mean, variance = (p.reshape(shape) for p in parameters)
    y = (x - mean) / np.sqrt(variance + attrs.epsilon)
    return y * (gamma if attrs.scale else 1.0) + (beta if attrs.center else 0.0)


def _bias_add(attrs: Any, x: Array, bias: Array) -> Array:
    return x + bias.reshape([-1 if axis == attrs.axis % x.ndim else 1 for axis in range(x.ndim)])


_OPS: dict[str, Any] = {
    "nn.conv2d": _conv2d,
    "matmul": lambda attrs, x, w: x @ w,
    "nn.dense": lambda attrs, x, w: x @ w.T,
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    "nn.relu": lambda attrs, x: np.maximum(x, 0),
    "tanh": lambda attrs, x: np.tanh(x),
    "nn.max_pool2d": lambda attrs, x: _pool(attrs, x, np.max, -np.inf),
    "nn.avg_pool2d": lambda attrs, x: _pool(attrs, x, np.mean, 0.0),
    "add": lambda attrs, a, b: a + b,
    "subtract": lambda attrs, a, b: a - b,
    "multiply": lambda attrs, a, b: a * b,
    "divide": lambda attrs, a, b: a / b,
    "negative": lambda attrs, a: -a,
    "sqrt": lambda attrs, a: np.sqrt(a),
    "clip": lambda attrs, a: np.clip(a, attrs.min, attrs.max),
    "concat": lambda attrs, *parts: np.concatenate(parts, attrs.axis),
    "reshape": lambda attrs, a: a.reshape(attrs.shape),
    "permute_dims": lambda attrs, a: a.transpose(attrs.axes),
    "mean": lambda attrs, a: a.mean(axis=tuple(attrs.axis), keepdims=attrs.keepdims),
}
