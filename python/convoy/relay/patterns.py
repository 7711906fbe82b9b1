"""The pattern table: which ops Convoy takes, and the check of each.

A check returns why an op is not taken, in words, or None.  A row of ``RULES`` adds an op,
a row of ``convoy/ops.py`` says what joins a kernel; the names of all patterns follow from the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import ir, relay
from tvm.relay.op.op import OpPattern

from convoy.graph.idioms import IDIOMS
from convoy.offload import axis_zero, reasons
from convoy.offload.attributes import is_leaky
from convoy.offload.names import pattern_names
from convoy.offload.resize import ROUNDINGS, refuse_resize
from convoy.offload.rule import Rule
from convoy.offload.work import elements
from convoy.ops import REDUCTIONS, RELAY, activations, elementwise, of_cost, row_of
from convoy.relay import attributes
from convoy.relay.dataflow import (
    Dim,
    constant,
    dims,
    dtype,
    is_constant,
    op_name,
    operands,
    rank,
    tensor_args,
)
from convoy.relay.fold.layout import WANTED

Check = Callable[[relay.Call], str | None]


# Checks --------------------------------------------------------------------------------------------

_TRANSPOSED = "expected data that is not transposed, got transpose_a"


def _anything(call: relay.Call) -> str | None:
    return None


def _remedy(call: relay.Call) -> str:
    """What to do about data in another layout: TVM's ConvertLayout turns some ops only."""
    return reasons.TURNED if op_name(call) in WANTED else reasons.TURN_IT


def _windowed(data: str, weight: str) -> Check:
    return lambda call: reasons.convolution(call.attrs, data, weight, remedy=_remedy(call))


def _check_conv2d(call: relay.Call) -> str | None:
    data, weight = (dims(tensor) or () for tensor in call.args)
    layouts = reasons.convolution(call.attrs, "NCHW", "OIHW")
    return layouts or reasons.filters(data[1], weight, int(call.attrs.groups))


def _pool(data: str) -> Check:
    def check(call: relay.Call) -> str | None:
        size, windows = (dims(tensor)[2:] for tensor in (call.args[0], call))  # type: ignore[index]
        padded = "avg" in op_name(call) and bool(call.attrs.count_include_pad)
        sides = attributes.padding(call)
        given = (call.attrs, data, size, windows, sides)
        return reasons.pool(*given, padded=padded, remedy=_remedy(call))  # type: ignore[arg-type]

    return check


def _check_adaptive_pool(call: relay.Call) -> str | None:
    size, output = (dims(tensor)[2:] for tensor in (call.args[0], call))  # type: ignore[index]
    return _check_global_pool(call) or reasons.adaptive_pool(size, output)  # type: ignore[arg-type]


def _check_global_pool(call: relay.Call) -> str | None:
    return reasons.layouts(call.attrs.layout, "NCHW", call.attrs.out_layout, remedy=_remedy(call))


def _check_dense(call: relay.Call) -> str | None:
    return reasons.matmul(rank(call.args[1]))


def _check_matmul(call: relay.Call) -> str | None:
    return _TRANSPOSED if call.attrs.transpose_a else reasons.matmul(rank(call.args[1]))


def _check_batch_matmul(call: relay.Call) -> str | None:
    if call.attrs.transpose_a:
        return _TRANSPOSED
    shape = dims(call.args[1]) or ()
    return None if shape[0] == 1 else f"expected one weight for the batch, got {shape[0]}"


def _check_clip(call: relay.Call) -> str | None:
    return reasons.bounds(attributes.bounds(call))


def _check_variance(call: relay.Call) -> str | None:
    shape = dims(call.args[0]) or ()
    if call.attrs.unbiased and elements([shape[a] for a in attributes.axes(call)]) < 2:
        return "expected several numbers for an unbiased variance, got one"
    return None


def _check_norm(call: relay.Call) -> str | None:
    return reasons.norm(attributes.axis(call), attributes.norm_axes(call), rank(call.args[0]))


def _check_lrn(call: relay.Call) -> str | None:
    return None if call.attrs.axis == 1 else f"expected normalization along axis 1, got {call.attrs.axis}"


