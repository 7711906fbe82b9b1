"""Sizes that have to be equal, where no arithmetic shows that they are: a call checks it.

Relax forgets the shape of what it makes of such tensors.  Here one gets the sizes of the other, which a
call proves or refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from convoy.relax.checks import check, expect
from convoy.relax.dataflow import op_name
from convoy.relax.importer.multiples import MULTIPLES, Multiple, find_multiple
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.sizes import Algebra
from convoy.relax.importer.sizes.algebra import Filled
from convoy.relax.shortage import Shortage

BROADCASTING = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "PRelu"),
        *(
            "Equal",
            "Less",
            "LessOrEqual",
            "Greater",
            "GreaterOrEqual",
            "Where",
            "Max",
            "Min",
            "Sum",
            "Mean",
        ),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    }
)


class Settled(Exception):
    """An open size of an input that no call may have otherwise than as this number."""

    def __init__(self, symbol: str, size: int) -> None:
        super().__init__(symbol)
        self.symbol = symbol
        self.size = size


def agree(bb: Any, op: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Let the inputs of a node have sizes that are equal, or of which one broadcasts."""
    algebra: Algebra = bb.algebra
    tensors = [i for i, x in enumerate(inputs) if x is not None and isinstance(x.ty, relax.TensorType)]
    shapes = [algebra.sizes(inputs[i]) for i in tensors]
    if len(tensors) < 2 or any(s is None for s in shapes):
        return
    known = [s for s in shapes if s is not None]
    if all(isinstance(d, int) for s in known for d in s):
        return
    rank = max(map(len, known))
    if op in BROADCASTING:
        for i, shape in zip(tensors, known, strict=True):
            inputs[i] = _settle_single(bb, inputs[i], shape, known)
        rows = [[1] * (rank - len(s)) + s for s in known]
        whole = [common_size(algebra, [row[a] for row in rows], broadcast=True) for a in range(rank)]
    elif op == "Concat" and all(len(s) == rank for s in known):
        along = attrs.get("axis", 0) % rank
        whole = [None if a == along else common_size(algebra, [s[a] for s in known]) for a in range(rank)]
    elif op in ("MatMul", "Gemm") and tensors[:2] == [0, 1]:
        _fit_factors(bb, inputs, known, attrs)
        return
    else:
        return
    for i, shape in zip(tensors, known, strict=True):
        inputs[i] = fit(bb, inputs[i], shape, whole[rank - len(shape) :], op != "Concat")


def _settle_single(bb: Any, x: Any, shape: list[Any], shapes: Sequence[list[Any]]) -> Any:
    """A tensor whose lengths of at most 1, as of the last row of another, are 1 where others are longer.

    A call checks that they are no 0.
    """
    algebra: Algebra = bb.algebra
    before = list(shape)
    for axis, length in enumerate(before):
        behind = len(shape) - axis
        others = [s[-behind] for s in shapes if len(s) >= behind]
        if not isinstance(length, int) and algebra.at_least(1, length):
            shape[axis] = 1 if any(not algebra.at_least(1, other) for other in others) else length
    return x if all(a is b for a, b in zip(shape, before, strict=True)) else cast(bb, x, shape)


