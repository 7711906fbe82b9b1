"""A Loop of which only a call knows how often it runs: its body is a function that others call.

``run_0`` is one step.  ``run_k`` is ``run_(k-1)``, and that once more if the loop goes on after it.  So a
loop of any length is a call of the last of them, and calls are no deeper than there are functions.  Rows
that steps give are joined on the way up.  An axis of a state that a step makes longer or shorter is a size
that each function finds anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import tvm
from tvm import relax, tirx

from convoy.relax.checks import check
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.branches import Captured, add_branch, alone
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.sequences import holds_no_tensor
from convoy.relax.importer.subgraphs import goes_on
from convoy.relax.sizes import LATE

LEVELS = 31
"""Doublings of a loop whose most steps are not known: 2^31 of them end in no time that counts."""

ENDLESS = 1 << 48
"""Steps that take years, whatever a step does."""

LARGEST = 1 << 40
"""No axis of a tensor is as long."""

Varying: TypeAlias = frozenset[tuple[int, int]]
"""Axes of states that steps change: the state's number and the axis."""

Row: TypeAlias = tuple[list[Any], str]
"""Shape and type of what a step gives to a stack."""


def check_loop(node: onnx.NodeProto, count: Any, first: Any) -> None:
    """Refuse a Loop that contradicts itself, or never ends.

    ``count`` is its most steps, ``first`` the condition to begin with; None: there is none.
    """
    body, states = node.attribute[0].g, len(node.input) - 2
    if len(body.input) != states + 2 or len(body.output) < max(states, len(node.output)) + 1:
        raise NodeError(
            f"expected a body of {states} states and {len(node.output)} results, "
            f"got {len(body.input)} inputs and {len(body.output)} outputs",
            "export it again",
        )
    sizes = getattr(count.ty.shape, "values", ()) if count is not None else ()
    if count is not None and ("int" not in str(count.ty.dtype) or any(n != 1 for n in sizes)):
        raise NodeError(f"expected a whole number as the count of steps, got {count.ty}", "export it again")
    if not node.input[1] and not goes_on(body):
        raise NodeError("expected a condition to begin with, as the body gives one", "export it again")
    begins = first is None or (is_constant(first) and bool(first.value.numpy().all()))
    if begins and goes_on(body) and count is not None and is_constant(count):
        steps = int(count.value.numpy().reshape(()))
        if steps >= ENDLESS:
            raise NodeError(f"expected a loop that ends, got {steps} steps", "correct the count")


def carried_by(states: Sequence[relax.Expr], varying: Varying) -> list[relax.Var]:
    """The inputs of a body: the number of a step, whether to go on, and states of these types."""
    for state in states:
        if holds_no_tensor(state):
            raise NodeError("expected states that are tensors, got a sequence", "stack it in a tensor")
    number, going = relax.TensorType([], "int64"), relax.TensorType([], "bool")
    types = [number, going, *(_varied(state.ty, i, varying) for i, state in enumerate(states))]
    return [relax.Var(f"carried_{i}", type_) for i, type_ in enumerate(types)]


def find_varying(module: tvm.IRModule, captured: Captured, carried: Mapping[str, relax.Var]) -> Varying:
    """Axes of states that need not be what they were after a step of this body.

    One that is a number before, and that the data of a step say after it, is none of them: mostly it is
    that number again, and a call sees to it.
    """
    function, found = module["main"], set()
    outer = {v for p in function.params for v in relax.analysis.definable_tir_vars_in_type(p.ty)}
    given = dict(zip(captured.tensors, function.params, strict=False))
    results = getattr(function.body.body.ty, "fields", ())[1 : len(carried) - 1]
    for i, (name, after) in enumerate(zip([*carried][2:], results, strict=True)):
        before = given.get(name, carried[name]).ty
        if isinstance(after, relax.TensorType) and after.ndim == before.ndim:
            pairs = zip(before.shape.values, getattr(after.shape, "values", ()), strict=False)
            found |= {(i, axis) for axis, pair in enumerate(pairs) if _may_differ(*pair, outer)}
    return frozenset(found)


def call_loop(
    bb: Any,
    module: tvm.IRModule,
    captured: Captured,
    carried: Mapping[str, relax.Var],
    count: relax.Expr | None,
    going: relax.Expr,
    states: Sequence[relax.Expr],
    varying: Varying,
) -> list[relax.Expr]:
    """The states after the last step, and the stacks, of a loop with this body.

    Parameters
    ----------
    module : tvm.IRModule
        The body, whose ``main`` gives the condition, the states and a row of each stack.
    captured : Captured
        What the body takes; among it what is ``carried``, by name.
    count : relax.Expr | None
        How many steps there are at most; a scalar.
    going : relax.Expr
        Whether there is a first step; a scalar.
    varying : Varying
        Axes that the types of what is ``carried`` have symbols of their own for.
    """
    step = add_branch(bb, module, "step")
    return _Loop(bb, step, captured, carried, count, varying).call(going, states)


