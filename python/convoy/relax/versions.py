"""One library for several sizes: a version of the network for each, and ``main``, which picks one.

``{"x": (1, 3, (320, 480), 640)}`` lists two heights.  The network is imported once for each, as if it had
been given that size alone: every version is planned for its size, and as fast as a library of its own.
``main`` compares the sizes it is called with and raises ``ValueError`` where no version has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import TypeGuard

import onnx
from tvm import relax, tirx
from tvm.ir import BaseFunc, GlobalVar, IRModule
from tvm.relax.expr import _update_type
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from convoy.errors import ModelError
from convoy.offload.settings import Progress
from convoy.onnx_file import Shapes, Sizes, check_names, names_size, parse_file
from convoy.relax.calls import Calls
from convoy.relax.dataflow import dims
from convoy.relax.describe import INPUTS, OUTPUTS
from convoy.relax.partition import DISPATCHER
from convoy.relax.sizes import Dim
from convoy.report.decision import Report

MOST = 64
"""Versions of one network: each is compiled, and has its weights in the library."""


def lists_sizes(shapes: Sizes | None) -> TypeGuard[Sizes]:
    """Does a dimension have several sizes?"""
    return isinstance(shapes, Mapping) and any(
        isinstance(sizes, Sequence) and any(isinstance(size, tuple | list) for size in sizes)
        for sizes in shapes.values()
    )


def load_versions(
    model: str | Path | onnx.ModelProto,
    shapes: Sizes,
    report: Report | None = None,
    progress: Progress = lambda _: None,
) -> IRModule:
    """Import an ONNX model in all versions; see ``importer.load``.

    Raises
    ------
    ModelError
        As ``importer.load`` and ``list_versions``.
    """
    from convoy.relax.importer import load

    proto, folder = model, Path()
    if isinstance(proto, onnx.ModelProto):
        check_names(proto, "model")
    else:
        proto, folder = parse_file(Path(proto)), Path(proto).parent
    versions = list_versions(proto, shapes)
    modules: list[IRModule] = []
    for version in versions:
        progress(f"importing the model for {describe_version(version)}")
        modules.append(load(proto, version, None if modules else report, folder=folder))
    if report is not None:
        named = "; ".join(describe_version(version) for version in versions)
        report.add("model", "import", "versions", f"{len(versions)}, picked at the call: {named}")
    return join_versions(modules)


def list_versions(model: onnx.ModelProto, shapes: Sizes) -> list[dict[str, tuple[int | None, ...]]]:
    """The shapes of each version, in the order in which the sizes are listed.

    Dimensions of one name, such as the ``sequence`` of two inputs, have one size, and so have first
    dimensions without a name, the batch: it is enough to list the sizes once.

    Parameters
    ----------
    model : onnx.ModelProto
        Whose inputs are meant.
    shapes : Sizes
        By input; a dimension may have a sequence of sizes.

    Raises
    ------
    ModelError
        If a list has no sizes in it, dimensions of one name have different lists, or there are too many
        versions.
    """
    symbols = {value.name: _symbols(value) for value in model.graph.input}
    lists: dict[object, tuple[int, ...]] = {}
    for name, sizes in shapes.items():
        for axis, size in enumerate(sizes):
            if not isinstance(size, tuple | list):
                continue
            key, found = _key(symbols, name, axis), tuple(dict.fromkeys(_read_list(name, size)))
            if lists.setdefault(key, found) != found:
                raise ModelError(
                    "import",
                    f"shape of {name}",
                    f"expected one list of sizes for all dimensions named {key}, got two",
                    "list the same sizes, or list them once",
                )
    count = prod(map(len, lists.values()))
    if not 0 < count <= MOST:
        raise ModelError(
            "import", "shapes", f"expected 1 to {MOST} versions, got {count}", "list fewer sizes"
        )
    return [
        _version(shapes, symbols, dict(zip(lists, chosen, strict=True)))
        for chosen in product(*lists.values())
    ]


def _version(
    shapes: Sizes, symbols: Mapping[str, Sequence[str]], chosen: Mapping[object, int]
) -> dict[str, tuple[int | None, ...]]:
    """The shapes with the chosen sizes, in the dimensions listed and in all others of their names."""
    version: dict[str, tuple[int | None, ...]] = {}
    for name in [*shapes, *(name for name in symbols if name not in shapes)]:
        given = shapes.get(name, (None,) * len(symbols.get(name, ())))
        sizes = [
            size if isinstance(size, int) else chosen.get(_key(symbols, name, axis))
            for axis, size in enumerate(given)
        ]
        if name in shapes or any(size is not None for size in sizes):
            version[name] = tuple(sizes)
    return version


def _key(symbols: Mapping[str, Sequence[str]], name: str, axis: int) -> object:
    """What names a dimension: its symbol, else its place."""
    own = symbols.get(name, ())
    return own[axis] if axis < len(own) and own[axis] else (name, axis)


def _symbols(value: onnx.ValueInfoProto) -> list[str]:
    """The names of an input's dimensions; empty where one has none, or is fixed."""
    return [
        "" if dim.dim_value > 0 else dim.dim_param if names_size(dim.dim_param) else "" if axis else "batch"
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]


