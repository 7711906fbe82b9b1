"""Seeded random inputs for an ONNX model, and the shapes and tensors they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.external_data_helper import load_external_data_for_model

from convoy.errors import ModelError
from convoy.graph.written_sizes import complete_shapes
from convoy.onnx_file import Shapes, names_size, parse_file
from convoy.options import shape_option

Arrays = dict[str, NDArray[Any]]


def read_model(path: str | Path) -> onnx.ModelProto:
    """Read an ONNX file, with external data if it has any.

    Raises
    ------
    ModelError
        If the file is missing or no ONNX model, or its external data is missing or cut short.
    """
    model = parse_file(Path(path))
    try:
        load_external_data_for_model(model, str(Path(path).parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            "import",
            str(path),
            f"expected its external data beside it, got {error}",
            "keep the files of external data beside the model, complete, or export it again",
        ) from error
    if not model.graph.node:
        raise ModelError(
            "import", str(path), "expected an ONNX model, got a graph without nodes", "export it again"
        )
    return model


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs a caller has to give: those that are not weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def forget_shape(output: onnx.ValueInfoProto) -> None:
    """Leave out what a model says of an output's shape; of its type it may say nothing."""
    if output.type.HasField("tensor_type"):
        output.type.tensor_type.ClearField("shape")


def input_shapes(model: onnx.ModelProto, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The shapes to run inputs with: those of ``shapes`` and what follows from them, else the model's.

    An open batch that neither says is 1.

    Raises
    ------
    ModelError
        If a dimension other than the first is unknown, not given, and follows from none that is.
    """
    values = model_inputs(model)
    dimensions = [value.type.tensor_type.shape.dim for value in values]
    written = [[dim.dim_value or _text(dim) for dim in dims] for dims in dimensions]
    completed = complete_shapes(written, [shapes.get(value.name, ()) for value in values])
    found: dict[str, tuple[int, ...]] = {}
    for value, sizes in zip(values, completed, strict=True):
        found[value.name] = tuple(size for size in sizes if isinstance(size, int))
        if len(found[value.name]) < len(sizes):
            axis = next(axis for axis, size in enumerate(sizes) if not isinstance(size, int))
            raise ModelError(
                "import",
                f"input {value.name}",
                f"expected a fixed size in axis {axis}, got {sizes[axis] or 'none'}",
                f"give its shape, e.g. {shape_option(value.name, sizes)}",
            )
    return found


def _text(dim: onnx.TensorShapeProto.Dimension) -> str | None:
    return dim.dim_param if names_size(dim.dim_param) else None


def seeded_inputs(model: onnx.ModelProto, shapes: Shapes | None = None, seed: int = 0) -> Arrays:
    """One array per input: floats from a standard normal, integers and booleans from {0, 1}.

    Raises
    ------
    ModelError
        If an input's shape or type is not known, or there is no memory for it.
    """
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    found = input_shapes(model, shapes or {})
    for value in model_inputs(model):
        shape = found[value.name]
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        except KeyError:
            raise ModelError(
                "import",
                f"input {value.name}",
                "expected a tensor, got another kind of value",
                "replace it",
            ) from None
        try:
            if _is_float(dtype):
                arrays[value.name] = generator.standard_normal(shape).astype(dtype)
            else:
                arrays[value.name] = generator.integers(0, 2, shape).astype(dtype)
        except (MemoryError, ValueError) as error:  # ValueError: more than any array can have
            raise ModelError(
                "import",
                f"input {value.name}",
                f"expected a shape there is memory for, got {list(shape)}",
                f"give a smaller one, e.g. {shape_option(value.name, [0] * len(shape))}",
            ) from error
    return arrays


def other_inputs(inputs: Arrays) -> Arrays:
    """Other numbers of the same shapes: other floats, and where an input has none, 0 for 1 and 1 for 0.

    Whole numbers beside floats stay as they are: they may be sizes or places.
    """
    generator = np.random.default_rng([len(inputs), len(inputs)])  # no seed of one number draws the same
    if any(_is_float(array.dtype) for array in inputs.values()):
        return {
            name: generator.standard_normal(array.shape).astype(array.dtype)
            if _is_float(array.dtype)
            else array
            for name, array in inputs.items()
        }
    return {
        name: (array == 0).astype(array.dtype) if array.dtype.kind in "iub" else array
        for name, array in inputs.items()
    }


def _is_float(dtype: np.dtype[Any]) -> bool:
    return np.issubdtype(dtype, np.floating) or dtype.name == "bfloat16"
