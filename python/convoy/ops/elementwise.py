"""Activations, arithmetic and what else computes each element by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convoy.graph.ops import Binary, BinaryKind, Unary, UnaryKind
from convoy.graph.sizes import is_open
from convoy.ops.attributes import UNKNOWN_BOUNDS, is_leaky
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Lowering, OpRow

# Checks --------------------------------------------------------------------------------------------


def _check_clip(at: Reader, call: Call) -> str | None:
    bounds = at.attributes.bounds(call)
    if bounds is None:
        return UNKNOWN_BOUNDS
    low, high = bounds
    return None if low <= high else f"expected bounds in ascending order, got {low:g} and {high:g}"


def _check_softplus(at: Reader, call: Call) -> str | None:
    """Above its threshold softplus(x) is x; from 17 on, float32 has no other number for it."""
    if call.attrs.beta != 1:
        return f"expected beta 1, got {call.attrs.beta}"
    threshold = float(call.attrs.threshold)
    return None if threshold >= 17 else f"expected a threshold of 17 or more, got {threshold:g}"


def _check_broadcast(at: Reader, call: Call) -> str | None:
    """Lengths that meet are equal at every call, or one of them is 1 at every call."""
    (x, y), whole = ((at.dims(arg) or () for arg in call.args), at.dims(call) or ())
    for axis in range(1, 1 + min(len(x), len(y), len(whole) - 1)):
        a, b = at.size(x[-axis]), at.size(y[-axis])
        if is_open((a, b)) and a != b and 1 not in (a, b):
            return f"expected lengths that are equal at every call, got {a!r} and {b!r}"
    return None


def _check_where(at: Reader, call: Call) -> str | None:
    """One of two values is a constant, and has no NaN: that stands for the other."""
    arrays = [array for array in map(at.constant, call.args[1:]) if array is not None]
    if not arrays:
        return "expected a constant as one of two values, got two that are computed"
    return "expected numbers to choose, got NaN" if np.isnan(arrays[0]).any() else None


# Lowerings -----------------------------------------------------------------------------------------


def _node(kind: UnaryKind, a: float = 0.0, b: float = 0.0, pattern: str = "") -> Lowering:
    return lambda at, call: at.node(Unary, call, kind=kind, a=a, b=b, pattern=pattern)


def _lower_clip(at: Operands, call: Call) -> str:
    bounds = at.attributes.bounds(call)
    assert bounds is not None, "checked before"
    return at.node(Unary, call, kind="clip", a=bounds[0], b=bounds[1])


def _lower_leaky_relu(at: Operands, call: Call) -> str:
    return at.node(Unary, call, kind="leaky_relu", a=float(call.attrs.alpha))


def _lower_prelu(at: Operands, call: Call) -> str:
    """max(x, 0) + slope · min(x, 0), where the channels' slopes differ."""
    slopes = at.array(call.args[1]).reshape(-1)
    if is_leaky(slopes):
        return at.node(Unary, call, kind="leaky_relu", a=float(slopes[0]), pattern="prelu")
    above = at.node(Unary, call, kind="relu")
    below = at.node(Unary, call, kind="clip", a=-np.inf, b=0.0)
    below = at.build.node(Binary, (below, _along_axis(at, call)), at.shape(call), kind="mul")
    return at.build.node(Binary, (above, below), at.shape(call), kind="add")


def _lower_power(at: Operands, call: Call) -> str:
    """A cube is two products, with a tenth of the instructions."""
    x, exponent = call.args
    given, shape = at.constant(exponent), at.shape(call)
    if given is None or given.size != 1 or given.item() != 3 or at.shape(x) != shape:
        return at.node(Binary, call, x, exponent, kind="pow")
    names = at.build.lifted((at.tensor(x),), shape)
    square = at.build.node(Unary, names, shape, kind="square")
    return at.build.node(Binary, (square, *names), shape, kind="mul")


