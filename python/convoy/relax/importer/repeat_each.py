"""Slices of a tensor, each as often as a run says: what ``repeats.py`` finds loops to compute."""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.script import tirx as T

from convoy.relax.checks import check
from convoy.relax.importer.late import expect_none, read_sizes


def convert_repeats(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """The slices; a call ends where one is to be taken less than no time."""
    x, repeats = inputs
    axis = int(attrs["axis"])
    size, (count,) = bb.algebra.sizes(x)[axis], bb.algebra.sizes(repeats)
    if not bb.algebra.same(size, count):
        check(bb, [size], [count])
    repeats = bb.emit(relax.op.astype(repeats, "int64"))
    expect_none(bb, bb.emit_te(_count_faults, repeats))
    length = read_sizes(bb, bb.emit_te(_add_up, repeats), 1).values[0]
    places = bb.emit(
        relax.call_tir(
            bb.add_func(_list_places(), "list_places"), [repeats], relax.TensorType([length], "int64")
        )
    )
    return relax.op.take(x, places, axis)


def _add_up(repeats: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, repeats.shape[0]), "k")
    return te.compute((1,), lambda _: te.sum(repeats(k), k), name="added")


def _count_faults(repeats: te.Tensor) -> te.Tensor:
    k, (one, zero) = te.reduce_axis((0, repeats.shape[0]), "k"), (tirx.const(n, "int64") for n in (1, 0))
    return te.compute((1,), lambda _: te.sum(tirx.Select(repeats(k) < 0, one, zero), k), name="faults")


def _list_places() -> tirx.PrimFunc:
    """Each place as often as is said; no more than there is room for, where their sum did not fit."""

    @T.prim_func(private=True, s_tir=True)
    def list_places(repeats_: T.handle, made_: T.handle):
        T.func_attr({"tirx.noalias": True})
        N = T.int64()
        L = T.int64()
        repeats = T.match_buffer(repeats_, (N,), "int64")
        made = T.match_buffer(made_, (L,), "int64")
        begin = T.alloc_buffer((1,), "int64", scope="local")
        begin[0] = T.int64(0)
        for place in range(N):
            for i in range(tirx.min(repeats[place], L - begin[0])):
                made[begin[0] + i] = place
            begin[0] = begin[0] + tirx.min(repeats[place], L - begin[0])

    return list_places
