"""``relax.ext.convoy``: external functions in, modules TVM links into its executable out.

``RunCodegen`` calls it once with all functions marked for ``convoy``.  They become one relocatable
object, all regions around one runtime, in which only what TVM calls is visible; the weights are
objects of their own, because joining them would copy them once more.  TVM keeps each as a static
library, which its own export and its just-in-time loading link.

A static library has no ``get_source``: the C of a region is in ``report.RegionReport.source``,
which ``convoy explain`` prints, and in the folder ``Options.keep`` names.

The exported library has two functions beside the regions, callable through TVM's module:
``convoy_set_num_threads(n)`` and ``convoy_num_threads()``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi

from convoy import target as targets
from convoy.deploy.abi import (
    LOOP_POINTERS,
    THREAD_FUNCTIONS,
    TRACE_FUNCTIONS,
    emit_entry,
    emit_settings,
    export_name,
)
from convoy.errors import LoweringError, OpenSizeError, UnitError
from convoy.offload.faults import is_fault
from convoy.offload.in_force import InForce
from convoy.offload.machine import read_machine
from convoy.offload.settings import Settings, traced
from convoy.options import Options
from convoy.relax.errors_through_tvm import keep_error_types
from convoy.report.decision import Report
from convoy.target import Target
from convoy.text import region_name
from convoy.toolchain import compiler
from convoy.toolchain.temporary import scratch_folder
from convoy.toolchain.units import compile_units
from convoy.toolchain.weights import embed_weights

if TYPE_CHECKING:
    from convoy.backend import RegionCode, Tuner


@dataclass(frozen=True)
class Context:
    """What applies to the regions compiled while it is in force."""

    target: Target
    settings: Settings = field(default_factory=Settings)
    made: dict[str, tuple[RegionCode, Report]] = field(default_factory=dict)
    """Regions by their symbols, each with what was decided on the way, from when they were cut out."""
    objects: dict[tuple[str, str], Path] = field(default_factory=dict)
    """Objects of C units, by the units' names and texts."""


def _default() -> Context:
    """The defaults for TVM's current target, or for ``llvm``."""
    return Context(region_target(tvm.target.Target.current(allow_none=True) or tvm.target.Target("llvm")))


_context = InForce("convoy_context", _default)
using, current = _context.using, _context.current


def region_target(machine: tvm.target.Target) -> Target:
    """What Convoy knows of the machine a TVM target names; raises as ``read_machine``."""
    return read_machine(machine, tvm.target.codegen)


def system_cpu() -> str:
    """LLVM's name of this machine's CPU."""
    return targets.cpu_name(str(tvm.target.codegen.llvm_get_system_cpu()))


def compile_functions(
    functions: Sequence[tvm.relax.Function],
    options: Mapping[str, Any],
    constant_names: Mapping[tvm.relax.Constant, str],
) -> list[tvm.runtime.Module]:
    """Compile external functions.  TVM calls this; its signature is TVM's.

    Parameters
    ----------
    functions : Sequence[tvm.relax.Function]
        Each with the attribute ``global_symbol``, the name TVM will call it by.
    options, constant_names
        Unused; options come from ``current()``, constants are in the functions.

    Returns
    -------
    list[tvm.runtime.Module]
        Static libraries that define ``__tvm_ffi_<symbol>`` of all functions.

    Raises
    ------
    ConvoyError
        An error of lowering, planning or the toolchain.
    """
    del options, constant_names
    context = current()
    # Imported here: registering the codegen, which `import convoy` does, should not load the planner.
    from convoy.tune.tuner import make_tuner

    tuner = make_tuner(context.target, context.settings.options, context.settings.tell)
    regions: dict[str, RegionCode] = {}
    for function in functions:
        if (symbol := _symbol(function)) in context.made:
            code, decided = context.made[symbol]
            context.settings.report.extend(decided)
        else:
            code = _generate(function, context, tuner)
        regions[code.name] = code
    return link_regions(list(regions.values()), context)


def find_faults(functions: Mapping[str, tvm.relax.Function]) -> dict[str, Exception]:
    """What is wrong with those of these functions that do not become objects; see ``offload/faults.py``.

    On the road all of it is tried, and what comes of it is kept in the context for ``compile_functions``;
    elsewhere, where the target is not known yet, no more than lowering.

    Parameters
    ----------
    functions : Mapping[str, tvm.relax.Function]
        External functions by their symbols.

    Raises
    ------
    ToolchainError, TargetError, OSError, MemoryError
        If something is wrong with the machine.
    """
    from convoy.graph.verify import verify
    from convoy.relax.lower import lower
    from convoy.tune.tuner import make_tuner

    faults: dict[str, Exception] = {}
    context = _context.chosen()
    if context is not None and functions:
        context.settings.tell("generating code")
        tuner = make_tuner(context.target, context.settings.options, context.settings.tell)
    for symbol, function in functions.items():
        try:
            if context is None:
                verify(lower(function))
            elif symbol not in context.made:
                own = Report()
                settings = replace(context.settings, report=own)
                code = _generate(function, replace(context, settings=settings), tuner)
                context.made[symbol] = code, own
        except Exception as error:
            if not is_fault(error) or (context is not None and context.settings.stopped_by):
                raise
            faults[symbol] = error
    if context is not None:
        faults |= _compile_made([s for s in functions if s not in faults], context)
    return faults


