"""Numbers that mean nothing, refused by the name of their node: TVM's frontend takes some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

import numpy as np
import onnx
import tvm
from onnx import TensorProto, defs, helper
from tvm import relax

from convoy.errors import ModelError
from convoy.offload.reasons import show_length
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.prepare import infer_shapes, infer_types
from convoy.relax.importer.read import Array, Model
from convoy.relax.importer.scales import CHECKS, Given, Misfit, check_scales

MOST = 2**31 - 1
"""The largest length, stride or number of pixels: TVM counts many of them in 32 bits."""
AXES = 64
"""As many as NumPy's arrays have at most; over some thousands TVM's recursion ends the process."""

_WINDOWED = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"})
_PADDED_ONCE = frozenset({"Conv", "ConvInteger", "ConvTranspose", "QLinearConv"})
"""Ops whose ``auto_pad`` rules out ``pads``, were they zeros; that of a pool leaves them unread."""
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_LEAST = {
    "kernel_shape": 1,
    "strides": 1,
    "dilations": 1,
    "pads": 0,
    "output_padding": 0,
    "output_shape": 1,
    "group": 1,
}
"""Least values of the attributes of ops on windows."""
_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")
_OWN_DOMAINS = ("", "ai.onnx", "com.microsoft")
"""Whose ops TVM's frontend means: it looks at their names alone."""
_FOR_ONE_MACHINE = {
    "com.microsoft.nchwc": (
        "it is for one kind of machine: save it with ORT_ENABLE_EXTENDED, or take the model it was",
    )
}
"""What to do about ops of a domain that is not ONNX's."""
_COUNTS = {"LRN": "size", "DepthToSpace": "blocksize", "SpaceToDepth": "blocksize"}
"""Attributes of other ops that are at least 1."""
_BLOCKS = frozenset({"DepthToSpace", "SpaceToDepth"})
_WORDS = {
    **dict.fromkeys(("RNN", "GRU", "LSTM"), ("direction", ("forward", "reverse", "bidirectional"))),
    "Gelu": ("approximate", ("none", "tanh")),
    "Resize": ("keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller")),
    "BitShift": ("direction", ("LEFT", "RIGHT")),
}
"""Attributes that are one of some words, which nobody else asks."""

Shape = tuple[int | str, ...]
Shapes = Mapping[str, Shape]


def read_shapes(shapes: object) -> dict[str, tuple[int | None, ...]]:
    """The sizes a caller asks for, by input.

    Raises
    ------
    ModelError
        For anything but sequences of whole numbers or None, by name.
    """
    remedy = 'write {"data": (None, 3, 224, 224)}'
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        problem = f"expected shapes by the names of inputs, got {shapes!r}"
        raise ModelError("import", "shapes", problem, remedy)
    found = {}
    for name, sizes in shapes.items():
        listed = list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str | bytes) else [""]
        whole = [
            (isinstance(size, Integral) and not isinstance(size, bool)) or size is None for size in listed
        ]
        if not isinstance(name, str) or not all(whole):
            problem = f"expected sizes by the name of an input, got {sizes!r}"
            raise ModelError("import", f"shape of {name}", problem, remedy)
        found[name] = tuple(None if size is None else int(size) for size in listed)
    return found


def check_model(model: Model) -> None:
    """Look at what the model says in numbers.

    Raises
    ------
    ModelError
        For an opset ONNX does not have, a length of 2^31 or more, too many axes, an op of another domain
        that is named like one of ONNX's, truths where an op reads numbers, and attributes of ops on windows
        that are too small, too large, too many, too few or unknown.
    """
    known = defs.onnx_opset_version()
    if not 1 <= model.opset <= known:
        raise ModelError(
            "import",
            model.name,
            f"expected an opset from 1 to {known}, as this ONNX knows them, got {model.opset}",
            "export it for one of them, or install a newer onnx",
        )
    for value in model.inputs():
        lengths = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if any(length > MOST for length in lengths):
            raise ModelError(
                "import",
                f"{model.name}: input {value.name}",
                f"expected lengths below 2^31, got {lengths}",
                "export it with smaller ones",
            )
        if len(lengths) > AXES:
            at, problem = f"{model.name}: input {value.name}", f"expected at most {AXES} axes"
            raise ModelError("import", at, f"{problem}, got {len(lengths)}", "export it with fewer")
    asked = _WINDOWED | _BLOCKS | CHECKS.keys()
    shapes = infer_shapes(model) if any(node.op_type in asked for node in model.graph.node) else {}
    ops = {node.op_type for node in model.graph.node}
    kinds = _kinds(model) if _has_truths(model) or not ops.isdisjoint(CHECKS) else {}
    quantised = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    constants = model.constants() if quantised else {}
    functions = {(function.domain, function.name) for function in model.skeleton.functions}
    for node in model.graph.node:
        own = node.domain in _OWN_DOMAINS or (node.domain, node.op_type) in functions
        if not own and defs.has(node.op_type):
            raise _problem(
                model,
                node,
                "an op of ONNX's own domain",
                f"one of {node.domain}",
                *_FOR_ONE_MACHINE.get(node.domain, ()),
            )
        if (node.domain, node.op_type) not in functions:
            _check_truths(model, node, kinds)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name}
        if node.op_type in _PADDED_ONCE:
            _check_padding(model, node, attributes)
        if node.op_type in _WINDOWED:
            _check_windows(model, node, attributes, shapes)
        count = attributes.get(_COUNTS.get(node.op_type, ""), 1)
        if not 1 <= count <= MOST:
            raise _problem(model, node, f"{_COUNTS[node.op_type]} from 1 to 2^31 - 1", count)
        if node.op_type in _BLOCKS:
            _check_blocks(model, node, count, shapes.get(node.input[0] if node.input else "", ()))
        if node.op_type == "QuantizeLinear":
            _check_scale(model, node, constants)
        try:
            check_scales(Given(node, attributes, shapes, kinds))
        except Misfit as misfit:
            raise _problem(model, node, misfit.expected, misfit.found) from misfit
        name, words = _WORDS.get(node.op_type, ("", ()))
        if name in attributes:
            _check_word(model, node, name, attributes[name], words)


