"""Ops that stand for calls no pass may look into.

``convoy.hidden_n`` takes n arguments; its attributes are the guard that hid the call, as guards may stand
within guards, and a number, by which the guard knows the function and the type of the result.  A pass may
write that as text and read it again.  The op has no computation to fuse, no layout, no precision, no
gradient and no constant value, so a pass leaves it where it is and keeps what goes into it and what comes
out of it as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from threading import Lock
from typing import NamedTuple

from tvm import ir, relay
from tvm.relay.op import op as registry
from tvm.relay.transform.mixed_precision import MIXED_PRECISION_NEVER

from convoy.errors import GuardError
from convoy.relay.dataflow import attribute, op_name, with_body, with_new_vars
from convoy.relay.errors_through_tvm import remember_error

_PREFIX = "convoy.hidden_"
_registering = Lock()
_guards = count()


class _Hidden(NamedTuple):
    """The calls of one function, or one call of an op."""

    callee: relay.Expr
    """The function; the call itself, of an op."""
    result: ir.Type
    used: list[relay.Var]
    """What the function uses from around it, which follows the arguments."""


_hidden: dict[int, list[_Hidden]] = {}
"""What each guard has hidden, by number."""


@contextmanager
def new_guard() -> Iterator[int]:
    """A number for a guard, its own in the process; what it hides is known within the block."""
    guard = next(_guards)
    _hidden[guard] = []
    try:
        yield guard
    finally:
        del _hidden[guard]


def hide_call(call: relay.Call, result: ir.Type, guard: int) -> relay.Call:
    """A call of an opaque op in place of the call of a function, which this guard hides.

    What the function uses from around it, a pass may rename or move: it follows the arguments.
    """
    used = list(relay.analysis.free_vars(call.op)) if isinstance(call.op, relay.Function) else []
    number = _number(_hidden[guard], _Hidden(call.op, result, used))
    return _stand_in([*call.args, *used], guard, number, call.span)


def hide_op(old: relay.Call, call: relay.Call, guard: int) -> relay.Call:
    """A call of an opaque op in place of ``call``, of an op; ``old``, which it is made of, has a type."""
    _hidden[guard].append(_Hidden(call, old.checked_type, []))
    return _stand_in(list(call.args), guard, len(_hidden[guard]) - 1, call.span)


def _stand_in(args: list[relay.Expr], guard: int, number: int, span: relay.Span | None) -> relay.Call:
    holder = relay.Function([], relay.Tuple([])).with_attr({"guard": guard, "number": number})
    with _registering:
        op = _opaque(len(args))
    return relay.Call(op, args, holder.attrs, [], span)


def _number(known: list[_Hidden], wanted: _Hidden) -> int:
    """The place of ``wanted`` among those known: calls that are alike may become one, others may not."""
    for number, one in enumerate(known):
        if one.callee.same_as(wanted.callee) and ir.structural_equal(one.result, wanted.result):
            return number
    known.append(wanted)
    return len(known) - 1


def _read(attrs: ir.attrs.DictAttrs) -> tuple[int, int]:
    """Guard and number; text puts attributes into an attribute of their own, each time it is read."""
    while "__dict__" in attrs.keys():  # noqa: SIM118  (they are no dictionary)
        attrs = attrs["__dict__"]
    return int(attrs["guard"]), int(attrs["number"])


def _found(attrs: ir.attrs.DictAttrs) -> _Hidden:
    guard, number = _read(attrs)
    return _hidden[guard][number]


def show_call(call: relay.Call) -> relay.Expr:
    """The call that such a call stands for, with the arguments it has by now."""
    callee, _, used = _found(call.attrs)
    if op_name(callee):
        return relay.Call(callee.op, call.args, callee.attrs, callee.type_args, callee.span)
    count = len(call.args) - len(used)
    values: dict[relay.Var, relay.Expr] = {}
    lets: list[tuple[relay.Var, relay.Expr]] = []
    for var, value in zip(used, list(call.args)[count:], strict=True):
        if not isinstance(value, relay.Var | relay.Constant):
            lets.append((relay.Var(var.name_hint), value))
            value = lets[-1][0]
        if not value.same_as(var):
            values[var] = value
    if values:
        # one that is called twice would be two functions with the same parameters
        callee = with_new_vars(with_body(callee, relay.bind(callee.body, values)))
    shown: relay.Expr = relay.Call(callee, list(call.args)[:count], None, None, call.span)
    for var, value in reversed(lets):
        shown = relay.Let(var, value, shown)
    return shown


def is_hidden(call: relay.Call, guard: int) -> bool:
    """Is this a call of an opaque op, hidden by this guard?"""
    return op_name(call).startswith(_PREFIX) and _read(call.attrs)[0] == guard


@cache
def _opaque(arguments: int) -> ir.Op:
    """The op of so many arguments, made when it is first needed."""
    name = f"{_PREFIX}{arguments}"
    registry.register(name, "A call of a function that passes must leave alone.")
    op = registry.get(name)
    op.set_num_inputs(arguments)
    for i in range(arguments):
        op.add_argument(f"data_{i}", "Expr", "As the function takes it.")
    op.set_attrs_type_key("DictAttrs")
    op.add_type_rel(name, lambda types, attrs: _found(attrs).result)
    op.set_support_level(10)
    registry.register_pattern(name, registry.OpPattern.OPAQUE)
    registry.register_stateful(name, False)
    registry.register_gradient(name, remember_error(_refuse_gradient))
    registry.register_mixed_precision_conversion(name, lambda call, dtype: [MIXED_PRECISION_NEVER, "", ""])
    ir.register_op_attr(name, "TNonComputational", True)
    return op


def _refuse_gradient(call: relay.Call, _: relay.Expr) -> None:
    callee = _found(call.attrs).callee
    raise GuardError(
        "no_touch",
        f"function {name_of(callee)!r}",
        "expected a pass that works around it, got one that asks for its gradient",
        "run the pass before the function is marked",
    )


def name_of(callee: relay.Expr) -> str:
    """What a report calls a marked function: its name, or that of its pattern."""
    if isinstance(callee, ir.GlobalVar):
        return str(callee.name_hint)
    marks = (attribute(callee, name) for name in ("global_symbol", "Composite", "Compiler"))
    return next(mark for mark in (*marks, "") if mark)
