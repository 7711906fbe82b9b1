"""Elementwise chains: one loop over the output, every operand broadcast into it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from convoy.graph.ops import Binary, Unary
from convoy.graph.rules import op_name
from convoy.plan.convolution import describe
from convoy.plan.fuse import Group
from convoy.plan.maps import Role, image_shape, operand_role
from convoy.plan.movement import row_major
from convoy.plan.recipes import PackRaw
from convoy.plan.steps import Array, ElementwiseArray, ElementwiseMap, Expr, Operand
from convoy.plan.values import Values


def plan_elementwise(group: Group, values: Values) -> None:
    exprs = _exprs(group)
    names = group.reads
    note = describe_chain(group, values)
    if values.blocked[group.output]:
        out = values.graph.shape(group.output)
        pairs = [_map_operand(name, out, values) for name in names]
        values.steps.append(
            ElementwiseMap(
                note=note, operands=tuple(o for o, _ in pairs), roles=tuple(r for _, r in pairs),
                exprs=exprs, y=values.define_map(group.output),
            )
        )  # fmt: skip
        return
    operands = tuple(values.array(name) for name in names)
    y = values.define_array(group.output)
    loops, strides = collapse(y.shape, [o.shape for o in operands])
    values.steps.append(
        ElementwiseArray(note=note, operands=operands, loops=loops, strides=strides, exprs=exprs, y=y)
    )


def describe_chain(group: Group, values: Values) -> str:
    """``add mul relu [..] -> [..]; name``."""
    chain = " ".join(op_name(node) for node in group.nodes)
    return describe(group, values.graph).replace(op_name(group.anchor), chain, 1)


def _exprs(group: Group) -> tuple[Expr, ...]:
    number = {name: i for i, name in enumerate(group.reads)}
    exprs: list[Expr] = []
    for node in group.nodes:
        assert isinstance(node, (Unary, Binary))
        a, b = (node.a, node.b) if isinstance(node, Unary) else (0.0, 0.0)
        exprs.append(Expr(node.kind, tuple(number[name] for name in node.inputs), a, b))
        number[node.output] = len(number)
    return tuple(exprs)


def _map_operand(name: str, out: Sequence[int], values: Values) -> tuple[Operand, Role]:
    role = operand_role(values.graph.shape(name), out)
    assert role is not None, f"{name} does not fit a map of {out}"
    if name not in values.graph.constants:
        return values.map(name), role
    shape = image_shape(out)
    assert shape is not None
    if role == "scalar":
        return Array(values.weight(PackRaw(name), 1), 0, (1,)), role
    if role == "channel":
        return values.vector([name], shape[0], values.lanes), role
    return values.constant_map(name, shape), "map"


def collapse(
    shape: Sequence[int], operands: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The fewest nested loops that compute ``shape``, and each operand's stride in every loop.

    The innermost stride of an operand is 1 or 0 (broadcast).
    """
    strides = []
    for operand in operands:
        aligned = (1,) * (len(shape) - len(operand)) + tuple(operand)
        dense = row_major(aligned)
        strides.append([0 if d == 1 else s for d, s in zip(aligned, dense, strict=True)])
    loops: list[int] = []
    merged: list[list[int]] = [[] for _ in operands]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if loops and all(m[-1] == s[axis] * size for m, s in zip(merged, strides, strict=True)):
            loops[-1] *= size
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[axis]
            continue
        loops.append(size)
        for m, s in zip(merged, strides, strict=True):
            m.append(s[axis])
    if not loops:
        return (math.prod(shape),), tuple((0,) for _ in operands)
    return tuple(loops), tuple(tuple(m) for m in merged)
