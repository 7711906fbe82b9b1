"""Mark the ops of a module: which Convoy takes, and why the others are left.

Calls are told apart by a number in their span, which TVM's passes keep; so the reasons found before
MergeComposite and AnnotateTarget run are still at hand when these ask, and when the report is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from tvm import ir, relay

from convoy.offload import reasons
from convoy.offload.names import stem, switched_off
from convoy.offload.scoped import Scoped
from convoy.options import Options
from convoy.relay.crossing import leaving
from convoy.relay.dataflow import Dataflow, dims, op_name, rebuild_body, with_args, with_body
from convoy.relay.patterns import RULES, TUPLE_OPS, count_images, has_unknown_batch, refusal
from convoy.relay.scopes import is_open, misplaced

Reasons = dict[int, str | None]
"""By the number of each call: why it is left, None if it is taken."""

Users = dict[int, frozenset[int | None]]
"""By the number of each call: those of the calls that read it; None stands for any other reader."""

Alone = dict[int, str]
"""By the number of each call that is taken in a composite only: why it is left where it is in none."""

Refuse = Callable[[relay.Call], str | None]
"""Says why a backend does not take a call, in words, or None."""

_MARK = -7
"""Column of the spans that carry a number, which is their line."""


@dataclass(frozen=True)
class Annotation:
    """What is known of the numbered calls of a module: ``is_taken`` and ``is_closed`` go by it."""

    reasons: Reasons | None = None
    """None: nothing was looked into, as where TVM's passes are used by themselves."""
    users: Users = field(default_factory=dict)
    alone: Alone = field(default_factory=dict)


_annotation = Scoped("convoy_annotation", Annotation)
using = _annotation.using


# Numbers -------------------------------------------------------------------------------------------


def number_calls(function: relay.Function, numbers: Iterator[int]) -> relay.Function:
    """``function`` with its calls of ops numbered, also in open functions inside; names stay.

    What functions inside share with it, or with one another, they still share.
    """
    shared: dict[relay.Expr, relay.Expr] = {}

    def change(old: relay.Call, new: relay.Call) -> relay.Expr:
        if not op_name(new):
            return new
        number = next(numbers)
        given = given_name(old)
        unnamed = given in ("", f"%{call_number(old)}")  # or numbered by a partitioning before
        name = relay.SourceName(f"%{number}" if unnamed else given)
        return with_args(new, new.args, relay.Span(name, number, number, _MARK, _MARK))

    @cache
    def enter(inner: relay.Function) -> relay.Function:
        return renew(inner) if is_open(inner) else inner

    def renew(whole: relay.Function) -> relay.Function:
        return with_body(whole, rebuild_body(whole.body, change, enter, shared))

    return renew(function)


def call_number(call: relay.Call) -> int | None:
    """The number ``number_calls`` gave."""
    span = call.span
    return int(span.line) if isinstance(span, relay.Span) and span.column == _MARK else None


def given_name(call: relay.Call) -> str:
    """The name of the model's node, if the importer left one."""
    return str(call.span.source_name.name) if isinstance(call.span, relay.Span) else ""


def node_names(call: relay.Call) -> set[str]:
    """What a call may be named by: its node in the model, or its number."""
    return {given_name(call), f"%{call_number(call)}"}


# Reasons -------------------------------------------------------------------------------------------


def find_reasons(flow: Dataflow, params: Sequence[relay.Var], options: Options, refuse: Refuse) -> Reasons:
    """Why each op of a function of these parameters is left; its calls are numbered and have types."""
    images = count_images(flow.calls)
    inputs = [dims(node) or () for node in flow.nodes if isinstance(node, relay.Var)]
    places = misplaced(flow, params)
    several = sum(shape[:1] == ("?",) for shape in inputs) > 1
    found: Reasons = {}
    for call in flow.calls:
        number = call_number(call)
        assert number is not None
        found[number] = (
            places.get(call)
            or switched_off(options, op_name(call), node_names(call), prefix="relay.")
            or refusal(call, images)
            or (_items_refusal(call, flow) if op_name(call) in TUPLE_OPS else None)
            or (reasons.SEVERAL_BATCHES if several and has_unknown_batch(call) else None)
            or reasons.in_words(refuse(call))
        )
    return found


def find_alone(flow: Dataflow, options: Options) -> Alone:
    """Which calls are taken in a composite only, as the pattern of the op by itself is switched off."""
    found = {}
    for call in flow.calls:
        number = call_number(call)
        assert number is not None
        if (pattern := f"convoy.{stem(op_name(call))}") in options.disabled_patterns:
            found[number] = f"pattern {pattern} is switched off"
    return found


def _items_refusal(call: relay.Call, flow: Dataflow) -> str | None:
    """Of a tuple's items, each must be used by itself, and but for split only the first."""
    users: Sequence[relay.Expr] = flow.users_of(call)
    if call in (flow.result,) or not all(isinstance(user, relay.TupleGetItem) for user in users):
        return reasons.TUPLE_AS_WHOLE
    if op_name(call) != "split" and any(user.index for user in users):
        return reasons.OTHER_ITEMS
    return None


def find_users(flow: Dataflow) -> Users:
    """Which calls read each call of a function."""
    found = {}
    for call in flow.calls:
        number = call_number(call)
        assert number is not None
        readers = {call_number(user) if op_name(user) else None for user in flow.users_of(call)}
        found[number] = frozenset(readers if call != flow.result else {None})
    return found


def is_taken(call: relay.Call) -> bool:
    """Does Convoy take this op?  Where reasons are in force, only calls that were looked into."""
    known, number = _annotation.current().reasons, call_number(call)
    if known is None:
        return refusal(call) is None
    return number in known and known[number] is None


def _answer(former: Callable[[relay.Call], bool] | None, call: relay.Call) -> bool:
    """Of AnnotateTarget's question: is this op, in no composite, taken?"""
    if former is not None and _annotation.current().reasons is None:
        return bool(former(call))
    return is_taken(call) and call_number(call) not in _annotation.current().alone


def is_closed(calls: Sequence[relay.Call]) -> bool:
    """Does nothing outside read these calls, but for the last?  Unknown for those without a number."""
    users = _annotation.current().users
    numbers = [call_number(call) for call in calls]
    inside = frozenset(numbers)
    return all(users.get(number, inside) <= inside for number in numbers[:-1] if number is not None)


@cache
def register_ops(codegen: str) -> None:
    """Tell TVM's AnnotateTarget by the attribute ``target.<codegen>`` of each op.

    What was registered under that name before, as TVM's own ``dnnl``, answers outside of Convoy's passes.
    """
    attribute = f"target.{codegen}"
    for name in RULES:
        op = relay.op.get(name)
        former = op.get_attr(attribute) if op.has_attr(attribute) else None
        register: Callable[[Callable[[relay.Call], bool]], object] = ir.register_op_attr(
            name, attribute, level=11
        )
        register(leaving(partial(_answer, former)))


register_ops("convoy")