def _check_pad(call: relay.Call) -> str | None:
    value = constant(call.args[1])
    if value is None or value.size != 1:
        return reasons.not_constant("padding value", parameter=isinstance(call.args[1], relay.Var))
    return reasons.pad(call.attrs.pad_mode, attributes.pad_widths(call))


def _check_layout_transform(call: relay.Call) -> str | None:
    source, wanted = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    return reasons.permutation(source, wanted)


def _check_strided_slice(call: relay.Call) -> str | None:
    spans = attributes.slices(call)
    return reasons.UNKNOWN_BOUNDS if spans is None else reasons.steps([step for *_, step in spans])


def _check_resize2d(call: relay.Call) -> str | None:
    return _check_whole_scales(call) or refuse_resize(call.attrs, dims(call.args[0]), dims(call))


def _check_whole_scales(call: relay.Call) -> str | None:
    """By a whole scale TVM's nearest asymmetric resize always rounds down."""
    attrs = call.attrs
    if (attrs.method, attrs.coordinate_transformation_mode) != ("nearest_neighbor", "asymmetric"):
        return None
    before, after = dims(call.args[0]) or (), dims(call) or ()
    sides = zip(before[2:], after[2:], strict=True)
    whole = any(isinstance(b, int) and isinstance(a, int) and b and a % b == 0 for b, a in sides)
    given = str(attrs.rounding_method) or "floor"
    if whole and given != "floor":
        return f"expected rounding floor, as TVM's Relay has it by whole scales in any case, got {given}"
    return None


UPSAMPLINGS = {"nearest_neighbor": "nearest", "bilinear": "bilinear"}


def _check_upsampling(call: relay.Call) -> str | None:
    if call.attrs.method not in UPSAMPLINGS:
        return f"expected nearest or bilinear interpolation, got {call.attrs.method}"
    if call.attrs.align_corners and call.attrs.method == "nearest_neighbor":
        return f"expected rounding {', '.join(ROUNDINGS)}, got round, as align_corners has it"
    return reasons.layouts(call.attrs.layout, "NCHW", remedy=_remedy(call))


def _check_depth_to_space(call: relay.Call) -> str | None:
    return reasons.layouts(call.attrs.layout, "NCHW", remedy=_remedy(call))


# Tables --------------------------------------------------------------------------------------------

_WEIGHT = {1: "weight"}
_SCALE_AND_SHIFT = {1: "gamma", 2: "beta"}

PRODUCTS = of_cost(RELAY, "product")
"""The anchors whose output channels are the last axis."""

TUPLE_OPS: dict[str, Rule[Check]] = {
    "nn.batch_norm": Rule(_anything, constants={1: "gamma", 2: "beta", 3: "mean", 4: "variance"}),
    "nn.dropout": Rule(_anything),
    "split": Rule(_anything),
}
"""Ops that give a tuple, of which single items are used."""

OTHERWISE = {"round": "expected halves rounded to even, as in ONNX, got TVM's, away from zero"}
"""Ops that TVM computes otherwise than Convoy's kernels and modern TVM do, and why they are left."""

