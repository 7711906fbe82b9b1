"""A node whose op is to be written out, with what is known of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper


@dataclass(frozen=True)
class Call:
    """What a body is written for."""

    node: onnx.NodeProto
    types: Sequence[onnx.TypeProto]
    """A type for each input; an empty one where none is known, or the input is left out."""
    opset: int
    """Version of ONNX's own ops in the model."""
    constants: Mapping[str, Any]
    """Arrays by the name of a tensor, of those that are known."""

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute; texts are decoded."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode(errors="replace") if isinstance(value, bytes) else value
        return default

    def has(self, index: int) -> bool:
        """Is this input given?"""
        return index < len(self.node.input) and self.node.input[index] != ""

    def makes(self, index: int) -> bool:
        """Is this output asked for?"""
        return index < len(self.node.output) and self.node.output[index] != ""

    def constant(self, index: int) -> Any:
        """The array of an input; None if it is not known."""
        return self.constants.get(self.node.input[index]) if self.has(index) else None

    def shape(self, index: int) -> tuple[int, ...] | None:
        """The shape of an input, if every size of it is known."""
        kind = self.types[index].tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
        return tuple(sizes) if kind.HasField("shape") and min(sizes, default=0) >= 0 else None

    def shape_with_open(self, index: int) -> tuple[int | None, ...] | None:
        """The sizes of an input, None for those that are open."""
        kind = self.types[index].tensor_type
        if not kind.HasField("shape"):
            return None
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)

    def rank(self, index: int) -> int | None:
        """How many axes an input has."""
        kind = self.types[index].tensor_type
        return len(kind.shape.dim) if kind.HasField("shape") else None

    def dtype(self, index: int) -> int:
        """The type of an input's elements, a number of ``TensorProto``'s; 0 if unknown."""
        return int(self.types[index].tensor_type.elem_type)

    def dtype_name(self, index: int) -> str:
        """The same as it is written in the text of a body."""
        return str(TensorProto.DataType.Name(self.dtype(index))).lower()