def check_lengths(model: Model, module: tvm.IRModule) -> None:
    """Has every tensor of the imported module lengths that can be?

    Raises
    ------
    ModelError
        For a tensor with a negative length, or with more than 2^62 bytes.
    """
    for _, function in module.functions_items():
        if not isinstance(function, relax.Function) or not isinstance(function.body, relax.SeqExpr):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                _check_type(model, str(binding.var.name), binding.var.ty)


def check_result(op: str, made: object) -> None:
    """Does a node give something that can be?

    Raises
    ------
    NodeError
        For a tensor with a negative length or too many axes, and for a convolution without a pixel.
    """
    shape = getattr(getattr(made, "ty", None), "shape", None)
    lengths = [int(d) if isinstance(d, tvm.tirx.IntImm) else d for d in getattr(shape, "values", ())]
    if len(lengths) > AXES:
        raise NodeError(f"expected a result of at most {AXES} axes, got {len(lengths)}", "give it fewer")
    pixels = [n for n in lengths[2:] if isinstance(n, int)] if op in _CONVOLUTIONS else []
    if min(pixels, default=1) < 1 or any(isinstance(n, int) and n < 0 for n in lengths):
        raise NodeError(
            f"expected a result that can be, got the shape {show_length(lengths)}",
            "give a larger input, or correct the pads, strides or sizes it is computed with",
        )


_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")


def _check_type(model: Model, name: str, ty: relax.Type) -> None:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            _check_type(model, name, field)
    shape = getattr(ty, "shape", None)
    lengths = [int(d) for d in getattr(shape, "values", ()) if isinstance(d, tvm.tirx.IntImm)]
    elements = 1
    for length in lengths:
        elements *= length
    if min(lengths, default=0) < 0 or elements >= 2**60:
        raise ModelError(
            "import",
            f"{model.name}: {name}",
            f"expected a tensor that can be, got the shape {lengths}",
            "correct the pads, strides or sizes it is computed with, or give a larger input",
        )


_TRUTHS = "tensor(bool)"


def _has_truths(model: Model) -> bool:
    """May there be tensors of bool, other than by attributes of ops in graphs within it?"""
    made = {node.op_type for node in model.graph.node if defs.has(node.op_type)}
    results = (o for op in made for o in defs.get_schema(op).outputs)
    given = (*model.graph.input, *model.graph.initializer)
    kinds = {getattr(v, "data_type", 0) or v.type.tensor_type.elem_type for v in given}
    return TensorProto.BOOL in kinds or any(_TRUTHS in result.types for result in results)


def _check_truths(model: Model, node: onnx.NodeProto, kinds: Mapping[str, int]) -> None:
    """TVM computes some ops of truths that ONNX has not, each in its own way, and fails over others."""
    if node.domain not in ("", "ai.onnx") or not defs.has(node.op_type):
        return
    formal = defs.get_schema(node.op_type).inputs  # the newest: an older op may read what that does
    for i, name in enumerate(node.input):
        if kinds.get(name) == TensorProto.BOOL and _TRUTHS not in formal[min(i, len(formal) - 1)].types:
            remedy = f"cast {name} to a type of numbers in front of it"
            raise _problem(model, node, f"numbers as input {i}", "truths (bool)", remedy)


def _kinds(model: Model) -> dict[str, int]:
    """The types of elements that are known, of weights, too."""
    return {name: kind.tensor_type.elem_type for name, kind in infer_types(model).items()}


