"""A dataflow block of Relax with its definitions and uses at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from math import prod
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import Constant, Op, PrimType
from tvm.sym import Analyzer
from tvm.tirx import IntImm, Mul

from convoy.graph.signals import expect_elements
from convoy.offload.names import stem
from convoy.ops.table import row_of
from convoy.relax.sizes import Dim, Lengths


class Dataflow:
    """One block; bindings are known by their position in it.

    ``least`` says of variables what they are at least, where that is more than 1.
    """

    def __init__(
        self, block: relax.DataflowBlock, least: Mapping[tirx.Var, int] = MappingProxyType({})
    ) -> None:
        self.least = least
        self.bindings: list[relax.Binding] = list(block.bindings)
        self.position: dict[relax.Var, int] = {b.var: i for i, b in enumerate(self.bindings)}

    @cached_property
    def lengths(self) -> Lengths:
        """The sizes of the block, such that each of its tensors likely has elements."""
        made = Lengths(self.least)
        tensors = dict.fromkeys(v for variables in self.reads for v in variables) | self.position
        opens = (n for tensor in tensors for n in dims(tensor) or () if not isinstance(n, int))
        expect_elements(size for length in opens if (size := made.size(length)) is not None)
        return made

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

    @cached_property
    def batches(self) -> list[Dim]:
        """Lengths of axis 0 of what the block reads from outside, with more axes behind it."""
        outside = {v for variables in self.reads for v in variables if v not in self.position}
        shapes = [dims(variable) or () for variable in outside]
        return [shape[0] for shape in shapes if len(shape) > 1]

    @cached_property
    def open_beside_images(self) -> bool:
        """Are lengths open beside those that count images, or are there several such counts?

        A length such as n + 1 is none of n images.
        """
        tensors = [v for variables in self.reads for v in variables] + [b.var for b in self.bindings]
        lengths = {length for tensor in tensors for length in dims(tensor) or ()}
        opens = [length for length in lengths if not isinstance(length, int)]
        variables = {v for length in opens for v in tirx.analysis.undefined_vars(length)}
        return len(variables) > 1 or len({str(factor(length)[1]) for length in opens}) > 1

    @cached_property
    def rows(self) -> dict[relax.Var, int]:
        """20 for a tensor with an axis 20 · n whose inner part is the open n; 1 is not noted."""
        found: dict[relax.Var, int] = {}
        for binding in self.bindings:
            rows = self.rows_made(binding.value, found)
            if rows > 1:
                found[binding.var] = rows
        return found

    def rows_of(self, expr: relax.Expr) -> int:
        """The same of a tensor, here or from outside."""
        return self.rows.get(self.root(expr), 1) if isinstance(expr, relax.Var) else 1

    def rows_made(self, value: relax.Expr, known: Mapping[relax.Var, int]) -> int:
        """The same of what one binding computes of what is known."""
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            return known.get(self.root(value.tuple_value), 1)
        made = _open_axis(value)
        if made is None or not op_name(value):
            return 1
        read = ((x, axis) for x in tensor_args(value) if (axis := _open_axis(x)) is not None)
        x, (before, each) = next(read, (None, (1, 1)))
        rows = known.get(self.root(x), 1) if isinstance(x, relax.Var) else 1
        if row_of(op_name(value)).cost == "in place":
            rows, rest = divmod(rows * before, made[0])
            return rows if rest == 0 and rows > 1 and made[1] % rows == 0 else 1
        return rows if each == made[1] else 1

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


def computes_nothing(expr: relax.Expr) -> bool:
    """Is it a call of an op that takes sizes to data or back, or that checks them?"""
    name = op_name(expr)
    if name == "call_tir":
        return str(getattr(expr.args[0], "name_hint", "")).startswith(CHECK)
    return name in ("shape_to_tensor", "tensor_to_shape")


CHECK = "convoy_expect"
"""How the names of functions begin that check sizes, and an attribute of theirs."""


def given_name(expr: relax.Expr) -> str:
    """Name of the model's node, if an importer left one; TVMScript leaves a file and a line there."""
    span = getattr(expr, "span", None)
    source = getattr(span, "source_name", None)
    return str(source.name) if span is not None and source is not None and span.line == 0 else ""


def node_name(binding: relax.Binding) -> str:
    """Name of the model's node, else the variable's."""
    return given_name(binding.value) or str(binding.var.name)


def name_of(binding: relax.Binding, call: relax.Expr) -> str:
    """What an op is called in errors and decisions: its own name and the node's."""
    return f"{stem(op_name(call))} {node_name(binding)}"


def dims(of: relax.Expr | relax.Type) -> tuple[Dim, ...] | None:
    """Shape of a tensor or tensor type; None for what is no tensor or of unknown shape."""
    ty = of if isinstance(of, relax.Type) else of.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    return tuple(d.value if isinstance(d, IntImm) else d for d in ty.shape.values)


def same_dims(a: relax.Expr, b: relax.Expr) -> bool:
    """Have two tensors one shape?  Of two expressions of one length ``==`` says that they are two."""
    left, right = dims(a), dims(b)
    if left is None or right is None or len(left) != len(right):
        return left is right
    return all(
        x == y if isinstance(x, int) and isinstance(y, int) else Analyzer().can_prove_equal(x, y)
        for x, y in zip(left, right, strict=True)
    )


def factor(length: Dim) -> tuple[int, Dim]:
    """A length as a number times another one."""
    if isinstance(length, int):
        return 1, length
    simple = Analyzer().simplify(length)
    if isinstance(simple, Mul) and isinstance(simple.b, IntImm):
        return int(simple.b), simple.a
    return 1, simple


def _open_axis(of: relax.Expr) -> tuple[int, int] | None:
    """Elements before the only open axis of a tensor, and the number that its length is a multiple of.

    Of a tuple, that of its first item.
    """
    ty = of.ty.fields[0] if isinstance(of.ty, relax.TupleType) and of.ty.fields else of.ty
    shape = dims(ty) or ()
    axes = [axis for axis, length in enumerate(shape) if not isinstance(length, int)]
    if len(axes) != 1:
        return None
    (axis,) = axes
    return prod(n for n in shape[:axis] if isinstance(n, int)), factor(shape[axis])[0]


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
