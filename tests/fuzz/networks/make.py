"""A random ONNX network from its seed: the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.networks.attention import draw_attention, draw_root_mean_square, draw_sequence
from fuzz.networks.convolutions import (
    draw_branches,
    draw_conv,
    draw_conv_transpose,
    draw_separable,
    draw_siblings,
)
from fuzz.networks.draft import Draft, Form, Unsuitable
from fuzz.networks.movement import (
    draw_channel_shuffle,
    draw_concat,
    draw_expand,
    draw_pad,
    draw_reshape,
    draw_slice,
    draw_split,
    draw_transpose,
)
from fuzz.networks.norms import draw_batch_norm, draw_other_norm
from fuzz.networks.pointwise import (
    draw_activation,
    draw_arithmetic,
    draw_function,
    draw_residual,
    draw_variadic,
    draw_where,
)
from fuzz.networks.products import draw_gemm, draw_head, draw_matmul, draw_reduce, draw_softmax
from fuzz.networks.windows import draw_gate, draw_global_pool, draw_pool, draw_resize

FEWEST = 3
"""Nodes of a network."""
SIDE = "side_"
"""An open size's name begins like this and ends with what it is run with; between stands whose it is."""
IR_VERSION = 8
Step = Callable[[Draft, str], None]


def draw_form(rng: np.random.Generator) -> Form:
    symbolic = bool(rng.random() < 0.25)
    batches = (0, 1, 2, 3, 4, 5) if symbolic else (1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 5)
    opset, batch = int(rng.choice((13, 14, 16, 17))), int(rng.choice(batches))
    quantised, sides = bool(rng.random() < 0.2), bool(rng.random() < 0.25)
    return Form(opset, batch, symbolic, quantised, sides)


def make_network(seed: Sequence[int], form: Form) -> onnx.ModelProto:
    """A connected network of three or more nodes.

    Parameters
    ----------
    seed : Sequence[int]
        Numbers, as NumPy's generators take them.
    """
    d = Draft(np.random.default_rng(seed), form)
    d.add_input(_draw_input_shape(d))
    wanted = d.pick((3, 3, 4, 4, 5, 6, 7, 9, 12))
    while len(d.nodes) < wanted:
        step = STEPS[int(d.rng.choice(len(STEPS), p=PROBABILITIES))]
        mark = d.mark()
        try:
            step(d, d.pick_tensor())
        except Unsuitable:
            d.take_back(mark)
    return _finish(d)


def _draw_input_shape(d: Draft) -> tuple[int, ...]:
    rank = d.pick((2, 3, 3, 5, *(4,) * 26))
    sizes = [d.pick_size() for _ in range(rank - 2)]
    channels = d.pick_channels()
    if channels > 40:
        sizes = [min(n, 4) for n in sizes]
    return (d.batch, channels, *(min(n, 5) if rank == 5 else n for n in sizes))


def draw_second_input(d: Draft, x: str) -> None:
    """One more input, joined with x at once."""
    mark, inputs = d.mark(), len(d.inputs)
    try:
        y = d.add_input(d.shapes[x] if d.shapes[x][:1] == (d.batch,) else _draw_input_shape(d))
        if d.shapes[y] != d.shapes[x]:
            raise Unsuitable("nothing that fits")
        if d.chance(0.3) and len(d.shapes[x]) > 1:
            d.add("Concat", x, y, axis=1)
        else:
            d.add(d.pick(("Add", "Mul", "Sub")), x, y)
    except Unsuitable:
        del d.inputs[inputs:]
        d.take_back(mark)
        raise


WEIGHTED_STEPS: tuple[tuple[int, Step], ...] = (
    (24, draw_conv), (5, draw_separable), (3, draw_siblings), (3, draw_branches), (5, draw_conv_transpose),
    (7, draw_batch_norm), (7, draw_activation), (2, draw_function), (9, draw_arithmetic),
    (9, draw_residual), (2, draw_variadic),
    (1, draw_where), (6, draw_pool), (2, draw_global_pool), (3, draw_gate), (3, draw_resize),
    (7, draw_concat), (3, draw_split), (4, draw_slice), (4, draw_transpose), (4, draw_reshape),
    (2, draw_channel_shuffle), (3, draw_pad), (1, draw_expand), (3, draw_other_norm), (3, draw_gemm),
    (2, draw_matmul), (2, draw_softmax), (3, draw_reduce), (2, draw_head), (2, draw_second_input),
    (6, draw_attention), (1, draw_root_mean_square), (2, draw_sequence),
)  # fmt: skip
"""How often each step is drawn, and the step."""
STEPS = [step for _, step in WEIGHTED_STEPS]
PROBABILITIES = np.array([weight for weight, _ in WEIGHTED_STEPS]) / sum(w for w, _ in WEIGHTED_STEPS)


def _finish(d: Draft) -> onnx.ModelProto:
    """The model; its outputs are all tensors nobody reads, and sometimes others."""
    read = {name for node in d.nodes for name in node.input}
    outputs = [name for node in d.nodes for name in node.output if name not in read]
    inner = [name for node in d.nodes for name in node.output if name in read]
    if inner and d.chance(0.15):
        outputs.append(d.pick(inner))
    if d.chance(0.03):
        outputs.append(d.inputs[0])
    if d.chance(0.03):  # the same tensor twice: the names of outputs differ
        outputs.append(d.add("Identity", d.pick(outputs)))
    floats = [name for name, array in d.constants.items() if array.dtype == np.float32]
    if floats and d.chance(0.03):
        outputs.append(d.pick(floats))
    if d.chance(0.3):
        d.rng.shuffle(outputs)
    used = {name for node in d.nodes for name in node.input} | set(outputs)
    constants = {name: array for name, array in d.constants.items() if name in used}
    nodes = d.nodes
    as_nodes = [n for n in constants if n not in outputs and d.chance(0.05)]
    nodes = [
        *(
            helper.make_node("Constant", [], [n], value=numpy_helper.from_array(constants[n]))
            for n in as_nodes
        ),
        *nodes,
    ]
    graph = helper.make_graph(
        nodes,
        "fuzz",
        [_declare(d, name) for name in d.inputs],
        [_declare(d, name) for name in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items() if n not in as_nodes],
    )
    return make_model(graph, d.form)


def _declare(d: Draft, name: str) -> onnx.ValueInfoProto:
    shape: list[int | str | None] = list(d.shapes[name])
    if name not in d.constants:
        if d.form.sides and name in d.inputs:
            # its name says what it is run with; calls are refused where an open 1 would be broadcast
            shape[2:] = [f"{SIDE}{n}" if n > 1 else n for n in d.shapes[name][2:]]
        elif d.form.sides:
            shape[1:] = [None] * len(shape[1:])
        if d.form.symbolic and shape:
            shape[0] = "N"
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def make_model(
    graph: onnx.GraphProto, form: Form, more: Mapping[str, str] | None = None
) -> onnx.ModelProto:
    """The model of a graph, which says in its metadata what batch it is run with."""
    imports = [helper.make_opsetid("", form.opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="fuzz")
    helper.set_model_props(model, {"batch": str(form.batch), **(more or {})})
    return model
