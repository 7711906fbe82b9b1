"""Damage to the whole of a model: opsets, versions, subgraphs, depth.

Each function changes the model it is given and says what it did; None: there was nothing to change.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mutants.draw import node_of, pick
from mutants.extremes import INTEGERS, NAMES


def change_opset(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    what = pick(rng, ("version", "version", "version", "none", "twice", "domain"))
    if what == "none":
        del model.opset_import[:]
    elif what == "twice":
        model.opset_import.add(domain="", version=pick(rng, (1, 7, 13, 21)))
    elif what == "domain":
        model.opset_import[0].domain = pick(rng, NAMES)
    else:
        model.opset_import[0].version = pick(
            rng, (0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 18, 22, 25, 99, *INTEGERS)
        )
    return f"opset: {what} {[(entry.domain[:20], entry.version) for entry in model.opset_import]}"


def change_ir_version(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    model.ir_version = pick(rng, INTEGERS)
    return f"IR version {model.ir_version}"


def wrap_in_subgraph(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """A node inside a branch or a loop: a right one, one without a body, or one that never ends."""
    node = node_of(model, rng)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    kind = pick(rng, ("If", "If", "one branch", "no branch", "Loop", "endless", "itself"))
    result = helper.make_tensor_value_info("inner_result", TensorProto.FLOAT, None)
    inner.output[0] = "inner_result"
    body = helper.make_graph([inner], "body", [], [result])
    model.graph.initializer.append(numpy_helper.from_array(np.array(bool(rng.random() < 0.5)), "condition"))
    outputs = list(node.output)
    node.Clear()
    node.name, node.op_type = "wrapped", "If"
    node.input.append("condition")
    node.output.append(outputs[0])
    if kind in ("Loop", "endless"):
        trips = np.array(3 if kind == "Loop" else (1 << 62), np.int64)
        model.graph.initializer.append(numpy_helper.from_array(trips, "trips"))
        value = helper.make_tensor_value_info
        condition = helper.make_node("Identity", ["go"], ["go_on"])
        last = helper.make_node("Identity", ["carried"], ["inner_carried"])
        looped = helper.make_graph(
            [condition, last, inner],
            "loop",
            [
                value("i", TensorProto.INT64, []),
                value("go", TensorProto.BOOL, []),
                value("carried", 1, None),
            ],
            [value("go_on", TensorProto.BOOL, []), value("inner_carried", 1, None)],
        )
        node.op_type = "Loop"
        del node.input[:]
        node.input.extend(["trips", "", model.graph.input[0].name])
        node.attribute.append(helper.make_attribute("body", looped))
    elif kind == "itself":
        call = helper.make_node("Again", ["again_x"], ["again_y"], domain="own")
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        model.functions.append(
            helper.make_function("own", "Again", ["again_x"], ["again_y"], [call], opsets)
        )
        model.opset_import.append(helper.make_opsetid("own", 1))
        node.op_type, node.domain = "Again", "own"
        node.input[0] = inner.input[0]
    else:
        branches = {"If": ("then_branch", "else_branch"), "one branch": ("then_branch",), "no branch": ()}[
            kind
        ]
        node.attribute.extend(helper.make_attribute(branch, body) for branch in branches)
    return f"{inner.op_type} in a subgraph: {kind}"


def nest_deeply(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """Branches in branches, or a long row of nodes."""
    depth = pick(rng, (10, 40, 80))
    name = model.graph.output[0].name
    if rng.random() < 0.5:
        for i in range(10 * depth):
            model.graph.node.append(helper.make_node("Relu", [name], [f"row{i}"], name=f"row{i}"))
            name = f"row{i}"
        model.graph.output[0].name = name
        return f"{10 * depth} nodes in a row"
    depth = min(depth, 60)  # protobuf itself refuses a hundred levels
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "condition"))
    value = helper.make_tensor_value_info("deepest", TensorProto.FLOAT, None)
    body = helper.make_graph([helper.make_node("Relu", [name], ["deepest"])], "deepest", [], [value])
    for i in range(depth // 4):
        node = helper.make_node("If", ["condition"], [f"level{i}"], then_branch=body, else_branch=body)
        value = helper.make_tensor_value_info(f"level{i}", TensorProto.FLOAT, None)
        if body.ByteSize() > 1 << 20:
            break
        body = helper.make_graph([node], f"level{i}", [], [value])
    model.graph.node.extend(body.node)
    model.graph.output[0].name = body.output[0].name
    return "branches in branches"
