"""What a library will say of itself: read off the module it is made of, and put into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule

from convoy.deploy.abi import THREAD_FUNCTIONS
from convoy.deploy.description import DENSE, EXAMPLE, OF_TVM, SECTION, Description, Size, Tensor, Version
from convoy.graph.sizes import as_symbol, open_size, rewrite, substitute, symbols
from convoy.options import Options
from convoy.relax.dataflow import dims
from convoy.relax.dataflow import dtype as dtype_of
from convoy.relax.inputs_of_kernels import inputs_of_kernels
from convoy.relax.own_memory import own_outputs
from convoy.relax.schedule import count_shared
from convoy.relax.sizes import Lengths
from convoy.report.decision import Report, count_ops, group_refusals
from convoy.target import Target
from convoy.toolchain.compiler import embed_section
from convoy.toolchain.driver import find_compiler
from convoy.toolchain.temporary import scratch_folder
from convoy.version import __version__

INPUTS, OUTPUTS = "convoy_inputs", "convoy_outputs"
"""Attributes of ``main``: the names that the model has for its inputs and outputs."""
MULTIPLES = "convoy_multiples"
"""One more: by open sizes of the inputs, the number of which each is a multiple at every call."""

Signature = tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Version, ...]]
"""Inputs, outputs and versions."""


def name_tensors(
    module: IRModule,
    inputs: Sequence[str],
    outputs: Sequence[str],
    multiples: Mapping[str, int] | None = None,
) -> IRModule:
    """``module`` with the model's names of the inputs and outputs of its ``main``, and what sizes are."""
    main = module["main"].with_attrs({INPUTS: list(inputs), OUTPUTS: list(outputs)})
    main = main.with_attr(MULTIPLES, dict(multiples)) if multiples else main
    module = module.clone()
    module.update_func(module.get_global_var("main"), main)
    return module


def read_signature(module: IRModule) -> Signature:
    """What ``main`` takes and gives; nothing where a module has none."""
    functions = {var.name_hint: function for var, function in module.functions_items()}
    main = functions.get("main")
    if not isinstance(main, relax.Function):
        return (), (), ()
    attributes = main.attrs or {}
    names, results = ([str(n) for n in attributes.get(key, ())] for key in (INPUTS, OUTPUTS))
    multiples = {str(name): int(times) for name, times in attributes.get(MULTIPLES, {}).items()}
    versions: list[Version] = []
    while isinstance(one := functions.get(f"main_{len(versions)}"), relax.Function):
        versions.append(Version(_inputs(one, names), _outputs(one.ret_ty, results)))
    outputs = _outputs(main.ret_ty, results, multiples)
    inputs = _inputs(main, names)
    if versions:
        inputs = tuple(map(_common, *(version.inputs for version in versions)))
        outputs = tuple(map(_common, *(version.outputs for version in versions)))
    return inputs, outputs, tuple(versions)


def describe(
    signature: Signature, module: IRModule, target: Target, options: Options, report: Report
) -> Description:
    """What the library of a built ``module`` says of itself."""
    inputs, outputs, versions = signature
    of_tvm = inputs_of_kernels(module)
    return Description(
        inputs=inputs,
        outputs=outputs,
        versions=versions,
        cpu=target.name,
        instructions=target.isa,
        precision="bf16" if target.bfloat16 else "float32",
        threads=options.threads,
        alignments=tuple(OF_TVM if i in of_tvm else DENSE for i in range(len(inputs))),
        made_by={
            "convoy": __version__,
            "apache-tvm": _version_of_tvm(),
            "compiler": find_compiler().identity,
        },
        report=_summarize(report),
        shared_loops=count_shared(module),
        team_runs_loops=has_team(module),
        own_outputs=own_outputs(module),
    )


def has_team(module: IRModule) -> bool:
    """Has the library of a built ``module`` a team of threads, which loops of TVM's run on, too?"""
    added = module.attrs.get("external_mods", ()) if module.attrs else ()
    return any(part.implements_function(THREAD_FUNCTIONS[0]) for part in added)


