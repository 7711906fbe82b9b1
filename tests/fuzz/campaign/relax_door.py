"""The work of a process with modern TVM: compile networks, run them, compare."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm_ffi import structural_hash

import convoy
from convoy.deploy.runner import Runner
from convoy.options import Options
from convoy.relax.compile import raise_idioms, resolve_target
from convoy.relax.fold import fold
from convoy.relax.importer import load
from convoy.relax.no_touch import marked_functions, no_touch
from convoy.relax.onnx_backend import Executable
from convoy.relax.partition import partition
from fuzz.campaign.case import Case
from fuzz.campaign.judge import Outputs
from fuzz.campaign.one_unit import relax_regions_joined
from fuzz.networks.bundle import closed
from onnx_backend.plain_tvm import PlainTvmBackend


def compute(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case, folder: Path) -> Outputs:
    """What Convoy's modern door makes of a model."""
    options = Options(threads=case.threads, precision=case.precision)
    given = run_passes(load(model, None, None), case) if case.passes else model
    with nullcontext() if case.shipped else relax_regions_joined():
        executable = convoy.compile(given, case.target, options=options)
    if case.shipped:
        from convoy.deploy.export import link

        # a name of its own: for a name it has loaded, the loader gives what it has
        library = Path(tempfile.mkdtemp(dir=folder)) / "shipped.so"
        executable.export_library(str(library), fcompile=link)
        return Runner(str(library)).run(inputs)
    return Executable(executable).run(inputs)


def run_passes(module: tvm.IRModule, case: Case) -> tvm.IRModule:
    """Partition a module and run the case's passes on it under the guard.

    Raises
    ------
    AssertionError
        If one of them touched a marked function.
    """
    with resolve_target(case.target):
        module = partition(Options(threads=case.threads, precision=case.precision))(
            fold()(raise_idioms()(module))
        )
        marked = {var.name_hint: structural_hash(f) for var, f in marked_functions(module).items()}
        module = no_touch(passes_of(case))(module)
    after = {var.name_hint: structural_hash(f) for var, f in marked_functions(module).items()}
    assert after == marked, "the guard let a marked function be changed"
    return module


def passes_of(case: Case) -> list[tvm.ir.transform.Pass]:
    return [getattr(relax.transform, name)() for name in case.passes]


def compute_plainly(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case) -> Outputs:
    """What TVM makes of a model by itself: its own importer, the same passes, its own pipeline.

    Its sides are fixed: what they do open is Convoy's to answer for.  Not so in loops that a pass wrote.
    """
    if "LegalizeOps" not in case.passes:
        model = closed(model)
    if not case.passes:
        return PlainTvmBackend.prepare(model).run(inputs)
    module = load(model, None, None)
    target = tvm.target.Target("llvm")
    with target:
        module = tvm.ir.transform.Sequential(passes_of(case))(module)
        built = tvm.compile(module, target=target, relax_pipeline=relax.get_default_pipeline(target))
    return Executable(built).run(inputs)