def cast(bb: Any, x: Any, dims: Sequence[Any]) -> Any:
    """The same tensor with sizes that have to be its own, which a call checks.

    What is resized is resized to them, so that nothing stands between it and what reads it.

    Raises
    ------
    Settled
        If an open size of an input has to be a number: the model is then read with that number.
    Multiple
        If one has to be a multiple of a number.
    """
    for pair in zip(bb.algebra.sizes(x), dims, strict=True):
        for symbol, size in (pair, pair[::-1]):
            if isinstance(symbol, tirx.Var) and symbol in bb.algebra.given and _is_size(size):
                given, times = bb.algebra.given[symbol]
                raise Settled(given, times * int(size))
        multiple = find_multiple(*pair)
        if multiple is not None and multiple[0] in bb.algebra.given:
            given, times = bb.algebra.given[multiple[0]]
            if times * multiple[1] in MULTIPLES:
                raise Multiple(given, times * multiple[1])
    made = bb.lookup_binding(x) if isinstance(x, relax.Var) else None
    if made is not None and op_name(made) == "image.resize2d" and str(made.attrs.layout) == "NCHW":
        before = list(made.args[1].values)
        check(bb, before, dims[2:])
        attrs = {key: getattr(made.attrs, key) for key in _RESIZE}
        return bb.emit(relax.op.image.resize2d(made.args[0], relax.ShapeExpr(list(dims[2:])), **attrs))
    before, written = bb.algebra.sizes(x), x.ty.shape.values
    if any(isinstance(d, tirx.Var) and not d.same_as(w) for d, w in zip(dims, written, strict=True)):
        # by a cast TVM writes the size in place of the symbol: again and again, if the symbol is part of it
        if not all(map(bb.algebra.same, dims, before)):
            check(bb, before, dims)
        return bb.emit(relax.op.reshape(x, relax.ShapeExpr(list(dims))))
    return bb.match_cast(x, relax.TensorType(list(dims), x.ty.dtype))


def _is_size(size: Any) -> bool:
    return isinstance(size, int | tirx.IntImm) and int(size) > 0


_RESIZE = (
    *("layout", "method", "coordinate_transformation_mode", "rounding_method"),
    *("cubic_alpha", "cubic_exclude", "extrapolation_value"),
)


def require(
    module: tvm.IRModule, filled: Sequence[Filled], learned: Mapping[tirx.Var, tuple[Any, str]]
) -> tvm.IRModule:
    """The module with a call of its ``main`` ended where all of some sizes are 0.

    Where a symbol is, or the size that was learned of it: that is told with what the size is of.
    """
    apart = {sizes[0] for sizes in filled if len(sizes) == 1} | learned.keys()
    needed = [sizes for sizes in filled if len(sizes) == 1 or apart.isdisjoint(sizes)]
    shortages = [Shortage(reduce(add, sizes), 1) for sizes in needed if sizes[0] not in learned]
    shortages += [Shortage(size, 1, of) for size, of in learned.values()]
    if not shortages:
        return module
    bb = relax.BlockBuilder(module)
    bb._begin_binding_block()
    expect(bb, [(shortage.holds, shortage.words) for shortage in shortages])
    block = bb._end_block()
    main = module["main"]
    body = relax.SeqExpr([block, *main.body.blocks], main.body.body)
    made = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    bb.update_func(module.get_global_var("main"), made)
    return bb.get()


def settle(bb: Any, x: Any) -> Any:
    """The same tensor, of new symbols where its sizes are unknown."""
    type_ = x.ty
    if not isinstance(type_, relax.TensorType) or type_.ndim < 0 or bb.algebra.sizes(x) is not None:
        return x
    return bb.match_cast(x, relax.TensorType(bb.algebra.new_sizes(type_.ndim), type_.dtype))


def common_size(algebra: Algebra, dims: Sequence[Any], *, broadcast: bool = False) -> Any:
    """The size that all have; of several that may be it a number, else the shortest expression.

    Raises
    ------
    NodeError
        Where two of them are different numbers.
    """
    others = [d for d in dims if not (broadcast and isinstance(d, int) and d == 1)]
    if not others:
        return 1
    numbers = sorted({d for d in others if isinstance(d, int)})
    if len(numbers) > 1:
        either = "sizes that are equal or 1" if broadcast else "equal sizes"
        raise NodeError(f"expected {either}, got {' and '.join(map(str, numbers))}", "correct the shapes")
    best = min(others, key=lambda d: (not isinstance(d, int), len(str(d))))
    apart = [d for d in others if not algebra.same(d, best)]
    if broadcast and not isinstance(best, int):
        for d in apart:
            best = best if _related(d, best) else algebra.most(best, d)
    return best


