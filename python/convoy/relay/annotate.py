"""Mark the ops of a module: which Convoy takes, and why the others are left.

Calls are told apart by a number in their span, which TVM's passes keep; so the reasons found before
MergeComposite and AnnotateTarget run are still at hand when these ask, and when the report is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock

from tvm import relay

from convoy.offload import reasons
from convoy.offload.in_force import InForce
from convoy.offload.names import KEY, stem, switched_off
from convoy.ops.table import row_of
from convoy.options import Options
from convoy.relay.dataflow import (
    Dataflow,
    given_name,
    op_name,
    operands,
    rebuild_body,
    with_args,
    with_body,
)
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.lets import misplaced
from convoy.relay.no_touch import is_open
from convoy.relay.patterns import TAKEN, Origins, find_origins, refusal
from convoy.relay.readings import count_images

Reasons = dict[int, str | None]
"""By the number of each call: why it is left, None if it is taken."""

Users = dict[int, frozenset[int | None]]
"""By the number of each call: those of the calls that read it; None stands for any other reader."""

Alone = dict[int, str]
"""By the number of each call that is taken in a composite only: why it is left where it is in none."""

Predicate = Callable[[relay.Call], bool]
"""Says whether a backend takes a call."""

Refuse = Callable[[relay.Call], str | None]
"""Says why a backend does not take a call, in words, or None."""

_MARK = -7
"""Column of the spans that carry a number, which is their line."""


@dataclass(frozen=True)
class Annotation:
    """What is known of the numbered calls of a module: ``is_taken`` goes by it."""

    reasons: Reasons | None = None
    """None: nothing was looked into, as where TVM's passes are used by themselves."""
    alone: Alone = field(default_factory=dict)


_annotation = InForce("convoy_annotation", Annotation)
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


def node_names(call: relay.Call) -> set[str]:
    """What a call may be named by: its node in the model, or its number."""
    return {given_name(call), f"%{call_number(call)}"}


# Reasons -------------------------------------------------------------------------------------------


def find_reasons(flow: Dataflow, params: Sequence[relay.Var], options: Options, refuse: Refuse) -> Reasons:
    """Why each op of a function of these parameters is left; its calls are numbered and have types."""
    numbers = count_images(flow.calls)
    origins = find_origins(flow.nodes)
    places = misplaced(flow, params)
    found: Reasons = {}
    for call in flow.calls:
        number = call_number(call)
        assert number is not None
        found[number] = (
            places.get(call)
            or switched_off(options, op_name(call), node_names(call), prefix="relay.")
            or refusal(call, numbers)
            or (_items_refusal(call, flow) if row_of(op_name(call)).item is not None else None)
            or (reasons.SEVERAL_BATCHES if _mixes_batches(call, origins) else None)
            or reasons.in_words(refuse(call))
        )
    return found


def _mixes_batches(call: relay.Call, origins: Mapping[relay.Expr, Origins]) -> bool:
    """May the images of its operands differ in number?  Then a region of one number cannot hold it."""
    return len(Origins().union(*(origins[operand] for operand in operands(call)))) > 1


def find_alone(flow: Dataflow, options: Options) -> Alone:
    """Which calls are taken in a composite only, as the pattern of the op by itself is switched off."""
    found = {}
    for call in flow.calls:
        number = call_number(call)
        assert number is not None
        if (pattern := f"convoy.{stem(op_name(call))}") in options.disabled_patterns:
            found[number] = reasons.pattern_off(pattern)
    return found


def _items_refusal(call: relay.Call, flow: Dataflow) -> str | None:
    """Why a tuple's items are not taken: each must be used by itself, and but for split only the first."""
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


# What AnnotateTarget asks ---------------------------------------------------------------------------


def _register(codegen: str, otherwise: Mapping[str, Predicate]) -> None:
    for name in TAKEN:
        op = relay.op.get(name)
        op.reset_attr(f"target.{codegen}")
        op.set_attr(f"target.{codegen}", remember_error(partial(_answer, otherwise.get(name))))


def _answer(otherwise: Predicate | None, call: relay.Call) -> bool:
    """Is this op, in no composite, taken?  Outside of Convoy's passes ``otherwise`` says so, if any."""
    if _annotation.current().reasons is None:
        return otherwise is not None and bool(otherwise(call))
    return is_taken(call) and call_number(call) not in _annotation.current().alone


@contextmanager
def asked_for(codegen: str) -> Iterator[None]:
    """TVM's AnnotateTarget asks Convoy about each op it knows, by the op's attribute ``target.<codegen>``.

    What was registered there before answers meanwhile in other threads, and is all there is afterwards.
    """
    if codegen == KEY:  # always
        yield
        return
    with _registering:
        attribute = f"target.{codegen}"
        ops = [relay.op.get(name) for name in TAKEN]
        former = {op.name: op.get_attr(attribute) for op in ops if op.has_attr(attribute)}
        former = {name: predicate for name, predicate in former.items() if predicate is not None}
        _register(codegen, former)
        try:
            yield
        finally:
            for op in ops:
                op.reset_attr(attribute)
                if op.name in former:
                    op.set_attr(attribute, former[op.name])


_registering = Lock()
_register(KEY, dict.fromkeys(TAKEN, is_taken))
