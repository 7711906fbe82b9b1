"""Sizes that are the values of a tensor, known only when a model runs: symbols that a call binds.

They are read where they leave the data.  So what is computed of them is arithmetic on symbols, as that on
the open sizes of inputs, and sizes that come from one number stay one size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx

from convoy.deploy.tensors import FAULT
from convoy.relax.checks import check, check_least
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.sizes import FOLDED, Known, known_numbers
from convoy.relax.importer.sizes.algebra import Ratio

SIZES = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Pad", "Split", "TopK", "OneHot", "Col2Im"), (1,)),
    "ConstantOfShape": (0,),
    "Range": (0, 1),
    "Resize": (3,),
    "Slice": (1, 2),
}
"""Inputs that say sizes, of ops that take those a run computes."""
SIGNED = {"Pad": (1,), "Range": (0, 1), "Reshape": (1,), "Slice": (1, 2)}
"""Those among them that may be below 0."""
TAKEN_FROM = {
    "Gather": (0,),
    "GatherElements": (0,),
    "OneHot": (2,),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
}
"""Inputs of which the elements are those of the result; the others are places, which may be below 0."""
GUARDS = frozenset({"Abs", "Clip", "Max", "ReduceMax", "Relu"})
"""Ops that make numbers not below 0, the largest of several where one of them is a constant."""
FARTHEST = 2**40
"""Numbers beyond, as exporters write for the end of any axis, are this one: its bytes can be counted, and
no memory has place for them."""
NEAR = FOLDED - {
    *("Abs", "Clip", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Max", "Min"),
    *(
        "Neg",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
    ),
    *("Unsqueeze", "Where"),
}
"""Ops that make of such numbers others than of those that they are."""
MOST = 16
"""Sizes in a tensor, at most."""


def names_of_sizes(graph: onnx.GraphProto) -> dict[str, bool]:
    """Tensors that say sizes, and those that such are computed of; True for those that may be below 0.

    Such are those that only ops of ``SIGNED`` read, as they are or computed with, and those of which one
    of ``GUARDS`` takes what is not below 0: the edges of boxes, which may lie beyond their image.
    """
    names: dict[str, bool] = {}
    guards, guarded = _guards(graph), set[str]()
    for node in reversed(graph.node):
        said = [name for name in node.output if name in names and node.op_type in FOLDED]
        if said and (not guards.isdisjoint(said) or not guarded.isdisjoint(said)):
            guarded.update(node.input)
        for i, name in enumerate(node.input):
            taken = said and i in TAKEN_FROM.get(node.op_type, range(len(node.input)))
            if taken or i in SIZES.get(node.op_type, ()):
                signed = all(map(names.get, said)) if taken else i in SIGNED.get(node.op_type, ())
                names[name] = signed and names.get(name, True)
    return {name: signed or name in guarded for name, signed in names.items() if name}


def _guards(graph: onnx.GraphProto) -> set[str]:
    """What a graph's ``GUARDS`` make."""
    computed = {value.name for value in graph.input}
    beside: set[str] = set()
    """Computed numbers and constants, one beside the other."""
    found: set[str] = set()
    for node in graph.node:
        given = [name for name in node.input if name]
        if computed.isdisjoint(given):
            continue
        computed.update(node.output)
        mixed = not computed.issuperset(given)
        if mixed and node.op_type == "Concat":
            beside.update(node.output)
        if node.op_type in GUARDS:
            largest = node.op_type in ("Max", "ReduceMax")
            if not largest or (mixed if node.op_type == "Max" else node.input[0] in beside):
                found.update(node.output)
    return found


