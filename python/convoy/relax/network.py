"""What is left of a network after partitioning, for reports: the calls of regions, and of ops of TVM's."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import PassInfo
from tvm.relax.analysis import free_vars

from convoy.relax.dataflow import dims, dtype, node_name, op_name
from convoy.relax.no_touch import is_open
from convoy.report.decision import CallDetail


def describe_calls(module: IRModule) -> list[CallDetail]:
    """Every parameter and call of the functions of a module that are not external themselves, in order."""
    return [
        detail
        for var, function in module.functions_items()
        if is_open(function)
        for detail in _describe_function(var.name_hint, function, module)
    ]


def _describe_function(name: str, function: relax.Function, module: IRModule) -> Iterator[CallDetail]:
    sources: dict[relax.Var, tuple[str, ...]] = {
        param: (f"{name}: {param.name}",) for param in function.params
    }
    for param in function.params:
        yield CallDetail(name, sources[param][0], "", "", (), tuple(_describe_types(param.ty)))
    for binding in _bindings(function):
        if isinstance(binding, relax.MatchCast) or not isinstance(binding.value, relax.Call):
            sources[binding.var] = _read(binding.value, sources)  # another name, or a tuple
            if isinstance(binding.value, relax.TupleGetItem) and len(sources[binding.var]) == 1:
                sources[binding.var] = (f"{sources[binding.var][0]}[{binding.value.index}]",)
            continue
        own = f"{name}: {binding.var.name}"
        callee = binding.value.op
        region = callee.name_hint if isinstance(callee, GlobalVar) and not is_open(module[callee]) else ""
        yield CallDetail(
            function=name,
            name=own,
            node=f"{op_name(binding.value) or 'call'} {node_name(binding)}",
            region=region,
            reads=_read(binding.value, sources),
            results=tuple(_describe_types(binding.var.ty)),
        )
        sources[binding.var] = (own,)


def _read(value: relax.Expr, sources: dict[relax.Var, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for var in free_vars(value) for name in sources.get(var, ())))


def _describe_types(ty: relax.Type) -> Iterator[tuple[str, str]]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _describe_types(field)
    else:
        shape = dims(ty)
        yield "?" if shape is None else "×".join(map(str, shape)), dtype(ty)


def _bindings(function: relax.Function) -> Iterator[relax.Binding]:
    if isinstance(function.body, relax.SeqExpr):
        for block in function.body.blocks:
            yield from block.bindings


@pass_instrument
class NamedCalls:
    """Sees how TVM names the kernels it makes, while their results still have the names of the nodes.

    ``names`` has, for each function of TVM's, the results of its calls in the order they stand in.
    """

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        if info.name != "FuseTIR":
            return
        self.names = {}
        for var, function in module.functions_items():
            for binding in _bindings(function) if is_open(function) else ():
                if isinstance(binding.value, relax.Call) and op_name(binding.value).startswith("call_"):
                    callee = binding.value.args[0]
                    kernel = callee.name_hint if isinstance(callee, GlobalVar) else callee.global_symbol
                    self.names.setdefault(str(kernel), []).append(f"{var.name_hint}: {binding.var.name}")
