"""TVM's own door: ``relay.build(module, target="convoy", params=params)`` takes Convoy's road.

The hooks are the target tag ``convoy`` and the two classes that build: ``BuildModule``, of the graph
and the ahead-of-time executor, and ``VMCompiler``.  A target without the key is built as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import wraps
from hashlib import blake2b
from inspect import signature
from typing import Any

import tvm
from tvm import relay
from tvm.ir import GlobalVar, IRModule
from tvm.relay.backend.vm import VMCompiler
from tvm.relay.build_module import BuildModule
from tvm.runtime.vm import Executable

from convoy.errors import TargetError
from convoy.offload.names import HOST_KEY, KEY, check_registered
from convoy.offload.settings import current_settings
from convoy.relay import codegen
from convoy.relay.compile import road
from convoy.relay.dataflow import attribute, dims
from convoy.relay.errors_through_tvm import raise_remembered
from convoy.relay.executors import check_calls, check_tuples, explaining, has_external, warn_of_calls
from convoy.relay.lift import lift_written, numbered
from convoy.relay.module import as_module, functions_of, replace_functions
from convoy.relay.partition import external_functions
from convoy.relay.reader import flat_types
from convoy.relay.resolve import is_external


def open_door() -> None:
    """Put the hooks in place; a second call changes nothing."""
    mcpu = codegen.system_cpu()
    tvm.target.tag.register_tag(
        KEY,
        {"kind": "llvm", "keys": [KEY, "cpu", HOST_KEY], **({"mcpu": mcpu} if mcpu else {})},
        override=True,
    )
    if not getattr(BuildModule.build, "of_convoy", False):
        BuildModule.build = _build(BuildModule.build)
        BuildModule.optimize = _optimize(BuildModule.optimize)
        VMCompiler.optimize = _optimize(VMCompiler.optimize)
        VMCompiler.set_params = _set_params(VMCompiler.set_params)
        VMCompiler.lower = _lower(VMCompiler.lower)
        VMCompiler.get_exec = _get_exec(VMCompiler.get_exec)


def _build(plain: Any) -> Any:
    """``BuildModule.build``, after Convoy's road where the target says so."""
    form = signature(plain)

    @wraps(plain)
    def build(*given: Any, **named: Any) -> Any:
        call = form.bind(*given, **named)
        asked = call.arguments
        asked["target"] = tvm.target.Target.target_or_current(asked.get("target"))
        machine, settings = _machine(asked["target"]), current_settings()
        executor = asked.get("executor")
        ahead = executor is not None and executor.name == "aot"
        runtime = asked.get("runtime")
        system_lib = runtime is not None and "system-lib" in runtime and bool(runtime["system-lib"])
        context = codegen.Context(machine, settings, by_name=ahead, system_lib=system_lib)
        with raise_remembered(), codegen.using(context):
            on_road = _is_on_road(machine)
            if not on_road:
                asked["mod"] = lift_written(asked["mod"])
            if on_road or external_functions(asked["mod"]):
                _check_executor(executor)
            if on_road:
                _check_shapes(asked["mod"])
                name = asked.get("mod_name") or "default"
                asked["mod"] = road(_used(asked["mod"]), asked.pop("params", None), settings, name)
                _check_codegens(asked["mod"])
                check_calls(asked["mod"])
            elif has_external(asked["mod"]):
                warn_of_calls(asked["mod"])
            if ahead:
                check_tuples(asked["mod"])
                asked["mod"] = _unique_symbols(asked["mod"], f"{machine} {settings.options}")
            with explaining(asked["mod"]) if on_road or has_external(asked["mod"]) else nullcontext():
                return plain(*call.args, **call.kwargs)

    build.of_convoy = True  # type: ignore[attr-defined]
    return build


def _optimize(plain: Any) -> Any:
    """``optimize`` of either class, after Convoy's road where the target says so."""

    @wraps(plain)
    def optimize(
        self: Any, mod: IRModule, target: Any = None, target_host: Any = None, params: Any = None
    ) -> tuple[IRModule, Any]:
        machine, settings = _machine(target), current_settings()
        with raise_remembered(), codegen.using(codegen.Context(machine, settings)):
            if _is_on_road(machine):
                mod, params = road(_used(mod), params or _kept_params(self), settings), None
            else:
                mod = lift_written(mod)
            optimized: tuple[IRModule, Any] = plain(self, mod, target, target_host, params)
            return optimized

    return optimize


def _set_params(plain: Any) -> Any:
    """``VMCompiler.set_params``, which also keeps the weights for the road."""

    @wraps(plain)
    def set_params(self: VMCompiler, params: dict[str, Any]) -> None:
        self.convoy_params = params
        plain(self, params)

    return set_params


def _kept_params(compiler: Any) -> dict[str, Any] | None:
    """What ``VMCompiler.set_params`` was given.

    The compiler begins anew: it would write them into the executable, whose regions have them already.
    """
    kept: dict[str, Any] | None = getattr(compiler, "convoy_params", None)
    if kept is not None:
        VMCompiler.__init__(compiler)
    return kept


