"""Ops that Relax says in several: LRN, channel shuffle, HardSigmoid, HardSwish.

Each is found from the last of its ops backwards, and holds only if nobody else looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tvm import relax

from convoy.relax import attributes
from convoy.relax.dataflow import Dataflow, dims, number, op_name


@dataclass(frozen=True)
class Idiom:
    """An op in several: which bindings it is made of, and what it computes from ``data``."""

    name: str
    positions: tuple[int, ...]
    """In the block; the last one gives the result."""
    data: relax.Expr
    numbers: dict[str, float] = field(default_factory=dict)


def match(flow: Dataflow, last: int) -> Idiom | None:
    """The idiom that ends with binding ``last``."""
    name = op_name(flow.bindings[last].value)
    for idiom in ENDINGS.get(name, ()):
        found = IDIOMS[idiom](flow, flow.bindings[last].value)
        if found is not None:
            data, inside, numbers = found
            positions = tuple(sorted({*(flow.position[v] for v in inside), last}))
            if _is_closed(flow, positions):
                return Idiom(idiom, positions, data, numbers)
    return None


Found = tuple[relax.Expr, list[relax.Var], dict[str, float]]
"""The data, the variables of the ops before the last, and the numbers."""


def _match_lrn(flow: Dataflow, divide: relax.Call) -> Found | None:
    """x / (bias + alpha · mean of x² over `size` channels)^beta."""
    data, scale = divide.args
    inside: list[relax.Var] = []
    names = ("power", "add", "multiply", "squeeze", "nn.avg_pool3d", "expand_dims", "multiply")
    chain = _chain(flow, scale, names, inside)
    if chain is None:
        return None
    power, add, multiply, _, pool, expand, square = chain
    constants = [_scalar(flow, call.args[1]) for call in (power, add, multiply)]
    if any(c is None for c in constants) or not all(a.same_as(data) for a in square.args):
        return None
    size = int(pool.attrs.pool_size[0])
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    expected = {
        "pool_size": [size, 1, 1],
        "strides": [1, 1, 1],
        "dilation": [1, 1, 1],
        "padding": [before, 0, 0, after, 0, 0],
    }
    shape = dims(data)
    if (
        any([int(v) for v in getattr(pool.attrs, name)] != value for name, value in expected.items())
        or not pool.attrs.count_include_pad
        or shape is None
        or dims(expand) != (shape[0], 1, *shape[1:])
        or len(shape) != 4
    ):
        return None
    beta, bias, alpha = (float(c) for c in constants if c is not None)
    return data, inside, {"size": size, "alpha": alpha, "beta": beta, "bias": bias}


def _match_channel_shuffle(flow: Dataflow, ungroup: relax.Call) -> Found | None:
    """[N, G·K, H, W] → [N, G, K, H, W] → [N, K, G, H, W] → [N, K·G, H, W]."""
    inside: list[relax.Var] = []
    chain = _chain(flow, ungroup.args[0], ("permute_dims", "reshape"), inside)
    if chain is None or attributes.permutation(chain[0]) != (0, 2, 1, 3, 4):
        return None
    group = chain[1]
    shape, groups = dims(group.args[0]), dims(group)
    if shape is None or groups is None or len(shape) != 4 or dims(ungroup) != shape:
        return None
    if len(groups) != 5 or (groups[0], *groups[3:]) != (shape[0], *shape[2:]):
        return None
    return group.args[0], inside, {"groups": int(groups[1])}


def _match_hardsigmoid(flow: Dataflow, last: relax.Call) -> Found | None:
    """min(max(a·x + b, 0), 1), as clip(x/6 + 1/2, 0, 1) or as clip(x + 3, 0, 6)/6."""
    ramp = _ramp(flow, last)
    if ramp is None or abs(ramp.high - 1) > 1e-6 or not ramp.inside:
        return None
    return ramp.data, ramp.inside, {"a": ramp.a, "b": ramp.b}


def _match_hardswish(flow: Dataflow, last: relax.Call) -> Found | None:
    """x · hardsigmoid(x; 1/6, 1/2), wherever the division by 6 stands."""
    inside: list[relax.Var] = []
    product, factor = last, 1.0
    if (scaling := _affine(flow, last)) is not None and not scaling[2]:
        chain = _chain(flow, scaling[0], ("multiply",), inside)
        if chain is None:
            return None
        product, factor = chain[0], scaling[1]
    if op_name(product) != "multiply":
        return None
    for x, gate in (product.args, product.args[::-1]):
        ramp = _ramp(flow, flow.value(gate))
        if ramp is None or not ramp.data.same_as(x):
            continue
        differences = (ramp.a * factor - 1 / 6, ramp.b * factor - 1 / 2, ramp.high * factor - 1)
        if max(map(abs, differences)) < 1e-6:
            return x, [*inside, gate, *ramp.inside], {}
    return None


@dataclass(frozen=True)
class _Ramp:
    """min(max(a·x + b, 0), high)."""

    data: relax.Expr
    inside: list[relax.Var]
    """Variables of all its ops but the last."""
    a: float
    b: float
    high: float


def _ramp(flow: Dataflow, value: relax.Expr) -> _Ramp | None:
    """The ramp ``value`` computes: scalar factors and shifts around a clip at 0."""
    inside: list[relax.Var] = []
    factor = 1.0
    while (step := _affine(flow, value)) is not None and not step[2]:
        inside.append(step[0])
        value, factor = flow.value(step[0]), factor * step[1]
    if op_name(value) != "clip" or factor <= 0:
        return None
    data, low, high = value.args[0], number(value.args[1]), number(value.args[2])
    if low != 0 or high is None:
        return None
    a, b = factor, 0.0
    while (step := _affine(flow, flow.value(data))) is not None:
        inside.append(data)
        data, a, b = step[0], a * step[1], b + a * step[2]
    return _Ramp(data, inside, a, b, high * factor)


IDIOMS: dict[str, Callable[[Dataflow, relax.Call], Found | None]] = {
    "lrn": _match_lrn,
    "channel_shuffle": _match_channel_shuffle,
    "hardswish": _match_hardswish,
    "hardsigmoid": _match_hardsigmoid,
}
"""How each idiom is found from its last call."""

ENDINGS: dict[str, tuple[str, ...]] = {
    "divide": ("lrn", "hardswish", "hardsigmoid"),
    "multiply": ("hardswish", "hardsigmoid"),
    "clip": ("hardsigmoid",),
    "reshape": ("channel_shuffle",),
}
"""The idioms an op may end, the larger first."""


def _chain(
    flow: Dataflow, expr: relax.Expr, names: Iterable[str], inside: list[relax.Var]
) -> list[relax.Call] | None:
    """The calls that make ``expr``, each the first operand of the one before; they join ``inside``."""
    calls: list[relax.Call] = []
    for name in names:
        if not isinstance(expr, relax.Var) or expr not in flow.position:
            return None
        call = flow.bindings[flow.position[expr]].value
        if op_name(call) != name:
            return None
        inside.append(expr)
        calls.append(call)
        expr = call.args[0]
    return calls


def _affine(flow: Dataflow, value: relax.Expr) -> tuple[relax.Expr, float, float] | None:
    """x, a, b of a call that computes a·x + b with a scalar constant."""
    name = op_name(value)
    if name not in ("add", "subtract", "multiply", "divide"):
        return None
    x, y = value.args
    scalar = _scalar(flow, y)
    if scalar is None and name in ("add", "multiply"):
        x, scalar = y, _scalar(flow, x)
    if scalar is None or flow.is_constant(x) or not isinstance(x, relax.Var):
        return None
    if name in ("add", "subtract"):
        return x, 1.0, scalar if name == "add" else -scalar
    if name == "divide" and scalar == 0:
        return None
    return x, scalar if name == "multiply" else 1 / scalar, 0.0


def _scalar(flow: Dataflow, expr: relax.Expr) -> float | None:
    array = flow.constant(expr) if flow.is_constant(expr) else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def _is_closed(flow: Dataflow, positions: tuple[int, ...]) -> bool:
    """Does nothing outside read what is inside, but for the result?"""
    inside = set(positions)
    return all(not flow.escapes(i) and inside.issuperset(flow.users[i]) for i in positions[:-1])