def _read_list(name: str, sizes: Sequence[object]) -> Iterator[int]:
    for size in sizes:
        if not isinstance(size, int) or size <= 0:
            problem, remedy = (
                f"expected positive sizes, got {list(sizes)!r}",
                'write {"data": (1, 3, (320, 640), 640)}',
            )
            raise ModelError("import", f"shape of {name}", problem, remedy)
        yield size


def describe_version(version: Shapes) -> str:
    """``x=1x3x320x640``; a question mark stands for what stays open."""
    return ", ".join(
        f"{name}={'x'.join('?' if s is None else str(s) for s in sizes)}" for name, sizes in version.items()
    )


# Joining -------------------------------------------------------------------------------------------


def join_versions(modules: Sequence[IRModule]) -> IRModule:
    """One module of several, each with a ``main``: the new ``main`` calls the one whose sizes it is given.

    The others become ``main_0``, ``main_1``, …, in their order.
    """
    if len(modules) == 1:
        return modules[0]
    functions: dict[GlobalVar, BaseFunc] = {}
    mains = []
    for i, module in enumerate(modules):
        own = _rename_functions(module, i)
        functions |= own
        mains += [(var, function) for var, function in own.items() if var.name_hint == f"main_{i}"]
    builder = relax.BlockBuilder(IRModule(functions, attrs=modules[0].attrs))
    _add_main(builder, mains)
    return builder.get()


def _rename_functions(module: IRModule, version: int) -> dict[GlobalVar, BaseFunc]:
    """The functions of a version under names that no other version has."""
    renamed: dict[str, GlobalVar] = {}
    for var in module.get_global_vars():
        renamed[var.name_hint] = new = GlobalVar(f"{var.name_hint}_{version}")
        _update_type(new, module[var].ty)
    found = {}
    for var, function in module.functions_items():
        new = renamed[var.name_hint]
        if isinstance(function, relax.Function):
            function = Calls(renamed).visit_expr(function)
        if function.attrs and "global_symbol" in function.attrs:
            function = function.with_attr("global_symbol", new.name_hint)
        found[new] = function
    return found


def _add_main(builder: relax.BlockBuilder, mains: Sequence[tuple[GlobalVar, relax.Function]]) -> None:
    """Put the function that compares the sizes and calls a version into the builder's module."""
    inputs = list(zip(*([param.ty for param in main.params] for _, main in mains), strict=True))
    """By input, its type in each version."""
    names = [param.name for param in mains[0][1].params]
    symbols: dict[str, tirx.Var] = {}
    params = [
        relax.Var(name, _common_type(types, symbols)) for name, types in zip(names, inputs, strict=True)
    ]
    choosing = [i for i, types in enumerate(inputs) if _listed_axes(types)]
    wanted = [
        ", ".join(f"{names[i]}={_describe(inputs[i][v])}" for i in choosing) for v in range(len(mains))
    ]
    arguments = [params[i] for i in choosing]
    tests = []
    for version in range(len(mains) - 1):
        known = [inputs[i] for i in choosing]
        test = _make_test(
            known, version, None if version else f"expected one of the sizes {'; '.join(wanted)}"
        )
        var = builder.add_func(test, f"fits_{version}")
        tests.append(relax.call_tir(var, arguments, out_ty=relax.TensorType((), "bool")))
    body = _call(params, [types[-1] for types in inputs], mains[-1][0])
    for version in reversed(range(len(mains) - 1)):
        taken = _call(params, [types[version] for types in inputs], mains[version][0])
        fits, result = relax.Var("fits", relax.TensorType((), "bool")), relax.Var("result")
        bindings = [
            relax.VarBinding(fits, tests[version]),
            relax.VarBinding(result, relax.If(fits, taken, body)),
        ]
        body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    result_type = _common_result([main.ret_ty for _, main in mains])
    function = builder.normalize(relax.Function(params, body, result_type))
    attributes = {key: value for key, value in mains[0][1].attrs.items() if key in (INPUTS, OUTPUTS)}
    attributes |= {"global_symbol": "main", DISPATCHER: True}
    builder.add_func(function.with_attrs(attributes), "main")


