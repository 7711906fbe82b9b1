"""Change the batch of an ONNX model, one exported for a single image included."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from convoy.bench.inputs import forget_shape, model_inputs


def set_batch(model: onnx.ModelProto, batch: int) -> None:
    """Give every input ``batch`` images, in place.

    Old exporters write the batch into reshapes, as ``[1, 9216]``: a leading 1 becomes 0, which
    keeps what the input has.  That is right where the axis is the batch, as in every network of
    the zoo; elsewhere the reference fails, and says so.
    """
    for value in model_inputs(model):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for output in model.graph.output:
        forget_shape(output)
    del model.graph.value_info[:]
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in shapes:
            tensor.CopyFrom(_free_batch(tensor, tensor.name))
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in shapes:
            for attribute in node.attribute:
                if attribute.name == "value":
                    attribute.t.CopyFrom(_free_batch(attribute.t, attribute.t.name))


def _free_batch(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    sizes = numpy_helper.to_array(tensor).copy()
    if sizes.size > 1 and sizes[0] == 1:
        sizes[0] = 0
    return numpy_helper.from_array(sizes.astype(np.int64), name)
