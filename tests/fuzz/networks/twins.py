"""Another network that computes the same: rewrites an exporter might have chosen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.networks.bundle import constants_of

Nodes = list[onnx.NodeProto]


class Rewriting:
    """A graph while it is rewritten: new names and new constants."""

    def __init__(self, graph: onnx.GraphProto, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng
        self.constants = constants_of(graph)
        self.shapes = {v.name: v.type.tensor_type.shape.dim for v in (*graph.value_info, *graph.input)}
        self._numbers = count()

    def name(self) -> str:
        return f"twin{next(self._numbers)}"

    def constant(self, values: np.ndarray) -> str:
        name = self.name()
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def rank(self, name: str) -> int:
        """Rank of a tensor, 0 if it is not known."""
        return self.constants[name].ndim if name in self.constants else len(self.shapes.get(name, ()))


def make_twin(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto | None:
    """The model with some nodes written another way; None if there is none to rewrite."""
    twin = onnx.shape_inference.infer_shapes(model)
    work = Rewriting(twin.graph, rng)
    nodes: Nodes = []
    changed = 0
    for node in twin.graph.node:
        forms = [rewrite for op, rewrite in REWRITES if op in ("", node.op_type)]
        written = None
        if forms and rng.random() < 0.6:
            written = forms[int(rng.integers(len(forms)))](work, node)
        changed += written is not None
        nodes.extend(written or [node])
    if not changed:
        return None
    del twin.graph.node[:], twin.graph.value_info[:]
    twin.graph.node.extend(nodes)
    return twin


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _node(op: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], name=f"{output}_node", **attributes)


def write_out_batch_norm(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """BatchNormalization  =>  x * scale + shift, with one value a channel."""
    x, *parameters = node.input
    rank = work.rank(x)
    if rank < 2 or not all(name in work.constants for name in parameters):
        return None
    scale, shift, mean, variance = (work.constants[name].astype(np.float64) for name in parameters)
    scale = scale / np.sqrt(variance + float(_attributes(node).get("epsilon", 1e-5)))  # type: ignore[arg-type]
    spread = (-1, *(1,) * (rank - 2))
    a, b = (work.constant(v.reshape(spread).astype(np.float32)) for v in (scale, shift - mean * scale))
    y = work.name()
    return [_node("Mul", [x, a], y), _node("Add", [y, b], node.output[0])]


def split_groups(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """Conv with a few groups  =>  Split, a Conv for each, Concat."""
    attributes = _attributes(node)
    groups = int(attributes.pop("group", 1))  # type: ignore[call-overload]
    x, w, *bias = node.input
    if not 1 < groups <= 4 or any(name not in work.constants for name in (w, *bias)):
        return None
    weights = np.split(work.constants[w], groups)
    biases = np.split(work.constants[bias[0]], groups) if bias else [None] * groups
    parts, ends = ([work.name() for _ in range(groups)] for _ in range(2))
    nodes = [helper.make_node("Split", [x, work.constant(np.full(groups, weights[0].shape[1]))], parts,
                              name=work.name(), axis=1)]  # fmt: skip
    for part, end, own, added in zip(parts, ends, weights, biases, strict=True):
        more = [] if added is None else [work.constant(added)]
        nodes.append(_node("Conv", [part, work.constant(own), *more], end, **attributes))
    return [*nodes, _node("Concat", ends, node.output[0], axis=1)]


def pad_before(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """Conv with pads  =>  Pad, Conv without."""
    attributes = _attributes(node)
    pads = attributes.pop("pads", None)
    if not pads or "auto_pad" in attributes:
        return None
    half = len(pads) // 2  # type: ignore[arg-type]
    widths = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)  # type: ignore[index]
    x = work.name()
    conv = _node("Conv", [x, *node.input[1:]], node.output[0], **attributes)
    return [_node("Pad", [node.input[0], work.constant(widths)], x), conv]


def add_bias_after(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """Conv or ConvTranspose with a bias  =>  without, then Add."""
    if len(node.input) < 3 or node.input[2] not in work.constants:
        return None
    rank = work.rank(node.input[0])
    bias = work.constant(work.constants[node.input[2]].reshape(-1, *(1,) * (rank - 2)))
    y = work.name()
    conv = _node(node.op_type, list(node.input[:2]), y, **_attributes(node))
    return [conv, _node("Add", [y, bias], node.output[0])] if rank > 2 else None


def swap_operands(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """a + b  =>  b + a"""
    return [_node(node.op_type, list(reversed(node.input)), node.output[0])]


def bound_below(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """relu(x)  =>  max(x, 0) or clip(x, 0)"""
    zero = work.constant(np.array(0, np.float32))
    op = "Max" if work.rng.random() < 0.5 else "Clip"
    return [_node(op, [node.input[0], zero], node.output[0])]


def nest_concat(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """concat(a, b, c)  =>  concat(a, concat(b, c))"""
    first, *rest = node.input
    if len(rest) < 2:
        return None
    inner = work.name()
    attributes = _attributes(node)
    return [
        _node("Concat", rest, inner, **attributes),
        _node("Concat", [first, inner], node.output[0], **attributes),
    ]


def write_out_gemm(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """gemm(x, w, b)  =>  x @ w + b"""
    attributes = _attributes(node)
    if attributes.get("transA") or {attributes.get("alpha", 1.0), attributes.get("beta", 1.0)} != {1.0}:
        return None
    x, w, *bias = node.input
    if w not in work.constants:
        return None
    turned = work.constants[w].T if attributes.get("transB") else work.constants[w]
    y = work.name() if bias else node.output[0]
    product = _node("MatMul", [x, work.constant(np.ascontiguousarray(turned))], y)
    return [product, _node("Add", [y, bias[0]], node.output[0])] if bias else [product]


def turn_and_back(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """f(x), elementwise  =>  transpose(f(transpose(x))), through NHWC"""
    if work.rank(node.input[0]) != 4:
        return None
    x, y = work.name(), work.name()
    return [
        _node("Transpose", [node.input[0]], x, perm=[0, 2, 3, 1]),
        _node(node.op_type, [x], y, **_attributes(node)),
        _node("Transpose", [y], node.output[0], perm=[0, 3, 1, 2]),
    ]


def repeat_after(work: Rewriting, node: onnx.NodeProto) -> Nodes | None:
    """y = f(x)  =>  y = identity(f(x))"""
    if len(node.output) != 1 or node.op_type == "Constant":
        return None
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[0] = work.name()
    return [copy, _node("Identity", [copy.output[0]], node.output[0])]


REWRITES: tuple[tuple[str, Callable[[Rewriting, onnx.NodeProto], Nodes | None]], ...] = (
    ("BatchNormalization", write_out_batch_norm), ("Conv", split_groups), ("Conv", pad_before),
    ("Conv", add_bias_after), ("ConvTranspose", add_bias_after), ("Add", swap_operands),
    ("Mul", swap_operands), ("Max", swap_operands), ("Relu", bound_below), ("Concat", nest_concat),
    ("Gemm", write_out_gemm), ("Relu", turn_and_back), ("Sigmoid", turn_and_back), ("Elu", turn_and_back),
    ("LeakyRelu", turn_and_back), ("Tanh", turn_and_back), ("", repeat_after),
)  # fmt: skip
"""The op a rewrite is for, or none for any, and the rewrite."""
