"""Blocks of dataflow that end where a call finds sizes.

TVM's FuseOps puts what it fused, and what that reads, as early as tensors allow (0.27).  What reads only
sizes may come to stand in front of the cast that finds them.  In a function that others call, as branches
and the bodies of loops are, it then ends in an error: it takes such a size for a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax, tirx
from tvm.ir import IRModule, PrimType
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_walk

from convoy.relax.rewriting import rewriting


def end_blocks_at_sizes() -> Pass:
    """Pass after which each cast that finds sizes stands between two blocks of dataflow."""
    return rewriting(_Apart, "convoy.end_blocks_at_sizes")


def end_called_blocks_at_sizes() -> Pass:
    """The same, in functions that others call alone."""
    return rewriting(_Apart, "convoy.end_called_blocks_at_sizes", _is_called)


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


@mutator
class _Apart(PyExprMutator):  # type: ignore[misc]
    def visit_function_(self, op: relax.Function) -> relax.Function:
        self.found = {v for p in op.params for v in relax.analysis.definable_tir_vars_in_type(p.ty)}
        self.shared: set[relax.Var] = set()
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
            if isinstance(binding, relax.MatchCast) and self._finds(binding):
                if i > start:
                    yield relax.DataflowBlock(block.bindings[start:i])
                yield relax.BindingBlock([binding])
                start = i + 1
        if start < len(block.bindings):
            yield relax.DataflowBlock(block.bindings[start:])

    def _finds(self, cast: relax.MatchCast) -> bool:
        new = set(relax.analysis.definable_tir_vars_in_type(cast.ty)) - self.found
        self.found |= new
        return bool(new)
