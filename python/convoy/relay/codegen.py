"""``relay.ext.convoy``: an external function in, a module TVM links into its library out.

TVM calls it once for each function marked for ``convoy``.  What it returns is a small LLVM module, in
which a packed function calls the region's C entry, and which imports static libraries: the region, its
weights and the runtime.  TVM's own export links them all.

LLVM's JIT, which runs a module in place, knows nothing of static libraries, but finds what is visible
in the process: so the same objects are also loaded as shared libraries, with names made of their
content, since the names of external functions repeat from model to model.  Code for the ahead-of-time
executor calls the external functions themselves by name, and the door makes those names so, too.

The C of a region is in ``report.RegionReport.source`` and in the folder ``Options.keep`` names.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import tvm
from tvm import relay, tir

from convoy import target as targets
from convoy.deploy.classic import SharedRuntime, emit_entry, emit_packed_call, entry_name, function_name
from convoy.errors import TargetError, ToolchainError, UnitError
from convoy.offload.faults import is_fault
from convoy.offload.in_force import InForce
from convoy.offload.machine import read_machine
from convoy.offload.settings import Settings
from convoy.options import Options
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.options import read_options
from convoy.report.decision import Report
from convoy.target import Target
from convoy.toolchain import compiler
from convoy.toolchain.temporary import scratch_folder
from convoy.toolchain.units import compile_units
from convoy.toolchain.weights import embed_weights

if TYPE_CHECKING:
    from convoy.backend import RegionCode, Tuner


@dataclass(frozen=True)
class Context:
    """What applies to the regions compiled while it is in force."""

    machine: tvm.target.Target
    settings: Settings = field(default_factory=Settings)
    """Its options are those of functions that carry none of their own."""
    by_name: bool = False
    """The executor's code calls regions by the names of their functions, not through TVM's modules."""
    system_lib: bool = False
    """Functions register themselves with ``tvm.runtime.system_lib``, for who links them in."""
    made: dict[str, tuple[RegionCode, Report]] = field(default_factory=dict)
    """Regions by the names of their functions, from when they were cut out, and what was decided."""
    tuners: dict[Options, Tuner | None] = field(default_factory=dict)
    """Tuners of the regions so far: those of one build share the seconds that ``Options.tune`` allows."""
    linked: set[str] = field(default_factory=set)
    """The C entries so far: a library that holds one twice cannot be linked."""

    @property
    def target(self) -> Target:
        """What Convoy knows of the machine.

        Raises
        ------
        TargetError
            If Convoy does not know it.
        """
        return region_target(self.machine)

    def target_for(self, options: Options) -> Target:
        """The same for code of the options' precision; raises as ``target``."""
        return self.target.for_precision(options.precision)

    def tuner(self, options: Options) -> Tuner | None:
        """What measures for regions with these options.

        Raises
        ------
        TargetError
            If this machine cannot run what the target has.
        """
        from convoy.tune.tuner import make_tuner

        if options not in self.tuners:
            self.tuners[options] = make_tuner(self.target_for(options), options, self.settings.tell)
        return self.tuners[options]


def _default() -> Context:
    """The defaults for TVM's current target, or for ``llvm``."""
    return Context(tvm.target.Target.current(allow_none=True) or tvm.target.Target("llvm"))


_context = InForce("convoy_context", _default)
using, current = _context.using, _context.current


def region_target(machine: tvm.target.Target) -> Target:
    """What Convoy knows of the machine a TVM target names; raises as ``read_machine``."""
    return read_machine(machine, tvm.target.codegen)


def system_cpu() -> str:
    """LLVM's name of this machine's CPU; empty where TVM's LLVM is too old to be asked."""
    ask = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return targets.cpu_name(str(ask())) if ask is not None else ""


