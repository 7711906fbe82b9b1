"""Constants that are expressions become literals, by TVM's FoldConstant.

It is shown what is computed of constants and nothing else: it legalizes every op it sees, which takes time,
and is an error where TVM's legalization is one, as that of ``nn.pixel_shuffle`` (0.27).  What
``convoy.fold.constants`` evaluates is left to it, as that is in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvm import IRModule, relax, tirx
from tvm.ir import Constant, GlobalVar, Op
from tvm.ir.transform import PassContext

from convoy.fold.constants import EVALUATED, FLOATS
from convoy.relax.dataflow import dtype, op_name
from convoy.relax.no_touch import is_open


def compute_constants(module: IRModule, _: PassContext) -> IRModule:
    """``module``, its constant expressions in dataflow computed, and put where they are read."""
    while changed := _computed(module):
        module = module.clone()
        for var, function in changed.items():
            module.update_func(var, function)
        # puts literals where they are read, items of tuples too: what reads those is next
        module = relax.transform.CanonicalizeBindings()(module)
    return module


def _computed(module: IRModule) -> dict[GlobalVar, relax.Function]:
    """The functions in which something is constant and not yet computed, with what it is."""
    found = {}
    for var, function in module.functions_items():
        constant = _constant_bindings(function) if is_open(function) else []
        wanted = [binding for binding in constant if _is_computed(binding.value)]
        if wanted and (values := _compute(constant, wanted, module)):
            found[var] = _with_values(function, values)
    return found


def _constant_bindings(function: relax.Function) -> list[relax.VarBinding]:
    """The bindings of ops that depend on constants only, in running order."""
    found: dict[relax.Var, relax.VarBinding] = {}
    for binding in _bindings(function):
        value = binding.value
        if isinstance(value, relax.Call) and isinstance(value.op, Op):
            read = [leaf for arg in value.args for leaf in _leaves(arg)]
            known = [leaf in found or isinstance(leaf, Constant) for leaf in read]
            if any(known) and all(
                is_known or _is_number(leaf) for is_known, leaf in zip(known, read, strict=True)
            ):
                found[binding.var] = binding
    return list(found.values())


def _is_computed(call: relax.Call) -> bool:
    """Is this an op that the folds after this one do not evaluate, or not as it is here?"""
    return (
        op_name(call) not in EVALUATED or op_name(call) == "layout_transform" or dtype(call) not in FLOATS
    )


def _compute(
    constant: Sequence[relax.VarBinding], wanted: Sequence[relax.VarBinding], module: IRModule
) -> dict[relax.Var, relax.Expr]:
    """The literal, or tuple of literals, each wanted variable is, for those that FoldConstant knows."""
    kernels = {var: f for var, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    builder = relax.BlockBuilder(IRModule(kernels))
    with builder.function("constants", []):
        with builder.dataflow():
            for binding in constant:
                builder.emit_normalized(binding)
            results = builder.emit_output(relax.Tuple([binding.var for binding in wanted]))
        builder.emit_func_output(results)
    made = relax.transform.FoldConstant()(builder.finalize())["constants"]
    bound = {binding.var: binding.value for binding in _bindings(made)}
    *_, results = bound.values()
    found = {}
    for binding, field in zip(wanted, results.fields, strict=True):
        # a literal stands where it is read, a tuple of them where it is bound
        value = bound.get(field, field)
        if all(isinstance(leaf, Constant) for leaf in _leaves(value)):
            found[binding.var] = value
    return found


def _with_values(function: relax.Function, values: Mapping[relax.Var, relax.Expr]) -> relax.Function:
    blocks = []
    for block in function.body.blocks:
        bindings = [
            relax.VarBinding(binding.var, values[binding.var]) if binding.var in values else binding
            for binding in block.bindings
        ]
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(list(function.params), body, function.ret_ty, function.is_pure, function.attrs)


def _bindings(function: relax.Function) -> Iterator[relax.Binding]:
    for block in function.body.blocks if isinstance(function.body, relax.SeqExpr) else ():
        if isinstance(block, relax.DataflowBlock):
            yield from block.bindings


def _leaves(expr: relax.Expr) -> Iterator[relax.Expr]:
    """What an operand consists of: a tuple gives its fields, a shape its lengths."""
    if isinstance(expr, relax.Tuple | relax.ShapeExpr):
        for field in expr.fields if isinstance(expr, relax.Tuple) else expr.values:
            yield from _leaves(field)
    else:
        yield expr


def _is_number(leaf: relax.Expr) -> bool:
    return isinstance(leaf, tirx.IntImm | tirx.FloatImm)