@dataclass
class _Loop:
    bb: Any
    step: tvm.ir.GlobalVar
    captured: Captured
    carried: Mapping[str, relax.Var]
    count: relax.Expr | None
    varying: Varying

    def __post_init__(self) -> None:
        tensors = self.captured.tensors
        states = [*self.carried.values()][2:]
        own = {states[i].ty.shape.values[axis] for i, axis in self.varying}
        every = Captured({**tensors, **self.carried}, self.captured.known).symbols
        self.symbols = [symbol for symbol in every if symbol not in own]
        self.outer = {name: x for name, x in tensors.items() if name not in self.carried}
        given = [self.outer[name].ty for name in self.outer]
        given += [] if self.count is None else [relax.TensorType([], "int64")]
        given += [relax.ShapeType(self.symbols)] if self.symbols else []
        self.rest = [relax.Var(f"given_{i}", type_) for i, type_ in enumerate(given)]
        """Parameters that are the same in each step."""

    def call(self, going: relax.Expr, states: Sequence[relax.Expr]) -> list[relax.Expr]:
        bb = self.bb
        run, rows = self.build_step()
        for _ in range(self.levels()):
            run = self.build_twice(run, self.build_join(run, rows), rows)
        first, rest = constant(np.array(0, np.int64)), list(self.outer.values())
        if self.count is not None:
            going = bb.emit(relax.op.logical_and(going, bb.emit(relax.op.less(first, self.count))))
            rest.append(self.count)
        rest += [relax.ShapeExpr(self.symbols)] if self.symbols else []
        given = [first, going, *states, *rest]
        taken, idle = (alone(relax.Call(function, given)) for function in (run, self.build_idle(rows)))
        at = len(self.carried)
        fields = self.read_fields(bb, bb.emit(relax.If(going, taken, idle)), len(rows))
        return [*fields[2:at], *_shaped(bb, fields[at:], rows)]

    def read_fields(self, bb: Any, made: relax.Expr, stacks: int) -> list[relax.Expr]:
        """What some steps give: number, condition, states and stacks."""
        fields = _fields(bb, made, len(self.carried) + stacks)
        for i, state in enumerate([*self.carried.values()][2:]):
            if any(i == varied for varied, _ in self.varying):
                fields[2 + i] = bb.match_cast(fields[2 + i], _varied(state.ty, i, self.varying))
        return fields

    def levels(self) -> int:
        """How often a step is doubled for a loop to be as long as it can become."""
        if self.count is None or not is_constant(self.count):
            return LEVELS
        return min(math.ceil(math.log2(max(int(self.count.value.numpy()), 1))), LEVELS)

    def build_step(self) -> tuple[tvm.ir.GlobalVar, list[Row]]:
        """``run_0``, and what a step gives to each stack."""
        bb, (number, _, *states) = relax.BlockBuilder(), self.carried.values()
        with _function(bb, [*self.carried.values(), *self.rest]):
            named = {**self.carried, **dict(zip(self.outer, self.rest, strict=False))}
            arguments = [named[name] for name in self.captured.tensors]
            arguments += [relax.ShapeExpr(self.captured.symbols)] if self.captured.symbols else []
            made = bb.emit(relax.Call(self.step, arguments))
            many = isinstance(made.ty, relax.TupleType)
            going, *given = _fields(bb, made, len(made.ty.fields)) if many else [made]
            after = [self.keep(bb, i, *pair) for i, pair in enumerate(zip(states, given, strict=False))]
            rows = [self.read_row(x) for x in given[len(states) :]]
            following = bb.emit(relax.op.add(number, constant(np.array(1, np.int64))))
            going = bb.emit(relax.op.reshape(going, ()))
            if self.count is not None:
                more = bb.emit(relax.op.less(following, self.rest[len(self.outer)]))
                going = bb.emit(relax.op.logical_and(going, more))
            stacks = [bb.emit(relax.op.expand_dims(x, 0)) for x in given[len(states) :]]
            bb.emit_func_output(relax.Tuple([following, going, *after, *stacks]))
        return self.add(bb), rows

    def build_idle(self, rows: Sequence[Row]) -> tvm.ir.GlobalVar:
        """No step: a function, as TVM fuses what stands in a branch with what is before it (0.27)."""
        bb = relax.BlockBuilder()
        with _function(bb, [*self.carried.values(), *self.rest]):
            nothing = [bb.emit(relax.op.zeros([0, *shape], dtype)) for shape, dtype in rows]
            bb.emit_func_output(relax.Tuple([*self.carried.values(), *nothing]))
        return self.add(bb)

    def build_join(self, run: tvm.ir.GlobalVar, rows: Sequence[Row]) -> tvm.ir.GlobalVar:
        """More steps after some, whose rows are given first."""
        bb, parameters, at = relax.BlockBuilder(), [*self.carried.values(), *self.rest], len(self.carried)
        above = [
            relax.Var(f"rows_{i}", relax.TensorType([tirx.Var(f"above_{i}", "int64"), *shape], dtype))
            for i, (shape, dtype) in enumerate(rows)
        ]
        with _function(bb, [*above, *parameters]):
            fields = self.read_fields(bb, bb.emit(relax.Call(run, parameters)), len(rows))
            below = _shaped(bb, fields[at:], rows)
            joined = [bb.emit(relax.op.concat(pair, 0)) for pair in zip(above, below, strict=True)]
            bb.emit_func_output(relax.Tuple([*fields[:at], *joined]))
        return self.add(bb)

    def build_twice(
        self, run: tvm.ir.GlobalVar, join: tvm.ir.GlobalVar, rows: Sequence[Row]
    ) -> tvm.ir.GlobalVar:
        """As many steps as another function has, and those once more if the loop goes on."""
        bb, parameters, at = relax.BlockBuilder(), [*self.carried.values(), *self.rest], len(self.carried)
        with _function(bb, parameters):
            fields = self.read_fields(bb, bb.emit(relax.Call(run, parameters)), len(rows))
            above = _shaped(bb, fields[at:], rows)
            more = relax.Call(join, [*above, *fields[:at], *self.rest])
            idle = relax.Tuple([*fields[:at], *above])
            bb.emit_func_output(bb.emit(relax.If(fields[1], alone(more), alone(idle))))
        return self.add(bb)

    def add(self, bb: Any) -> tvm.ir.GlobalVar:
        """Make a function one of the module's, with variables of its own."""
        function = relax.utils.copy_with_new_vars(bb.finalize()["run"])
        return self.bb.add_func(function.without_attr("global_symbol"), "run")

    def keep(self, bb: Any, i: int, before: relax.Var, after: relax.Expr) -> relax.Expr:
        """A state after a step, of the type it had; where sizes do not show that, a call does."""
        type_, was = after.ty, _varied(before.ty, i, self.varying)
        if not isinstance(type_, relax.TensorType) or (type_.ndim, type_.dtype) != (was.ndim, was.dtype):
            raise NodeError(
                f"expected states that keep their type and number of axes, got {was} that becomes {type_}",
                "write the loop out, or give it states of the last type from the start",
            )
        found = list(zip(getattr(type_.shape, "values", ()), was.shape.values, strict=False))
        pairs = [pair for axis, pair in enumerate(found) if (i, axis) not in self.varying]
        if len(pairs) < len(found) or all(tvm.sym.Analyzer().can_prove_equal(a, b) for a, b in pairs):
            return bb.match_cast(after, was)
        check(bb, *zip(*pairs, strict=True))  # a cast would define a symbol by itself
        return bb.emit(relax.op.reshape(after, was.shape))

    def read_row(self, x: relax.Expr) -> Row:
        sizes = getattr(getattr(x.ty, "shape", None), "values", None)
        symbols = set(self.symbols)
        if sizes is None or not all(symbols >= set(tirx.analysis.undefined_vars(d)) for d in sizes):
            raise NodeError(
                f"expected rows of one shape from all steps, got {x.ty}",
                "write the loop out, or let its steps give rows of one size",
            )
        return list(sizes), str(x.ty.dtype)


