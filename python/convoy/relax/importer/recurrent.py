"""RNN, GRU and LSTM: the products with the inputs for all steps at once, and a loop over the steps.

The products are ops like any other, which a region takes, and so is the loop (``recurrent_op.py``).

Sequences that have lengths of their own run through all steps.  Backward, each is turned in its length
first, and runs forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from convoy.graph.ops import SIGMOID, TANH, ActivationKind, Curve
from convoy.relax.checks import check_filled
from convoy.relax.dataflow import is_constant, op_name
from convoy.relax.importer.agree import cast
from convoy.relax.importer.bodies.recurrent import DEFAULTS, DIRECTIONS, read_activations
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.lengths import (
    are_whole,
    clear_behind,
    clear_empty,
    hold_behind,
    last_rows,
    read_lengths,
    turn,
)
from convoy.relax.importer.recurrent_op import pack, recurrent

_LENGTHS = 4
"""Which input has the lengths of the sequences."""
_CURVES: dict[str, ActivationKind] = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "relu": "relu",
    "leakyrelu": "leaky_relu",
    "elu": "elu",
    "hardsigmoid": "hardsigmoid",
}
"""The activations a loop may have."""


def _convert(op: str) -> Callable[[relax.BlockBuilder, list[Any], dict[str, Any]], Any]:
    def convert(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        refused = _refuse(op, inputs, attrs)
        if refused:
            raise ValueError(f"{op} {refused}")
        directions = DIRECTIONS[attrs.get("direction", b"forward").decode()]
        x, batch_first = inputs[0], attrs.get("layout", 0)
        _expect_a_step(bb, x.ty.shape.values[1 if batch_first else 0])
        if not batch_first:
            x = bb.emit(relax.op.permute_dims(x, [1, 0, 2]))
        lengths = _read_lengths(bb, inputs[4], x)
        curves = _read_curves(op, len(directions), attrs)
        assert curves is not None
        made = [
            _Direction(bb, op, inputs, attrs, d, back, lengths, curves[d], x).run()
            for d, back in enumerate(directions)
        ]
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
    given = [x for i, x in enumerate(inputs) if x is not None and i != _LENGTHS]
    if any(str(i.ty.dtype) != "float32" for i in given):
        return "with elements that are not float32"
    if not all(i is None or is_constant(i) for i in (*inputs[1:4], inputs[7])):
        return "with weights that are not constants"
    if inputs[0].ty.shape is None or static_shape(inputs[1]) is None:
        return "of shapes that are open"
    if any(isinstance(d, tirx.IntImm) and not int(d) for d in inputs[0].ty.shape.values[:2]):
        return "of no steps, or of no sequences"
    count = len(DIRECTIONS.get(attrs.get("direction", b"forward").decode(), ()))
    if not count or _read_curves(op, count, attrs) is None:
        return f"with the activations {', '.join(a.decode() for a in attrs.get('activations', ()))}"
    if attrs.get("clip", 0.0) and inputs[_LENGTHS] is not None and _gives_cells(op, attrs):
        return "with sequence_lens and clip"
    return "with input_forget" if attrs.get("input_forget", 0) else ""


def _read_curves(op: str, directions: int, attrs: dict[str, Any]) -> list[tuple[Curve, ...]] | None:
    """The activations ``gate``, ``inner`` and ``outer`` of each direction; None if a loop has not all."""
    given = (attrs.get(f"activation{name}") for name in ("s", "_alpha", "_beta"))
    found = read_activations(op, directions, *given)
    if found is None or any(a.kind not in _CURVES for part in found for a in part):
        return None
    curves = [[Curve(_CURVES[a.kind], a.alpha or 0.0, a.beta or 0.0) for a in part] for part in found]
    usual = (SIGMOID, TANH, TANH)
    return [(usual[0], *part, usual[2]) if op == "RNN" else (*part, *usual[len(part) :]) for part in curves]


def _gives_cells(op: str, attrs: dict[str, Any]) -> bool:
    return op == "LSTM" and attrs["tvm_custom"]["num_outputs"] > 2


def _read_lengths(bb: relax.BlockBuilder, lengths: Any, x: Any) -> Any:
    """The lengths of sequences x [N, T, I]; None where all are as long as the tensor."""
    sequences, steps, _ = x.ty.shape.values
    if lengths is None or are_whole(lengths, steps):
        return None
    return read_lengths(bb, lengths, steps, sequences)


def _expect_a_step(bb: relax.BlockBuilder, steps: Any) -> None:
    """End a call without a step: its last state would be read in front of the first row.

    ONNX does not say what that state is, and ONNX Runtime gives zeros, what memory held, or ends.
    """
    if not isinstance(steps, tirx.IntImm):
        check_filled(bb, [steps])


class _Direction:
    """One direction of a node; everything with the images in front."""

    def __init__(
        self,
        bb: relax.BlockBuilder,
        op: str,
        inputs: list[Any],
        attrs: dict[str, Any],
        at: int,
        back: bool,
        lengths: Any,
        curves: tuple[Curve, ...],
        x: Any,
    ) -> None:
        self.bb, self.op, self.inputs, self.attrs, self.at, self.back = bb, op, inputs, attrs, at, back
        self.lengths, self.curves = lengths, curves
        self.w, self.r = (inputs[i].value.numpy()[at] for i in (1, 2))
        self.hidden = self.r.shape[1]
        gates = self.w.shape[0]
        both = inputs[3].value.numpy()[at] if inputs[3] is not None else np.zeros(2 * gates, np.float32)
        self.bias, self.state_bias = both[:gates].copy(), both[gates:].copy()
        self.turned = self.back and lengths is not None
        self.x = turn(bb, x, lengths) if self.turned else x
        self.kind, self.extra = self._read_kind()
        product = bb.emit(relax.op.matmul(self.x, constant(np.ascontiguousarray(self.w.T))))
        self.gx = bb.emit(relax.op.add(product, constant(self.bias + self.state_bias)))

    def _read_kind(self) -> tuple[str, Any]:
        """The op's kind of loop, and its peepholes or bias; that is no longer the state's then."""
        hidden = self.hidden
        if self.op == "LSTM":
            peep = self.inputs[7].value.numpy()[self.at] if self.inputs[7] is not None else None
            return "lstm", np.zeros((3, hidden), np.float32) if peep is None else peep.reshape(3, hidden)
        if self.op == "GRU" and self.attrs.get("linear_before_reset", 0):
            extra = self.state_bias[2 * hidden :].copy()[None]
            self.state_bias[2 * hidden :] = 0
            return "gru", extra
        return "gru_reset_first" if self.op == "GRU" else "rnn", np.zeros((1, hidden), np.float32)

    def run(self) -> list[Any]:
        """y [N, T, H] and the last states [N, H], for x [N, T, I]."""
        bb, x, gx, lengths, turned = self.bb, self.x, self.gx, self.lengths, self.turned
        back = self.back and not turned
        states = [self.state(x, i) for i in ((5, 6) if self.op == "LSTM" else (5,))]
        if lengths is not None and _gives_cells(self.op, self.attrs):
            gx = hold_behind(bb, gx, lengths, self.hidden)
        states = self._whole(x, states) if any(s is not None for s in states) else []
        clip = float(self.attrs.get("clip", 0.0))
        made = bb.emit(
            recurrent(
                self.kind,
                gx,
                constant(pack(self.r)),
                constant(self.extra),
                states,
                back=back,
                clip=clip,
                curves=self.curves,
            )
        )
        steps = x.ty.shape.values[1]
        y = self._rows(made, 0, steps) if self.op == "LSTM" else made
        ends = [y, self._row(made, 0 if back else steps - 1)] if lengths is None else self._end(y, turned)
        if self.op != "LSTM":
            return ends
        cells = self._rows(made, steps, steps + 1)
        return [*ends, self._row(cells if lengths is None else clear_empty(bb, cells, lengths), 0)]

    def _end(self, y: Any, turned: bool) -> list[Any]:
        """Outputs and last states where sequences end at their lengths."""
        last = last_rows(self.bb, y, self.lengths)
        return [clear_behind(self.bb, y, self.lengths, back=turned), self._row(last, 0)]

    def _row(self, made: Any, at: Any) -> Any:
        return self.bb.emit(relax.op.squeeze(self._rows(made, at, at + 1), [1]))

    def _rows(self, made: Any, begin: Any, end: Any) -> Any:
        bounds = [[relax.prim_value(bound)] for bound in (begin, end)]
        return self.bb.emit(relax.op.strided_slice(made, [1], *bounds, [1], assume_inbound=True))

    def _whole(self, x: Any, states: list[Any]) -> list[Any]:
        """The states before the first step, those that are not given as zeros."""
        zeros = relax.op.zeros([x.ty.shape.values[0], self.hidden], "float32")
        return [self.bb.emit(zeros) if s is None else s for s in states]

    def state(self, x: Any, index: int) -> Any:
        """A state before the first step, of as many images as x; None for zeros."""
        given = self.inputs[index]
        if given is None or _is_zero(self.bb, given):
            return None
        axis = 1 if self.attrs.get("layout", 0) else 0
        at = relax.const(self.at, "int64")
        state = self.bb.emit(relax.op.take(given, at, axis=axis, mode="clip"))
        images, algebra = x.ty.shape.values[0], self.bb.algebra
        if algebra.same(algebra.sizes(state)[0], algebra.sizes(x)[0]):
            return state
        return cast(self.bb, state, [images, self.hidden])


def _is_zero(bb: Any, given: Any) -> bool:
    """Is a tensor nothing but zeros, as a constant or as what ``ConstantOfShape`` makes?"""
    if is_constant(given):
        return not given.value.numpy().any()
    made = bb.lookup_binding(given) if isinstance(given, relax.Var) else None
    return made is not None and op_name(made) == "broadcast_to" and _is_zero(bb, made.args[0])


RECURRENT = {op: _convert(op) for op in DEFAULTS}
