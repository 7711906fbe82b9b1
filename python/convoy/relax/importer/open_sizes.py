"""Sizes that are known only when a model runs: what to write to fix them, and which TVM cannot run."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

import numpy as np
import onnx
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from convoy.errors import ModelError
from convoy.relax.importer.read import Model

MOST_BYTES = 2**40
"""The most bytes of one tensor."""
_TRIED = 224
"""A number for all open sizes: of pixels or words, and a multiple of what halves a map five times."""


class Unfixed(ModelError):
    """A node that could not be converted in a model of open sizes; with what to do if they are not why."""

    otherwise: str

    @classmethod
    def of(cls, model: Model, node: str, problem: str, otherwise: str) -> ModelError:
        """The error of a node: a plain one where no size is open."""
        if not has_open_sizes(model):
            return ModelError("import", node, problem, otherwise)
        error = cls("import", node, problem, tell_how_to_fix(model))
        error.otherwise = otherwise
        return error

    def decide(self, fails: Callable[[], ModelError | None]) -> ModelError:
        """What to say, given what fails where all sizes are fixed: sizes help unless it is the same."""
        found = fails()
        alike = found is not None and (found.node, found.problem) == (self.node, self.problem)
        return ModelError(self.step, self.node, self.problem, self.otherwise if alike else self.remedy)


def some_sizes(model: Model) -> dict[str, tuple[int | None, ...]]:
    """Sizes of inputs that are open, some number in place of what is and follows from no other."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.inputs()}

    def some_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        return None if dim.dim_param in model.derived else _TRIED

    return {
        name: tuple(map(some_size, dims))
        for name, dims in shapes.items()
        if not all(dim.HasField("dim_value") for dim in dims)
    }


def has_open_sizes(model: Model) -> bool:
    """Is the size of an input known only when the model runs?"""
    return any("?" in _write_shape(value) for value in model.inputs())


def tell_how_to_fix(model: Model) -> str:
    """The ``--shape`` of every input that has open sizes, a question mark for each of them."""
    shapes = {value.name: _write_shape(value) for value in model.inputs()}
    given = [f"--shape {name}={shape}" for name, shape in shapes.items() if "?" in shape]
    return f"fix the open sizes: {' '.join(given)}, with numbers for the question marks"


def _write_shape(value: onnx.ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    return "x".join(str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in dims)


def check_open_sizes(module: tvm.IRModule, model: Model) -> None:
    """See that TVM can set memory aside for every tensor of an open size.

    Its planner takes the most a size can be, where an expression says one: of ``min(2147483647, n)``
    that is 2147483647, whatever n is, and the model would end in ``std::bad_alloc`` each time it runs.

    Raises
    ------
    ModelError
        Naming the tensor, its size, and the ``--shape`` to give.
    """
    analyzer = Analyzer()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            type_ = binding.var.ty
            if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
                continue
            dims = list(type_.shape.values)
            if all(isinstance(d, tirx.IntImm) for d in dims):
                continue
            most = [int(analyzer.const_int_bound(d).max_value) for d in dims]
            endless = int(analyzer.const_int_bound(tirx.Var("any", "int64")).max_value)
            if endless not in most and prod(most) * _width(str(type_.dtype)) > MOST_BYTES:
                text = re.sub(r"T\.int64\((\d+)\)|T\.", r"\1", ", ".join(map(str, dims)))
                raise ModelError(
                    "import",
                    f"{model.name}: {binding.var.name}",
                    f"expected a size that TVM can plan memory for, got [{text}]",
                    tell_how_to_fix(model),
                )


def _width(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 1  # bool and what NumPy has no name for
