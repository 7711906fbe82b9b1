"""The pattern table registered with TVM: an anchor with what joins its kernel (``graph/fusion.py``).

A single op is no composite: its attribute ``target.convoy`` says that Convoy takes it (``annotate``).

``partition`` does not go by the registered table, which holds the usual ways of writing activations: it
finds the composites of a module first, as ``plan/fuse.py`` will find the kernels of its graphs, and has
MergeComposite cut out these, each by the pattern of its own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, is_tuple_get_item, wildcard
from tvm.relay.op.contrib.register import register_pattern_table

from convoy.graph.fusion import (
    ANCHORS,
    Addition,
    Kernel,
    grow,
    kernel_names,
    kind_of_addition,
    pattern_name,
    share_out,
)
from convoy.graph.idioms import IDIOMS
from convoy.offload.names import KEY, is_anchor, stem
from convoy.ops.table import RELAY, activations, name_activation, output_axis
from convoy.options import Options
from convoy.relay.annotate import Users, call_number, is_taken
from convoy.relay.dataflow import Dataflow, dims, op_name
from convoy.relay.dataflow import is_constant as has_value
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.idioms import Idiom, match
from convoy.relay.patterns import TAKEN
from convoy.relay.reader import READER

Row = tuple[str, DFPattern, Callable[[relay.Expr], bool]]
"""Name, pattern and check of a composite, as TVM's MergeComposite takes them."""

Composites = dict[int, Kernel[relay.Call]]
"""By the number of its last call."""


# Of a module ---------------------------------------------------------------------------------------


def find_composites(flow: Dataflow, users: Users, options: Options, found: Composites) -> None:
    """Put the composites of a function, whose calls are numbered and have types, among those ``found``.

    Parameters
    ----------
    users : Users
        The readers of each call, also in other functions.
    """
    of = {call_number(call): call for call in flow.calls}

    def readers(made: relay.Call) -> list[relay.Call] | None:
        numbers = users.get(call_number(made) or 0, frozenset())
        known = [of[number] for number in sorted(n for n in numbers if n is not None) if number in of]
        return known if len(known) == len(numbers) else None

    at = _Calls(readers, {op for kernel in found.values() for op in kernel.ops})
    for call in reversed(flow.calls):
        at.note_idiom(call)
    anchors = [call for call in flow.calls if _is_anchor(call) and call not in at.claimed]
    starts = [Kernel(stem(op_name(call)), call) for call in anchors]
    for kernel in share_out(starts, at, options.disabled_patterns).values():
        if kernel is not None and kernel.parts:
            number = call_number(kernel.ops[-1])
            assert number is not None
            found[number] = kernel


def _is_anchor(call: relay.Call) -> bool:
    return is_taken(call) and is_anchor(call, READER)


def pattern_table_for(codegen: str, found: Composites, ops: Collection[str], options: Options) -> list[Row]:
    """The rows that cut these composites out of a module of these ops.

    Their names begin with ``codegen``: by that AnnotateTarget knows whose a composite is.
    """
    alike: dict[object, list[int]] = {}
    for number, kernel in found.items():
        alike.setdefault((kernel.name, _structure(kernel.ops)), []).append(number)
    table: list[Row] = []
    for numbers in alike.values():
        kernel = found[numbers[0]]
        check = partial(_is_one_of, frozenset(numbers))
        table.append((f"{codegen}.{kernel.name}", _pattern_of(kernel.ops), remember_error(check)))
    if not options.merge:
        disabled = options.disabled_patterns
        items = [op for op in _FIRST_ITEMS if op in ops and pattern_name(stem(op)) not in disabled]
        table += [(f"{codegen}.{stem(op)}", _FIRST_ITEMS[op], _is_taken_item) for op in items]
    return table


def _structure(calls: Sequence[relay.Call]) -> tuple[object, ...]:
    """Equal for composites of one pattern: the ops, and which operand of each is what."""
    place = {call: i for i, call in enumerate(calls)}
    return tuple(
        (op_name(call), *(place.get(arg, "constant" if has_value(arg) else "") for arg in call.args))
        for call in calls
    )


def _pattern_of(calls: Sequence[relay.Call]) -> DFPattern:
    made: dict[relay.Expr, DFPattern] = {}
    for call in calls:
        args = [made.get(arg) or (is_constant() if has_value(arg) else wildcard()) for arg in call.args]
        made[call] = is_op(op_name(call))(*args)
    return made[calls[-1]]


def _is_one_of(numbers: Collection[int], expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Call) and call_number(expr) in numbers


def _is_taken_item(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.TupleGetItem) and is_taken(expr.tuple_value)


