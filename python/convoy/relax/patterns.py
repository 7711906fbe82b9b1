"""The pattern table: which ops Convoy takes, and the check of each.

A check returns why an op is not taken, in words, or None.  A row of ``RULES`` adds an op,
a row of ``convoy/ops.py`` says what joins a kernel; the names of all patterns follow from the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax
from tvm.sym import Analyzer
from tvm_ffi import structural_hash

from convoy.graph.idioms import IDIOMS
from convoy.offload import axis_zero, reasons
from convoy.offload.attributes import from_zero, is_leaky
from convoy.offload.names import pattern_names
from convoy.offload.resize import refuse_resize
from convoy.offload.rule import Rule
from convoy.ops import REDUCTIONS, RELAX, activations, elementwise, row_of
from convoy.relax import attributes, idioms
from convoy.relax.dataflow import Dataflow, Dim, dims, dtype, op_name, rank, tensor_args

Check = Callable[[relax.Call, Dataflow], str | None]


# Checks --------------------------------------------------------------------------------------------


def _anything(call: relax.Call, flow: Dataflow) -> str | None:
    return None


def _check_concat(call: relax.Call, flow: Dataflow) -> str | None:
    if not isinstance(call.args[0], relax.Tuple):
        return "expected its operands written out, got a named tuple; run CanonicalizeBindings"
    return None


def _windowed(data: str, weight: str) -> Check:
    return lambda call, flow: reasons.convolution(call.attrs, data, weight)


def _pool(data: str) -> Check:
    def check(call: relax.Call, flow: Dataflow) -> str | None:
        size, windows = (dims(tensor)[2:] for tensor in (call.args[0], call))  # type: ignore[index]
        padded = "avg" in op_name(call) and bool(call.attrs.count_include_pad)
        sides = attributes.padding(call)
        return reasons.pool(call.attrs, data, size, windows, sides, padded=padded)

    return check


def _check_adaptive_pool(call: relax.Call, flow: Dataflow) -> str | None:
    size, output = (dims(tensor)[2:] for tensor in (call.args[0], call))  # type: ignore[index]
    layouts = reasons.layouts(call.attrs.layout, "NCHW", call.attrs.out_layout)
    return layouts or reasons.adaptive_pool(size, output)  # type: ignore[arg-type]


def _check_matmul(call: relax.Call, flow: Dataflow) -> str | None:
    return reasons.matmul(rank(call.args[1]))


def _check_clip(call: relax.Call, flow: Dataflow) -> str | None:
    return reasons.bounds(attributes.bounds(call))


def _check_softplus(call: relax.Call, flow: Dataflow) -> str | None:
    """Above its threshold softplus(x) is x; from 17 on, float32 has no other number for it."""
    if call.attrs.beta != 1:
        return f"expected beta 1, got {call.attrs.beta}"
    threshold = float(call.attrs.threshold)
    return None if threshold >= 17 else f"expected a threshold of 17 or more, got {threshold:g}"


def _check_batch_norm(call: relax.Call, flow: Dataflow) -> str | None:
    return reasons.TRAINING if call.attrs.training else None


def _check_layer_norm(call: relax.Call, flow: Dataflow) -> str | None:
    axes = [from_zero(int(axis), rank(call.args[0])) for axis in call.attrs.axes]
    if axes != sorted(axes):
        return f"expected axes in ascending order, got {axes}"
    return _check_scale_and_center(call, flow)


def _check_scale_and_center(call: relax.Call, flow: Dataflow) -> str | None:
    """By TVM's documents gamma or beta does not count without its flag; its kernels use both (0.27)."""
    for flag, position, neutral in (("scale", 1, 1.0), ("center", 2, 0.0)):
        array = flow.constant(call.args[position])
        if not getattr(call.attrs, flag) and (array is None or (array != neutral).any()):
            return f"expected {flag}, or {neutral:g} in its place, got {flag}=False and other numbers"
    return None


def _check_norm(call: relax.Call, flow: Dataflow) -> str | None:
    ndim = rank(call.args[0])
    channels = from_zero(int(call.attrs.channel_axis), ndim)
    return _check_scale_and_center(call, flow) or reasons.norm(channels, attributes.norm_axes(call), ndim)