RULES: dict[str, Rule[Check]] = {
    "nn.conv2d": Rule(_check_conv2d, images=True, constants=_WEIGHT, heavy=True),
    "nn.conv1d": Rule(_windowed("NCW", "OIW"), images=True, constants=_WEIGHT, heavy=True),
    "nn.conv2d_transpose": Rule(_windowed("NCHW", "IOHW"), images=True, constants=_WEIGHT, heavy=True),
    "nn.dense": Rule(_check_dense, constants=_WEIGHT, heavy=True),
    "nn.matmul": Rule(_check_matmul, constants=_WEIGHT, heavy=True),
    "nn.batch_matmul": Rule(_check_batch_matmul, constants=_WEIGHT, heavy=True),
    **TUPLE_OPS,
    **{name: Rule(_anything) for name in elementwise(RELAY) if name not in OTHERWISE},
    **{name: Rule(_anything) for name in (*REDUCTIONS, *attributes.RESHAPES)},
    "clip": Rule(_check_clip),
    "nn.leaky_relu": Rule(_anything),
    "nn.bias_add": Rule(_anything, constants={1: "bias"}),
    "nn.prelu": Rule(_anything, constants={1: "slope"}),
    "nn.layer_norm": Rule(_anything, constants=_SCALE_AND_SHIFT),
    "nn.group_norm": Rule(_check_norm, images=True, constants=_SCALE_AND_SHIFT),
    "nn.instance_norm": Rule(_check_norm, images=True, constants=_SCALE_AND_SHIFT),
    "nn.lrn": Rule(_check_lrn, images=True, heavy=True),
    "nn.max_pool2d": Rule(_pool("NCHW"), images=True, heavy=True),
    "nn.avg_pool2d": Rule(_pool("NCHW"), images=True, heavy=True),
    "nn.max_pool1d": Rule(_pool("NCW"), images=True, heavy=True),
    "nn.avg_pool1d": Rule(_pool("NCW"), images=True, heavy=True),
    "nn.adaptive_avg_pool2d": Rule(_check_adaptive_pool, images=True, heavy=True),
    "nn.global_avg_pool2d": Rule(_check_global_pool, images=True, heavy=True),
    "nn.global_max_pool2d": Rule(_check_global_pool, images=True, heavy=True),
    "image.resize2d": Rule(_check_resize2d, images=True, heavy=True),
    "nn.upsampling": Rule(_check_upsampling, images=True, heavy=True),
    "nn.depth_to_space": Rule(_check_depth_to_space, images=True),
    "variance": Rule(_check_variance),
    "nn.softmax": Rule(_anything),
    "nn.log_softmax": Rule(_anything),
    "concatenate": Rule(_anything),
    "transpose": Rule(_anything),
    "layout_transform": Rule(_check_layout_transform),
    "nn.pad": Rule(_check_pad, constants={1: "padding value"}),
    "strided_slice": Rule(_check_strided_slice),
}
"""Every op Convoy takes."""

PATTERNS = pattern_names(RULES, {*IDIOMS, *activations(RELAY).values()})
"""Every pattern's name."""


def name_activation(call: relay.Call) -> str:
    """What patterns call this activation; empty for another op."""
    if op_name(call) == "nn.prelu":
        slopes = constant(call.args[1])
        return "prelu" if slopes is not None and is_leaky(slopes) else ""
    return row_of(op_name(call)).activation


# What all ops share --------------------------------------------------------------------------------


def refusal(call: relay.Call, images: int = 1) -> str | None:
    """Why this op is not taken; None if it is.

    Beside the op's own check: float32 only, known lengths, constants where the kernels need them,
    something left to compute at run time.

    Parameters
    ----------
    images : int
        How many images the module computes at once, see ``count_images``.
    """
    name = op_name(call)
    if not name:
        return "expected an op, got a call of a function"
    if name not in RULES:
        return OTHERWISE.get(name) or reasons.no_kernel(name)
    rule = RULES[name]
    for position, what in rule.constants.items():
        if not is_constant(call.args[position]):
            return reasons.not_constant(what, parameter=isinstance(call.args[position], relay.Var))
    # the number to pad with may be an int32
    tensors = tensor_args(call)[:1] if name == "nn.pad" else tensor_args(call)
    if (reason := tensors_refusal([*tensors, *results(call)])) is not None:
        return reason
    data = [arg for arg in tensors if not is_constant(arg)]
    if not data:
        return reasons.ONLY_CONSTANTS
    if not all(dims(tensor) for tensor in (*flat_types(data), *results(call))):
        return reasons.SCALAR
    if not row_of(name).binary and len(data) + len(rule.constants) < len(tensors):
        return reasons.CONSTANT_BESIDE
    if (reason := rule.check(call)) is not None:
        return reason
    if not _readable(call, images):
        read = flat_types(tensors if row_of(name).binary else data)
        return reasons.images_along_axis_zero([dims(t) or () for t in (*read, *results(call))])
    return None


def tensors_refusal(tensors: Sequence[relay.Expr | ir.Type]) -> str | None:
    """Why a kernel cannot have these operands and results; None if it can."""
    found = (reasons.tensor(dtype(tensor), dims(tensor)) for tensor in flat_types(tensors))
    return next((reason for reason in found if reason is not None), None)


