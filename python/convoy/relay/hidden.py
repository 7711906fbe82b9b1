"""Ops that stand for calls no pass may look into.

``convoy.hidden.n`` takes n arguments; its attributes hold the function it stands for, the type of the
result, and the guard that hid it, as guards may stand within guards. It has no computation to fuse, no
layout, no precision and no constant value, so a pass leaves it where it is and keeps what goes into it and
what comes out of it as they are.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from threading import Lock

from tvm import ir, relay
from tvm.relay.op import op as registry
from tvm.relay.transform.mixed_precision import MIXED_PRECISION_NEVER

from convoy.relay.dataflow import with_body

_PREFIX = "convoy.hidden."
_registering = Lock()
_guards = count()


def new_guard() -> int:
    """A number for a guard, its own in the process."""
    return next(_guards)


def hide_call(call: relay.Call, result: ir.Type, guard: int) -> relay.Call:
    """A call of an opaque op in place of the call of a function, which this guard hides.

    What the function uses from around it, a pass may rename or move: it follows the arguments.
    """
    used = relay.analysis.free_vars(call.op) if isinstance(call.op, relay.Function) else []
    attrs = {"callee": call.op, "result": result, "used": used, "guard": guard}
    holder = relay.Function([], relay.Tuple([])).with_attr(attrs)
    with _registering:
        op = _opaque(len(call.args) + len(used))
    return relay.Call(op, [*call.args, *used], holder.attrs, [], call.span)


def show_call(call: relay.Call) -> relay.Expr:
    """The call that such a call stands for, with the arguments it has by now."""
    callee, used = call.attrs["callee"], list(call.attrs["used"])
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
        callee = with_body(callee, relay.bind(callee.body, values))
    shown: relay.Expr = relay.Call(callee, list(call.args)[:count], None, None, call.span)
    for var, value in reversed(lets):
        shown = relay.Let(var, value, shown)
    return shown


def is_hidden(call: relay.Call, guard: int) -> bool:
    """Is this a call of an opaque op, hidden by this guard?"""
    is_opaque = isinstance(call.op, ir.Op) and call.op.name.startswith(_PREFIX)
    return is_opaque and int(call.attrs["guard"]) == guard


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
    op.add_type_rel(name, lambda types, attrs: attrs["result"])
    op.set_support_level(10)
    registry.register_pattern(name, registry.OpPattern.OPAQUE)
    registry.register_stateful(name, False)
    registry.register_mixed_precision_conversion(name, lambda call, dtype: [MIXED_PRECISION_NEVER, "", ""])
    ir.register_op_attr(name, "TNonComputational", True)
    return op