def _varied(type_: relax.TensorType, state: int, varying: Varying) -> relax.TensorType:
    """The type of a state, each axis that varies a size of its own."""
    if all(i != state for i, _ in varying):
        return type_
    sizes = [
        tirx.Var(LATE, "int64") if (state, axis) in varying else size
        for axis, size in enumerate(type_.shape.values)
    ]
    return relax.TensorType(sizes, type_.dtype)


def _differ(a: Any, b: Any) -> bool:
    """Whether no call has these sizes equal, but one that has nothing at all in a tensor."""
    known = tvm.sym.Analyzer()
    for symbol in {*tirx.analysis.undefined_vars(a), *tirx.analysis.undefined_vars(b)}:
        known.bind(symbol, tvm.ir.Range.from_min_extent(1, tirx.IntImm("int64", LARGEST)))
    return bool(known.can_prove(a != b))


def _may_differ(before: Any, after: Any, outer: set[tirx.Var]) -> bool:
    """Whether a call may have these sizes differ, as far as is worth it: a number stays one."""
    said = set(tirx.analysis.undefined_vars(after)) <= outer
    if _differ(before, after):
        return True
    number = isinstance(before, tirx.IntImm) and not said
    return not number and not tvm.sym.Analyzer().can_prove_equal(before, after)


@contextmanager
def _function(bb: Any, parameters: Sequence[relax.Var]) -> Iterator[None]:
    """The function ``run`` of this builder; TVM warns of one that goes with an open block."""
    with bb.function("run", parameters):
        try:
            yield
        except BaseException:
            bb._end_block()
            raise


def _fields(bb: Any, made: relax.Expr, count: int) -> list[relax.Expr]:
    return [bb.emit(relax.TupleGetItem(made, i)) for i in range(count)]


def _shaped(bb: Any, stacks: Sequence[relax.Expr], rows: Sequence[Row]) -> list[relax.Expr]:
    """Stacks with their sizes, which Relax forgets in a branch; the number of rows is a new symbol."""
    return [
        bb.match_cast(x, relax.TensorType([tirx.Var(f"rows_{i}", "int64"), *shape], dtype))
        for i, (x, (shape, dtype)) in enumerate(zip(stacks, rows, strict=True))
    ]
