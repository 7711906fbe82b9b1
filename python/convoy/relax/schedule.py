"""Loops for what TVM computes: nothing in between is stored, and threads share what is left.

TVM's own pipeline for a CPU compiles its loops as they were written: on one thread, with every result of a
fused chain in memory, and a reduction along an outer axis with strides of its whole inner part.
"""

from __future__ import annotations

import re
from functools import reduce
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.s_tir import SBlock, SBlockRealize, Schedule, ScheduleError
from tvm.s_tir.transform import ConvertSSA
from tvm_ffi import structural_map, structural_walk

from convoy.relax.wraps import wrap_around

SHARED = 1 << 15
"""Elements from which a loop is shared by threads: a launch costs as much as some thousands."""
VECTOR = 16
"""Elements that an innermost loop has at least, for LLVM to make vectors of it."""
RUN = 64
"""Sums that are taken side by side, where an outer axis is reduced."""
_SIZES = re.compile(r"shape_func\d*")
"""How ``VMShapeLower`` names what computes sizes."""
ROUNDINGS = 3
"""Roundings to integers in one expression: for each more, TVM's simplifier takes seven times as long."""
SHORT = 32
"""Elements of sums that LLVM writes out, and makes vectors of what is beside them."""


def schedule_loops() -> Pass:
    """Pass that schedules the functions of loops that no one has scheduled."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        scheduled = {
            var: schedule(wrap_around(_without_scopes(function)))
            for var, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc) and "tirx.is_scheduled" not in (function.attrs or {})
        }
        module = module.clone()
        for var, function in scheduled.items():
            module.update_func(var, function)
        return module

    return module_pass(run, opt_level=0, name="convoy.schedule_loops")


def drop_scopes() -> Pass:
    """Pass that drops such marks from functions that TVM may run as it folds constants."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        module = module.clone()
        for var, function in list(module.functions_items()):
            if isinstance(function, tirx.PrimFunc):
                module.update_func(var, _without_scopes(function))
        return module

    return module_pass(run, opt_level=0, name="convoy.drop_scopes")