def _call(params: Sequence[relax.Var], types: Sequence[relax.Type], main: GlobalVar) -> relax.SeqExpr:
    """The call of a version, whose sizes are known to be those of the arguments."""
    cast = [relax.Var(param.name, kind) for param, kind in zip(params, types, strict=True)]
    bindings: list[relax.Binding] = [
        relax.MatchCast(var, param, var.ty) for var, param in zip(cast, params, strict=True)
    ]
    result = relax.Var("result")
    bindings.append(relax.VarBinding(result, relax.Call(main, cast)))
    return relax.SeqExpr([relax.BindingBlock(bindings)], result)


def _make_test(
    inputs: Sequence[Sequence[relax.Type]], version: int, otherwise: str | None
) -> tirx.PrimFunc:
    """A function of TIR: do these inputs have the sizes of a version?

    Parameters
    ----------
    inputs : Sequence[Sequence[relax.Type]]
        The types of each input in all versions.
    otherwise : str | None
        What to raise if they have those of none; None: they are known to have some.
    """
    with IRBuilder() as made, script.prim_func(s_tir=True):
        handles = [script.arg(f"x{i}", script.handle()) for i in range(len(inputs))]
        answer = script.arg("fits", script.handle())
        equal: list[list[tirx.PrimExpr]] = [[] for _ in inputs[0]]
        for handle, types in zip(handles, inputs, strict=True):
            shape = [tirx.Var(f"d{i}", "int64") for i in range(len(_shape(types[0])))]
            script.match_buffer(handle, shape, types[0].dtype)
            for v, kind in enumerate(types):
                equal[v] += [shape[axis] == _shape(kind)[axis] for axis in _listed_axes(types)]
        out = script.match_buffer(answer, (), "bool")
        if otherwise is not None:
            with script.Assert(tirx.any(*(tirx.all(*sizes) for sizes in equal)), otherwise, "ValueError"):
                pass
        script.buffer_store(out, tirx.all(*equal[version]), [])
    return made.get().with_attr(DISPATCHER, True)


def _common_type(types: Sequence[relax.Type], symbols: dict[str, tirx.Var]) -> relax.TensorType:
    """The type of an input of which the versions are special cases.

    Parameters
    ----------
    symbols : dict[str, tirx.Var]
        By name, those of dimensions that stay open in all versions, such as the batch's; it is added to.
    """
    listed = _listed_axes(types)
    sizes: list[int | tirx.Var] = []
    for axis, size in enumerate(_shape(types[0])):
        if axis in listed:
            sizes.append(tirx.Var(f"d{axis}", "int64"))
        elif isinstance(size, int):
            sizes.append(size)
        else:
            sizes.append(symbols.setdefault(str(size), tirx.Var(str(size), "int64")))
    return relax.TensorType(sizes, types[0].dtype)


def _common_result(types: Sequence[relax.Type]) -> relax.Type:
    """The type of a result of which those of the versions are special cases."""
    if isinstance(types[0], relax.TupleType):
        fields = zip(*(kind.fields for kind in types), strict=True)
        return relax.TupleType([_common_result(field) for field in fields])
    if len({dims(kind) for kind in types}) == 1:
        return types[0]
    return relax.TensorType(dtype=types[0].dtype, ndim=types[0].ndim)


def _listed_axes(types: Sequence[relax.Type]) -> list[int]:
    """The axes along which an input has several sizes."""
    shapes = [_shape(kind) for kind in types]
    return [
        axis
        for axis, sizes in enumerate(zip(*shapes, strict=True))
        if all(isinstance(size, int) for size in sizes) and len(set(sizes)) > 1
    ]


def _shape(kind: relax.Type) -> tuple[Dim, ...]:
    found = dims(kind)
    assert found is not None, f"an input of unknown shape: {kind}"
    return found


def _describe(kind: relax.Type) -> str:
    return "x".join(str(size) for size in _shape(kind))