@dataclass
class _Calls:
    """``graph.fusion.Program`` of Relay."""

    readers: Callable[[relay.Call], list[relay.Call] | None]
    """The calls that read one; None where something else does, too."""
    claimed: set[relay.Call] = field(default_factory=set)
    """Calls in other composites."""
    idioms: dict[relay.Call, Idiom] = field(default_factory=dict)
    """By each of their calls."""

    def note_idiom(self, last: relay.Call) -> None:
        """Remember the idiom that ends with this call, if it is taken and nobody else looks inside."""
        idiom = match(last) if last not in self.idioms else None
        if idiom is None or not all(map(is_taken, idiom.calls)):
            return
        inside = set(idiom.calls)
        if all(inside.issuperset(self.readers(call) or [None]) for call in idiom.calls[:-1]):
            self.idioms |= dict.fromkeys(idiom.calls, idiom)

    def activation(self, made: relay.Call) -> tuple[str, tuple[relay.Call, ...]] | None:
        readers = self.readers(made)
        if not readers:
            return None
        idiom = self.idioms.get(readers[0])
        if idiom is not None:
            alone = set(idiom.calls).issuperset(readers) and idiom.data.same_as(made)
            return (idiom.name, idiom.calls) if alone else None
        name = name_activation(readers[0], READER)
        return (name, (readers[0],)) if name and self._alone(readers) else None

    def addition(self, made: relay.Call, anchor: relay.Call) -> tuple[Addition, relay.Call] | None:
        readers = self.readers(made) or []
        if not self._alone(readers) or op_name(readers[0]) not in ("add", "nn.bias_add"):
            return None
        (add,) = readers
        others = [arg for arg in add.args if not arg.same_as(made)]
        shape = dims(add) or ()
        channel = output_axis(op_name(anchor), len(shape))
        if len(others) != 1 or shape != dims(made):
            return None
        if op_name(add) == "nn.bias_add":
            return ("bias", add) if int(add.attrs.axis) % len(shape) == channel else None
        per_image = TAKEN[op_name(anchor)].images or not isinstance(shape[0], int)
        kind = kind_of_addition(
            dims(others[0]) or (),
            shape,
            constant=has_value(others[0]),
            channel=channel,
            per_image=per_image,
        )
        return None if kind is None else (kind, add)

    def reads_first(self, add: relay.Call, made: relay.Call) -> bool:
        return bool(add.args[0].same_as(made))

    def may_be(self, kernel: Kernel[relay.Call]) -> bool:
        return True

    def _alone(self, readers: Sequence[relay.Call]) -> bool:
        """Is this one call that is taken, and in nothing else?"""
        return (
            len(readers) == 1
            and readers[0] not in self.claimed
            and readers[0] not in self.idioms
            and is_taken(readers[0])
        )


# The registered table ------------------------------------------------------------------------------


def pattern_table() -> list[Row]:
    """Longer patterns before those they contain; before a residual, no activation but ReLU."""
    words = [word for word in (*activations(RELAY).values(), *IDIOMS) if word in EPILOGUES]
    table = [
        (pattern_name(name), _pattern(op, parts), remember_error(partial(_reads_as, name)))
        for op in TAKEN
        if stem(op) in ANCHORS
        for name, parts in sorted(kernel_names(stem(op), words), key=lambda row: -len(row[1]))
        if parts and ("add" not in parts or set(parts[: parts.index("add")]) <= {"bias", "relu"})
    ]
    return sorted(table, key=lambda row: -row[0].count("_"))


def _pattern(op: str, parts: Iterable[str]) -> DFPattern:
    weighted = 1 in TAKEN[op].constants or TAKEN[op].cost == "product"
    made = is_op(op)(wildcard(), is_constant()) if weighted else is_op(op)(wildcard())
    for part in parts:
        made = EPILOGUES[part](made)
    return made


def _reads_as(name: str, expr: relay.Expr) -> bool:
    """Do the calls that end with ``expr`` read as the kernel of this name?"""
    near = list(_calls_near(expr))
    users: dict[relay.Call, list[relay.Call]] = {}
    for call in near:
        for arg in dict.fromkeys(call.args):
            users.setdefault(arg, []).append(call)
    at = _Calls(lambda made: users.get(made, []))
    for call in near:
        at.note_idiom(call)
    return any(
        kernel.name == name and kernel.ops[-1].same_as(expr)
        for call in near
        if _is_anchor(call)
        for kernel in grow(Kernel(stem(op_name(call)), call), at)
    )


def _calls_near(expr: relay.Expr) -> Iterator[relay.Call]:
    """``expr`` and the calls it is made of, back to the nearest anchors."""
    seen: set[relay.Expr] = set()
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if op_name(node) in TAKEN and node not in seen:
            seen.add(node)
            yield node
            waiting += node.args if stem(op_name(node)) not in ANCHORS else []


# Epilogues -----------------------------------------------------------------------------------------
# An alternative is one of whole calls, as in add(…) | nn.bias_add(…): TVM tries the operands of an add or a
# multiply the other way round too, but not those of (add | nn.bias_add)(…).


def _bias(data: DFPattern) -> DFPattern:
    return is_op("add")(data, is_constant()) | is_op("nn.bias_add")(data, is_constant())


def _add(data: DFPattern) -> DFPattern:
    return is_op("add")(data, wildcard())


def _silu(data: DFPattern) -> DFPattern:
    return is_op("multiply")(data, is_op("sigmoid")(data))


def _hardsigmoid(data: DFPattern) -> DFPattern:
    """clip(x/6 + 1/2, 0, 1), or clip(x + 3, 0, 6) / 6."""
    ramp = is_op("clip")(is_op("add")(is_op("multiply")(data, is_constant()), is_constant()))
    return ramp | _scaled(is_op("clip")(is_op("add")(data, is_constant())))


def _hardswish(data: DFPattern) -> DFPattern:
    return is_op("multiply")(data, _hardsigmoid(data))


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
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    **{word: is_op(op) for op, word in activations(RELAY).items() if word != "prelu"},
}
"""What each epilogue is, on the pattern of what it follows."""


_FIRST_ITEMS: dict[str, DFPattern] = {
    "nn.batch_norm": is_tuple_get_item(is_op("nn.batch_norm")(*(wildcard() for _ in range(5))), 0),
    "nn.dropout": is_tuple_get_item(is_op("nn.dropout")(wildcard()), 0),
}
"""Ops of a tuple whose first item is computed; a function of the bare op would hand on all items."""


register_pattern_table(KEY, pattern_table)