def _without_scopes(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Without the marks that TVM's scatters are built with: to LLVM they mean nothing, and TVM says so."""

    def drop(mark: Any) -> Any:
        return mark.body if mark.attr_key == "pragma_scope" else mark

    return structural_map(function, (tirx.AttrStmt, drop))


def schedule(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """One function, scheduled; blocks that hold loops or call foreign functions stay as they are."""
    if _SIZES.match(str((function.attrs or {}).get("global_symbol", ""))):
        return _in_order(_divide_by_none(function))
    body = function.body
    if not (isinstance(body, SBlockRealize) and body.block.name_hint == "root"):
        return function
    loops = Schedule(function)
    blocks = [loops.get(block) for block in loops.get_child_blocks(loops.get_sblock("root"))]
    if not all(map(_is_plain, blocks)):
        return function
    shared = _scheduled(function, share=True)
    if all(map(_is_known, blocks)) or any(map(_sums_products, blocks)) or not _is_shared(shared):
        return shared  # the loops of products are long, and to compile them twice takes long, too
    return _either(_has_enough_points(blocks), shared, _scheduled(function, share=False))


def _scheduled(function: tirx.PrimFunc, *, share: bool) -> tirx.PrimFunc:
    loops = Schedule(function)
    root = loops.get_sblock("root")
    for block in loops.get_child_blocks(root):
        _inline(loops, block)
    for block in loops.get_child_blocks(root):
        turns = _outer_turns(loops, block)
        _order(loops, block, share)
        if turns is not None:  # its first turn would write what the sum begins with
            loops.decompose_reduction(block, turns)
    return loops.mod["main"].with_attrs(dict(function.attrs or {}))


def _either(condition: Any, shared: tirx.PrimFunc, alone: tirx.PrimFunc) -> tirx.PrimFunc:
    """The first where a call meets the condition, the other where it does not.

    To wake threads costs as much as some thousand elements, and on a busy machine a hundred times that.
    """
    first, second = shared.body.block, alone.body.block
    others = [b for b in second.alloc_buffers if not any(b.same_as(own) for own in first.alloc_buffers)]
    root = SBlock(
        [], [], [], "root", tirx.IfThenElse(condition, first.body, second.body),
        alloc_buffers=[*first.alloc_buffers, *others],
    )  # fmt: skip
    both = shared.with_body(SBlockRealize([], True, root))
    return ConvertSSA()(IRModule({"main": both}))["main"]  # their loops have one variable


def _divide_by_none(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same sizes, with 1 for a divisor that is 0, which would end the process.

    TVM computes all sizes at once, before the check that ends a call for the 0.
    """

    def guard(quotient: Any) -> Any:
        divisor = quotient.b
        if isinstance(divisor, tirx.IntImm):
            return quotient
        zero, one = (tirx.const(n, str(divisor.ty.dtype)) for n in (0, 1))
        return type(quotient)(quotient.a, tirx.Select(tirx.EQ(divisor, zero), one, divisor))

    return structural_map(function, ((tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod), guard))


def _in_order(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The sizes of a call that TVM computes of its inputs', by their places.

    TVM has them in the order of their addresses in memory, which differs from one compilation to the next.
    """
    if not isinstance(function.body, tirx.SeqStmt):
        return function
    stores = list(function.body.seq)
    places = [_number(s.indices[0]) if isinstance(s, tirx.BufferStore) else None for s in stores]
    order = sorted((place, i) for i, place in enumerate(places) if place is not None)
    if len(order) < len(stores):
        return function
    return function.with_body(tirx.SeqStmt([stores[i] for _, i in order]))


def _is_plain(block: SBlock) -> bool:
    """Does a block only store what it computes of its axes?"""

    def stores(body: Any) -> bool:
        if isinstance(body, tirx.SeqStmt):
            return all(map(stores, body.seq))
        return isinstance(body, tirx.BufferStore | tirx.Bind)

    return bool(block.iter_vars) and stores(block.body)


def _inline(loops: Schedule, block: Any) -> None:
    """Compute a block where it is read, if that is one place that reads each element about once."""
    readers = loops.get_consumers(block)
    if len(readers) != 1 or _reduced(loops, block):
        return
    roundings = [_count_roundings(loops.get(one)) for one in (block, readers[0])]
    if all(roundings) and sum(roundings) > ROUNDINGS:
        return
    made, read = _points(loops, block), _points(loops, readers[0])
    if made is None or read is None or read <= made:
        try:
            loops.compute_inline(block)
        except ScheduleError:
            return  # such as one that writes what it reads


def _count_roundings(block: SBlock) -> int:
    """How many floats a block makes integers of."""
    casts: list[Any] = []
    structural_walk(block.body, (tirx.Cast, casts.append))
    types = [(str(cast.value.ty.dtype), str(cast.ty.dtype)) for cast in casts]
    return sum("float" in of and "int" in to for of, to in types)


def _order(loops: Schedule, block: Any, share: bool) -> None:
    """Order a block's loops, and ``share`` the outer ones where there may be enough to share."""
    axes = loops.get_loops(block)
    variables = list(loops.get(block).iter_vars)
    if len(axes) != len(variables) or not axes:
        return
    kinds = [variable.iter_type for variable in variables]
    spatial = [axis for axis, kind in zip(axes, kinds, strict=True) if kind == tirx.IterVar.DataPar]
    reduced = [axis for axis, kind in zip(axes, kinds, strict=True) if kind == tirx.IterVar.CommReduce]
    if len(spatial) + len(reduced) != len(axes) or not spatial:
        return
    points = _points(loops, block)
    if points == 0:  # TVM divides by the lengths of loops that it fuses
        return
    inner: list[Any] = []
    if reduced:
        if not (_is_short(loops, reduced) or _reduces_neighbours(loops, block)):
            spatial, inner = _split_last(loops, spatial, RUN)
        loops.reorder(*spatial, *reduced, *inner)
    elif len(spatial) > 1 and (_extent(loops, spatial[-1]) or VECTOR) >= VECTOR:
        spatial = spatial[:-1]
    else:
        spatial, inner = _split_last(loops, spatial, SHARED >> 3)
    if not share or (points is not None and points < SHARED) or not spatial:
        return
    spatial = _fusable(loops, spatial)
    loops.parallel(loops.fuse(*spatial) if len(spatial) > 1 else spatial[0])


def _fusable(loops: Schedule, axes: list[Any]) -> list[Any]:
    """The outer axes whose lengths are numbers or symbols, or the first one that is longer than 1.

    TVM multiplies lengths out, and of (n - 3) · 3 it does not see that 3 n - 9 divides it (0.27).
    """
    lengths = [loops.get(axis).extent for axis in axes]
    plain = [isinstance(length, tirx.IntImm | tirx.Var) for length in lengths]
    outer = plain.index(False) if False in plain else len(axes)
    if any(_number(length) != 1 for length in lengths[:outer]):
        return axes[:outer]
    return axes[: outer + 1]


def _outer_turns(loops: Schedule, block: Any) -> Any:
    """The outer loop of a reduction that may take no turn; None for another."""
    axes, variables = loops.get_loops(block), loops.get(block).iter_vars
    reduced = [(axis, v) for axis, v in zip(axes, variables, strict=False)
               if v.iter_type == tirx.IterVar.CommReduce]  # fmt: skip
    if len(axes) != len(variables) or all((_number(v.dom.extent) or 0) > 0 for _, v in reduced):
        return None
    return reduced[0][0]


def _split_last(loops: Schedule, axes: list[Any], most: int) -> tuple[list[Any], list[Any]]:
    """The axes with the last one in two, of which the inner one has at most so many elements."""
    extent = _extent(loops, axes[-1])
    if extent is None or extent <= most:
        return (axes[:-1], axes[-1:]) if extent is not None and len(axes) > 1 else (axes, [])
    length = next((n for n in range(most, VECTOR - 1, -1) if extent % n == 0), 0)
    if not length:
        return axes, []
    outer, within = loops.split(axes[-1], [None, length])
    return [*axes[:-1], outer], [within]


def _is_short(loops: Schedule, axes: list[Any]) -> bool:
    lengths = [_extent(loops, axis) for axis in axes]
    return None not in lengths and prod(n for n in lengths if n is not None) <= SHORT


def _reduces_neighbours(loops: Schedule, block: Any) -> bool:
    """Are the elements that are reduced neighbours in memory, and none of those that neighbours read?"""
    found = loops.get(block)
    over = [v.var for v in found.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    last = [v.var for v in found.iter_vars if v.iter_type == tirx.IterVar.DataPar][-1:]
    lasts = [read.region[-1].min for read in found.reads if len(read.region)]
    return any(_uses(i, over) for i in lasts) and not any(_uses(i, last) for i in lasts)


def _uses(expr: Any, variables: list[Any]) -> bool:
    return any(found.same_as(v) for found in tirx.analysis.undefined_vars(expr) for v in variables)


def _reduced(loops: Schedule, block: Any) -> bool:
    return _sums(loops.get(block))


def _sums(block: SBlock) -> bool:
    return any(v.iter_type != tirx.IterVar.DataPar for v in block.iter_vars)


def _sums_products(block: SBlock) -> bool:
    """Does a block reduce several tensors, as a convolution does, and not one, as an argmax does?"""
    return _sums(block) and len(block.reads) > 1


def _points(loops: Schedule, block: Any) -> int | None:
    """How often a block's body runs; None where only a call knows."""
    lengths = [_number(v.dom.extent) for v in loops.get(block).iter_vars]
    known = [length for length in lengths if length is not None]
    return prod(known) if len(known) == len(lengths) or 0 in known else None


def _is_known(block: SBlock) -> bool:
    return all(_number(v.dom.extent) is not None for v in block.iter_vars)


def _has_enough_points(blocks: list[SBlock]) -> Any:
    """Does the body of a block, that of the largest, run often enough at a call to share its loop?

    The count is compared as a float.  Of whole numbers TVM would conclude that n < 1 where n · 98304 is not
    enough, and end at the divisor n · 32 of such a branch.
    """
    extents = [[v.dom.extent.astype("int64") for v in block.iter_vars] for block in blocks]
    points = reduce(tirx.max, [prod(of_one, start=tirx.IntImm("int64", 1)) for of_one in extents])
    return points.astype("float32") >= tirx.const(float(SHARED), "float32")


def _extent(loops: Schedule, axis: Any) -> int | None:
    return _number(loops.get(axis).extent)


def count_shared(module: IRModule) -> int:
    """How many functions of a module have loops that threads share."""
    return sum(
        isinstance(function, tirx.PrimFunc) and _is_shared(function)
        for _, function in module.functions_items()
    )


def _is_shared(function: tirx.PrimFunc) -> bool:
    return "T.parallel(" in function.script()


def _number(expr: Any) -> int | None:
    return int(expr) if isinstance(expr, tirx.IntImm) else None
