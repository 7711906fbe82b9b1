"""The pattern table registered with TVM: an anchor with its bias, residual and activation.

A single op is no composite: its attribute ``target.convoy`` says that Convoy takes it (``annotate``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product

from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, is_tuple_get_item, wildcard
from tvm.relay.op.contrib.register import register_pattern_table

from convoy.offload.elementwise import is_per_channel
from convoy.offload.names import KEY, stem
from convoy.options import Options
from convoy.relay.annotate import is_closed, is_taken
from convoy.relay.dataflow import dims, op_name, rank
from convoy.relay.dataflow import is_constant as has_value
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.idioms import IDIOMS, find_source
from convoy.relay.patterns import ACTIVATIONS, ANCHORS, PRODUCTS


@dataclass(frozen=True)
class Row:
    """One pattern of the table."""

    name: str
    anchor: str
    epilogues: tuple[str, ...]
    """Those of ``bias``, ``add`` and an activation that it has, in this order."""

    @property
    def pattern(self) -> DFPattern:
        made = is_op(self.anchor)(wildcard(), is_constant())
        for epilogue in self.epilogues:
            made = EPILOGUES[epilogue](made)
        return made

    def check(self, expr: relay.Expr) -> bool:
        """Is what the pattern matched, which ends with ``expr``, what its name says?"""
        calls = _calls(expr, self.anchor, self.epilogues)
        return calls is not None and is_closed(calls)


def rows() -> list[Row]:
    """The whole table, longer patterns before those they contain."""
    endings = (*ACTIVATIONS.values(), *IDIOMS)
    table = [
        Row(f"convoy.{'_'.join((stem(anchor), *epilogues))}", anchor, epilogues)
        for anchor, bias, add, ending in product(
            ANCHORS, ((), ("bias",)), ((), ("add",)), ((), *((e,) for e in endings))
        )
        if (epilogues := (*bias, *add, *ending))
    ]
    return sorted(table, key=lambda row: -len(row.epilogues))


def pattern_table() -> list[tuple[str, DFPattern, Callable[[relay.Expr], bool]]]:
    """Names, patterns and checks, as TVM's MergeComposite takes them."""
    return [(row.name, row.pattern, remember_error(row.check)) for row in rows()]


def pattern_table_for(
    codegen: str, ops: Collection[str], options: Options
) -> list[tuple[str, DFPattern, Callable[[relay.Expr], bool]]]:
    """The rows that may match in a module of these ops: MergeComposite walks it once a row.

    Their names begin with ``codegen``: by that AnnotateTarget knows whose a composite is.
    """
    disabled = options.disabled_patterns
    endings = {suffix for op, suffix in ACTIVATIONS.items() if op in ops}
    endings |= {idiom for idiom, op in IDIOMS.items() if op in ops}
    possible = {"bias", "add", *endings}
    table: list[tuple[str, DFPattern, Callable[[relay.Expr], bool]]] = [
        (f"{codegen}.{stem(row.name)}", row.pattern, remember_error(row.check))
        for row in rows()
        if row.anchor in ops and possible.issuperset(row.epilogues) and row.name not in disabled
    ]
    if not options.merge:
        found = [op for op in _FIRST_ITEMS if op in ops and f"convoy.{stem(op)}" not in disabled]
        table += [(f"{codegen}.{stem(op)}", _FIRST_ITEMS[op], _is_taken_item) for op in found]
    return table


# Epilogues -----------------------------------------------------------------------------------------
# An alternative is one of whole calls, as in add(…) | nn.bias_add(…): TVM tries the operands of an add or a
# multiply the other way round too, but not those of (add | nn.bias_add)(…).


def _bias(data: DFPattern) -> DFPattern:
    return is_op("add")(data, is_constant()) | is_op("nn.bias_add")(data, is_constant())


def _add(data: DFPattern) -> DFPattern:
    return is_op("add")(data, wildcard())


def _silu(data: DFPattern) -> DFPattern:
    return is_op("multiply")(data, is_op("sigmoid")(data))


def _hardswish(data: DFPattern) -> DFPattern:
    """x · clip(x/6 + 1/2, 0, 1), or x · (clip(x + 3, 0, 6) / 6)."""
    ramp = is_op("clip")(is_op("add")(is_op("multiply")(data, is_constant()), is_constant()))
    scaled = _scaled(is_op("clip")(is_op("add")(data, is_constant())))
    return is_op("multiply")(data, ramp | scaled)


def _gelu(data: DFPattern) -> DFPattern:
    return _gated(data, is_op("erf")(_scaled(data)))


def _gelu_tanh(data: DFPattern) -> DFPattern:
    square = is_op("multiply")(data, data)
    cube = is_op("multiply")(data, square) | is_op("power")(data, is_constant())
    inside = _scaled(is_op("add")(data, _scaled(cube))) | is_op("add")(_scaled(data), _scaled(cube))
    return _gated(data, is_op("tanh")(inside))


