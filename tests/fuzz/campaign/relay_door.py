"""The work of a process with classic TVM: compile networks, run them, compare."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.runtime.vm import VirtualMachine

import convoy.relay
from convoy.backend import RegionCode
from convoy.deploy.classic import SharedRuntime, emit_entry
from convoy.options import Options
from convoy.relay import codegen
from convoy.relay.compile import partition_for_convoy
from convoy.relay.no_touch import marked_functions, no_touch
from convoy.target import Target
from convoy.toolchain import compiler
from convoy.toolchain.weights import embed_weights
from fuzz.campaign.case import Case
from fuzz.campaign.judge import Outputs
from joining import join_units

TARGETS = {
    "host": "convoy",
    "haswell": "llvm -keys=convoy,cpu -mcpu=haswell",
    "generic": "llvm -keys=convoy,cpu",
}


def compute(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case, folder: Path) -> Outputs:
    """What Convoy's classic door makes of a model."""
    module = load(model, inputs, case)
    target = tvm.target.Target(TARGETS[case.target])
    with (
        convoy.relay.using(Options(threads=case.threads)),
        tvm.transform.PassContext(opt_level=3),
        nullcontext() if case.shipped else regions_joined(case.threads),
    ):
        if case.passes:
            module = run_passes(module, case, target)
        return _run(model, module, target, inputs, folder if case.shipped else None)


def load(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case) -> tvm.IRModule:
    """The module of classic TVM's own frontend."""
    shapes = {v.name: list(a.shape) for v, a in zip(model.graph.input, inputs, strict=True)}
    module, _ = relay.frontend.from_onnx(model, None if case.leave_open else shapes, freeze_params=True)
    return module


def run_passes(module: tvm.IRModule, case: Case, target: tvm.target.Target) -> tvm.IRModule:
    """Partition a module and run the case's passes on it under the guard.

    Raises
    ------
    AssertionError
        If one of them touched a marked function.
    """
    module = partition_for_convoy(module)
    marked = {name: tvm.ir.structural_hash(f) for name, f in marked_functions(module).items()}
    with target:
        module = no_touch(passes_of(case))(module)
    after = {name: tvm.ir.structural_hash(f) for name, f in marked_functions(module).items()}
    assert sorted(after.values()) == sorted(marked.values()), "the guard let a marked function be changed"
    return module


def passes_of(case: Case) -> list[tvm.ir.transform.Pass]:
    typed = relay.transform.InferType()
    return [p for name in case.passes for p in (typed, getattr(relay.transform, name)())] + [typed]


def compute_plainly(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case) -> Outputs:
    """What TVM makes of a model by itself: the same passes, its own build."""
    module = load(model, inputs, case)
    target = tvm.target.Target("llvm")
    with tvm.transform.PassContext(opt_level=3):
        if case.passes:
            with target:
                module = tvm.transform.Sequential(passes_of(case))(module)
        return _run(model, module, target, inputs, None)


def _run(
    model: onnx.ModelProto,
    module: tvm.IRModule,
    target: tvm.target.Target,
    inputs: Sequence[np.ndarray],
    folder: Path | None,
) -> Outputs:
    """Build a module and run it: an open batch by the virtual machine, else by the graph executor; from a
    library in ``folder``, if one is named."""
    names = [value.name for value in model.graph.input]
    if any(isinstance(n, tvm.tir.Any) for n in _dims(module)):
        executable = relay.vm.compile(module, target=target)
        _flush()
        found = VirtualMachine(executable, tvm.cpu()).run(**dict(zip(names, inputs, strict=True)))
        return [found.numpy()] if isinstance(found, tvm.nd.NDArray) else [part.numpy() for part in found]
    library = relay.build(module, target=target)
    _flush()
    if folder is not None:
        shipped = str(Path(tempfile.mkdtemp(dir=folder)) / "shipped.so")
        library.export_library(shipped)
        library = tvm.runtime.load_module(shipped)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**dict(zip(names, inputs, strict=True)))
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def _dims(module: tvm.IRModule) -> list[object]:
    """Lengths of the axes of ``main``'s parameters."""
    return [n for param in module["main"].params for n in param.type_annotation.shape]


# Regions of a module as one C unit: TVM asks for each by itself, so they are noted, and compiled at last,
# before anything runs.

_waiting: dict[str, tuple[RegionCode, Target, Options]] = {}
_there: dict[str, ctypes.CDLL] = {}
"""Libraries by the symbols of their regions; they stay as long as the process, as Convoy's own do."""


@contextmanager
def regions_joined(threads: int) -> Iterator[None]:
    def note(code: RegionCode, target: Target, options: Options, progress: Any) -> list[tvm.runtime.Module]:
        del progress
        if code.symbol not in _there:
            _waiting[code.symbol] = code, target, options
        return []

    with patch.object(codegen, "link_region", note), patch.object(codegen, "_try_compiling"):
        try:
            yield
        finally:
            _waiting.clear()


def _flush() -> None:
    """Compile and load the regions noted so far."""
    if not _waiting:
        return
    codes = [code for code, _, _ in _waiting.values()]
    _, target, options = next(iter(_waiting.values()))
    runtime = SharedRuntime(options.threads)
    entries = [emit_entry(c.symbol, c.inputs, c.outputs, c.batch) for c in codes]
    joined = runtime.named(join_units([*("".join(c.sources) for c in codes), *entries]))
    kernels = map(runtime.named, compiler.kernel_sources([joined]).values())
    units = [joined, *kernels, *runtime.units.values()]
    objects = compiler.compile_objects(units, target, folder=options.cache)
    weights = [embed_weights(c.symbol, c.weights, target) for c in codes if c.weights]
    path = compiler.link_shared([*objects, *weights])
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    for file in (path, *weights):
        file.unlink()
    _there.update({code.symbol: library for code in codes})
    _waiting.clear()
