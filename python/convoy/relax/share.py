"""Sizes, indices and masks that a network computes several times are computed once.

Exporters write them anew for each layer, and so do the bodies of ops that are written out.  Each is a call
of its own for TVM's virtual machine, and a few hundred take as long as a layer does.  What is computed of
floats is left as it is: patterns know it, and nodes are named in decisions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tvm import relax
from tvm.ir import IRModule, Op
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal, structural_hash

from convoy.relax.dataflow import is_constant, node_name
from convoy.relax.no_touch import is_open, no_touch

_COUNTS = frozenset({"int32", "int64", "bool"})
_OTHERS = ("relax.call_", "relax.invoke_", "relax.builtin.", "relax.memory.", "relax.vm.")
"""How ops begin that call what may be anything, or give memory."""


def share_counts(named: Collection[str] = ()) -> Pass:
    """Pass that has each op on whole numbers and bools computed once, whatever it makes of them.

    Parameters
    ----------
    named : Collection[str]
        Nodes that stay as they are.
    """

    def run(module: IRModule, _: PassContext) -> IRModule:
        module = module.clone()
        for var, function in module.functions_items():
            if is_open(function):
                module.update_func(var, _Sharing(named).visit_expr(function))
        return module

    return no_touch(module_pass(run, opt_level=0, name="convoy.share_counts"))


class _Key:
    """A call, by what it computes."""

    def __init__(self, call: relax.Call) -> None:
        self.call = call
        self.hash = int(structural_hash(call))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and bool(structural_equal(self.call, other.call))


@mutator
class _Sharing(PyExprMutator):  # type: ignore[misc]
    def __init__(self, named: Collection[str]) -> None:
        super().__init__()
        self.named = named
        self.known: dict[_Key, relax.Var] = {}
        """The variable that holds a call already, in the block that is visited."""

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        before, self.known = self.known, {}
        visited = super().visit_dataflow_block_(block)
        self.known = before
        return visited

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var = binding.var
        if not isinstance(var, relax.DataflowVar) or not isinstance(binding.value, relax.Call):
            super().visit_var_binding_(binding)
            return
        call = self.visit_expr(binding.value)
        if not self._counts(call) or node_name(binding) in self.named:
            super().visit_var_binding_(binding)
            return
        key = _Key(call)
        if key in self.known:
            self.set_var_remap(var, self.known[key])
            return
        super().visit_var_binding_(binding)
        self.known[key] = self.visit_expr(var)

    def _counts(self, call: relax.Call) -> bool:
        """Does a call read counts, and constants if any, but not these alone, which are folded?"""
        name = str(call.op.name) if isinstance(call.op, Op) else ""
        if not name or (name.startswith(_OTHERS) and name != "relax.call_tir"):
            return False
        tensors = [t for arg in call.args for t in _tensors(arg)]
        read = [tensor for tensor in tensors if not is_constant(tensor)]
        return (bool(read) or not tensors) and all(str(tensor.ty.dtype) in _COUNTS for tensor in read)


def _tensors(arg: Any) -> list[Any]:
    """The tensors of an argument."""
    if isinstance(arg, relax.Tuple):
        return [tensor for field in arg.fields for tensor in _tensors(field)]
    return [arg] if isinstance(arg.ty, relax.TensorType) else []
