"""A door without a TVM: calls are plain data, their attributes already in normal form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from convoy.graph import Graph, reference
from convoy.graph.builder import Builder
from convoy.graph.sizes import Size
from convoy.graph.verify import verify
from convoy.ops.operands import Operands
from convoy.ops.reader import Array, Call, TensorType
from convoy.ops.table import OF


@dataclass(eq=False)
class Value:
    """A tensor, a constant where it has an array, or a call, where it has operands."""

    dims: Sequence[Any]
    array: Array | None = None
    args: Sequence[Any] = ()
    attrs: Any = None
    fields: Sequence[Value] = field(default_factory=tuple)
    name: str = ""


def random(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def const(array: Any) -> Value:
    """A constant: of its own type where that is NumPy's for integers, else float32."""
    own = isinstance(array, np.ndarray | np.generic) and array.dtype.kind == "i"
    found = np.asarray(array, None if own else np.float32)
    return Value(found.shape, found)


def call_of(result: Sequence[Any], *args: Value, **attrs: Any) -> Value:
    return Value(result, args=args, attrs=SimpleNamespace(**attrs))


class PlainAttributes:
    """``ops.reader.Attributes``, of calls whose attributes have these names."""

    def __getattr__(self, name: str) -> Any:
        return lambda call: getattr(call.attrs, name)

    def piece(self, call: Call, index: int) -> Any:
        return call.attrs.pieces[index]


class PlainReader:
    """``ops.reader.Reader``."""

    attributes: Any = PlainAttributes()

    def __init__(self, *, turns: bool = True) -> None:
        self.turned = turns

    def name(self, call: Any) -> str:
        return call.name

    def constant(self, expr: Value) -> Array | None:
        return expr.array

    def is_constant(self, expr: Value) -> bool:
        return expr.array is not None

    def is_parameter(self, expr: Value) -> bool:
        return not expr.args

    def dims(self, of: Value) -> Sequence[Any]:
        return of.dims

    def size(self, length: Any) -> Any:
        return length

    def elements(self, of: Value) -> int | None:
        return prod(of.dims) if all(isinstance(length, int | Size) for length in of.dims) else None

    def reads(self, call: Any) -> list[TensorType]:
        return [TensorType("float32", arg.dims, arg.array is not None) for arg in call.args]

    def results(self, call: Any) -> list[TensorType]:
        return [TensorType("float32", call.dims)]

    def slices(self, call: Any) -> Any:
        return call.attrs.slices

    def turns(self, call: Call) -> bool:
        return self.turned


class PlainOperands(Operands):
    """The lowering of one call."""

    def __init__(self, reading: str = "flat") -> None:
        super().__init__(Builder(reading), PlainReader.attributes)
        self.inputs: dict[Value, str] = {}

    def tensors(self, expr: Value) -> tuple[str, ...]:
        if expr.fields:
            return tuple(self.tensor(part) for part in expr.fields)
        if expr.array is not None:
            return (self.build.constant(expr.array),)
        if expr not in self.inputs:
            self.inputs[expr] = self.build.input(f"x{len(self.inputs)}", self.shape(expr))
        return (self.inputs[expr],)

    def constant(self, expr: Value) -> Array | None:
        return expr.array

    def slices(self, call: Any) -> Any:
        return call.attrs.slices

    def shape(self, of: Value) -> tuple[int, ...]:
        return self.build.shape(of.dims)


def lower(name: str, call: Value, item: int | None = None) -> Graph:
    """The graph of one call, or of an item of the tuple it gives."""
    at, row = PlainOperands(), OF[name]
    if item is None:
        assert row.lower is not None
        made = row.lower(at, call)
    else:
        assert row.item is not None
        made = row.item(at, call, item)
    graph = at.build.finish(tuple(at.inputs.values()), (made,), 1)
    verify(graph)
    return graph


def compute(name: str, call: Value, *inputs: Array, item: int | None = None) -> Array:
    """What the graph of a call computes."""
    return np.asarray(reference.run(lower(name, call, item), list(inputs))[0])


def check(name: str, call: Value, *, turns: bool = True) -> str | None:
    """Why a call is not taken, by what is checked in both TVMs."""
    return OF[name].check(PlainReader(turns=turns), call)
