"""Damage to dimensions, types, weights and attributes.

Each function changes the model it is given and says what it did; None: there was nothing to change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mutants.draw import node_of, pick
from mutants.extremes import FLOATS, INTEGERS, NAMES
from mutants.sources import integer_constants

TYPES = [kind.number for kind in TensorProto.DataType.DESCRIPTOR.values] + [99, -1]


def change_input_dim(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    value = pick(rng, model.graph.input)
    dims = value.type.tensor_type.shape.dim
    what = pick(rng, ("value", "value", "value", "name", "unknown", "dropped", "added", "no shape"))
    if what == "no shape" or not dims:
        value.type.tensor_type.ClearField("shape")
        return f"input {value.name} without a shape"
    at = int(rng.integers(len(dims)))
    if what == "value":
        dims[at].dim_value = pick(rng, INTEGERS)
    elif what == "name":
        dims[at].dim_param = pick(rng, NAMES)
    elif what == "unknown":
        dims[at].Clear()
    elif what == "dropped":
        del dims[at]
    else:
        dims.add().dim_value = pick(rng, INTEGERS)
    return f"input {value.name}: dim {at}: {what}: {[d.dim_param[:20] or d.dim_value for d in dims]}"


def change_weight_dims(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    if not model.graph.initializer:
        return None
    tensor = pick(rng, model.graph.initializer)
    if not tensor.dims:
        return None
    at = int(rng.integers(len(tensor.dims)))
    what = pick(rng, ("value", "value", "dropped", "added", "swapped"))
    if what == "value":
        tensor.dims[at] = pick(rng, INTEGERS)
    elif what == "dropped":
        del tensor.dims[at]
    elif what == "added":
        tensor.dims.append(pick(rng, (1, 1, 0, -1, 2)))
    else:
        tensor.dims[at], tensor.dims[-1] = tensor.dims[-1], tensor.dims[at]
    return f"weight {tensor.name}: dims {list(tensor.dims)} ({what})"


def resize_weight(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    """A weight of another shape that holds what its dims say: it no longer fits its node."""
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.dims]
    if not tensors:
        return None
    tensor = pick(rng, tensors)
    dims = list(tensor.dims)
    at = int(rng.integers(len(dims)))
    dims[at] = pick(rng, (0, 1, dims[at] + 1, 2 * dims[at], max(dims[at] - 1, 1)))
    values = rng.standard_normal(dims, np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return f"weight {tensor.name} of shape {dims}"


def change_type(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """The type that is written; what is there stays."""
    value = pick(rng, [*model.graph.input, *model.graph.output, *model.graph.initializer])
    new = pick(rng, TYPES)
    if isinstance(value, onnx.TensorProto):
        value.data_type = new
    else:
        value.type.tensor_type.elem_type = new
    return f"type of {value.name}: {new}"


def convert_weight(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    """A weight that is of another type, whole."""
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    if not tensors:
        return None
    tensor = pick(rng, tensors)
    dtype = pick(rng, (np.float16, np.float64, np.int8, np.uint8, np.int64, np.bool_, np.complex64))
    with np.errstate(all="ignore"):
        values = numpy_helper.to_array(tensor).astype(dtype)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return f"weight {tensor.name} as {values.dtype}"


def change_weight_values(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    """NaN, infinity, zeros, denormals or huge numbers in a weight."""
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.dims]
    if not tensors:
        return None
    tensor = pick(rng, tensors)
    values = numpy_helper.to_array(tensor).copy()
    new = pick(rng, FLOATS)
    if rng.random() < 0.5:
        values[...] = new
    elif values.size:
        values.reshape(-1)[int(rng.integers(values.size))] = new
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return f"weight {tensor.name} holds {new}"


def change_integers(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    """A constant that says a shape, an axis or a size; a Reshape is added where there is none."""
    found = integer_constants(model)
    if not found:
        output = model.graph.output[0]
        name = output.name
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, -1], np.int64), "target"))
        model.graph.node.append(helper.make_node("Reshape", [name, "target"], ["reshaped"], name="reshape"))
        output.name = "reshaped"
        found = integer_constants(model)
    tensor, values = pick(rng, found)
    values = values.copy()
    if not values.size:
        return None
    values.reshape(-1)[int(rng.integers(values.size))] = pick(rng, INTEGERS)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return f"constant {tensor.name} is {values.tolist()}"


def change_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return None
    node = pick(rng, nodes)
    attribute = pick(rng, node.attribute)
    what = pick(
        rng, ("value", "value", "value", "value", "longer", "shorter", "kind", "removed", "renamed")
    )
    values = helper.get_attribute_value(attribute)
    new: Any = values
    if what == "removed":
        node.attribute.remove(attribute)
        return f"{node.op_type}.{attribute.name} removed"
    if what == "renamed":
        attribute.name = pick(rng, NAMES)
        return f"an attribute of {node.op_type} is named {attribute.name[:30]!r}"
    if what == "kind":
        new = pick(rng, ("text", 1.5, 3, [1.5, 2.5], [1, 2, 3], ["a"]))
    elif isinstance(values, bytes):
        new = pick(rng, NAMES)
    elif isinstance(values, int):
        new = pick(rng, INTEGERS)
    elif isinstance(values, float):
        new = pick(rng, FLOATS)
    elif isinstance(values, (list, tuple)) or hasattr(values, "extend"):
        new = list(values)
        if what == "longer" or not new:
            new.append(1)
        elif what == "shorter":
            new.pop()
        elif isinstance(new[0], (int, float)):
            new[int(rng.integers(len(new)))] = pick(rng, INTEGERS if isinstance(new[0], int) else FLOATS)
    name = attribute.name
    if isinstance(new, list) and not new:
        del attribute.ints[:], attribute.floats[:]
    else:
        attribute.CopyFrom(helper.make_attribute(name, new))
    return f"{node.op_type}.{name}: {str(values)[:40]} becomes {str(new)[:40]!r}"


def add_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """One that the op does not know, or knows and had not."""
    node = node_of(model, rng)
    name = pick(
        rng,
        ("auto_pad", "group", "axis", "pads", "strides", "dilations", "kernel_shape", "to", "alpha", "x"),
    )
    value = pick(
        rng, ("SAME_UPPER", "VALID", "NO", -1, 0, 7, 1 << 40, 0.5, [1, 1], [0, 0], [-1, -1], [2, 2, 2])
    )
    node.attribute.append(helper.make_attribute(name, value))
    return f"{node.op_type} has {name}={value}"