def _compile_made(symbols: Sequence[str], context: Context) -> dict[str, Exception]:
    """Compile the C of generated regions; what the compiler said of those it rejects."""
    faults: dict[str, Exception] = {}
    while left := [context.made[symbol][0] for symbol in symbols if symbol not in faults]:
        try:
            _compile(left, context)
            break
        except UnitError as error:
            symbol = next((code.name for code in left if _is_unit_of(error.node, code)), None)
            if symbol is None:
                raise
            _compile([], context)  # the runtime: a compiler that rejects it, too, is one that does not work
            faults[symbol] = error
            del context.made[symbol]
    return faults


def _is_unit_of(unit: str, code: RegionCode) -> bool:
    return unit.startswith(code.symbol) or unit in compiler.kernel_sources(code.sources)


keep_error_types()
tvm_ffi.register_global_func("relax.ext.convoy", compile_functions, override=True)


def _generate(function: tvm.relax.Function, context: Context, tuner: Tuner | None) -> RegionCode:
    from convoy.backend import check_symbol, generate
    from convoy.graph.least import settle_least
    from convoy.relax.lower import lower

    graph, name = lower(function), _symbol(function)
    check_symbol(name)
    if name in (*THREAD_FUNCTIONS, *TRACE_FUNCTIONS):
        problem = f"expected a name that no function of every library has, got {name}"
        raise LoweringError("emit", "global_symbol", problem, "give the function another name")

    def make() -> RegionCode:
        own = Report()
        code = generate(
            graph, region_name(name), context.target, context.settings.options, own, tuner=tuner,
            traced=traced.current(), name=name,
        )  # fmt: skip
        context.settings.report.extend(own)
        return code

    try:
        return make()
    except OpenSizeError:  # of sizes that may be 0 less is known
        settle_least(graph, filled=True)
        return make()


def _symbol(function: tvm.relax.Function) -> str:
    return str(function.attrs["global_symbol"])


def link_regions(regions: Sequence[RegionCode], context: Context) -> list[tvm.runtime.Module]:
    """Compile generated regions to static libraries of TVM.

    Raises
    ------
    ToolchainError
        If the C cannot be compiled or written.
    """
    weights = {code.symbol: code.weights for code in regions}
    objects = _compile(regions, context)
    functions = [
        *(code.name for code in regions),
        *THREAD_FUNCTIONS,
        *(TRACE_FUNCTIONS if traced.current() else ()),
    ]
    with scratch_folder() as folder:
        exports = [*map(export_name, functions), *LOOP_POINTERS]
        joined = compiler.link_relocatable(objects, exports, output=folder / "regions.o")
        modules = [tvm.runtime.load_static_library(str(joined), functions)]
        joined.unlink()
        for symbol, data in weights.items():
            embedded = embed_weights(symbol, data, context.target, output=folder / "weights.o")
            modules.append(tvm.runtime.load_static_library(str(embedded), []))
            embedded.unlink()
    return modules


def _compile(regions: Sequence[RegionCode], context: Context) -> list[Path]:
    """The objects of regions and of the runtime."""
    options = context.settings.options
    units = _units(regions, options)
    new = {unit[0]: unit[1] for unit in units.items() if unit not in context.objects}
    weights = {code.symbol: code.weights for code in regions if f"{code.symbol}_entry.c" in new}
    progress = context.settings.tell_unit
    objects = compile_units(new, weights, context.target, options, progress)
    context.objects.update(zip(new.items(), objects, strict=True))
    return [context.objects[unit] for unit in units.items()]


def _units(regions: Sequence[RegionCode], options: Options) -> dict[str, str]:
    """The C units of a module by file name."""
    units = {}
    for code in regions:
        for i, source in enumerate(code.sources):
            units[f"{code.symbol}.c" if len(code.sources) == 1 else f"{code.symbol}_{i}.c"] = source
        units[f"{code.symbol}_entry.c"] = emit_entry(
            code.symbol, code.inputs, code.outputs, code.batch, code.open_axes, code.name
        )
    units |= compiler.kernel_sources(list(units.values()))
    units["settings.c"] = emit_settings(options.threads)
    more = (compiler.TRACE_UNIT,) if traced.current() else ()
    return {**units, **compiler.runtime_sources(*compiler.ENTRY_UNITS, *more)}