def _fit_factors(bb: Any, inputs: list[Any], shapes: Sequence[list[Any]], attrs: dict[str, Any]) -> None:
    """The columns of one factor are the rows of the other; what is in front of them broadcasts.

    So does the matrix that a Gemm adds.
    """
    algebra: Algebra = bb.algebra
    left, right, *added = ([*shape] for shape in shapes)
    inner = [-2 if attrs.get("transA", 0) else -1, -1 if attrs.get("transB", 0) or len(right) < 2 else -2]
    if isinstance(right[inner[1]], int):
        left[inner[0]] = right[inner[1]]
    else:
        right[inner[1]] = left[inner[0]]
    for axis, factor, along in ((-2, left, inner[0]), (-1, right, inner[1])) if added else ():
        size = added[0][axis] if len(added[0]) >= -axis else 1
        if isinstance(size, int) and size != 1:
            factor[-3 - along] = size
    for i, sizes in enumerate((left, right)):
        if not all(algebra.same(d, b) for d, b in zip(sizes, shapes[i], strict=True)):
            inputs[i] = cast(bb, inputs[i], sizes)
    rank = max(len(left), len(right), 2) - 2
    batches = [[1] * (rank - len(s[:-2])) + s[:-2] for s in (left, right)]
    whole = [common_size(algebra, sizes, broadcast=True) for sizes in zip(*batches, strict=True)]
    for i, sizes in enumerate((left, right)):
        if outer := len(sizes[:-2]):
            inputs[i] = fit(bb, inputs[i], sizes, [*whole[rank - outer :], None, None], True)
    if added:
        made = [left[-3 - inner[0]], right[-3 - inner[1]]]
        inputs[2] = fit(bb, inputs[2], added[0], made[2 - len(added[0]) :], True)


def fit(bb: Any, x: Any, shape: Sequence[Any], whole: Sequence[Any], broadcast: bool) -> Any:
    algebra: Algebra = bb.algebra
    wrong = [
        a
        for a, (d, own, w) in enumerate(zip(shape, x.ty.shape.values, whole, strict=True))
        if w is not None and not _seen_equal(own, w) and not (broadcast and isinstance(d, int) and d == 1)
    ]
    stretched = [
        a
        for a in wrong
        if broadcast
        and not algebra.same(shape[a], whole[a])
        and (isinstance(whole[a], tirx.Max) or not _related(shape[a], whole[a]))
    ]
    equal = [a for a in wrong if a not in stretched and not isinstance(shape[a], int)]
    if stretched:
        x = stretch(bb, x, shape, {a: whole[a] for a in stretched})
        shape = [whole[a] if a in stretched else d for a, d in enumerate(shape)]
    if equal:
        x = cast(bb, x, [whole[a] if a in equal else d for a, d in enumerate(shape)])
    return x


def _seen_equal(a: Any, b: Any) -> bool:
    """Does TVM see that sizes are equal?  Of others it makes a tensor of unknown shape."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(
        Analyzer().can_prove_equal(*(tirx.IntImm("int64", n) if isinstance(n, int) else n for n in (a, b)))
    )


def stretch(bb: Any, x: Any, shape: Sequence[Any], whole: dict[int, Any]) -> Any:
    """Repeat ``x`` along axes of which only a call tells whether they are 1 long."""
    for axis, size in whole.items():
        d = shape[axis]
        if not isinstance(d, int):
            whole_size = tirx.IntImm("int64", size) if isinstance(size, int) else size
            check(bb, [tirx.Select(tirx.EQ(d, tirx.IntImm("int64", 1)), whole_size, d)], [size])
    sizes = [whole.get(a, d) for a, d in enumerate(shape)]

    def compute(x: Any, sizes: Any) -> Any:
        def pick(*at: Any) -> Any:
            one = [tirx.if_then_else(x.shape[a] == 1, 0, i) if a in whole else i for a, i in enumerate(at)]
            return x(*one)

        return te.compute(sizes, pick, name="stretch")

    return bb.emit_te(compute, x, relax.ShapeExpr(sizes), primfunc_name_hint="stretch")


def _related(a: Any, b: Any) -> bool:
    """Do two sizes depend on one open size, or is one of them a number of another kind?"""
    return bool(_symbols(a) & _symbols(b))


def _symbols(size: Any) -> set[str]:
    return set() if isinstance(size, int) else {str(v.name) for v in tirx.analysis.undefined_vars(size)}
