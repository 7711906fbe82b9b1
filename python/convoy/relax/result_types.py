"""What calls give, where the functions they call say less: sizes that no parameter has by itself.

A function of x: [max(w - 3, 0)] cannot say w, so its result has no sizes for TVM, which finds types anew
wherever a pass rebuilds a call.  The caller knows them, and is told again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tvm import relax
from tvm.ir import BaseFunc, GlobalVar, Type
from tvm.relax.expr import _update_type
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal

from convoy.relax.local_functions import bindings_in

Functions = Mapping[GlobalVar, BaseFunc]


def note_results(functions: Functions, names: Collection[str]) -> dict[str, Type]:
    """By names of functions: what calls of one give, where that says more than the function does.

    Nothing is noted where two calls of one give different types.
    """
    found: dict[str, list[Type]] = {}
    says = {var.name_hint: function.ret_ty for var, function in functions.items() if var.name_hint in names}
    for binding, name in _calls(functions, names):
        if _says_more(binding.var.ty, says[name]):
            found.setdefault(name, []).append(binding.var.ty)
    return {
        name: first
        for name, (first, *others) in found.items()
        if all(structural_equal(first, other) for other in others)
    }


def recall_results(functions: Functions, noted: Mapping[str, Type]) -> dict[GlobalVar, BaseFunc]:
    """The functions, in which such calls have these types again; with the sizes of a caller alone."""
    recalled = dict(functions)
    for var, function in functions.items() if noted else ():
        if not isinstance(function, relax.Function):
            continue
        sizes = set(relax.analysis.defined_symbolic_vars(function))
        types = {name: ty for name, ty in noted.items() if sizes.issuperset(_sizes(ty))}
        lost = _calls({var: function}, types)
        if any(_says_more(types[name], binding.var.ty) for binding, name in lost):
            recalled[var] = _Recalling(types).visit_expr(function)
    return recalled


def _calls(functions: Functions, names: Collection[str]) -> Iterator[tuple[relax.VarBinding, str]]:
    for function in functions.values():
        for binding in bindings_in(function.body) if isinstance(function, relax.Function) else ():
            name = _called(binding)
            if name in names:
                yield binding, name


def _called(binding: relax.Binding) -> str:
    """The global function whose result a variable is."""
    value = binding.value
    is_call = isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call)
    return str(value.op.name_hint) if is_call and isinstance(value.op, GlobalVar) else ""


def _says_more(one: Type, other: Type) -> bool:
    return bool(other.is_base_of(one)) and not one.is_base_of(other)


def _sizes(ty: Type) -> list[relax.Expr]:
    return list(relax.analysis.tir_vars_in_type(ty))


@mutator
class _Recalling(PyExprMutator):  # type: ignore[misc]
    def __init__(self, types: Mapping[str, Type]) -> None:
        super().__init__()
        self.types = types

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        ty = self.types.get(_called(binding))
        if ty is None or not _says_more(ty, binding.var.ty):
            super().visit_var_binding_(binding)
            return
        kind = relax.DataflowVar if isinstance(binding.var, relax.DataflowVar) else relax.Var
        known, call = kind(binding.var.name, ty), self.visit_expr(binding.value)
        call = relax.Call(call.op, call.args, call.attrs, call.ty_args)
        _update_type(call, ty)  # RunCodegen asks the call
        self.builder_.emit_normalized(relax.VarBinding(known, call))
        self.set_var_remap(binding.var, known)