def _gated(data: DFPattern, curve: DFPattern) -> DFPattern:
    """x·(1 + c)/2 in the orders that frontends write it in."""
    multiply, shifted = is_op("multiply"), is_op("add")(curve, is_constant())
    late = multiply(data, shifted)
    halved = is_op("add")(_scaled(curve), is_constant())
    return multiply(_scaled(data), shifted) | multiply(data, halved | _scaled(shifted)) | _scaled(late)


def _scaled(data: DFPattern) -> DFPattern:
    return is_op("multiply")(data, is_constant()) | is_op("divide")(data, is_constant())


EPILOGUES: dict[str, Callable[[DFPattern], DFPattern]] = {
    "bias": _bias,
    "add": _add,
    "silu": _silu,
    "hardswish": _hardswish,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    **{suffix: is_op(op) for op, suffix in ACTIVATIONS.items()},
}
"""What each epilogue is, on the pattern of what it follows."""


_FIRST_ITEMS: dict[str, DFPattern] = {
    "nn.batch_norm": is_tuple_get_item(is_op("nn.batch_norm")(*(wildcard() for _ in range(5))), 0),
    "nn.dropout": is_tuple_get_item(is_op("nn.dropout")(wildcard()), 0),
}
"""Ops of a tuple whose first item is computed; a function of the bare op would hand on all items."""


# Checks --------------------------------------------------------------------------------------------


def _calls(expr: relay.Expr, anchor: str, epilogues: tuple[str, ...]) -> list[relay.Call] | None:
    """The calls of an anchor and these epilogues, if that is what makes ``expr`` and all are taken."""
    if not isinstance(expr, relay.Call) or not is_taken(expr):
        return None
    if not epilogues:
        return [expr] if op_name(expr) == anchor else None
    *before, last = epilogues
    data: list[relay.Expr] = list(expr.args)
    between: list[relay.Call] = []
    if last == "bias":
        fits = is_bias(expr)
    elif last == "add":
        data = [arg for arg in data if _is_made_of(arg, anchor, before)][:1]  # which TVM's matcher takes
        fits = op_name(expr) == "add" and not is_bias(expr) and [dims(arg) for arg in data] == [dims(expr)]
    elif last in IDIOMS:
        source = find_source(expr, last)
        fits, data = source is not None, [source]
        between = _between(expr, source) if fits else []
    else:
        fits = ACTIVATIONS.get(op_name(expr)) == last
    if not fits or not all(map(is_taken, between)):
        return None
    found = (_calls(arg, anchor, tuple(before)) for arg in data)
    inner = next((calls for calls in found if calls is not None), None)
    return None if inner is None else [*inner, *between, expr]


def _is_made_of(expr: relay.Expr, anchor: str, epilogues: Sequence[str]) -> bool:
    """Does ``expr`` match the pattern of an anchor, or of an anchor and a bias, taken or not?"""
    if not isinstance(expr, relay.Call):
        return False
    if not epilogues:
        return op_name(expr) == anchor and has_value(expr.args[1])
    adds = op_name(expr) in ("add", "nn.bias_add") and any(map(has_value, expr.args))
    return adds and any(_is_made_of(arg, anchor, ()) for arg in expr.args)


def _is_taken_item(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.TupleGetItem) and is_taken(expr.tuple_value)


def is_bias(call: relay.Call) -> bool:
    """Is this an add of one constant per output channel of an anchor?"""
    name = op_name(call)
    data = [arg for arg in call.args if not has_value(arg)]
    if name not in ("add", "nn.bias_add") or len(data) != 1 or dims(data[0]) != dims(call):
        return False
    channel = bias_axis(data[0])
    if name == "nn.bias_add":
        return bool(int(call.attrs.axis) % rank(call) == channel)
    shape, result = next(dims(arg) for arg in call.args if has_value(arg)), dims(call)
    return shape is not None and result is not None and is_per_channel(shape, result, channel)


def bias_axis(anchor: relay.Expr) -> int:
    """The axis of an anchor's output channels: the last of a matrix product, else 1."""
    return rank(anchor) - 1 if op_name(anchor) in PRODUCTS else 1


def _between(expr: relay.Expr, source: relay.Expr) -> list[relay.Call]:
    """The calls that make ``expr`` of ``source``, without the two."""
    found: dict[relay.Call, None] = {}
    waiting = list(expr.args)
    while waiting:
        node = waiting.pop()
        if isinstance(node, relay.Call) and not node.same_as(source) and node not in found:
            found[node] = None
            waiting += node.args
    return list(found)


register_pattern_table(KEY, pattern_table)
