"""From PyTorch, an ``nn.Module`` or an ``ExportedProgram``, to the Relax module of the road.

torch is an extra, and is not imported here unless a model of its own is given.  A program goes by TVM's
frontend, or through ONNX, where that frontend is not made for what is in it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from convoy.errors import ModelError
from convoy.relax.describe import name_tensors
from convoy.relax.exported_quantised import CONVERTERS
from convoy.report.decision import Report


def is_of_torch(model: object) -> bool:
    """Is it a module or a program of PyTorch's?  Without torch in the process nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def load_exported(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    report: Report | None = None,
) -> IRModule:
    """Import a network of PyTorch: its function ``main``, weights bound.

    Parameters
    ----------
    model : Any
        A ``torch.nn.Module`` in evaluation, or a ``torch.export.ExportedProgram``.
    example_inputs : Sequence[Any] | Mapping[str, Any] | None
        What the module is called with, in order or by name; sizes are those of these tensors.
    dynamic_shapes : Any
        Which sizes stay open, as ``torch.export.export`` takes it.
    report : Report | None
        Receives what was converted.

    Raises
    ------
    ModelError
        If the module is in training, has no example inputs, or cannot be exported or converted.
    """
    import torch

    program = model
    if isinstance(model, torch.nn.Module):
        program = _export(model, example_inputs, dynamic_shapes)
    elif example_inputs is not None or dynamic_shapes is not None:
        raise ModelError(
            "import",
            "ExportedProgram",
            "expected neither example_inputs nor dynamic_shapes, which it has, got some",
            "leave them out",
        )
    _refuse_divisors(program)
    if otherwise := _computed_otherwise(program):
        if _has_onnx():
            return _through_onnx(program, report)
        raise ModelError(
            "import",
            otherwise,
            "expected an op that TVM's PyTorch frontend computes as PyTorch does, got another",
            "install onnxscript: then it is imported through ONNX",
        )
    if not _has_onnx():
        return _convert(program)
    roads: list[Callable[[Any], IRModule]] = [_convert, partial(_through_onnx, report=report)]
    first, second = reversed(roads) if _suits_onnx(program) else roads
    try:
        return first(program)
    except ModelError:
        return second(program)


def _has_onnx() -> bool:
    """Is there what PyTorch's exporter to ONNX needs?"""
    return importlib.util.find_spec("onnxscript") is not None


def _suits_onnx(program: Any) -> bool:
    """Does a program have what TVM's frontend for PyTorch is not made for?

    It writes the steps of recurrent layers out one by one, takes attention, resizes and dense layers of
    sequences apart, and loses open sizes.  Quantised programs have converters of their own.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    called = {str(node.target) for node in calls}
    if any(name.startswith("quantized_decomposed") for name in called):
        return False
    sequences = any(
        str(node.target) == "aten.linear.default" and node.args[0].meta["val"].dim() > 2 for node in calls
    )
    resizes = any(name.startswith(_RESIZES) for name in called)
    apart = resizes or not called.isdisjoint(_TAKEN_APART)
    return sequences or apart or bool(program.range_constraints)


def _computed_otherwise(program: Any) -> str:
    """The first op for which TVM's frontend has another answer than PyTorch; empty: there is none."""
    for node in program.graph.nodes:
        name = str(node.target)
        if node.op == "call_function" and any(
            name.startswith(op) and otherwise(node) for op, otherwise in _OTHERWISE.items()
        ):
            return f"{name} {node.name}"
    return ""


def _refuse_divisors(program: Any) -> None:
    """Neither TVM's frontend nor PyTorch's exporter to ONNX reads the divisor of an average pool."""
    for node in program.graph.nodes:
        if not str(node.target).startswith("aten.avg_pool"):
            continue
        if (divisor := _argument(node, "divisor_override")) is not None:
            problem = f"expected the average of a window, got divisor_override={divisor}"
            raise ModelError("import", str(node.name), problem, "multiply the average by a factor instead")


def _argument(node: Any, name: str) -> Any:
    """The argument that a call gives by its place or name; None: none."""
    names = [argument.name for argument in node.target._schema.arguments]
    at = names.index(name) if name in names else len(node.args)
    return node.args[at] if at < len(node.args) else node.kwargs.get(name)


