"""The regions of a model as graphs: the road up to the planner, without the compiler behind it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convoy.graph.graph import Graph
from convoy.options import Options
from convoy.relax.fold import fold
from convoy.relax.lower import lower
from convoy.relax.partition import partition

if TYPE_CHECKING:
    import onnx

    from convoy.onnx_file import Shapes


def lower_model(
    model: str | Path | onnx.ModelProto,
    shapes: Shapes | None = None,
    options: Options | None = None,
) -> list[Graph]:
    """What ``compile`` would generate code for, in the order of the regions' names.

    Parameters
    ----------
    model, shapes, options
        As of ``compile``.

    Raises
    ------
    ModelError, RefusedError, LoweringError
    """
    from convoy.relax.importer import load

    module = partition(options)(fold()(load(model, shapes)))
    functions = {name.name_hint: function for name, function in module.functions_items()}
    return [
        lower(function)
        for _, function in sorted(functions.items())
        if function.attrs and "Codegen" in function.attrs
    ]
