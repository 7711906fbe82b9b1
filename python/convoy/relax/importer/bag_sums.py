"""The sums, or means, of bags of rows: what ``bags.py`` finds loops to compute."""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T


def convert_bags(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """A row for each bag."""
    rows, starts, ends = inputs
    (count,) = bb.algebra.sizes(ends)
    if not bb.algebra.same(bb.algebra.sizes(starts)[0], count):
        # where there are too few of them the call ends, as a step would end it
        places = bb.emit(
            relax.op.arange(0, tirx.IntImm("int64", count) if isinstance(count, int) else count)
        )
        starts = bb.emit(relax.op.take(starts, places, 0))
    bounds = [bb.emit(relax.op.astype(x, "int64")) for x in (starts, ends)]
    made = relax.TensorType([count, bb.algebra.sizes(rows)[1]], rows.ty.dtype)
    add = bb.add_func(_add_rows(str(rows.ty.dtype), bool(attrs["mean"])), "add_rows")
    return relax.call_tir(add, [rows, *bounds], made)


def _add_rows(dtype: str, mean: bool) -> tirx.PrimFunc:
    """The rows of each bag, one after the other; bounds are those of a slice, and the mean of none is 0."""
    within = lambda bound, count: tirx.max(  # noqa: E731 - what TVMScript calls
        tirx.min(tirx.Select(bound < 0, bound + count, bound), count), T.int64(0)
    )

    @T.prim_func(private=True, s_tir=True)
    def add_rows(rows_: T.handle, starts_: T.handle, ends_: T.handle, made_: T.handle):
        T.func_attr({"tirx.noalias": True})
        B = T.int64()
        D = T.int64()
        N = T.int64()
        rows = T.match_buffer(rows_, (N, D), dtype)
        starts = T.match_buffer(starts_, (B,), "int64")
        ends = T.match_buffer(ends_, (B,), "int64")
        made = T.match_buffer(made_, (B, D), dtype)
        for bag in T.parallel(B):
            bounds = T.alloc_buffer((2,), "int64", scope="local")  # the first row, and how many
            bounds[0] = within(starts[bag], N)
            bounds[1] = tirx.max(within(ends[bag], N) - bounds[0], T.int64(0))
            for d in range(D):
                made[bag, d] = T.cast(0, dtype)
            for i in range(bounds[1]):
                for d in range(D):
                    made[bag, d] = made[bag, d] + rows[bounds[0] + i, d]
            if mean:
                for d in range(D):
                    made[bag, d] = made[bag, d] / T.cast(tirx.max(bounds[1], T.int64(1)), dtype)

    return add_rows