def _check_variance(call: relax.Call, flow: Dataflow) -> str | None:
    return None if attributes.axes(call) else "expected axes to take the variance over, got none"


def _check_pad(call: relax.Call, flow: Dataflow) -> str | None:
    return reasons.pad(call.attrs.pad_mode, attributes.pad_widths(call))


def _check_strided_slice(call: relax.Call, flow: Dataflow) -> str | None:
    spans = attributes.slices(call)
    return reasons.UNKNOWN_BOUNDS if spans is None else reasons.steps([step for *_, step in spans])


def _check_resize2d(call: relax.Call, flow: Dataflow) -> str | None:
    return refuse_resize(call.attrs, dims(call.args[0]), dims(call))


# Tables --------------------------------------------------------------------------------------------

_SCALE_AND_SHIFT = {1: "gamma", 2: "beta"}
TUPLE_OPS: dict[str, Rule[Check]] = {
    "nn.batch_norm": Rule(_check_batch_norm, constants={1: "gamma", 2: "beta", 3: "mean", 4: "variance"}),
    "nn.dropout": Rule(_anything),
    "split": Rule(_anything),
}
"""Ops that give a tuple: of split each item that is used is taken by itself, of the others the first."""

RULES: dict[str, Rule[Check]] = {
    "nn.conv2d": Rule(_windowed("NCHW", "OIHW"), images=True, constants={1: "weight"}, heavy=True),
    "nn.conv1d": Rule(_windowed("NCW", "OIW"), images=True, constants={1: "weight"}, heavy=True),
    "nn.conv2d_transpose": Rule(
        _windowed("NCHW", "IOHW"), images=True, constants={1: "weight"}, heavy=True
    ),
    "matmul": Rule(_check_matmul, constants={1: "weight"}, heavy=True),
    **TUPLE_OPS,
    **{name: Rule(_anything) for name in (*elementwise(RELAX), *REDUCTIONS, *attributes.RESHAPES)},
    "nn.relu6": Rule(_anything),
    "nn.leakyrelu": Rule(_anything),
    "clip": Rule(_check_clip),
    "nn.softplus": Rule(_check_softplus),
    "nn.prelu": Rule(_anything, constants={1: "slope"}),
    "nn.layer_norm": Rule(_check_layer_norm, constants=_SCALE_AND_SHIFT),
    "nn.group_norm": Rule(_check_norm, images=True, constants=_SCALE_AND_SHIFT),
    "nn.instance_norm": Rule(_check_norm, images=True, constants=_SCALE_AND_SHIFT),
    "variance": Rule(_check_variance),
    "nn.max_pool2d": Rule(_pool("NCHW"), images=True, heavy=True),
    "nn.avg_pool2d": Rule(_pool("NCHW"), images=True, heavy=True),
    "nn.max_pool1d": Rule(_pool("NCW"), images=True, heavy=True),
    "nn.avg_pool1d": Rule(_pool("NCW"), images=True, heavy=True),
    "nn.adaptive_avg_pool2d": Rule(_check_adaptive_pool, images=True, heavy=True),
    "image.resize2d": Rule(_check_resize2d, images=True, heavy=True),
    "nn.pixel_shuffle": Rule(_anything, images=True),
    "nn.softmax": Rule(_anything),
    "nn.log_softmax": Rule(_anything),
    "concat": Rule(_check_concat),
    "permute_dims": Rule(_anything),
    "nn.pad": Rule(_check_pad),
    "strided_slice": Rule(_check_strided_slice),
}
"""Every op Convoy takes."""

PATTERNS = pattern_names((*RULES, *idioms.IDIOMS), {*IDIOMS, *activations(RELAX).values()})
"""Every pattern's name."""


def name_activation(call: relax.Call, flow: Dataflow) -> str:
    """What patterns call this activation; empty for another op."""
    if op_name(call) == "nn.prelu":
        slopes = flow.constant(call.args[1])
        return "prelu" if slopes is not None and is_leaky(slopes) else ""
    return row_of(op_name(call)).activation


# What all ops share --------------------------------------------------------------------------------


