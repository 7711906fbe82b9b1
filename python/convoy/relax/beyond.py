"""What TVM's passes end over in a module: said in one line, beside TVM's own words.

Two things a module may have that no pass of TVM's builds: a function that is written where it is called,
and an op of a tensor whose sizes nobody knows, such as the result of a function for the sizes of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import relax
from tvm.ir import IRModule, Op, Type

from convoy.errors import ModelError
from convoy.relax.dataflow import node_name, op_name
from convoy.relax.local_functions import bindings_in

_LOCAL = "do not work for local functions"
_SIZES = "only supports Tensor that has ShapeExpr shape"


def explain(error: Exception, module: IRModule) -> ModelError | None:
    """What in ``module`` TVM means by ``error``; None if that is not one of these."""
    for words, find in _FINDS.items():
        if words in str(error):
            return next(find(module), None)
    # TVM builds none of these, and its passes end over them in many words
    return next(_local_functions(module), None)


def _local_functions(module: IRModule) -> Iterator[ModelError]:
    for name, binding in _bindings(module):
        if isinstance(binding.value, relax.Function):
            got = "expected functions of the module, got one that is written where it is called"
            remedy = "run relax.transform.LambdaLift over the module before"
            yield ModelError("build", f"function {name}.{binding.var.name}", got, remedy)


def _unknown_sizes(module: IRModule) -> Iterator[ModelError]:
    for _, binding in _bindings(module):
        value = binding.value
        if not isinstance(value, relax.Call) or not isinstance(value.op, Op):
            continue
        for read in value.args:
            if isinstance(read, relax.Var) and _has_unknown_sizes(read.ty):
                got = (
                    f"expected sizes that are numbers or symbols, got {read.name}, whose sizes nobody knows"
                )
                remedy = f"write a match_cast with its sizes behind what gives {read.name}"
                yield ModelError("build", f"{op_name(value)} {node_name(binding)}", got, remedy)


_FINDS: dict[str, Callable[[IRModule], Iterator[ModelError]]] = {
    _LOCAL: _local_functions,
    _SIZES: _unknown_sizes,
}


def _bindings(module: IRModule) -> Iterator[tuple[str, relax.Binding]]:
    for var, function in module.functions_items():
        for binding in bindings_in(function.body) if isinstance(function, relax.Function) else ():
            yield str(var.name_hint), binding


def _has_unknown_sizes(ty: Type) -> bool:
    return isinstance(ty, relax.TensorType) and ty.shape is None
