"""Sizes that have to be so or so large: a call that gives others ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from convoy.offload.names import stem
from convoy.relax.dataflow import CHECK, number
from convoy.relax.rewriting import APART
from convoy.relax.shortage import Shortage


def check(builder: Any, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """End a call where these numbers are not those."""
    # a symbol is no pattern: TVM would take it for defined again, by itself
    pairs = [(w, f) if isinstance(w, tirx.Var) else (f, w) for f, w in zip(found, wanted, strict=True)]
    pairs = [(f - w, 0) if isinstance(w, tirx.Var) else (f, w) for f, w in pairs]
    shape = builder.emit(relax.ShapeExpr([f for f, _ in pairs]))  # TVM computes none that stand in the cast
    builder.match_cast(shape, relax.ShapeType([w for _, w in pairs]))


def expect(builder: Any, conditions: Sequence[tuple[Any, str]]) -> None:
    """End a call where one of these conditions on its sizes does not hold, with the words beside it."""
    asserted = builder.emit(assert_all(builder, conditions))
    builder.match_cast(builder.emit(relax.op.tensor_to_shape(asserted)), relax.ShapeType([0]))


def assert_all(builder: Any, conditions: Sequence[tuple[Any, str]]) -> Call:
    """A call that ends with the words of a condition that does not hold, and gives [0] else."""

    def compute(holding: Sequence[Any]) -> te.Tensor:
        def build(_: Any, made: Any) -> Any:
            with IRBuilder() as written:
                with T.serial(0, 1):
                    for condition, (_, words) in zip(holding, conditions, strict=True):
                        with T.Assert(condition, words):
                            T.evaluate(0)
                    T.buffer_proxy(made[0])[0] = tirx.IntImm("int64", 0)
                return written.get()

        return te.extern([[1]], [], build, dtype="int64", name="expected")

    given = [condition for condition, _ in conditions]
    return builder.call_te(compute, given, primfunc_name_hint=CHECK, primfunc_attrs={**APART, CHECK: 1})


def check_filled(builder: Any, sizes: Sequence[Any]) -> None:
    """End a call where one of these sizes is 0."""
    check_least(builder, sizes, 1)


def check_least(builder: Any, sizes: Sequence[Any], least: int, of: str = "") -> None:
    """End a call where one of these sizes, ``of`` what it says, is smaller."""
    shortages = [Shortage(size, least, of) for size in sizes]
    expect(builder, [(shortage.holds, shortage.words) for shortage in shortages])


def check_extents(builder: relax.BlockBuilder, call: Call, name: str) -> None:
    """End a call of the network where one of TVM's ops would read behind a tensor too short for it."""
    if call.args[0].ty.shape is None or not hasattr(call.args[0].ty.shape, "values"):
        return
    known = Analyzer()
    for size, least in NEEDED[name](call, list(call.args[0].ty.shape.values)):
        if number(size) is None and not known.can_prove(size >= least):
            check_least(builder, [size], least, f"which {stem(name)} needs")


def _largest(call: Call, sizes: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    yield sizes[int(call.attrs.axis)], max(int(call.attrs.k), 0)


def _places(call: Call, sizes: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    axis = call.attrs.axis
    for size in sizes if axis is None else [sizes[int(axis)]]:
        yield size, 1


def _pixels(call: Call, sizes: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    layout = str(call.attrs.layout)
    for axis, size in zip(layout, sizes, strict=False):
        if axis in "DHW":
            yield size, 1


def _padded(call: Call, sizes: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """A mirror image has as many rows as the image, less the one it is mirrored at."""
    mode, widths = str(call.attrs.pad_mode), [int(w) for w in call.attrs.pad_width]
    for size, *both in zip(sizes, widths[::2], widths[1::2], strict=True):
        if mode != "constant" and any(both):
            yield size, max(both) + 1 if mode == "reflect" else 1


def _written(call: Call, sizes: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """A window larger than its map gives no pixel; TVM would count fewer than none."""
    layout = str(getattr(call.attrs, "out_layout", "")) or str(
        getattr(call.attrs, "data_layout", "") or getattr(call.attrs, "layout", "")
    )
    made = call.ty.shape if isinstance(call.ty, relax.TensorType) else None
    for axis, size in zip(layout, made.values if isinstance(made, relax.ShapeExpr) else (), strict=False):
        if axis in "DHW":
            yield size, 1


NEEDED: dict[str, Callable[[Call, Sequence[Any]], Iterator[tuple[Any, int]]]] = {
    "topk": _largest,
    **dict.fromkeys(("argmax", "argmin"), _places),
    "nn.pad": _padded,
    **{f"nn.{op}{n}d": _written for op in ("conv", "max_pool", "avg_pool") for n in (1, 2, 3)},
    **dict.fromkeys(("image.resize2d", "image.resize3d", "image.grid_sample"), _pixels),
}
"""Sizes of the first argument, each with the least that it may be, of ops that need elements."""
