"""TopK: a heap of the best so far, where TVM sorts all there are (0.27).

Of 1.4 million scores of a detector the best 1000 took half a second.
"""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T

from convoy.relax.importer.late import expect_least
from convoy.relax.importer.reshape import read_whole
from convoy.relax.rewriting import APART

FEW = 4
"""More than a part of so many of all numbers are sorted as soon as a heap of them is made."""
SORTED = frozenset({"float32", "float64", "int8", "uint8", "int32", "int64"})
"""Types that TVM sorts, and a heap takes."""
HEAPED = SORTED | {"int16", "uint16", "uint32", "uint64"}


def convert_top(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """The largest or smallest along an axis, and where they are; of equal ones the first."""
    attrs["sorted"] = 1  # what may come in any order may be in order, too; TVM's frontend takes no other
    x, count = inputs[0], read_whole(inputs[1])
    shape, dtype = bb.algebra.sizes(x), str(x.ty.dtype)
    if count is None or shape is None or len(count) != 1 or dtype not in HEAPED:
        return None
    axis, k, largest = attrs.get("axis", -1) % len(shape), count[0], bool(attrs.get("largest", 1))
    if isinstance(k, int) and k == 0:  # TVM takes all then, and its reshape reads a 0 as a length of x
        none = bb.normalize(relax.op.strided_slice(x, [axis], [0], [0]))
        return relax.Tuple([none, bb.normalize(relax.op.astype(none, "int64"))])
    fixed = all(isinstance(n, int) for n in (k, shape[axis]))
    if dtype in SORTED and fixed and k * FEW > shape[axis]:
        return None
    expect_least(bb, count)
    expect_least(bb, [bb.algebra.subtract(shape[axis], k)])
    last = [*(a for a in range(len(shape)) if a != axis), axis]
    outer = [shape[a] for a in last[:-1]]
    rows = bb.algebra.simplify(prod(outer))
    x = x if axis == last[axis] else bb.emit(relax.op.permute_dims(x, last))
    x = bb.emit(relax.op.reshape(x, relax.ShapeExpr([rows, shape[axis]])))
    find = bb.add_func(_find(dtype, largest), "find_top")
    kinds = [relax.TensorType([rows, k], kind) for kind in (dtype, "int64")]
    made = bb.emit(relax.call_tir(find, [x], kinds))
    back = [last.index(a) for a in range(len(shape))]
    results = []
    for i in range(2):
        part = bb.emit(relax.TupleGetItem(made, i))
        part = bb.emit(relax.op.reshape(part, relax.ShapeExpr([*outer, k])))
        results.append(part if axis == last[axis] else bb.emit(relax.op.permute_dims(part, back)))
    return relax.Tuple(results)


def _find(dtype: str, largest: bool) -> tirx.PrimFunc:
    """The best of each row, in order.

    Their places are a heap, the worst of them at its root: first the places of a row's first numbers; then
    each better one takes the root's place; at last roots are put behind what is left, one by one.
    """

    def beats(x: Any, row: Any, one: Any, other: Any) -> Any:
        a, b = x[row, one], x[row, other]
        return tirx.any(a > b if largest else a < b, tirx.all(a == b, one < other))

    @T.prim_func(private=True, s_tir=True)
    def find(x_: T.handle, best_: T.handle, places_: T.handle):
        T.func_attr({"tirx.noalias": True})
        R = T.int64()
        N = T.int64()
        K = T.int64()
        x = T.match_buffer(x_, (R, N), dtype)
        best = T.match_buffer(best_, (R, K), dtype)
        places = T.match_buffer(places_, (R, K), "int64")
        with T.sblock("root"):  # TVM looks whether a function of one tensor is a reshape: of blocks
            for row in T.parallel(R):
                # an item, its place, a child's, and the heap's end
                state = T.alloc_buffer((4,), "int64", scope="local")
                for i in range(K):
                    places[row, i] = i
                for i in range(K // 2 + N):
                    state[3] = K
                    if i < K // 2:  # a heap of the first
                        state[1] = K // 2 - T.int64(1) - i
                        state[0] = places[row, state[1]]
                    elif i < K // 2 + N - K:  # the others
                        state[0] = i - K // 2 + K
                        state[1] = T.int64(0)
                        state[3] = T.int64(-1)
                        if T.int64(0) < K:  # noqa: SIM102 - a condition of both would read one of none, too
                            if beats(x, row, state[0], places[row, 0]):
                                state[3] = K
                    else:  # in order
                        state[3] = K // 2 + N - i - T.int64(1)
                        state[0] = places[row, state[3]]
                        state[1] = T.int64(0)
                        places[row, state[3]] = places[row, 0]
                    if state[3] >= T.int64(0):
                        state[2] = state[1] * T.int64(2) + T.int64(1)
                        while state[2] < state[3]:
                            if state[2] + T.int64(1) < state[3]:  # noqa: SIM102 - as above
                                if beats(x, row, places[row, state[2]], places[row, state[2] + T.int64(1)]):
                                    state[2] = state[2] + T.int64(1)
                            if beats(x, row, state[0], places[row, state[2]]):
                                places[row, state[1]] = places[row, state[2]]
                                state[1] = state[2]
                                state[2] = state[1] * T.int64(2) + T.int64(1)
                            else:
                                state[2] = state[3]
                        places[row, state[1]] = state[0]
                for i in range(K):
                    best[row, i] = x[row, places[row, i]]

    return find.with_attrs(APART)