@remember_error
def compile_function(function: relay.Function) -> tvm.runtime.Module:
    """Compile an external function.  TVM calls this.

    Parameters
    ----------
    function : relay.Function
        With the attribute ``global_symbol``, the name TVM will call it by.

    Returns
    -------
    tvm.runtime.Module
        A module that defines that function.

    Raises
    ------
    ConvoyError
        An error of lowering, planning or the toolchain, or of TVM's interpreter, which asks for a function
        and then has no place for it.
    """
    context = current()
    if _context.chosen() is None and context.machine.kind.name == "ext_dev":  # what the interpreter names
        raise TargetError(
            "target",
            f"function {function.attrs['global_symbol']}",
            "expected an executor that calls functions of codegens, got TVM's interpreter (debug)",
            "create the executor graph, aot or vm",
        )
    report = context.settings.report
    made = context.made.get(str(function.attrs["global_symbol"]))
    if made is None:
        code = _generate(function, context, read_options(function) or context.settings.options, report)
    else:
        code, decided = made
        report.extend(decided)
    return link_function(function, code, context)


def _generate(function: relay.Function, context: Context, options: Options, report: Report) -> RegionCode:
    # Imported here: registering the codegen, which `import convoy` does, should not load the planner.
    from convoy.backend import generate
    from convoy.relay.lower import lower

    target = context.target_for(options)
    return generate(lower(function), None, target, options, report, tuner=context.tuner(options))


def find_faults(functions: Mapping[str, relay.Function], options: Options) -> dict[str, Exception]:
    """What is wrong with those of these functions that do not become objects; see ``offload/faults.py``.

    In TVM's own door all of it is tried, and what comes of it is kept in the context for
    ``compile_function``; elsewhere, where the target is not known yet, no more than lowering.

    Parameters
    ----------
    functions : Mapping[str, relay.Function]
        External functions by their names.

    Raises
    ------
    ToolchainError, TargetError, OSError, MemoryError
        If something is wrong with the machine.
    """
    from convoy.graph.verify import verify
    from convoy.relay.lower import lower

    faults: dict[str, Exception] = {}
    context = _context.chosen()
    for name, function in functions.items():
        try:
            if context is None:
                verify(lower(function))
            else:
                own = Report()
                code = _generate(function, context, options, own)
                _try_compiling(code, context, options)
                context.made[name] = code, own
        except Exception as error:
            if not is_fault(error):
                raise
            faults[name] = error
    return faults


def _try_compiling(code: RegionCode, context: Context, options: Options) -> None:
    """Compile a region's C into the cache.

    Raises
    ------
    UnitError
        If the compiler takes the runtime, and not the region.
    ToolchainError
        If it takes neither.
    """
    runtime, units = _units(code, options)
    weights, progress = {code.symbol: code.weights}, context.settings.tell_unit
    try:
        compile_units(units, weights, context.target_for(options), options, progress)
    except UnitError:
        compile_units(runtime.units, {}, context.target, options, progress)
        raise


@remember_error
def constant_updater(function: relay.Function, symbol: str) -> dict[str, Any]:
    """The constants TVM should keep for a function: none, its object holds the packed weights."""
    del function, symbol
    return {}


tvm.register_func("relay.ext.convoy", compile_function, override=True)
tvm.register_func("relay.ext.convoy.constant_updater", constant_updater, override=True)


def link_function(function: relay.Function, code: RegionCode, context: Context) -> tvm.runtime.Module:
    """What ``relay.ext.<codegen>`` gives TVM for an external function, from the C that computes it.

    Parameters
    ----------
    code : RegionCode
        Its symbol stands for its content, as one made by ``graph.digest.content_hash`` does: the names of
        functions repeat from model to model, and those of C functions are the process's.

    Raises
    ------
    ToolchainError
        If the C cannot be compiled or written, or its symbol stands for something else already.
    """
    settings = context.settings
    options = read_options(function) or settings.options
    name = str(function.attrs["global_symbol"])
    module = build_call(name, code, context.machine, system_lib=context.system_lib)
    progress = (lambda *_: None) if name in context.made else settings.tell_unit
    if code.symbol not in context.linked:
        for library in link_region(code, context.target_for(options), options, progress):
            module.import_module(library)
        context.linked.add(code.symbol)
    if context.by_name:
        call = emit_packed_call(name, code.symbol, len(code.inputs) + len(code.outputs))
        objects = compiler.compile_objects([call], context.target, folder=options.cache)
        _load({name: (crc32(call.encode()), objects)})
    return module


