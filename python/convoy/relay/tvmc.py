"""TVM's command line with the target ``convoy``: ``python -m convoy.relay.tvmc compile …``.

``--target="convoy -threads=2, llvm -mcpu=haswell"`` partitions for Convoy, with its options, and leaves the
rest to LLVM; ``--dump-offloads=-`` shows which ops went where.  Importing this module is enough to give
``tvmc.compile`` the target, too.
"""

from __future__ import annotations

import sys
from typing import Any

from tvm import ir, relay
from tvm.driver.tvmc import composite_target
from tvm.ir import IRModule

from convoy.relay.annotate import call_number, given_name
from convoy.relay.compile import Params, partition_for_convoy
from convoy.relay.dataflow import rebuild
from convoy.relay.partition import KEY


def register() -> None:
    """Add Convoy to the composite targets of tvmc."""
    composite_target.REGISTERED_CODEGEN[KEY] = {"config_key": None, "pass_pipeline": partition}


def partition(mod: IRModule, params: Params | None = None, **given: Any) -> IRModule:
    """``partition_for_convoy``, its result in the form that ``--dump-offloads`` can read.

    That expects attributes, if none, on every function, and in every span a name that tvmc gave.
    """
    cut = partition_for_convoy(mod, params, **given)
    functions = {var: _without_own_names(function) for var, function in cut.functions_items()}
    return relay.transform.InferType()(IRModule(functions, cut.type_definitions, attrs=cut.attrs))


def _without_own_names(function: relay.Function) -> relay.Function:
    def change(_: relay.Call, call: relay.Call) -> relay.Expr:
        op = _without_own_names(call.op) if isinstance(call.op, relay.Function) else call.op
        own = given_name(call) == f"%{call_number(call)}"
        return relay.Call(op, call.args, call.attrs, call.type_args, None if own else call.span)

    made = rebuild(function, change)
    if made.attrs is not None:
        return made
    none = ir.make_node("DictAttrs")
    return relay.Function(made.params, made.body, made.ret_type, made.type_params, none)


def main(arguments: list[str] | None = None) -> None:
    """Run tvmc; ends the process with its exit code."""
    from tvm.driver.tvmc.main import _main

    sys.exit(_main(sys.argv[1:] if arguments is None else arguments))


register()

if __name__ == "__main__":
    main()