def read_known(bb: Any, tensor: Any, *, signed: bool) -> Known | None:
    """The elements of a tensor of a few whole numbers, in symbols; None for another.

    No symbol is below 0, as TVM takes that for certain: of a number that may be there are two, of which
    one is 0; another ends the call.
    """
    type_ = getattr(tensor, "ty", None)
    if not isinstance(type_, relax.TensorType) or is_constant(tensor):
        return None
    shape, dtype = static_shape(tensor), str(type_.dtype)
    count = prod(shape) if shape is not None and len(shape) < 2 else 0
    if shape is None or count > MOST or dtype not in ("int32", "int64"):
        return None
    if not count:  # a vector of none, as the sizes behind the last axis are, is known as it is
        return known_numbers([], shape, dtype) if len(shape) == 1 and shape[0] == 0 else None
    parts = bb.emit(relax.op.tensor_to_shape(bb.emit_te(_split_by_sign, tensor)))
    over, under = bb.algebra.new_sizes(count), bb.algebra.new_sizes(count) if signed else [0] * count
    bb.match_cast(parts, relax.ShapeType([*over, *under]))
    bb.algebra.far |= dict.fromkeys([*over, *(u for u in under if isinstance(u, tirx.Var))])
    return known_numbers(
        [bb.algebra.subtract(a, b) for a, b in zip(over, under, strict=True)], shape, dtype
    )


def _split_by_sign(x: te.Tensor) -> te.Tensor:
    """What each number is above 0, then what each is below."""
    count = prod(int(d) for d in x.shape)
    zero, most = (tirx.IntImm("int64", n) for n in (0, FARTHEST))

    def part(i: Any) -> Any:
        at = tirx.indexmod(i, count)
        number = (x(at) if len(x.shape) else x()).astype("int64")
        number = tirx.max(tirx.min(number, most), -most)
        return tirx.max(tirx.if_then_else(i < count, number, -number), zero)

    return te.compute((2 * count,), part, name="sizes")


def read_sizes(bb: Any, sizes: Any, count: int) -> relax.ShapeExpr:
    """The shape that a vector of ``count`` int64, none below 0, holds when the model runs."""
    symbols = bb.algebra.new_sizes(count)
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(bb.normalize(sizes))), relax.ShapeType(symbols))
    return relax.ShapeExpr(symbols)


def name_sizes(bb: Any, numbers: Sequence[Any]) -> list[Any]:
    """Numbers that are not below 0, with new symbols for those that are expressions.

    These go through a tensor: where TVM's passes see what a symbol is, they write it out in some of its
    places and not in others (0.27).
    """
    simple = [bb.algebra.simplify(number) for number in numbers]
    long = [number for number in simple if not isinstance(number, int | tirx.Var)]
    computed = relax.op.shape_to_tensor(relax.ShapeExpr(long))
    named = iter(read_sizes(bb, computed, len(long)).values if long else ())
    return [number if isinstance(number, int | tirx.Var) else next(named) for number in simple]


def expect_least(bb: Any, numbers: Sequence[Any], least: int = 0) -> None:
    """End a call where one of these numbers is below ``least``."""
    of = f"which {bb.node} needs" if bb.node else ""
    for number in numbers:
        if not bb.algebra.at_least(number, least):
            check_least(bb, [bb.algebra.simplify(number)], least, of)


def expect_near(bb: Any, numbers: Iterable[Any]) -> None:
    """End a call where one of these numbers is made of one that lies beyond ``FARTHEST``.

    Where such a number ends an axis it may be as far off as it likes; what is computed of it were wrong.
    """
    far: dict[tirx.Var, None] = {}
    for number in numbers:
        for part in (number.top, number.bottom) if isinstance(number, Ratio) else (number,):
            far |= {symbol: None for symbol in _unbounded(part) if symbol in bb.algebra.far}
    if far:
        most, none, fault = (tirx.IntImm("int64", n) for n in (FARTHEST, 0, FAULT))
        check(bb, [tirx.Select(symbol < most, none, fault) for symbol in far], [0] * len(far))
    for symbol in far:
        del bb.algebra.far[symbol]


def _unbounded(number: Any) -> list[tirx.Var]:
    """The symbols in a number, but for those of which the least with another is taken."""
    if isinstance(number, tirx.Var):
        return [number]
    if isinstance(number, tirx.Min):
        return []
    parts = [getattr(number, name) for name in ("a", "b") if hasattr(number, name)]
    return [symbol for part in parts for symbol in _unbounded(part)]


def expect_none(bb: Any, faults: Any) -> None:
    """End a call where a number of faults, an int64 [1], is not 0; they are counted in ``FAULT``."""
    counted = bb.emit(relax.op.multiply(faults, constant(np.array([FAULT]))))
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(counted)), relax.ShapeType([0]))