def _has_factor(node: Any) -> bool:
    """Does a sum have a factor, which TVM's frontend leaves out?"""
    return any(_argument(node, name) not in (None, 1) for name in ("alpha", "beta"))


def _is_not_whole(node: Any) -> bool:
    """Does a resize have another factor than a whole number?"""
    sizes = zip(node.args[0].meta["val"].shape[2:], node.meta["val"].shape[2:], strict=True)
    return not all(isinstance(a, int) and isinstance(b, int) and b % a == 0 for a, b in sizes)


_OTHERWISE: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("aten.add", "aten.baddbmm", "aten.sub", "aten.rsub"), _has_factor),
    "aten.elu": lambda node: _argument(node, "scale") not in (None, 1),
    "aten.selu": lambda _: True,  # an elu with a scale
    "aten.grid_sampler": lambda _: True,  # takes the grid's axes in another order
    "aten.upsample_nearest": _is_not_whole,  # rounds, where PyTorch takes the pixel before
    "aten._upsample": lambda _: True,  # knows neither exact pixels nor antialiasing
}
"""Ops by the beginnings of their names, and which of their calls (tvm 0.27.0)."""
_RESIZES = ("aten.upsample_", "aten._upsample_")


_TAKEN_APART = frozenset(
    {
        "aten.gru.input",
        "aten.lstm.input",
        "aten.rnn_relu.input",
        "aten.rnn_tanh.input",
        "aten.scaled_dot_product_attention.default",
    }
)


def _through_onnx(program: Any, report: Report | None) -> IRModule:
    """By PyTorch's exporter to ONNX and Convoy's importer."""
    import torch

    from convoy.relax.importer import load

    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            model = torch.onnx.export(program, dynamo=True, verbose=False).model_proto
    except Exception as error:  # whatever the exporter raises
        problem = f"expected a program that PyTorch can export to ONNX, got {_first_line(error)}"
        remedy = "see torch.onnx's documentation; the traceback is this error's cause"
        raise ModelError("import", type(program).__name__, problem, remedy) from error
    return load(model, report=report)


def _convert(program: Any) -> IRModule:
    """By TVM's own frontend."""
    from tvm.relax.frontend.torch import from_exported_program

    try:
        module = from_exported_program(
            program, unwrap_unit_return_tuple=True, custom_convert_map=CONVERTERS
        )
    except Exception as error:  # whatever the frontend raises
        raise ModelError(
            "import",
            type(program).__name__,
            f"expected a program that TVM's PyTorch frontend can convert, got {_first_line(error)}",
            "install onnxscript: then it is imported through ONNX, whose importer knows more ops",
        ) from error
    module = _settle_numbers(module)
    signature = program.graph_signature
    with suppress(KeyError, ValueError):
        return name_tensors(module, list(map(str, signature.user_inputs)), _results(signature))
    return module


def _settle_numbers(module: IRModule) -> IRModule:
    """The module with numbers in place of variables that are called by one.

    TVM makes a variable "20" of a size that torch.export found to be 20, of an axis asked to be open.
    """
    named = {str(v.name) for v in relax.analysis.defined_symbolic_vars(module["main"])}
    numbers: dict[str, int] = {name: int(name) for name in named if name.isdecimal()}
    return relax.transform.BindSymbolicVars(numbers)(module) if numbers else module


def _results(signature: Any) -> list[str]:
    return [str(name) for name in signature.user_outputs if name is not None]


def _export(model: Any, example_inputs: Any, dynamic_shapes: Any) -> Any:
    import torch

    name = type(model).__name__
    if not isinstance(example_inputs, (Sequence, Mapping)):
        raise ModelError(
            "import",
            name,
            f"expected example_inputs, got {type(example_inputs).__name__}",
            "write convoy.compile(module, example_inputs=(tensor,))",
        )
    if model.training:
        raise ModelError(
            "import", name, "expected a module in evaluation, got one in training", "call its eval() first"
        )
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else None
    in_order = () if named else tuple(example_inputs)
    try:
        with torch.no_grad():
            return torch.export.export(model, in_order, named, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # whatever the module or torch raises
        raise ModelError(
            "import",
            name,
            f"expected a module that torch.export can export, got {_first_line(error)}",
            "see torch.export's documentation; the traceback is this error's cause",
        ) from error


def _first_line(error: BaseException) -> str:
    """The first line of what the first error says, without colours."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