def _check_padding(model: Model, node: onnx.NodeProto, attributes: Mapping[str, object]) -> None:
    kind = attributes.get("auto_pad", b"")
    if "pads" in attributes and kind in (b"SAME_UPPER", b"SAME_LOWER", b"VALID"):
        raise _problem(model, node, "auto_pad or pads", "both", "leave out the one that is not meant")


def _check_windows(
    model: Model, node: onnx.NodeProto, attributes: Mapping[str, object], shapes: Shapes
) -> None:
    _check_word(model, node, "auto_pad", attributes.get("auto_pad", b"NOTSET"), _AUTO_PADS)
    if node.op_type in _POOLS and "kernel_shape" not in attributes:
        raise _problem(model, node, "a kernel_shape", "none")
    data = shapes.get(node.input[0] if node.input else "")
    axes = max(len(data) - 2, 0) if data is not None else None
    for name, least in _LEAST.items():
        value = attributes.get(name)
        if value is None:
            continue
        numbers = value if isinstance(value, list) else [value]
        if not all(isinstance(n, int) and least <= n <= MOST for n in numbers):
            raise _problem(model, node, f"{name} from {least} to 2^31 - 1", value)
        wanted = None if axes is None else 2 * axes if name == "pads" else axes
        right = (wanted, len(data or ())) if name == "output_shape" else (wanted,)
        if isinstance(value, list) and wanted is not None and len(value) not in right:
            raise _problem(model, node, f"{name} of {wanted} numbers for {axes} axes", value)
    weight = shapes.get(node.input[1]) if node.op_type not in _POOLS and len(node.input) > 1 else None
    kernel = attributes.get("kernel_shape")
    taps = list(weight[2:]) if weight else []
    if taps and isinstance(kernel, list) and not _may_be(kernel, taps):
        raise _problem(model, node, f"kernel_shape to be that of the weight, {taps}", kernel)
    if weight is not None and len(weight) > 1 and data is not None and len(data) > 1:
        bias = shapes.get(node.input[2]) if len(node.input) > 2 else None
        _check_channels(model, node, attributes.get("group", 1), data, weight, bias)


def _check_channels(
    model: Model, node: onnx.NodeProto, group: object, data: Shape, weight: Shape, bias: Shape | None
) -> None:
    """Channels, outputs and bias are as many as the weight says, where that is known."""
    first, second = weight[:2]
    if not isinstance(first, int) or not isinstance(second, int) or not isinstance(group, int):
        return
    turned = node.op_type == "ConvTranspose"
    channels, outputs, apart = (first, second * group, first) if turned else (second * group, first, first)
    if isinstance(data[1], int) and data[1] != channels:
        said = f"{channels} channels, by the weight and a group of {group}"
        raise _problem(model, node, said, data[1])
    if apart % group:
        what = "channels" if turned else "outputs"
        raise _problem(model, node, f"{what} that a group of {group} divides", apart)
    if bias is not None and not _may_be(bias, [outputs]):
        raise _problem(model, node, f"a bias of {outputs} numbers, one for each output", list(bias))


def _check_blocks(model: Model, node: onnx.NodeProto, size: int, shape: Sequence[int | str]) -> None:
    """Channels or pixels are whole blocks, where they are known; a call is asked about others."""
    deep = node.op_type == "DepthToSpace"
    what, of, block = ("channels", shape[1:2], size**2) if deep else ("rows and columns", shape[2:], size)
    if any(isinstance(length, int) and length % block for length in of):
        raise _problem(model, node, f"{what} that are multiples of {block}", list(shape))


def _check_scale(model: Model, node: onnx.NodeProto, constants: Mapping[str, Array]) -> None:
    """TVM ends where a constant divides by 0; what is computed may."""
    scale = constants.get(node.input[1]) if len(node.input) > 1 else None
    if scale is not None and not np.all(scale):
        raise _problem(model, node, "a scale other than 0", "0")


def _check_word(model: Model, node: onnx.NodeProto, name: str, value: object, words: Sequence[str]) -> None:
    named = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if named not in words:
        raise _problem(model, node, f"{name} to be one of {', '.join(filter(None, words))}", named)


def _may_be(kernel: Sequence[int | str], taps: list[int | str]) -> bool:
    """Whether a weight of these taps, which a computed one may have unknown, has this kernel."""
    return len(kernel) == len(taps) and all(
        isinstance(n, str) or isinstance(k, str) or n == k for k, n in zip(kernel, taps, strict=True)
    )


def _problem(
    model: Model, node: onnx.NodeProto, expected: str, found: object, remedy: str = "export the model again"
) -> ModelError:
    return ModelError(
        "import",
        f"{model.name}: {node.op_type} {node.name}",
        f"expected {expected}, got {found}",
        remedy,
    )
