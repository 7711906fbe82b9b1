"""A recurrent layer in one direction as an op: Convoy has a kernel for it, TVM a function it becomes.

``relax.convoy.recurrent(x, r, extra, *states)`` has the attributes of ``graph.ops.Recurrent``, its
activations as one list of (kind, a, b), and its operands, but that r is packed as the loops of
``recurrent_loops.py`` read it.  TVM's ``LegalizeOps`` makes such a loop of it, so that a module with one
runs without Convoy's kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import _ffi_api, register_op_attr

from convoy.graph.ops import Curve
from convoy.ops.recurrent import read_curves
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.recurrent_loops import (
    PANEL,
    Form,
    gru_loop,
    gru_reset_first_loop,
    largest_divisor,
    lstm_loop,
    number_of_steps,
    rnn_loop,
)

NAME = "relax.convoy.recurrent"

_LOOPS = {
    "lstm": lstm_loop,
    "gru": gru_loop,
    "gru_reset_first": gru_reset_first_loop,
    "rnn": rnn_loop,
}


def recurrent(
    kind: str,
    x: Any,
    r: Any,
    extra: Any,
    states: list[Any],
    *,
    back: bool,
    clip: float,
    curves: tuple[Curve, ...],
) -> Any:
    """A call of the op."""
    numbers = [[curve.kind, curve.a, curve.b] for curve in curves]
    attrs = tvm.ir.make_node("ir.DictAttrs", kind=kind, back=back, clip=clip, curves=numbers)
    return relax.Call(tvm.ir.Op.get(NAME), [x, r, extra, *states], attrs)


def pack(r: Any) -> Any:
    """R [gates · H, H] in panels of columns of its transpose, as the loops read it."""
    width = largest_divisor(r.shape[0], PANEL)
    return np.ascontiguousarray(r.reshape(-1, width, r.shape[1]).transpose(0, 2, 1))


def unpack(panels: Any) -> Any:
    """R [gates · H, H], of what ``pack`` made of it."""
    return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])


def _infer_type(call: relax.Call, context: Any) -> relax.Type:
    sequences, steps, _ = call.args[0].ty.shape.values
    lstm = str(call.attrs["kind"]) == "lstm"
    return relax.TensorType([sequences, steps + int(lstm), call.args[1].ty.shape.values[1]], "float32")


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> Any:
    """A loop of TVM's; its last cells become the last row."""
    x, r, extra, *states = call.args
    kind, back, clip = str(call.attrs["kind"]), bool(call.attrs["back"]), float(call.attrs["clip"])
    images, steps, _ = x.ty.shape.values
    hidden = int(r.ty.shape.values[1])
    fed = bool(states)
    if not fed:
        zeros = relax.op.zeros([1, hidden], "float32")
        states = [bb.emit(zeros)] * (2 if kind == "lstm" else 1)
    form = Form(number_of_steps(steps), hidden, back, fed, clip, read_curves(call.attrs))
    name = bb.add_func(_LOOPS[kind](form), f"{kind}_loop")
    if kind == "gru":
        extra = bb.emit(relax.op.reshape(extra, [hidden]))
    types = [relax.TensorType([images, steps, hidden], "float32")]
    types += [relax.TensorType([images, hidden], "float32") for _ in states]
    if kind == "gru_reset_first":
        weights = unpack(r.value.numpy())
        parts = [constant(pack(weights[: 2 * hidden])), constant(pack(weights[2 * hidden :]))]
    else:
        parts = [r] if kind == "rnn" else [r, extra]
    made = bb.emit(relax.call_tir(name, [x, *parts, *states], types))
    y = bb.emit(relax.TupleGetItem(made, 0))
    if kind != "lstm":
        return y
    cells = bb.emit(relax.op.expand_dims(bb.emit(relax.TupleGetItem(made, 2)), 1))
    return bb.emit(relax.op.concat([y, cells], 1))


def _register() -> None:
    _ffi_api.RegisterOp(NAME, "A recurrent layer in one direction.")
    register_op_attr(NAME, "FInferType", _infer_type)
    register_op_attr(NAME, "FPurity", True)
    register_op_attr(NAME, "FLegalize", _legalize)


_register()
