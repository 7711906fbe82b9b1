"""Blocks of dataflow as TVM's FuseOps takes them: where they end, and what they hand on.

TVM's FuseOps puts what it fused, and what that reads, as early as tensors allow (0.27).  What reads only
sizes may come to stand in front of the cast that finds them.  In a function that others call, as branches
and the bodies of loops are, it then ends in an error: it takes such a size for a parameter.

Of tuples that it fuses the items of, it confuses the places when there are several with several items.
An item that is a tuple it fuses with an item of that, into a kernel without an op, and ends in an error.

A call in place writes into its argument, and is pure to TVM (0.27).  So it may stand in a block of
dataflow, but what reads that argument before must not come to stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax, tirx
from tvm.ir import IRModule, PrimType
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_walk

from convoy.relax.dataflow import op_name
from convoy.relax.local_functions import bindings_in
from convoy.relax.rewriting import rewriting

_IN_PLACE = ("call_tir_inplace", "call_inplace_packed")


def end_blocks_at_sizes() -> Pass:
    """Pass after which each cast that finds sizes stands between two blocks of dataflow."""
    return rewriting(_Apart, "convoy.end_blocks_at_sizes")


def end_called_blocks_at_sizes() -> Pass:
    """The same, in functions that others call alone."""
    return rewriting(_Apart, "convoy.end_called_blocks_at_sizes", _is_called)


def end_blocks_at_writes() -> Pass:
    """Pass after which each call in place stands between two blocks of dataflow."""
    return rewriting(_Writing, "convoy.end_blocks_at_writes", _writes_in_place)


def end_blocks_at_inner_tuples() -> Pass:
    """Pass after which each item that is a tuple itself stands between two blocks of dataflow."""
    return rewriting(_Taken, "convoy.end_blocks_at_inner_tuples", _takes_tuples)


def hand_items_on() -> Pass:
    """Pass after which blocks hand on the items of a region's results, so that none is fused."""
    return rewriting(_Items, "convoy.hand_items_on")


def may_write(value: relax.Expr) -> bool:
    """Is this a call that may write into what others read, or a branch with one?"""
    if relax.analysis.contains_impure_call(value) or op_name(value) in _IN_PLACE:
        return True
    branches = (value.true_branch, value.false_branch) if isinstance(value, relax.If) else ()
    return any(op_name(b.value) in _IN_PLACE for branch in branches for b in bindings_in(branch))


def _writes_in_place(function: relax.Function) -> bool:
    return any(op_name(binding.value) in _IN_PLACE for binding in bindings_in(function.body))


def _takes_tuples(function: relax.Function) -> bool:
    return any(map(_is_inner_tuple, bindings_in(function.body)))


def _is_inner_tuple(binding: relax.Binding) -> bool:
    return isinstance(binding.value, relax.TupleGetItem) and isinstance(binding.var.ty, relax.TupleType)


def _is_called(function: relax.Function) -> bool:
    return not (function.attrs and "global_symbol" in function.attrs)


def reads_sizes_early(module: IRModule) -> bool:
    """May a function read a size in front of the cast that finds it?"""
    functions = [f for _, f in module.functions_items() if isinstance(f, relax.Function)]
    return any(map(_reads_early, functions))


def _reads_early(function: relax.Function) -> bool:
    found = {v for p in function.params for v in (p, *relax.analysis.definable_tir_vars_in_type(p.ty))}
    for block in function.body.blocks:
        for binding in block.bindings:
            if not _numbers(binding.value) <= found:
                return True
            found.add(binding.var)
            if isinstance(binding, relax.MatchCast):
                found |= set(relax.analysis.definable_tir_vars_in_type(binding.ty))
    return False


def _numbers(value: relax.Expr) -> set[tirx.Var]:
    """The variables in an expression that stand for a number: sizes among them."""
    found: list[tirx.Var] = []
    structural_walk(value, (tirx.Var, found.append))
    return {v for v in found if isinstance(v.ty, PrimType)}


class _Cut(PyExprMutator):  # type: ignore[misc]
    """Puts what ends a block between two blocks of dataflow."""

    shared: set[relax.Var]

    def visit_function_(self, op: relax.Function) -> relax.Function:
        self.shared = set()
        return super().visit_function_(op)

    def visit_seq_expr_(self, op: relax.SeqExpr) -> relax.Expr:
        blocks = [part for block in op.blocks for part in self._parts(block)]
        homes = {b.var: i for i, block in enumerate(blocks) for b in block.bindings}
        plain = [
            b.var for block in blocks if not isinstance(block, relax.DataflowBlock) for b in block.bindings
        ]
        self.shared |= set(plain) | {
            v
            for i, block in enumerate(blocks)
            for b in block.bindings
            for v in relax.analysis.free_vars(b.value)
            if homes.get(v, i) != i
        }
        return super().visit_seq_expr_(relax.SeqExpr(blocks, op.body))

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        return relax.Var(var.name, var.ty) if var in self.shared else var

    def _parts(self, block: relax.BindingBlock) -> Iterator[relax.BindingBlock]:
        if not isinstance(block, relax.DataflowBlock):
            yield block
            return
        start = 0
        for i, binding in enumerate(block.bindings):
            if self._ends(binding):
                if i > start:
                    yield relax.DataflowBlock(block.bindings[start:i])
                yield relax.BindingBlock([binding])
                start = i + 1
        if start < len(block.bindings):
            yield relax.DataflowBlock(block.bindings[start:])

    def _ends(self, binding: relax.Binding) -> bool:
        raise NotImplementedError


@mutator
class _Items(PyExprMutator):  # type: ignore[misc]
    """Makes the items of tuples that no op of TVM's gives results of their blocks."""

    def visit_function_(self, op: relax.Function) -> relax.Function:
        self.tuples: set[relax.Var] = set()
        self.items: set[relax.Var] = set()
        for binding in bindings_in(op.body):
            if op_name(binding.value) == "call_dps_packed":
                self.tuples.add(binding.var)
            elif isinstance(binding.value, relax.TupleGetItem) and binding.value.tuple_value in self.tuples:
                self.items.add(binding.var)
        return super().visit_function_(op)

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        return relax.Var(var.name, var.ty) if var in self.items else var


@mutator
class _Apart(_Cut):
    def visit_function_(self, op: relax.Function) -> relax.Function:
        self.found = {v for p in op.params for v in relax.analysis.definable_tir_vars_in_type(p.ty)}
        return super().visit_function_(op)

    def _ends(self, binding: relax.Binding) -> bool:
        return isinstance(binding, relax.MatchCast) and self._finds(binding)

    def _finds(self, cast: relax.MatchCast) -> bool:
        new = set(relax.analysis.definable_tir_vars_in_type(cast.ty)) - self.found
        self.found |= new
        return bool(new)


@mutator
class _Writing(_Cut):
    def _ends(self, binding: relax.Binding) -> bool:
        return op_name(binding.value) in _IN_PLACE


@mutator
class _Taken(_Cut):
    def _ends(self, binding: relax.Binding) -> bool:
        return _is_inner_tuple(binding)
