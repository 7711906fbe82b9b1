"""TVM's command line with the target ``convoy``: ``python -m convoy.relay.tvmc compile …``.

``--target="convoy -threads=2, llvm -mcpu=haswell"`` partitions for Convoy, with its options, and leaves the
rest to LLVM; ``--dump-offloads=-`` shows which ops went where, those folded away as ``unknown``.  Importing
this module is enough to give ``tvmc.compile`` the target, too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tvm import ir, relay
from tvm.driver.tvmc import composite_target
from tvm.ir import IRModule

from convoy.errors import ConvoyError
from convoy.offload.names import KEY, stem
from convoy.relay.annotate import call_number
from convoy.relay.compile import Params, partition_for_convoy
from convoy.relay.dataflow import attribute, given_name, op_name, rebuild
from convoy.relay.module import functions_of


def register() -> None:
    """Add Convoy to the composite targets of tvmc; from TVM 0.17 on it asks for all four entries."""
    composite_target.REGISTERED_CODEGEN[KEY] = {
        "config_key": None,
        "pass_default": False,
        "default_target": None,
        "pass_pipeline": partition,
    }


def partition(mod: IRModule, params: Params | None = None, **given: Any) -> IRModule:
    """``partition_for_convoy``, its result in the form that ``--dump-offloads`` can read.

    That expects attributes, if none, on every function, in every span a name that tvmc gave, and composites
    alone in an external function: an op outside of them has the name of the last one it saw.
    """
    cut = partition_for_convoy(mod, params, **given)
    functions = {var: _readable(function) for var, function in functions_of(cut)}
    return relay.transform.InferType()(IRModule(functions, cut.type_definitions, attrs=cut.attrs))


def _readable(function: relay.Function) -> relay.Function:
    external = attribute(function, "Compiler") == KEY

    def change(original: relay.Call, call: relay.Call) -> relay.Expr:
        own = given_name(call) == f"%{call_number(call)}"
        call = relay.Call(call.op, call.args, call.attrs, call.type_args, None if own else call.span)
        return _composite(original, call) if external and op_name(call) else call

    made = rebuild(function, change, _readable)
    if made.attrs is not None:
        return made
    none = ir.make_node("DictAttrs")
    return relay.Function(made.params, made.body, made.ret_type, made.type_params, none)


def _composite(original: relay.Call, call: relay.Call) -> relay.Call:
    """A call of a composite that has the one op; constants stay in it."""
    params: dict[relay.Var, relay.Expr] = {}

    def parameter(typed: relay.Expr, value: relay.Expr) -> relay.Expr:
        if isinstance(value, relay.Constant):
            return value
        if isinstance(value, relay.Tuple):
            fields = zip(typed.fields, value.fields, strict=True)
            return relay.Tuple([parameter(*field) for field in fields])
        var = relay.Var(f"p{len(params)}", typed.checked_type)
        params[var] = value
        return var

    inner = [parameter(*pair) for pair in zip(original.args, call.args, strict=True)]
    body = relay.Call(call.op, inner, call.attrs, call.type_args, call.span)
    function = relay.Function(list(params), body).with_attr("Composite", f"{KEY}.{stem(op_name(call))}")
    return relay.Call(function, list(params.values()))


def main(arguments: list[str] | None = None) -> None:
    """Run tvmc; ends the process with its exit code, 1 for an error of Convoy."""
    from tvm.driver.tvmc.main import _main

    try:
        code = _main(sys.argv[1:] if arguments is None else arguments)
    except ConvoyError as error:
        if os.environ.get("CONVOY_DEBUG") == "1":
            raise
        code = f"Error: {error}"
    sys.exit(code)


register()

if __name__ == "__main__":
    main()