def _lower(plain: Any) -> Any:
    """``VMCompiler.lower``, after Convoy's road where the target says so."""

    @wraps(plain)
    def lower(self: VMCompiler, mod: IRModule, target: Any = None, target_host: Any = None) -> None:
        machine, settings = _machine(target), current_settings()
        with raise_remembered(), codegen.using(codegen.Context(machine, settings)):
            on_road = _is_on_road(machine)
            if on_road:
                mod = road(_used(mod), _kept_params(self), settings)
                _check_codegens(mod)
            else:
                mod = lift_written(mod)
            with explaining(mod, by_machine=True) if on_road or has_external(mod) else nullcontext():
                plain(self, mod, target, target_host)
            marks = {attribute(function, "Compiler") for _, function in functions_of(mod)}
            self.only_convoy = marks - {""} == {KEY}

    return lower


def _get_exec(plain: Any) -> Any:
    """``VMCompiler.get_exec``, with the first region to hold the others where nothing is left to TVM.

    TVM has an empty C module hold them, and exporting C asks for TVM's headers, which its packages lack.
    """

    @wraps(plain)
    def get_exec(self: VMCompiler) -> Executable:
        executable = plain(self)
        modules = [executable.lib, *executable.lib.imported_modules]
        empty = any(module.type_key == "c" and module.get_source() == ";" for module in modules)
        if not (empty and getattr(self, "only_convoy", False)):
            return executable
        first, *others = (module for module in modules if module.type_key == "llvm")
        for other in others:
            first.import_module(other)
        return Executable.load_exec(executable.save()[0], first)

    return get_exec


def _unique_symbols(module: IRModule, made_for: str) -> IRModule:
    """``module`` with names for Convoy's functions that no others have.

    A name is its own, in letters of C, and a hash of what the function computes and what it is made for.

    A function that is called twice, whoever's it is, has two names: TVM notes at each call how much memory
    is in use, and then takes it for two functions.
    """
    named: dict[GlobalVar, relay.Function] = {}
    used: set[str] = set()
    for var, function in functions_of(module):
        if not is_external(function):
            continue
        symbol = attribute(function, "global_symbol")
        if attribute(function, "Compiler") == KEY:
            content = f"{tvm.ir.structural_hash(function)} {made_for}"
            symbol = re.sub(r"\W", "_", f"_{symbol}" if symbol[:1].isdigit() else symbol, flags=re.ASCII)
            symbol += f"_{blake2b(content.encode(), digest_size=8).hexdigest()}"
        symbol = next(name for name in numbered(symbol) if name not in used)
        used.add(symbol)
        named[var] = function.with_attr("global_symbol", symbol)
    return replace_functions(module, named) if named else module


def _machine(target: Any) -> tvm.target.Target:
    """The target with Convoy in it if there are several, else the first CPU, else the first."""
    raw: Sequence[tvm.target.Target] = tvm.target.Target.canon_multi_target_and_host(target)
    return min(raw, key=lambda one: (KEY not in one.keys, one.kind.name != "llvm"))


def _is_on_road(machine: tvm.target.Target) -> bool:
    """Does this target contain Convoy?  What is wrong with it is said before any work is done.

    Raises
    ------
    TargetError
        If the target contains Convoy, which does not know the machine.
    """
    if KEY not in machine.keys:
        return False
    codegen.region_target(machine)
    return True


def _used(module: IRModule | relay.Function) -> IRModule:
    """``module`` without the functions that nobody calls, which TVM's builds drop before all else."""
    copied = replace_functions(as_module(module), {})  # the pass removes them from the module itself
    mains = [var for var in copied.get_global_vars() if var.name_hint == "main"]
    return relay.transform.RemoveUnusedFunctions()(copied) if mains else copied


def _check_codegens(module: IRModule) -> None:
    """Each marked function that is called has a codegen, or is of a target whose kind lowers it.

    Raises
    ------
    ModelError
        For the first that has none.
    """
    kinds = {str(kind) for kind in tvm.target.Target.list_kinds()}
    for var, function in functions_of(relay.transform.RemoveUnusedFunctions()(module)):
        codegen = attribute(function, "Compiler") if is_external(function) else ""
        if codegen and codegen not in kinds:
            check_registered(str(var.name_hint), codegen, f"relay.ext.{codegen}", _is_registered)


def _is_registered(name: str) -> bool:
    return tvm.get_global_func(name, allow_missing=True) is not None


def _check_executor(executor: Any) -> None:
    """Convoy's functions are called in TVM's packed convention."""
    if executor is not None and "unpacked-api" in executor and executor["unpacked-api"]:
        raise TargetError(
            "target",
            "aot executor",
            "expected the packed calling convention, got unpacked-api",
            "leave unpacked-api out",
        )


def _check_shapes(module: IRModule) -> None:
    """Memory is planned before a run by the executors that ``relay.build`` makes."""
    for param in module["main"].params:
        if param.type_annotation is None:
            continue  # TVM says so, and where
        for shape in map(dims, flat_types([param.type_annotation])):
            if "?" in (shape or ()):
                raise TargetError(
                    "target",
                    f"input {param.name_hint}",
                    f"expected a fixed shape for relay.build, got [{', '.join(map(str, shape or ()))}]",
                    "compile it with relay.vm.compile, or fix its shape",
                )
