"""The road from a Relay module to one that TVM builds; read ``road`` first.

Two ways lead onto it: ``partition_for_convoy``, and TVM's own ``relay.build`` with a target whose keys
contain ``convoy`` (``relay/door.py``).  The neutral half of the road is ``backend.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.ir import IRModule
from tvm.ir.transform import PassContext, module_pass
from tvm.relay.build_module import bind_params_by_name

from convoy.errors import ModelError
from convoy.offload.settings import Settings, current_settings
from convoy.relay.codegen import current
from convoy.relay.errors_through_tvm import raise_remembered, remember_error
from convoy.relay.exact import widen_products
from convoy.relay.fold import fold
from convoy.relay.lift import beside_main, lift
from convoy.relay.literals import bind_literals
from convoy.relay.marks import check_marks
from convoy.relay.module import as_module
from convoy.relay.options import make_options, read_folding, read_options, with_options
from convoy.relay.partition import external_functions, give_back_marked, partition

Params = Mapping[str, Any]
"""Weights by the name of their parameter: NDArrays or NumPy arrays."""


def partition_for_convoy(
    mod: IRModule | relay.Function,
    params: Params | None = None,
    mod_name: str = "default",
    *,
    folding: bool | str = True,
    **opts: Any,
) -> IRModule:
    """Move what Convoy computes into external functions, as TVM's own ``partition_for_*`` do.

    Build the result with ``relay.build(mod, target="llvm")`` or any other CPU target, without params.

    Parameters
    ----------
    mod : IRModule | relay.Function
        A Relay module, or a function to make one of.
    params : Params | None
        Its weights, which are bound as constants, also in Convoy's functions that are there already.
    mod_name : str
        The name given to ``relay.build``, if one is: it is part of the functions' names.
    folding : bool | str
        False leaves out the folds: every op comes to codegen as it is, a batch norm whole.
    opts : Any
        Options by name (``convoy.options.Options``), on top of those of ``using``; text is understood
        too: ``disabled_ops="nn.softmax,nn.lrn"``.

    Raises
    ------
    RefusedError
        With ``strict=True``, for the first op that is left to TVM.
    ModelError
        For a module or params of another type, or a function whose marks TVM cannot read.
    ConvoyError
        For an option, pattern, op or node that does not exist.
    """
    settings = current_settings()
    chosen = Settings(make_options(opts, settings.options), settings.report)
    with raise_remembered():
        return road(mod, params, chosen, mod_name, folding=read_folding(folding))


def road(
    module: IRModule | relay.Function,
    params: Params | None,
    settings: Settings,
    name: str = "default",
    *,
    folding: bool = True,
) -> IRModule:
    """The steps, in order; what follows is TVM's build, which calls ``relay.ext.convoy``.

    They are one pass, so that an instrument knows who lifts and gives back marked functions.
    """

    def run(given: IRModule, _: PassContext) -> IRModule:
        return _steps(given, params, settings, name, folding=folding)

    made: IRModule = module_pass(remember_error(run), opt_level=0, name="convoy.road")(as_module(module))
    return made


def _steps(
    module: IRModule, params: Params | None, settings: Settings, name: str, *, folding: bool
) -> IRModule:
    options, report = settings.options, settings.report
    check_marks(module)
    module = lift(bind_params(beside_main(module), params))
    if folding:
        module = fold(report)(module)
    marked = [str(var.name_hint) for var in external_functions(module)]
    module = bind_literals(partition(module, options, report, name))
    module = give_back_marked(module, marked, options, report)
    for var, function in external_functions(module).items():
        if read_options(function) is None:  # else it was partitioned before, with options of its own
            module[var] = with_options(function, options)
    return widen_products(module, current().machine)


def bind_params(module: IRModule, params: Params | None) -> IRModule:
    """``module`` with its weights as constants of ``main``.

    Raises
    ------
    ModelError
        If they are no arrays, or not given by name.
    """
    if params is not None and not isinstance(params, Mapping | tvm.ir.Map):
        raise ModelError(
            "import",
            "params",
            f"expected a mapping of names to arrays, got an object of type {type(params).__name__}",
            "pass a dict, as relay.frontend makes one beside the module",
        )
    if not params:
        return module
    for name in params:
        if not isinstance(name, str):
            raise ModelError(
                "import",
                f"params[{name!r}]",
                f"expected the name of a parameter, got {name!r}",
                "name it as the module does",
            )
    arrays = {name: _array(name, value) for name, value in params.items()}
    bound = IRModule(module.functions, module.type_definitions, attrs=module.attrs)
    bound["main"] = bind_params_by_name(module["main"], arrays)
    return relay.transform.InferType()(bound)


def _array(name: str, value: Any) -> tvm.nd.NDArray:
    if isinstance(value, tvm.nd.NDArray):
        return value.copyto(tvm.cpu())  # NumPy has no bfloat16
    try:
        if isinstance(value, int | float | list):
            return relay.const(value).data  # as TVM does: what Python has as float64 becomes float32
        return tvm.nd.array(np.asarray(value))
    except (TypeError, ValueError) as problem:
        raise ModelError(
            "import",
            f"params[{name!r}]",
            f"expected an array, got {value!r}",
            "leave it out, or pass its weight",
        ) from problem
