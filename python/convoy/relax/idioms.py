"""Ops that Relax says in several: LRN, channel shuffle, a number in place of NaN, and activations.

Each is found from the last of its ops backwards, and holds only if nobody else looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tvm import relax

from convoy.graph.idioms import IDIOMS as ACTIVATIONS
from convoy.graph.idioms import find_activation
from convoy.ops.table import kind_of
from convoy.relax import attributes
from convoy.relax.dataflow import Dataflow, dims, op_name, same_dims


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
    call = flow.bindings[last].value
    for find in (*ENDINGS.get(op_name(call), ()), _match_activation):
        if (found := find(flow, call)) is not None:
            name, data, inside, numbers = found
            positions = tuple(sorted({*(flow.position[v] for v in inside), last}))
            if _is_closed(flow, positions):
                return Idiom(name, positions, data, numbers)
    return None


Found = tuple[str, relax.Expr, list[relax.Var], dict[str, float]]
"""The idiom, its data, the variables of the ops before the last, and the numbers."""


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
    return "lrn", data, inside, {"size": size, "alpha": alpha, "beta": beta, "bias": bias}


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
    return "channel_shuffle", group.args[0], inside, {}


def _match_coalesce(flow: Dataflow, where: relax.Call) -> Found | None:
    """where(isnan(x), number, x): what makes a softmax of nothing but -inf safe."""
    condition, number, x = where.args
    inside: list[relax.Var] = []
    chain = _chain(flow, condition, ("isnan",), inside)
    value = _scalar(flow, number)
    if chain is None or value is None or not flow.value(chain[0].args[0]).same_as(flow.value(x)):
        return None
    if not same_dims(x, where):  # a number of more axes than x gives the result those
        return None
    return "coalesce", x, inside, {"value": value}


def _match_activation(flow: Dataflow, last: relax.Call) -> Found | None:
    """One of ``graph/idioms.py``."""
    found = find_activation(last, _Arithmetic(flow))
    if found is None or not same_dims(found.x, last):
        return None
    return found.kind, found.x, _between(flow, last, found.x), {}


@dataclass(frozen=True)
class _Arithmetic:
    """``graph.polynomial.Arithmetic`` of a block."""

    flow: Dataflow

    def scalar(self, expr: relax.Expr) -> float | None:
        return _scalar(self.flow, expr)

    def operation(self, expr: relax.Expr) -> tuple[str, Sequence[relax.Expr]]:
        value = self.flow.value(expr)
        kind = kind_of(op_name(value))
        return kind, value.args if kind else ()

    def clip(self, expr: relax.Expr) -> tuple[relax.Expr, float, float] | None:
        call = self.flow.call(expr, "clip")
        bounds = attributes.bounds(call) if call is not None else None
        return None if call is None or bounds is None else (call.args[0], *bounds)

    def same(self, a: relax.Expr, b: relax.Expr) -> bool:
        return bool(self.flow.value(a).same_as(self.flow.value(b)))


def _between(flow: Dataflow, call: relax.Call, x: relax.Expr) -> list[relax.Var]:
    """The variables of the ops that make ``call`` from ``x`` and constants."""
    at = _Arithmetic(flow)
    found: list[relax.Var] = []
    for argument in call.args:
        if isinstance(argument, relax.Var) and not flow.is_constant(argument) and not at.same(argument, x):
            found += [flow.root(argument), *_between(flow, flow.value(argument), x)]
    return found


IDIOMS = ("lrn", "channel_shuffle", "coalesce", *ACTIVATIONS)
"""Their names in patterns."""

ENDINGS: dict[str, tuple[Callable[[Dataflow, relax.Call], Found | None], ...]] = {
    "divide": (_match_lrn,),
    "reshape": (_match_channel_shuffle,),
    "where": (_match_coalesce,),
}
"""How the idioms that an op may end are found, beside activations."""


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


def _scalar(flow: Dataflow, expr: relax.Expr) -> float | None:
    array = flow.constant(expr) if flow.is_constant(expr) else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def _is_closed(flow: Dataflow, positions: tuple[int, ...]) -> bool:
    """Does nothing outside read what is inside, but for the result?"""
    inside = set(positions)
    return all(not flow.escapes(i) and inside.issuperset(flow.users[i]) for i in positions[:-1])