def _lower_where(at: Operands, call: Call) -> str:
    condition, x, y = call.args
    chosen, array, computed = at.array(condition).astype(bool), at.constant(x), y
    if array is None:
        chosen, array, computed = ~chosen, at.array(y), x
    fixed = at.build.constant(np.where(chosen, array, np.float32(np.nan)))
    names = at.build.lifted((fixed, at.tensor(computed)), at.shape(call))
    return at.build.node(Binary, names, at.shape(call), kind="coalesce")


def _lower_bias_add(at: Operands, call: Call) -> str:
    names = (at.tensor(call.args[0]), _along_axis(at, call))
    return at.build.node(Binary, names, at.shape(call), kind="add")


def _along_axis(at: Operands, call: Call) -> str:
    """The second operand, a constant that lies along the op's axis."""
    behind = (1,) * (len(at.shape(call)) - 1 - at.axis(at.attributes.axis(call)))
    return at.build.constant(at.array(call.args[1]).reshape(-1, *behind))


# Rows ----------------------------------------------------------------------------------------------


def _both(name: str, kind: UnaryKind, activation: str = "", not_in_relay: str = "") -> OpRow:
    return OpRow(
        name,
        name,
        unary=kind,
        activation=activation,
        one_operand=True,
        not_in_relay=not_in_relay,
        lower=_node(kind),
    )


def _relax(name: str, kind: UnaryKind, activation: str = "") -> OpRow:
    return OpRow(name, unary=kind, activation=activation, one_operand=True, lower=_node(kind))


def _binary(name: str, kind: BinaryKind, lower: Lowering | None = None) -> OpRow:
    lower = lower or (lambda at, call: at.node(Binary, call, *call.args, kind=kind))
    return OpRow(name, name, binary=kind, takes_constants=True, check=_check_broadcast, lower=lower)


_AWAY_FROM_ZERO = "expected halves rounded to even, as in ONNX, got TVM's, away from zero"
_SLOPES = {1: "slope"}

_ROWS = (
    _both("nn.relu", "relu", "relu"),
    _both("sigmoid", "sigmoid", "sigmoid"),
    _both("tanh", "tanh", "tanh"),
    _both("exp", "exp"),
    _both("log", "log"),
    _both("sqrt", "sqrt"),
    _both("rsqrt", "rsqrt"),
    _both("abs", "abs"),
    _both("negative", "neg"),
    _both("erf", "erf"),
    _both("round", "round", not_in_relay=_AWAY_FROM_ZERO),
    _both("floor", "floor"),
    _both("ceil", "ceil"),
    _both("sin", "sin"),
    _both("cos", "cos"),
    _both("atan", "atan"),
    _relax("nn.silu", "silu", "silu"),
    _relax("nn.gelu", "gelu", "gelu"),
    _relax("nn.gelu_tanh", "gelu_tanh", "gelu_tanh"),
    _relax("square", "square"),
    OpRow("nn.softplus", one_operand=True, check=_check_softplus, lower=_node("softplus")),
    OpRow("nn.relu6", activation="relu6", one_operand=True, lower=_node("clip", 0.0, 6.0, "relu6")),
    OpRow("clip", "clip", activation="clip", one_operand=True, check=_check_clip, lower=_lower_clip),
    OpRow(
        "nn.leakyrelu", "nn.leaky_relu", activation="leaky_relu", one_operand=True, lower=_lower_leaky_relu
    ),
    OpRow(
        "nn.prelu", "nn.prelu", activation="prelu", axis_zero="axis", constants=_SLOPES, lower=_lower_prelu
    ),
    _binary("add", "add"),
    _binary("subtract", "sub"),
    _binary("multiply", "mul"),
    _binary("divide", "div"),
    _binary("maximum", "max"),
    _binary("minimum", "min"),
    _binary("power", "pow", _lower_power),
    OpRow(
        "where",
        "where",
        axis_zero="condition",
        constants={0: "condition"},
        numbers={0},
        takes_constants=True,
        check=_check_where,
        lower=_lower_where,
    ),
    OpRow(relay="nn.bias_add", axis_zero="axis", constants={1: "bias"}, lower=_lower_bias_add),
    *(OpRow(name, one_operand=True) for name in ("nn.selu", "sign", "astype")),
)
ROWS = tuple(replace(row, open_sizes=True) for row in _ROWS)
