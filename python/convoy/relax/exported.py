"""From PyTorch, an ``nn.Module`` or an ``ExportedProgram``, to the Relax module of the road.

torch is an extra, and is not imported here unless a model of its own is given.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tvm.ir import IRModule

from convoy.errors import ModelError
from convoy.relax.describe import name_tensors
from convoy.relax.exported_quantised import CONVERTERS


def is_of_torch(model: object) -> bool:
    """Is it a module or a program of PyTorch's?  Without torch in the process nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def load_exported(
    model: Any, example_inputs: Sequence[Any] | None = None, dynamic_shapes: Any = None
) -> IRModule:
    """Import a network of PyTorch: its function ``main``, weights bound.

    Parameters
    ----------
    model : Any
        A ``torch.nn.Module`` in evaluation, or a ``torch.export.ExportedProgram``.
    example_inputs : Sequence[Any] | None
        What the module is called with; sizes are those of these tensors.
    dynamic_shapes : Any
        Which sizes stay open, as ``torch.export.export`` takes it.

    Raises
    ------
    ModelError
        If the module is in training, has no example inputs, or cannot be exported or converted.
    """
    import torch
    from tvm.relax.frontend.torch import from_exported_program

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
    try:
        module = from_exported_program(
            program, unwrap_unit_return_tuple=True, custom_convert_map=CONVERTERS
        )
    except Exception as error:  # whatever the frontend raises
        raise ModelError(
            "import",
            type(model).__name__,
            f"expected a program that TVM's PyTorch frontend can convert, got {_last_line(error)}",
            "export it to ONNX, whose importer knows more ops",
        ) from error
    signature = program.graph_signature
    with suppress(KeyError, ValueError):
        return name_tensors(module, list(map(str, signature.user_inputs)), _results(signature))
    return module


def _results(signature: Any) -> list[str]:
    return [str(name) for name in signature.user_outputs if name is not None]


def _export(model: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any) -> Any:
    import torch

    name = type(model).__name__
    if not isinstance(example_inputs, Sequence):
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
    try:
        with torch.no_grad():
            return torch.export.export(model, tuple(example_inputs), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # whatever the module or torch raises
        raise ModelError(
            "import",
            name,
            f"expected a module that torch.export can export, got {_last_line(error)}",
            "see torch.export's documentation; the traceback is this error's cause",
        ) from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