def embed(module: IRModule, description: Description, example: bytes | None) -> IRModule:
    """``module`` whose library says ``description``, and holds an example if there is one.

    Raises
    ------
    ToolchainError
        If the objects cannot be made.
    """
    sections = {SECTION: description.encode(), **({EXAMPLE: example} if example else {})}
    added = []
    with scratch_folder() as folder:
        for name, data in sections.items():
            made = embed_section(name, data, output=Path(folder) / "section.o")
            added.append(tvm.runtime.load_static_library(str(made), []))
    before = list(module.attrs.get("external_mods", ())) if module.attrs else []
    return module.with_attr("external_mods", [*before, *added])


def _inputs(function: relax.Function, names: Sequence[str]) -> tuple[Tensor, ...]:
    own = [param.name for param in function.params]
    chosen = names if len(names) == len(own) else own
    return tuple(_tensor(n, p.ty) for n, p in zip(chosen, function.params, strict=True))


def _outputs(
    kind: relax.Type, names: Sequence[str], multiples: Mapping[str, int] = MappingProxyType({})
) -> tuple[Tensor, ...]:
    kinds = _flatten(kind)
    chosen = names if len(names) == len(kinds) else [f"output_{i}" for i in range(len(kinds))]
    return tuple(_tensor(name, kind, multiples) for name, kind in zip(chosen, kinds, strict=True))


def _spell(size: relax.Expr, multiples: Mapping[str, int]) -> str:
    """A size in those of the inputs; 8 * (h // 8) is h where that is a multiple of 8."""
    lengths = Lengths()
    found = lengths.size(size)
    if found is None:
        return str(size)
    for whole in list(lengths.variables.values()):
        symbol = as_symbol(whole)
        times = multiples.get(symbol.name) if symbol else None
        if symbol and times:
            part = open_size(f"{symbol.name} / {times}", 1)
            found = rewrite(substitute(found, symbol, times * part), times * part, whole)
            found = substitute(found, symbols(part)[0], whole // times)
    return repr(found)


def _flatten(kind: relax.Type) -> list[relax.Type]:
    """The tensors of a result in the order in which a runner gives them."""
    if isinstance(kind, relax.TupleType):
        return [inner for field in kind.fields for inner in _flatten(field)]
    return [kind]


def _tensor(name: str, kind: relax.Type, multiples: Mapping[str, int] = MappingProxyType({})) -> Tensor:
    found = dims(kind)
    shape: tuple[Size, ...] | None = None
    if found is not None:
        shape = tuple(size if isinstance(size, int) else _spell(size, multiples) for size in found)
    elif isinstance(kind, relax.TensorType) and kind.ndim >= 0:
        shape = (None,) * kind.ndim
    return Tensor(name, shape, dtype_of(kind))


def _common(*of_versions: Tensor) -> Tensor:
    """An input or output of which those of all versions are special cases."""
    first, shapes = of_versions[0], [tensor.shape for tensor in of_versions]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) > 1:
        return Tensor(first.name, None, first.dtype)
    shape = (sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))
    return Tensor(first.name, tuple(shape), first.dtype)


def _summarize(report: Report) -> dict[str, Any]:
    return {
        "ops_offloaded": count_ops(report)[0],
        "left": group_refusals(report),
        "flops": report.flops_total,
        "flops_offloaded": report.flops_offloaded,
        "regions": [
            {
                "symbol": region.symbol,
                "kernels": dict(Counter(region.kinds)),
                "flops": region.flops,
                "weight_bytes": region.weight_bytes,
                "arena_bytes": region.arena_bytes,
            }
            for region in report.regions
        ],
    }


def _version_of_tvm() -> str:
    try:
        return version("apache-tvm")
    except PackageNotFoundError:
        return str(tvm.__version__)