def flat_types(tensors: Sequence[relay.Expr | ir.Type]) -> list[ir.Type]:
    """Types of tensors; a tuple gives its fields."""
    found: list[ir.Type] = []
    for tensor in tensors:
        ty = tensor if isinstance(tensor, ir.Type) else tensor.checked_type
        found += list(ty.fields) if isinstance(ty, ir.TupleType) else [ty]
    return found


def results(call: relay.Call) -> list[ir.Type]:
    """Types of what the op computes; of batch_norm and dropout, only item 0 is ever taken."""
    ty = call.checked_type
    if not isinstance(ty, ir.TupleType):
        return [ty]
    return list(ty.fields) if op_name(call) == "split" else [ty.fields[0]]


# Images --------------------------------------------------------------------------------------------


def count_images(calls: Sequence[relay.Call]) -> int:
    """How many images these ops compute at once: axis 0 of the first op on images; 1 without any.

    A region is called with that many images and runs once for each.  With one image axis 0 may be
    read as it is; with more, or a number known only at run time, every op has to treat it as the images.
    """
    for call in calls:
        if (rule := RULES.get(op_name(call))) is not None and rule.images:
            shape = dims(results(call)[0])
            return shape[0] if shape and isinstance(shape[0], int) else 1
    return 1


def _readable(call: relay.Call, images: int) -> bool:
    """May a region of so many images hold this op?"""
    name, shapes = op_name(call), _shapes(call)
    dynamic = any(shape[:1] == ("?",) for shape in shapes)
    if images == 1 and not dynamic:
        return not RULES[name].images or shapes[0][0] == 1
    if dynamic and name in attributes.RESHAPES and elements(shapes[0][1:]) != elements(shapes[1][1:]):
        return False  # axis 0 would hold more or fewer than the images
    read = [(dims(arg) or (), is_constant(arg)) for arg in tensor_args(call)]
    return (
        all(shape[0] == ("?" if dynamic else images) for shape in shapes)
        and not moves_axis_zero(call)
        and (not row_of(name).binary or axis_zero.is_per_image(read, len(shapes[0])))
    )


Origins = frozenset[relay.Expr]
"""The nodes that numbers of images known only at run time come from."""


def find_origins(nodes: Sequence[relay.Expr]) -> dict[relay.Expr, Origins]:
    """Where the numbers of images of these nodes, given in running order, come from.

    Inputs have one each, and so has whatever an op gives that may move, cut or mix its images.
    """
    found: dict[relay.Expr, Origins] = {}
    for node in nodes:
        read = Origins().union(*(found.get(operand, Origins()) for operand in operands(node)))
        if isinstance(node, relay.Tuple) or not _has_unknown_batch(node.checked_type):
            found[node] = read if isinstance(node, relay.Tuple) else Origins()
        elif isinstance(node, relay.TupleGetItem):
            found[node] = Origins([node]) if isinstance(node.tuple_value, relay.Var) else read
        else:
            found[node] = read if len(read) == 1 and _keeps_images(node) else Origins([node])
    return found


def _keeps_images(node: relay.Expr) -> bool:
    """Are the images of what an op computes those of what it reads, even if Convoy does not take it?"""
    if (name := op_name(node)) in RULES:
        return _readable(node, 1)
    return (
        bool(name)
        and node.op.has_attr("TOpPattern")
        and node.op.get_attr("TOpPattern") == OpPattern.ELEMWISE
    )


def _has_unknown_batch(ty: ir.Type) -> bool:
    return any((dims(tensor) or ())[:1] == ("?",) for tensor in flat_types([ty]))


def _shapes(call: relay.Call) -> list[tuple[Dim, ...]]:
    """Shapes of what it computes and then of what it reads, constants not among it."""
    data = flat_types([arg for arg in tensor_args(call) if not is_constant(arg)])
    return [dims(ty) or () for ty in (*results(call), *data)]


def moves_axis_zero(call: relay.Call) -> bool:
    """Does this op move, cut or mix what lies along axis 0?"""
    name = op_name(call)
    if name in PRODUCTS:
        return rank(call.args[0]) < 2
    return axis_zero.moves_axis_zero(name, call, attributes)
