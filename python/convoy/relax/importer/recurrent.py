"""RNN, GRU and LSTM: the products with the inputs for all steps at once, and a loop over the steps.

The products are ops like any other, which a region takes.  The loop is a function of TVM's own, so that
the module runs without Convoy; its attribute ``convoy.recurrent`` names what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.bodies.recurrent import DEFAULTS, DIRECTIONS
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.recurrent_loops import (
    PANEL,
    gru_loop,
    gru_reset_first_loop,
    largest_divisor,
    lstm_loop,
    rnn_loop,
)


def _convert(op: str) -> Callable[[relax.BlockBuilder, list[Any], dict[str, Any]], Any]:
    def convert(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        refused = _refuse(op, inputs, attrs)
        if refused:
            raise ValueError(f"{op} {refused}")
        directions = DIRECTIONS[attrs.get("direction", b"forward").decode()]
        x, batch_first = inputs[0], attrs.get("layout", 0)
        if not batch_first:
            x = bb.emit(relax.op.permute_dims(x, [1, 0, 2]))
        made = [_Direction(bb, op, inputs, attrs, d, back).run(x) for d, back in enumerate(directions)]
        outputs = []
        for i, parts in enumerate(zip(*made, strict=True)):
            axis = 2 if i == 0 else 1 if batch_first else 0
            wide = [bb.emit(relax.op.expand_dims(part, axis)) for part in parts]
            whole = wide[0] if len(wide) == 1 else bb.emit(relax.op.concat(wide, axis))
            if i == 0 and not batch_first:  # [N, T, D, H]
                whole = bb.emit(relax.op.permute_dims(whole, [1, 2, 0, 3]))
            outputs.append(whole)
        return relax.Tuple(outputs)

    return convert


def _refuse(op: str, inputs: list[Any], attrs: dict[str, Any]) -> str:
    """Why there is no loop for a node; empty: there is one."""
    given = [i for i in inputs if i is not None]
    if any(str(i.ty.dtype) != "float32" for i in given):
        return "with elements that are not float32, or with sequence_lens"
    if not all(i is None or is_constant(i) for i in (*inputs[1:4], inputs[7])):
        return "with weights that are not constants"
    shape = inputs[0].ty.shape
    if shape is None or static_shape(inputs[1]) is None:
        return "of shapes that are open"
    try:
        int(shape.values[1 if attrs.get("layout", 0) else 0])
    except TypeError:
        return "of a number of steps that is open"
    named = [a.decode().lower() for a in attrs.get("activations", ())]
    count = len(DIRECTIONS.get(attrs.get("direction", b"forward").decode(), ()))
    if not count or (named and named != DEFAULTS[op] * count):
        return f"with the activations {', '.join(named)}"
    return "with input_forget" if attrs.get("input_forget", 0) else ""


class _Direction:
    """One direction of a node; everything with the images in front."""

    def __init__(
        self, bb: relax.BlockBuilder, op: str, inputs: list[Any], attrs: dict[str, Any], at: int, back: bool
    ) -> None:
        self.bb, self.op, self.inputs, self.attrs, self.at, self.back = bb, op, inputs, attrs, at, back
        self.w, self.r = (inputs[i].value.numpy()[at] for i in (1, 2))
        self.hidden = self.r.shape[1]
        gates = self.w.shape[0]
        both = inputs[3].value.numpy()[at] if inputs[3] is not None else np.zeros(2 * gates, np.float32)
        self.bias, self.state_bias = both[:gates].copy(), both[gates:].copy()

    def run(self, x: Any) -> list[Any]:
        """y [N, T, H] and the last states [N, H], for x [N, T, I]."""
        bb, hidden = self.bb, self.hidden
        extra: list[Any] = []
        r = self.r
        if self.op == "LSTM":
            loop = lstm_loop
            peep = self.inputs[7].value.numpy()[self.at] if self.inputs[7] is not None else None
            extra = [np.zeros((3, hidden), np.float32) if peep is None else peep.reshape(3, hidden)]
        elif self.op == "RNN":
            loop = rnn_loop
        elif self.attrs.get("linear_before_reset", 0):
            loop, extra = gru_loop, [self.state_bias[2 * hidden :].copy()]
            self.state_bias[2 * hidden :] = 0
        else:
            loop, extra = gru_reset_first_loop, [_pack(r[2 * hidden :])]
            r = r[: 2 * hidden]
        product = bb.emit(relax.op.matmul(x, constant(np.ascontiguousarray(self.w.T))))
        gx = bb.emit(relax.op.add(product, constant(self.bias + self.state_bias)))
        first = [self.state(5), self.state(6)] if self.op == "LSTM" else [self.state(5)]
        fed = any(s is not None for s in first)
        images, steps = x.ty.shape.values[0], int(x.ty.shape.values[1])
        zeros = relax.op.zeros([images if fed else 1, hidden], "float32")
        states = [bb.emit(zeros) if s is None else s for s in first]
        function = loop(steps, hidden, self.back, fed, float(self.attrs.get("clip", 0.0)))
        name = bb.add_func(function, f"{self.op.lower()}_loop")
        types = [relax.TensorType([images, steps, hidden], "float32")]
        types += [relax.TensorType([images, hidden], "float32") for _ in states]
        arguments = [gx, constant(_pack(r)), *(constant(e) for e in extra), *states]
        made = bb.emit(relax.call_tir(name, arguments, types))
        return [bb.emit(relax.TupleGetItem(made, i)) for i in range(len(types))]

    def state(self, index: int) -> Any:
        """A state before the first step; None for zeros."""
        given = self.inputs[index]
        if given is None or (is_constant(given) and not given.value.numpy().any()):
            return None
        axis = 1 if self.attrs.get("layout", 0) else 0
        at = relax.const(self.at, "int64")
        return self.bb.emit(relax.op.take(given, at, axis=axis))


def _pack(r: Any) -> Any:
    """R [gates · H, H] in panels of columns of its transpose, as the loops read it."""
    width = largest_divisor(r.shape[0], PANEL)
    return np.ascontiguousarray(r.reshape(-1, width, r.shape[1]).transpose(0, 2, 1))


RECURRENT = {op: _convert(op) for op in DEFAULTS}
