"""NonMaxSuppression as ONNX Runtime computes it, of any number of boxes.

TVM's own takes a box for covered where the overlap equals the threshold, finds none by a threshold of 0,
and takes no score below 0, and no number of boxes or threshold that a call is fed (0.27).
"""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script import tirx as T

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.agree import cast
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.late import expect_none, read_sizes
from convoy.relax.importer.node_error import NodeError

CORNERS = ((1, 3), (0, 2))
"""Places of two opposite corners in a box, along x and along y."""


def convert_suppression(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """The best boxes of each class that no better one covers, as [number, (image, class, box)]."""
    boxes, scores, *given = [*inputs, None, None, None][:5]
    if boxes.ty.ndim != 3 or scores.ty.ndim != 3 or str(boxes.ty.dtype) != "float32":
        return None
    (images, count, _), (_, classes, _) = (bb.algebra.sizes(x) for x in (boxes, scores))
    if not all(
        bb.algebra.same(a, b) for a, b in zip(bb.algebra.sizes(scores)[::2], (images, count), strict=True)
    ):
        scores = cast(bb, scores, [images, classes, count])
    defaults = np.array([0], "int64"), np.zeros(1, "float32"), np.full(1, -math.inf, "float32")
    for name, x in zip(("largest number of boxes", "overlap", "least score"), given, strict=True):
        if x is not None and math.prod(static_shape(x) or [1]) != 1:
            raise NodeError(
                f"expected one number as the {name}, got the shape {static_shape(x)}", "give it alone"
            )
    most, overlap, least = (
        constant(default)
        if x is None
        else bb.emit(relax.op.reshape(bb.emit(relax.op.astype(x, str(default.dtype))), [1]))
        for x, default in zip(given, defaults, strict=True)
    )
    if given[1] is not None:
        _check_overlap(bb, given[1], overlap)
    find = bb.add_func(_find(bool(attrs.get("center_point_box", 0)), given[2] is not None), "find_boxes")
    rows = bb.algebra.multiply(images, classes)
    kinds = [
        relax.TensorType([rows, _most_of(count, given[0])], "int64"),
        relax.TensorType([rows], "int64"),
    ]
    kinds.append(relax.TensorType([rows, count], "int64"))  # to work with
    made = bb.emit(relax.call_tir(find, [boxes, scores, most, overlap, least], kinds))
    chosen, counts = (bb.emit(relax.TupleGetItem(made, i)) for i in (0, 1))
    total = read_sizes(bb, bb.emit(relax.op.sum(counts, keepdims=True)), 1)
    ends = bb.emit(relax.op.cumsum(counts, 0))
    listed = relax.TensorType([*total.values, 3], "int64")
    return relax.call_tir(bb.add_func(_list_boxes(), "list_boxes"), [scores, chosen, counts, ends], listed)


def _most_of(count: Any, given: Any) -> Any:
    """How many of so many boxes are taken at most, as far as that is known."""
    if is_constant(given) and isinstance(count, int):
        (most,) = given.value.numpy().reshape(-1)[:1].tolist()
        return min(count, max(1, most))
    return count


def _check_overlap(bb: Any, given: Any, overlap: Any) -> None:
    if not is_constant(given):
        expect_none(bb, bb.emit_te(_outside, overlap))
        return
    (part,) = given.value.numpy().reshape(-1)[:1]
    if not 0 <= part <= 1:
        raise NodeError(f"expected an overlap from 0 to 1, got {part}", "correct the threshold")


def _outside(overlap: te.Tensor) -> te.Tensor:
    """1 where the overlap is no part from 0 to 1."""

    def wrong(i: Any) -> Any:
        part = overlap(i)
        return tirx.any(tirx.isnan(part), part < T.float32(0), part > T.float32(1)).astype("int64")

    return te.compute((1,), wrong, name="outside")


def _sides(boxes: Any, image: Any, box: Any, centered: bool) -> list[tuple[Any, Any]]:
    """Where a box begins and ends, along x and along y."""
    if centered:
        half = [boxes[image, box, 2 + i] / T.float32(2) for i in range(2)]
        return [(boxes[image, box, i] - half[i], boxes[image, box, i] + half[i]) for i in range(2)]
    corners = [tuple(boxes[image, box, place] for place in places) for places in CORNERS]
    return [(tirx.min(a, b), tirx.max(a, b)) for a, b in corners]


def _covers(boxes: Any, image: Any, one: Any, other: Any, overlap: Any, centered: bool) -> Any:
    """Is what two boxes share more than this part of what they cover together?"""
    first, second = (_sides(boxes, image, box, centered) for box in (one, other))
    width, height = (
        tirx.min(a[1], b[1]) - tirx.max(a[0], b[0]) for a, b in zip(first, second, strict=True)
    )
    areas = [(x[1] - x[0]) * (y[1] - y[0]) for x, y in (first, second)]
    shared = width * height
    union = areas[0] + areas[1] - shared
    zero = T.float32(0)
    real = [side > zero for side in (shared, *areas, union)]
    # with NaN TVM's comparisons are true, and ONNX Runtime's are not
    covered = tirx.all(*real, tirx.Not(tirx.isnan(shared / union)), shared / union > overlap)
    # most boxes share nothing
    return T.if_then_else(tirx.all(width > zero, height > zero), covered, T.bool(False))


def _better(scores: Any, row: Any, one: Any, other: Any) -> Any:
    """Does a box come before another: of equal scores the first?"""
    classes = scores.shape[1]
    a, b = (scores[row // classes, row % classes, box] for box in (one, other))
    return tirx.any(a > b, tirx.all(a == b, one < other))


def _find(centered: bool, bounded: bool) -> tirx.PrimFunc:
    """For each class of each image its boxes, and how many.

    ``heap`` holds those that are left, the best in front: few are looked at where a class has its boxes
    early.  A box is compared with those that were taken, until one covers it.
    """
    passes = (lambda score, least: score > least) if bounded else (lambda *_: tirx.const(True))
    covers = lambda *of: _covers(*of, centered)  # noqa: E731 - what TVMScript calls
    better = _better

    @T.prim_func(private=True, s_tir=True)
    def find(
        boxes_: T.handle,
        scores_: T.handle,
        most: T.Buffer((1,), "int64"),
        overlap: T.Buffer((1,), "float32"),
        least: T.Buffer((1,), "float32"),
        chosen_: T.handle,
        counts_: T.handle,
        heap_: T.handle,
    ):
        T.func_attr({"tirx.noalias": True})
        B = T.int64()
        C = T.int64()
        N = T.int64()
        K = T.int64()
        boxes = T.match_buffer(boxes_, (B, N, 4), "float32")
        scores = T.match_buffer(scores_, (B, C, N), "float32")
        chosen = T.match_buffer(chosen_, (B * C, K), "int64")
        counts = T.match_buffer(counts_, (B * C,), "int64")
        heap = T.match_buffer(heap_, (B * C, N), "int64")
        for row in T.parallel(B * C):
            left = T.alloc_buffer((1,), "int64", scope="local")
            unsorted = T.alloc_buffer((1,), "int64", scope="local")  # places in front that are no heap yet
            place = T.alloc_buffer((1,), "int64", scope="local")
            child = T.alloc_buffer((1,), "int64", scope="local")
            sinking = T.alloc_buffer((1,), "int64", scope="local")
            best = T.alloc_buffer((1,), "int64", scope="local")  # -1: the heap is still being made
            compared = T.alloc_buffer((1,), "int64", scope="local")
            left[0] = T.int64(0)
            for i in range(N):
                if passes(scores[row // C, row % C, i], least[0]):
                    heap[row, left[0]] = i
                    left[0] = left[0] + T.int64(1)
            counts[row] = T.int64(0)
            unsorted[0] = left[0] // T.int64(2)
            while unsorted[0] > T.int64(0) or (left[0] > T.int64(0) and counts[row] < T.min(most[0], K)):
                best[0] = T.int64(-1)
                if unsorted[0] > T.int64(0):
                    unsorted[0] = unsorted[0] - T.int64(1)
                    place[0] = unsorted[0]
                    sinking[0] = heap[row, unsorted[0]]
                else:
                    best[0] = heap[row, 0]
                    left[0] = left[0] - T.int64(1)
                    place[0] = T.int64(0)
                    sinking[0] = heap[row, left[0]]
                child[0] = place[0] * T.int64(2) + T.int64(1)
                while child[0] < left[0]:
                    if T.if_then_else(  # what "and" joins is computed both
                        child[0] + T.int64(1) < left[0],
                        better(scores, row, heap[row, child[0] + T.int64(1)], heap[row, child[0]]),
                        T.bool(False),
                    ):
                        child[0] = child[0] + T.int64(1)
                    if better(scores, row, heap[row, child[0]], sinking[0]):
                        heap[row, place[0]] = heap[row, child[0]]
                        place[0] = child[0]
                        child[0] = place[0] * T.int64(2) + T.int64(1)
                    else:
                        child[0] = left[0]
                heap[row, place[0]] = sinking[0]
                if best[0] >= T.int64(0):
                    compared[0] = T.int64(0)
                    while T.if_then_else(
                        compared[0] < counts[row],
                        T.Not(covers(boxes, row // C, chosen[row, compared[0]], best[0], overlap[0])),
                        T.bool(False),
                    ):
                        compared[0] = compared[0] + T.int64(1)
                    if compared[0] == counts[row]:
                        chosen[row, counts[row]] = best[0]
                        counts[row] = counts[row] + T.int64(1)

    return find


def _list_boxes() -> tirx.PrimFunc:
    """The boxes of all classes, one after the other.

    It is made when it is needed: TVMScript reads its callers' sources, a quarter of a second in an import.
    """

    @T.prim_func(private=True, s_tir=True)
    def list_boxes(
        scores_: T.handle, chosen_: T.handle, counts_: T.handle, ends_: T.handle, made_: T.handle
    ):
        T.func_attr({"tirx.noalias": True})
        B = T.int64()
        C = T.int64()
        N = T.int64()
        K = T.int64()
        M = T.int64()
        scores = T.match_buffer(scores_, (B, C, N), "float32")  # noqa: F841 - tells C
        chosen = T.match_buffer(chosen_, (B * C, K), "int64")
        counts = T.match_buffer(counts_, (B * C,), "int64")
        ends = T.match_buffer(ends_, (B * C,), "int64")
        made = T.match_buffer(made_, (M, 3), "int64")
        for row in range(B * C):
            for i in range(counts[row]):
                made[ends[row] - counts[row] + i, 0] = row // C
                made[ends[row] - counts[row] + i, 1] = row % C
                made[ends[row] - counts[row] + i, 2] = chosen[row, i]

    return list_boxes
