"""Damage to nodes and names: what is missing, double, in the wrong order, or reads what it makes.

Each function changes the model it is given and says what it did; None: there was nothing to change.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from mutants.draw import node_of, pick
from mutants.extremes import NAMES

OPS = (
    "Abs", "Add", "ArgMax", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat", "Conv",
    "ConvTranspose", "DepthToSpace", "Div", "Dropout", "Einsum", "Expand", "Flatten", "GRU", "Gather",
    "Gemm", "GlobalMaxPool", "Identity", "If", "InstanceNormalization", "LRN", "LSTM", "Loop", "MatMul",
    "MaxPool", "Mean", "Mul", "NonMaxSuppression", "NonZero", "Pad", "Pow", "ReduceMean", "Relu",
    "Reshape", "Resize", "Scan", "Shape", "Sigmoid", "Slice", "Softmax", "Split", "Squeeze", "Sum", "Tile",
    "TopK", "Transpose", "Unsqueeze", "Upsample", "Where", "Xor", "NoSuchOp",
)  # fmt: skip


def remove_node(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    node = node_of(model, rng)
    model.graph.node.remove(node)
    return f"node {node.op_type} removed"


def repeat_node(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    node = node_of(model, rng)
    model.graph.node.add().CopyFrom(node)
    return f"node {node.op_type} written twice"


def reorder_nodes(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    nodes = [model.graph.node[i] for i in rng.permutation(len(model.graph.node))]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return "nodes in another order"


def replace_op(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    node = node_of(model, rng)
    old, node.op_type = node.op_type, pick(rng, OPS)
    if rng.random() < 0.5:
        del node.attribute[:]
    return f"{old} becomes {node.op_type}"


def change_domain(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    node = node_of(model, rng)
    node.domain = pick(rng, ("com.microsoft", "ai.onnx.ml", "ai.onnx", *NAMES))
    return f"domain of {node.op_type}: {node.domain[:30]!r}"


def change_operands(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """Drop, repeat, swap, empty or redirect what a node reads or makes."""
    node = node_of(model, rng)
    side = pick(rng, ("input", "input", "output"))
    names = list(getattr(node, side))
    if not names:
        return "a node without operands"
    at = int(rng.integers(len(names)))
    known = [name for other in model.graph.node for name in (*other.input, *other.output)]
    what = pick(rng, ("dropped", "repeated", "reversed", "emptied", "redirected"))
    if what == "dropped":
        del names[at]
    elif what == "repeated":
        names.append(names[at])
    elif what == "reversed":
        names.reverse()
    else:
        names[at] = "" if what == "emptied" else pick(rng, known)
    node.ClearField(side)
    getattr(node, side).extend(names)
    return f"{side} {at} of {node.op_type} {what}"


def close_cycle(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    nodes = model.graph.node
    early = int(rng.integers(len(nodes)))
    late = int(rng.integers(early, len(nodes)))
    given = [*nodes[early].input]
    given[:1] = nodes[late].output[:1]  # one that reads nothing, such as a Constant, gets an input
    nodes[early].ClearField("input")
    nodes[early].input.extend(given)
    return f"node {early} ({nodes[early].op_type}) reads what node {late} makes"


def rename_tensor(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """Everywhere, so that the model stays right, or in one place."""
    old = pick(rng, [name for node in model.graph.node for name in (*node.input, *node.output) if name])
    new = pick(rng, NAMES)
    everywhere = bool(rng.random() < 0.7)
    for node in model.graph.node:
        for side in (node.input, node.output):
            for i, name in enumerate(side):
                if name == old:
                    side[i] = new
                    if not everywhere:
                        return f"{old} is {new[:30]!r} in one place"
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = new if value.name == old else value.name
    return f"{old} is {new[:30]!r} everywhere"


def rename_node(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    new = pick(rng, NAMES)
    for node in model.graph.node if rng.random() < 0.5 else [node_of(model, rng)]:
        node.name = new
    return f"nodes named {new[:30]!r}"


def rename_values(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """An input, output or initializer alone: unknown, empty, or the name of another."""
    value = pick(rng, [*model.graph.input, *model.graph.output, *model.graph.initializer])
    known = [v.name for v in (*model.graph.input, *model.graph.output, *model.graph.initializer)]
    old, value.name = value.name, pick(rng, [*known, *NAMES[:8]])
    return f"{type(value).__name__} {old} is named {value.name[:30]!r}"


def change_outputs(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    what = pick(rng, ("none", "twice", "an input", "a weight", "all"))
    outputs = model.graph.output
    if what == "none":
        del outputs[:]
    elif what == "twice":
        outputs.add().CopyFrom(outputs[0])
    elif what == "an input":
        outputs.add().CopyFrom(model.graph.input[0])
    elif what == "a weight":
        if not model.graph.initializer:
            return "no weight to return"
        outputs.append(
            helper.make_tensor_value_info(model.graph.initializer[0].name, TensorProto.FLOAT, None)
        )
    else:
        outputs.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for node in model.graph.node
            for name in node.output
            if name and name not in [output.name for output in outputs]
        )
    return f"outputs: {what}"
