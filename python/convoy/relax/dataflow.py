"""A dataflow block of Relax with its definitions and uses at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Constant, Op, PrimType
from tvm.tirx import IntImm

Dim: TypeAlias = int | relax.Expr
"""An axis: its length, or the expression of a symbolic one."""


class Dataflow:
    """One block; bindings are known by their position in it."""

    def __init__(self, block: relax.DataflowBlock) -> None:
        self.bindings: list[relax.Binding] = list(block.bindings)
        self.position: dict[relax.Var, int] = {b.var: i for i, b in enumerate(self.bindings)}

    @cached_property
    def reads(self) -> list[list[relax.Var]]:
        """The variables each binding reads, in the order of its arguments, renamings undone."""
        return [list(dict.fromkeys(map(self.root, _variables(b.value)))) for b in self.bindings]

    def reads_of(self, positions: Iterable[int]) -> list[relax.Var]:
        """What these bindings read of others, in order."""
        own = {self.bindings[i].var for i in positions}
        return [v for v in dict.fromkeys(v for i in positions for v in self.reads[i]) if v not in own]

    @cached_property
    def users(self) -> list[list[int]]:
        """Positions of the bindings that read each binding's variable, in order."""
        found: list[list[int]] = [[] for _ in self.bindings]
        for i, variables in enumerate(self.reads):
            for variable in variables:
                if variable in self.position:
                    found[self.position[variable]].append(i)
        return found

    def root(self, variable: relax.Var) -> relax.Var:
        """The variable of which this one is only another name."""
        while variable in self.position:
            binding = self.bindings[self.position[variable]]
            if isinstance(binding, relax.MatchCast) or not isinstance(binding.value, relax.Var):
                break
            variable = binding.value
        return variable

    @property
    def has_renamings(self) -> bool:
        """Is there a variable that is only another name of one?"""
        return any(isinstance(b.value, relax.Var) for b in self.bindings if isinstance(b, relax.VarBinding))

    def makes(self, i: int, expr: relax.Expr) -> bool:
        """Is ``expr`` what binding i computes?"""
        return isinstance(expr, relax.Var) and bool(self.root(expr).same_as(self.bindings[i].var))

    def escapes(self, i: int) -> bool:
        """Is binding i's variable visible outside the block?"""
        return not isinstance(self.bindings[i].var, relax.DataflowVar)

    def value(self, expr: relax.Expr) -> relax.Expr:
        """What defines ``expr``, through plain renamings; a parameter is its own definition."""
        while isinstance(expr, relax.Var) and expr in self.position:
            binding = self.bindings[self.position[expr]]
            if isinstance(binding, relax.MatchCast):
                return expr
            expr = binding.value
        return expr

    def call(self, expr: relax.Expr, name: str) -> relax.Call | None:
        """The call of op ``name`` that defines ``expr``, if that is what defines it."""
        value = self.value(expr)
        return value if op_name(value) == name else None

    def is_parameter(self, expr: relax.Expr) -> bool:
        """Does ``expr`` come into the block from outside?"""
        return isinstance(expr, relax.Var) and self.root(expr) not in self.position

    def constant(self, expr: relax.Expr) -> NDArray[np.generic] | None:
        """The array ``expr`` stands for, if it is a constant."""
        value = self.value(expr)
        return read_array(value) if is_constant(value) else None

    def is_constant(self, expr: relax.Expr) -> bool:
        return is_constant(self.value(expr))


def is_constant(expr: relax.Expr) -> bool:
    """Is this a tensor constant?  A number in an argument list is none."""
    return isinstance(expr, Constant) and isinstance(expr.ty, relax.TensorType)


def read_array(constant: Constant) -> NDArray[np.generic]:
    """A tensor constant's array: its own memory where NumPy can look at it, not to be written to."""
    try:
        return np.from_dlpack(constant.value)
    except (BufferError, TypeError, RuntimeError, AttributeError):  # a dtype NumPy lacks
        return np.asarray(constant.value.numpy())


def op_name(expr: relax.Expr) -> str:
    """``nn.conv2d`` for a call of ``relax.nn.conv2d``; empty for what is no call of an op."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, Op):
        return str(expr.op.name).removeprefix("relax.")
    return ""


def given_name(expr: relax.Expr) -> str:
    """Name of the model's node, if an importer left one; TVMScript leaves a file and a line there."""
    span = getattr(expr, "span", None)
    source = getattr(span, "source_name", None)
    return str(source.name) if span is not None and source is not None and span.line == 0 else ""


def node_name(binding: relax.Binding) -> str:
    """Name of the model's node, else the variable's."""
    return given_name(binding.value) or str(binding.var.name)


def dims(of: relax.Expr | relax.Type) -> tuple[Dim, ...] | None:
    """Shape of a tensor or tensor type; None for what is no tensor or of unknown shape."""
    ty = of if isinstance(of, relax.Type) else of.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    return tuple(d.value if isinstance(d, IntImm) else d for d in ty.shape.values)


def dtype(of: relax.Expr | relax.Type) -> str:
    """Element type of a tensor or tensor type; empty where it is unknown."""
    ty = of if isinstance(of, relax.Type) else of.ty
    return str(ty.dtype) if isinstance(ty, relax.TensorType) else ""


def rank(expr: relax.Expr) -> int:
    """Axes of a tensor whose rank is known."""
    return int(expr.ty.ndim)


def number(expr: relax.Expr) -> float | int | None:
    """The number an argument such as clip's bounds stands for."""
    value = getattr(expr, "value", None)
    return value if isinstance(value, int | float) else None


def numbers(expr: relax.Expr) -> list[int] | None:
    """The integers of a tuple argument such as strided_slice's begins."""
    found = [number(e) for e in (expr.fields if isinstance(expr, relax.Tuple) else expr.values)]
    return None if None in found else [int(n) for n in found if n is not None]


def tensor_args(call: relax.Call, without: Set[int] = frozenset()) -> list[relax.Expr]:
    """The tensors a call reads, but for arguments at some places; a tuple argument gives its fields."""
    found: list[relax.Expr] = []
    for arg in (arg for i, arg in enumerate(call.args) if i not in without):
        for expr in arg.fields if isinstance(arg, relax.Tuple) else [arg]:
            if isinstance(expr.ty, relax.TensorType):
                found.append(expr)
    return found


def _variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """Every variable an expression of a dataflow block reads."""
    if isinstance(expr, relax.Var):
        if not isinstance(expr.ty, PrimType):  # a symbolic length is no tensor
            yield expr
    elif isinstance(expr, relax.Call):
        for operand in (*([expr.op] if isinstance(expr.op, relax.Var) else []), *expr.args):
            yield from _variables(operand)
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _variables(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from _variables(expr.tuple_value)
    elif isinstance(expr, relax.ShapeExpr):
        for value in expr.values:
            yield from _variables(value)
    elif isinstance(expr, relax.Function | relax.If | relax.SeqExpr):
        free: list[relax.Var] = list(relax.analysis.free_vars(expr))
        yield from free
