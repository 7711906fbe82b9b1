"""The pattern table registered with TVM: an anchor with its bias, residual and activation.

A single op is no composite: its attribute ``target.convoy`` says that Convoy takes it (``annotate``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tvm.relay.op.contrib.register import register_pattern_table

from convoy.offload.names import stem
from convoy.relay.annotate import is_taken
from convoy.relay.dataflow import constant, dims, op_name, rank
from convoy.relay.dataflow import is_constant as has_value
from convoy.relay.patterns import ACTIVATIONS, ANCHORS, IDIOMS, PRODUCTS


@dataclass(frozen=True)
class Row:
    """One pattern of the table."""

    name: str
    anchor: str
    epilogues: tuple[str, ...]
    """Of ``bias``, ``add`` and an activation."""

    @property
    def pattern(self) -> DFPattern:
        made = is_op(self.anchor)(wildcard(), is_constant())
        for epilogue in self.epilogues:
            made = EPILOGUES[epilogue](made)
        return made

    def check(self, expr: relay.Expr) -> bool:
        """Is what the pattern matched, which ends with ``expr``, what its name says?"""
        return _ends_with(expr, self.anchor, self.epilogues)


def rows() -> Iterator[Row]:
    """The whole table, longer patterns before those they contain."""
    endings = (*ACTIVATIONS.values(), *IDIOMS)
    table = [
        Row(f"convoy.{'_'.join((stem(anchor), *epilogues))}", anchor, epilogues)
        for anchor, bias, add, ending in product(
            ANCHORS, ((), ("bias",)), ((), ("add",)), ((), *((e,) for e in endings))
        )
        if (epilogues := (*bias, *add, *ending))
    ]
    return iter(sorted(table, key=lambda row: -len(row.epilogues)))


def pattern_table() -> list[tuple[str, DFPattern, Callable[[relay.Expr], bool]]]:
    """Names, patterns and checks, as TVM's MergeComposite takes them."""
    return [(row.name, row.pattern, row.check) for row in rows()]


def pattern_table_for(
    ops: Collection[str], disabled: Collection[str]
) -> list[tuple[str, DFPattern, Callable[[relay.Expr], bool]]]:
    """The rows that may match in a module of these ops: MergeComposite walks it once a row."""
    endings = {suffix for op, suffix in ACTIVATIONS.items() if op in ops}
    endings |= {"silu"} if "sigmoid" in ops else set()
    endings |= {"hardswish"} if "clip" in ops else set()
    possible = {"bias", "add", *endings}
    return [
        (row.name, row.pattern, row.check)
        for row in rows()
        if row.anchor in ops and possible.issuperset(row.epilogues) and row.name not in disabled
    ]


# Epilogues -----------------------------------------------------------------------------------------


def _bias(data: DFPattern) -> DFPattern:
    return (is_op("add") | is_op("nn.bias_add"))(data, is_constant())


def _add(data: DFPattern) -> DFPattern:
    return is_op("add")(data, wildcard())


def _silu(data: DFPattern) -> DFPattern:
    return is_op("multiply")(data, is_op("sigmoid")(data))


def _hardswish(data: DFPattern) -> DFPattern:
    """x · clip(x/6 + 1/2, 0, 1), or x · (clip(x + 3, 0, 6) / 6)."""
    ramp = is_op("clip")(is_op("add")(is_op("multiply")(data, is_constant()), is_constant()))
    scaled = (is_op("divide") | is_op("multiply"))(
        is_op("clip")(is_op("add")(data, is_constant())), is_constant()
    )
    return is_op("multiply")(data, ramp) | is_op("multiply")(data, scaled)


EPILOGUES: dict[str, Callable[[DFPattern], DFPattern]] = {
    "bias": _bias,
    "add": _add,
    "silu": _silu,
    "hardswish": _hardswish,
    **{suffix: is_op(op) for op, suffix in ACTIVATIONS.items()},
}
"""What each epilogue is, on the pattern of what it follows."""


# Checks --------------------------------------------------------------------------------------------


def _ends_with(expr: relay.Expr, anchor: str, epilogues: tuple[str, ...]) -> bool:
    """Is ``expr`` an anchor followed by these epilogues, all of which Convoy takes?"""
    if not isinstance(expr, relay.Call) or not is_taken(expr):
        return False
    if not epilogues:
        return op_name(expr) == anchor
    *before, last = epilogues
    follows = partial(_ends_with, anchor=anchor, epilogues=tuple(before))
    if last == "bias":
        return is_bias(expr) and any(follows(arg) for arg in expr.args)
    if last == "add":
        whole = op_name(expr) == "add" and not is_bias(expr)
        return whole and any(follows(arg) and dims(arg) == dims(expr) for arg in expr.args)
    if last in IDIOMS:
        gates = [arg for arg in expr.args if _is_gate(arg, last)]
        return bool(gates) and any(follows(arg) for arg in expr.args)
    return ACTIVATIONS.get(op_name(expr)) == last and follows(expr.args[0])


def is_bias(call: relay.Call) -> bool:
    """Is this an add of one constant per output channel of an anchor, such as [C, 1, 1] to [N, C, H, W]?"""
    name = op_name(call)
    data = [arg for arg in call.args if not has_value(arg)]
    if name not in ("add", "nn.bias_add") or len(data) != 1 or dims(data[0]) != dims(call):
        return False
    channel = bias_axis(data[0])
    if name == "nn.bias_add":
        return bool(int(call.attrs.axis) % rank(call) == channel)
    shape, result = next(dims(arg) for arg in call.args if has_value(arg)), dims(call)
    if shape is None or result is None or len(shape) > len(result):
        return False
    padded = (1,) * (len(result) - len(shape)) + shape
    return all(length == (result[i] if i == channel else 1) for i, length in enumerate(padded))


def bias_axis(anchor: relay.Expr) -> int:
    """The axis of an anchor's output channels: the last of a matrix product, else 1."""
    return rank(anchor) - 1 if op_name(anchor) in PRODUCTS else 1


def _is_gate(expr: relay.Expr, idiom: str) -> bool:
    """Is this sigmoid(x), or min(max(x/6 + 1/2, 0), 1), for some x?"""
    if idiom == "silu":
        return op_name(expr) == "sigmoid" and is_taken(expr)
    factor, calls = 1.0, []
    while op_name(expr) in ("add", "multiply", "divide", "clip"):
        calls.append(expr)
        expr = expr.args[0]
    scale, shift, high = 1.0, 0.0, 0.0
    for call in reversed(calls):
        if op_name(call) == "clip":
            if call.attrs.a_min != 0:
                return False
            high = float(call.attrs.a_max)
            continue
        number = constant(call.args[1])
        if number is None or number.size != 1 or not is_taken(call):
            return False
        factor = float(number.reshape(()))
        if op_name(call) == "add":
            shift += factor
        else:
            factor = factor if op_name(call) == "multiply" else 1 / factor
            scale, shift, high = scale * factor, shift * factor, high * factor
    return max(abs(scale - 1 / 6), abs(shift - 1 / 2), abs(high - 1)) < 1e-6


register_pattern_table("convoy", pattern_table)
