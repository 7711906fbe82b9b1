"""Relay's quantised ops (``qnn.*``) become ``qnn.dequantize``, ops on floats and ``qnn.quantize``.

    requantize(add(qnn.conv2d(x, w), b))  =>  quantize(add(nn.conv2d(dequantize(x), w · s), b · s))

So a quantised network has one form, however it came: from a frontend, or from FakeQuantizationToInteger.
An int32 between the ops stands for a float, which is kept beside it (``Meant``).  The op on integers stays
where something else reads it.  Integers are rounded once, to nearest even, where TVM multiplies by
fixed-point numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay

from convoy.graph.quantised import dequantize
from convoy.relay.dataflow import Dim, constant, dims, dtype, op_name
from convoy.relay.fold.constants import literal
from convoy.relay.lets import rebuild_open

Array = NDArray[Any]

_BYTES = ("int8", "uint8")
_PRODUCTS = {
    "qnn.conv2d": "nn.conv2d",
    "qnn.conv2d_transpose": "nn.conv2d_transpose",
    "qnn.dense": "nn.dense",
    "qnn.batch_matmul": "nn.batch_matmul",
}
_PAIRS = {"qnn.add": "add", "qnn.subtract": "subtract", "qnn.mul": "multiply"}
_ALONE = {f"qnn.{name}": name for name in ("abs", "erf", "exp", "log", "rsqrt", "sigmoid", "sqrt", "tanh")}
_ALONE |= {
    "qnn.softmax": "nn.softmax",
    "qnn.leaky_relu": "nn.leaky_relu",
    "qnn.avg_pool2d": "nn.avg_pool2d",
}
_LINEAR = ("nn.avg_pool2d", "nn.global_avg_pool2d", "nn.adaptive_avg_pool2d", "mean")
_MOVES = (
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "strided_slice",
    "nn.batch_flatten",
    "nn.max_pool2d",
)
"""Ops whose results stand for floats by the numbers of what they read."""


@dataclass(frozen=True, eq=False)
class Meant:
    """What integers stand for: (x - zero) · scale = ``value``."""

    value: relay.Expr
    scale: Array
    zero: Array
    axis: int = 1


def raise_quantised(function: relay.Function) -> relay.Function:
    """The same function with floats between ``qnn.dequantize`` and ``qnn.quantize``."""
    return rebuild_open(function, _Raising().change)


class _Raising:
    """What stands for the integers of one function, by the expression that has them."""

    def __init__(self) -> None:
        self.meant: dict[relay.Expr, Meant] = {}

    def change(self, old: relay.Call, new: relay.Call) -> relay.Expr:
        name = op_name(old)
        made: relay.Expr | None = None
        if name in _PRODUCTS:
            self._note(new, self._product(name, old, new))
        elif name in ("qnn.quantize", "qnn.requantize", "qnn.dequantize"):
            made = self._step(name, old, new)
        elif name in _PAIRS or name in _ALONE or name in ("qnn.hardswish", "qnn.concatenate"):
            made = self._op(name, old, new)
        elif name.startswith("qnn."):
            return new
        else:
            made = self._plain(name, old, new)
        return new if made is None else made

    def _note(self, expr: relay.Expr, meant: Meant | None) -> None:
        if meant is not None:
            self.meant[expr] = meant

    # Ops that make int32 ----------------------------------------------------------------------------

    def _product(self, name: str, old: relay.Call, new: relay.Call) -> Meant | None:
        if dtype(old.args[0]) not in _BYTES or dtype(old.args[1]) not in _BYTES:
            return None
        numbers = [constant(arg) for arg in new.args[2:6]]
        if any(array is None for array in numbers) or numbers[0].size != 1:  # type: ignore[union-attr]
            return None
        x_zero, w_zero, x_scale, w_scale = (np.asarray(array) for array in numbers)
        if x_scale.size != 1:
            return None
        x = self._float(new.args[0], x_scale, x_zero)
        w = self._weight(name, old, new.args[1], w_scale, w_zero)
        if w is None:
            return None
        attrs = {key: value for key, value in _attributes(old).items() if key != "out_dtype"}
        call = _call(_PRODUCTS[name], [x, w], {**attrs, "out_dtype": "float32"}, old)
        each = np.float32(x_scale.reshape(())) * w_scale.astype(np.float32)
        out_axis = str(old.attrs.data_layout).index("C") if "conv" in name else len(dims(old) or ()) - 1
        return Meant(call, each, np.zeros(1, np.int32), out_axis)

    def _plain(self, name: str, old: relay.Call, new: relay.Call) -> relay.Expr | None:
        """An op on integers that is no ``qnn``: a bias, a bound, a move, a mean."""
        if name in ("add", "subtract", "nn.bias_add") and dtype(old) == "int32":
            self._note(new, self._sum(name, old, new))
            return None
        given = self.meant.get(new.args[0]) if new.args else None
        if given is None:
            return None
        second = constant(new.args[1]) if len(new.args) > 1 else None
        if name in (*_LINEAR, *_MOVES, "nn.pad") and given.scale.size == 1:
            if _pads_by_integers(name, old) and given.zero.any():
                return None
            more = list(new.args[1:])
            if name == "nn.pad":
                if second is None or second.size != 1:
                    return None
                around = (second.astype(np.float32) - given.zero.reshape(())) * given.scale.reshape(())
                more = [relay.const(np.float32(around.reshape(())))]
            value = relay.Call(old.op, [given.value, *more], old.attrs, None, old.span)
            if dtype(old) in _BYTES:
                return self._quantize(value, given.scale, given.zero, 0, old)
            self._note(new, replace(given, value=value, axis=0))
        elif name == "cast" and dtype(old) == "int32":
            self._note(new, given)
        elif name == "cast" and dtype(old) in _BYTES and dtype(old.args[0]) == "int32":
            return self._quantize(given.value, given.scale, given.zero, given.axis, old)
        elif name in ("clip", "maximum", "minimum", "nn.relu"):
            return self._bounded(name, old, new, given, second)
        return None

    def _sum(self, name: str, old: relay.Call, new: relay.Call) -> Meant | None:
        """A bias of integers, or two sums of products."""
        ranks = {len(dims(expr) or ()) for expr in (old, *old.args)}
        given = [self.meant.get(arg) for arg in new.args]
        if given[0] is not None and given[1] is not None:
            return _added(name, old, given[0], given[1]) if len(ranks) == 1 else None
        one, other = (0, 1) if name != "add" or given[0] is not None else (1, 0)
        meant, bias = given[one], constant(new.args[other])
        same_rank = len(dims(old) or ()) == len(dims(old.args[one]) or ())
        if name == "subtract" or meant is None or bias is None or not same_rank:
            return None
        return _with_bias(name, old, meant, bias)

    def _bounded(
        self, name: str, old: relay.Call, new: relay.Call, given: Meant, second: Array | None
    ) -> relay.Expr | None:
        """Bounds of integers are bounds of what they stand for."""
        bounds = _bounds(name, old, second)
        if bounds is None:
            return None
        low, high = bounds
        if np.all(low == given.zero) and np.all(np.isinf(high)):
            value: relay.Expr = relay.nn.relu(given.value)
        elif given.scale.size == low.size == 1:
            floats = ((bound - given.zero) * given.scale.astype(np.float64) for bound in bounds)
            value = relay.clip(given.value, *(float(bound.reshape(())) for bound in floats))
        else:
            return None
        value = relay.Call(value.op, value.args, value.attrs, None, old.span)
        if dtype(old) in _BYTES:
            return self._quantize(value, given.scale, given.zero, given.axis, old)
        self._note(new, replace(given, value=value))
        return None

    # Ops that make bytes or floats ------------------------------------------------------------------

    def _step(self, name: str, old: relay.Call, new: relay.Call) -> relay.Expr | None:
        numbers = [constant(arg) for arg in new.args[1:]]
        if any(array is None for array in numbers):
            return None
        arrays = [np.asarray(array) for array in numbers]
        axis = _axis(old.attrs.axis, old)
        if name == "qnn.quantize":
            self._note(
                new, Meant(_dequantized(new, arrays[0], arrays[1], axis), arrays[0], arrays[1], axis)
            )
            return None
        value = self._read(new.args[0], old.args[0], arrays[0], arrays[1], axis)
        if value is None:
            return None
        if name == "qnn.dequantize":
            return value
        if dtype(old) == "int32":  # rounded where it becomes bytes
            self._note(new, Meant(value, arrays[2], arrays[3], axis))
            return None
        if dtype(old) not in _BYTES:
            return None
        return self._quantize(value, arrays[2], arrays[3], axis, old)

    def _read(
        self, x: relay.Expr, old: relay.Expr, scale: Array, zero: Array, axis: int
    ) -> relay.Expr | None:
        """Integers as floats, by these numbers."""
        given = self.meant.get(x)
        if given is not None and dtype(old) == "int32":
            same = _alike(given.scale, scale) and _alike(given.zero, zero)
            return (
                given.value if same else _by_other_numbers(given, len(dims(old) or ()), scale, zero, axis)
            )
        return _dequantized(x, scale, zero, axis) if dtype(old) in _BYTES else None

    def _op(self, name: str, old: relay.Call, new: relay.Call) -> relay.Expr | None:
        """An op that dequantises what it reads and quantises what it makes."""
        if name == "qnn.concatenate":
            data, scales, zeros, *last = new.args
            if not all(isinstance(part, relay.Tuple) for part in (data, scales, zeros)):
                return None
            operands = [*zip(data.fields, old.args[0].fields, scales.fields, zeros.fields, strict=True)]
        elif name in _PAIRS:
            places = ((0, 2, 3), (1, 4, 5))
            operands = [(new.args[i], old.args[i], new.args[s], new.args[z]) for i, s, z in places]
            last = list(new.args[6:])
        else:
            operands, last = [(new.args[0], old.args[0], new.args[1], new.args[2])], list(new.args[3:])
        floats = []
        for x, before, scale, zero in operands:
            arrays = constant(scale), constant(zero)
            if arrays[0] is None or arrays[1] is None or arrays[0].size != 1 or dtype(before) not in _BYTES:
                return None
            floats.append(self._float(x, np.asarray(arrays[0]), np.asarray(arrays[1])))
        numbers = [constant(arg) for arg in last]
        if any(array is None or array.size != 1 for array in numbers) or dtype(old) not in _BYTES:
            return None
        value = _value_of(name, old, floats)
        return self._quantize(value, np.asarray(numbers[0]), np.asarray(numbers[1]), 0, old)

    def _weight(
        self, name: str, old: relay.Call, weight: relay.Expr, scale: Array, zero: Array
    ) -> relay.Expr | None:
        """A weight as floats; None where no one axis of it has the length of its scales."""
        axis, array = _weight_axis(name, old), constant(weight)
        if _fits((scale, zero), (dims(old.args[1]) or ())[axis]):
            return self._float(weight, scale, zero, axis)
        if array is None or "OI" not in str(getattr(old.attrs, "kernel_layout", "")):
            return None
        before, behind = array.shape[:axis], array.shape[axis + 2 :]
        flat = array.reshape(*before, -1, *behind)  # depthwise: O channels, I filters for each
        if not _fits((scale, zero), flat.shape[axis]):
            return None
        floats = constant(self._float(relay.Constant(tvm.nd.array(flat)), scale, zero, axis))
        return literal(np.asarray(floats).reshape(array.shape), "float32")

    def _float(self, x: relay.Expr, scale: Array, zero: Array, axis: int = 0) -> relay.Expr:
        array = constant(x)
        if array is None:
            return _dequantized(x, scale, zero, axis)
        scales, zeros = np.broadcast_arrays(scale.astype(np.float32).reshape(-1), zero.reshape(-1))
        return literal(dequantize(array, scales, zeros.astype(array.dtype), axis), "float32")

    def _quantize(
        self, value: relay.Expr, scale: Array, zero: Array, axis: int, old: relay.Call
    ) -> relay.Expr:
        made = relay.qnn.op.quantize(
            value,
            relay.const(scale.astype(np.float32)),
            relay.const(zero.astype(np.int32)),
            axis,
            dtype(old),
        )
        made = relay.Call(made.op, made.args, made.attrs, None, old.span)
        self._note(made, Meant(_dequantized(made, scale, zero, axis), scale, zero, axis))
        return made


def _fits(numbers: Sequence[Array], length: Dim) -> bool:
    """Is each one number, or as many as an axis is long?"""
    return all(array.size in (1, length) for array in numbers)


def _bounds(name: str, call: relay.Call, second: Array | None) -> tuple[Array, Array] | None:
    """Between which integers an op keeps what it reads; None where that is not known."""
    low, high = np.array(-np.inf), np.array(np.inf)
    if name == "clip":
        return np.array(float(call.attrs.a_min)), np.array(float(call.attrs.a_max))
    if name == "nn.relu":
        return np.array(0.0), high
    if second is None:
        return None
    return (second.reshape(-1).astype(np.float64), high) if name == "maximum" else (low, second.reshape(-1))


def _with_bias(name: str, old: relay.Call, given: Meant, bias: Array) -> Meant | None:
    """A bias of integers, one number a channel, added to what they stand for."""
    wide = [axis for axis, length in enumerate(bias.shape) if length != 1]
    shape = dims(old) or ()
    axis = (wide[0] if wide else 0) + len(shape) - bias.ndim
    axis = _axis(old.attrs.axis, old) if name == "nn.bias_add" else axis
    if len(wide) > 1 or (wide and axis != given.axis) or given.zero.any():
        return None
    scale = np.broadcast_to(given.scale.reshape(-1), (max(given.scale.size, bias.size),))
    numbers = bias.reshape(-1).astype(np.float32) * scale
    behind = (1,) * (len(shape) - 1 - given.axis)
    added = relay.add(given.value, relay.const(numbers.reshape(-1, *behind)))
    return replace(given, value=relay.Call(added.op, added.args, added.attrs, None, old.span))


def _added(name: str, old: relay.Call, one: Meant, other: Meant) -> Meant | None:
    """A sum or difference of integers that stand for floats by the same scale."""
    if one.scale.size != other.scale.size or not _alike(one.scale, other.scale):
        return None
    if one.scale.size > 1 and one.axis != other.axis:
        return None
    value = _call(name, [one.value, other.value], {}, old)
    return replace(one, value=value, zero=getattr(np, name)(one.zero, other.zero))


def _by_other_numbers(given: Meant, rank: int, scale: Array, zero: Array, axis: int) -> relay.Expr | None:
    """What the same integers stand for by other numbers: v · scale / its scale, moved by zero points."""
    if given.scale.size > 1 < scale.size and axis != given.axis:
        return None
    if not given.scale.all():
        return None
    behind = (1,) * (rank - 1 - (axis if scale.size > 1 else given.axis))
    factor = scale.astype(np.float64).reshape(-1) / given.scale.astype(np.float64).reshape(-1)
    moved = (given.zero.astype(np.float64) - zero).reshape(-1) * scale.astype(np.float64).reshape(-1)
    value = relay.multiply(given.value, relay.const(factor.astype(np.float32).reshape(-1, *behind)))
    if not moved.any():
        return value
    return relay.add(value, relay.const(moved.astype(np.float32).reshape(-1, *behind)))


def _pads_by_integers(name: str, call: relay.Call) -> bool:
    """Does a mean count zeros around the map, which are integers and not what stands for 0?"""
    counted = name == "nn.avg_pool2d" and bool(call.attrs.count_include_pad)
    return counted and any(int(width) for width in call.attrs.padding)


def _value_of(name: str, old: relay.Call, floats: list[relay.Expr]) -> relay.Expr:
    if name == "qnn.concatenate":
        return relay.concatenate(floats, int(old.attrs.axis))
    if name in _PAIRS:
        return _call(_PAIRS[name], floats, {}, old)
    if name == "qnn.hardswish":
        shifted = relay.clip(floats[0] + relay.const(np.float32(3)), 0.0, 6.0)
        return floats[0] * shifted / relay.const(np.float32(6))
    return _call(_ALONE[name], floats, _attributes(old), old)


_MAKERS: Mapping[str, Callable[..., relay.Call]] = {
    "add": relay.add, "subtract": relay.subtract, "multiply": relay.multiply,
    "abs": relay.abs, "erf": relay.erf, "exp": relay.exp, "log": relay.log, "rsqrt": relay.rsqrt,
    "sigmoid": relay.sigmoid, "sqrt": relay.sqrt, "tanh": relay.tanh,
}  # fmt: skip


def _call(name: str, args: list[relay.Expr], attrs: Mapping[str, Any], old: relay.Call) -> relay.Call:
    """A call of an op on floats, with the attributes that the one on integers has."""
    maker = _MAKERS.get(name) or getattr(relay.nn, name.removeprefix("nn."))
    made = maker(*args, **attrs)
    return relay.Call(made.op, made.args, made.attrs, None, old.span)


def _attributes(call: relay.Call) -> dict[str, Any]:
    names = call.attrs.keys() if call.attrs is not None else ()
    return {name: call.attrs[name] for name in names}


def _dequantized(x: relay.Expr, scale: Array, zero: Array, axis: int) -> relay.Expr:
    numbers = relay.const(scale.astype(np.float32)), relay.const(zero.astype(np.int32))
    return relay.qnn.op.dequantize(x, *numbers, axis)


def _alike(a: Array, b: Array) -> bool:
    """Are numbers equal, but for what float32 rounds?"""
    return bool(
        np.allclose(a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1), rtol=1e-6, atol=0)
    )


def _axis(axis: Any, call: relay.Call) -> int:
    return int(axis) % max(1, len(dims(call) or ()))


def _weight_axis(name: str, call: relay.Call) -> int:
    """The axis of a weight that a scale for each channel is along."""
    if "conv" in name:
        return str(call.attrs.kernel_layout).index("O")
    return 0