def refusal(call: relax.Call, flow: Dataflow) -> str | None:
    """Why this op is not taken; None if it is.

    Beside the op's own check: float32 only, lengths known except that of the images, constants
    where the kernels need them, something left to compute at run time.
    """
    name = op_name(call)
    if not name or name.startswith("call_"):
        return f"expected an op, got {_described(call)}"
    if name not in RULES:
        return reasons.no_kernel(name)
    rule = RULES[name]
    for position, what in rule.constants.items():
        if not flow.is_constant(call.args[position]):
            return reasons.not_constant(what, parameter=flow.is_parameter(call.args[position]))
    operands = tensor_args(call)
    if (reason := tensors_refusal([*operands, *results(call)])) is not None:
        return reason
    data = [arg for arg in operands if not flow.is_constant(arg)]
    if not data:
        return reasons.ONLY_CONSTANTS
    if not all(dims(tensor) for tensor in (*data, *results(call))):
        return reasons.SCALAR
    if not row_of(name).binary and len(data) + len(rule.constants) < len(operands):
        return reasons.CONSTANT_BESIDE
    if (reason := rule.check(call, flow)) is not None:
        return reason
    if not readings(call, flow):
        return reasons.images_along_axis_zero([dims(t) or () for t in (*data, call)])
    return None


def _described(value: relax.Expr) -> str:
    """What a binding that is no op's call holds: ``call_tir`` and its like name first what they call."""
    if not isinstance(value, relax.Call):
        return f"a {type(value).__name__}"
    called = value.args[0] if isinstance(value.op, tvm.ir.Op) else value.op
    name = getattr(called, "name_hint", None) or getattr(called, "global_symbol", None)
    return f"a call of {name or 'a function'}"


def tensors_refusal(tensors: Sequence[relax.Expr | relax.Type]) -> str | None:
    """Why a kernel cannot have these operands and results; None if it can."""
    found = (reasons.tensor(dtype(tensor), dims(tensor)) for tensor in tensors)
    return next((reason for reason in found if reason is not None), None)


def readings(call: relax.Call, flow: Dataflow) -> frozenset[str]:
    """The ways in which axis 0 of this op may be read; empty if there is none.

    A region reads axis 0 of all its tensors in one and the same way:

    - ``flat``: no image axis; the ops work on the tensors as they are, and none of them
      moves or mixes axis 0.  A model of one image is this.
    - ``lifted``: no image axis; every tensor gets a new axis of length 1 in front, so that an
      op may do anything to what was axis 0.  Not for ops on images.
    - ``images N``: axis 0 of every tensor is the N images (N symbolic, or more than 1).
    """
    rule = RULES[op_name(call)]
    data = [arg for arg in tensor_args(call) if not flow.is_constant(arg)]
    shapes = [dims(tensor) or () for tensor in (*results(call), *data)]
    result = shapes[0]
    if rule.images:
        return image_readings(result)
    found = set()
    static = all(isinstance(d, int) for shape in shapes for d in shape)
    stays = not moves_axis_zero(call)
    if static:
        found.add("lifted")
    if static and stays:
        found.add("flat")
    read = [(dims(arg) or (), flow.is_constant(arg)) for arg in tensor_args(call)]
    per_image = not row_of(op_name(call)).binary or axis_zero.is_per_image(read, len(result))
    if stays and result[0] != 1 and per_image:
        found |= frozenset.intersection(*(image_readings(shape) for shape in shapes))
    return frozenset(found)


def image_readings(shape: tuple[Dim, ...]) -> frozenset[str]:
    """The way an op on images reads axis 0 of data of this shape."""
    if shape[0] == 1:
        return frozenset({"flat"})
    if isinstance(shape[0], int):
        return frozenset({f"images {shape[0]}"})
    length = Analyzer().simplify(shape[0])
    return frozenset({f"images {length} #{structural_hash(length):x}"})


def moves_axis_zero(call: relax.Call) -> bool:
    """Does this op move, cut or mix what lies along axis 0?"""
    name = op_name(call)
    if name == "matmul":
        return rank(call.args[0]) < 2
    return axis_zero.moves_axis_zero(name, call, attributes)


def results(call: relax.Call) -> list[relax.Type]:
    """Types of what the op computes; of batch_norm and dropout, only item 0 is ever taken."""
    if not isinstance(call.ty, relax.TupleType):
        return [call.ty]
    return list(call.ty.fields) if op_name(call) == "split" else [call.ty.fields[0]]