def build_call(
    name: str, code: RegionCode, machine: tvm.target.Target, *, system_lib: bool = False
) -> tvm.runtime.Module:
    """The LLVM module with the packed function ``name``, which calls a region's entry."""
    params = [tir.Var(f"a{i}", "handle") for i in range(len(code.inputs) + len(code.outputs))]
    nothing = tir.reinterpret("handle", tir.const(0, "uint64"))  # what TVM calls the resource handle
    called = function_name(name, code.symbol)
    body = tir.Evaluate(tir.call_cpacked(entry_name(code.symbol), called, *params, nothing))
    function = tir.PrimFunc(params, body).with_attr({"global_symbol": name, "tir.noalias": True})
    if "cpu" not in machine.keys:  # by which TVM knows how to call C; llvm -keys=convoy has no other key
        machine = tvm.target.Target({**machine.export(), "keys": [*machine.keys, "cpu"]})
    module = tvm.IRModule({name: function})
    return tvm.build(
        module.with_attr("system_lib_prefix", tvm.runtime.String("")) if system_lib else module,
        target=machine,
    )


def link_region(
    code: RegionCode, target: Target, options: Options, progress: compiler.Progress
) -> list[tvm.runtime.Module]:
    """Compile a generated region to static libraries of TVM, and load it into this process.

    Raises
    ------
    ToolchainError
        If the C cannot be compiled or written.
    """
    runtime, units = _units(code, options)
    objects = compile_units(units, {code.symbol: code.weights}, target, options, progress)
    with scratch_folder() as folder:
        own = len(units) - len(runtime.units)
        return _link(code, runtime, objects[:own], objects[own:], folder, target)


def _units(code: RegionCode, options: Options) -> tuple[SharedRuntime, dict[str, str]]:
    """The runtime a region is linked with, and the C units of both by file name, the region's first."""
    runtime = SharedRuntime(options.threads)
    entry = emit_entry(code.symbol, code.inputs, code.outputs, code.batch)
    return runtime, {
        f"{code.symbol}.c": runtime.named("".join(code.sources)),
        f"{code.symbol}_entry.c": runtime.named(entry),
        **{unit: runtime.named(source) for unit, source in compiler.kernel_sources(code.sources).items()},
        **runtime.units,
    }


def _link(
    code: RegionCode,
    runtime: SharedRuntime,
    region: Sequence[Path],
    shared: Sequence[Path],
    folder: Path,
    target: Target,
) -> list[tvm.runtime.Module]:
    names = [entry_name(code.symbol)]
    linked = [
        (compiler.link_relocatable(region, names, output=folder / "region.o"), names),
        (compiler.link_relocatable(shared, runtime.exports, output=folder / "runtime.o"), runtime.exports),
    ]
    if code.weights:
        weights = embed_weights(code.symbol, code.weights, target, output=folder / "weights.o")
        linked.append((weights, []))
    region_objects = [linked[0][0], *(path for path, _ in linked[2:])]
    content = crc32(code.weights, crc32("".join(code.sources).encode()))
    _load({runtime.name: (0, [linked[1][0]]), code.symbol: (content, region_objects)})
    return [tvm.runtime.load_static_library(str(path), exported) for path, exported in linked]


_loaded: dict[str, tuple[int, ctypes.CDLL]] = {}
"""The libraries of this process by name, and a checksum of what each was made of."""
_loading = threading.Lock()
"""Held while one is looked for and loaded."""


def _load(libraries: Mapping[str, tuple[int, Sequence[Path]]]) -> None:
    """Make objects visible to LLVM's JIT, in this order; they stay as long as the process.

    Raises
    ------
    ToolchainError
        If a name stands for something else already.
    """
    for name, (content, objects) in libraries.items():
        with _loading:
            if name not in _loaded:
                path = compiler.link_shared(objects)
                _loaded[name] = content, ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
                path.unlink()
        if _loaded[name][0] != content:
            raise ToolchainError(
                "link",
                f"C function {name!r}",
                "expected a name that stands for its content, got that of another region of this process",
                "name it by convoy.graph.digest.content_hash of its graph; for the ahead-of-time executor, "
                "give each module a mod_name; for a backend of your own, partition takes it as name",
            )
