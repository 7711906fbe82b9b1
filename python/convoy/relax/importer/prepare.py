"""Bring an ONNX graph to where TVM's frontend is right: named dimensions, opset, padding.

Everything here works on the skeleton, before TVM sees the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import onnx
from onnx import helper, inliner, shape_inference, version_converter

from convoy.errors import ModelError
from convoy.onnx_file import Shapes, all_nodes, inner_graphs, names_size, tells_sizes
from convoy.relax.importer.derived import derive, rename, settle
from convoy.relax.importer.read import UNREGISTERED, Model
from convoy.relax.importer.resize_tables import BEFORE_11
from convoy.relax.sizes import FOUND, PARTS
from convoy.report.decision import Report

OPSET = 13
"""Older models are converted to this one: TVM's importers of many ops start here."""
COORDINATES = 11
"""From this opset on a Resize says how it samples."""
BATCHLESS = 9
"""The opset from which on a Scan has no batch."""
KEPT, OF_TRUTHS = 12, 10
"""From these opsets on the mask of a Dropout is what is kept, and of truths."""
MOST_WRITTEN = 200_000
"""Nodes that a model's own functions may become, at most."""
BATCH = "n"
"""The symbol of a batch that is not fixed."""


def fix_shapes(model: Model, shapes: Shapes | None) -> None:
    """Give each input the sizes the caller asks for, and each open dimension a symbol.

    One of 0 stays open: what is computed for nothing else is of no use.
    The open first dimension of the first input becomes ``n``, and so do all that share its
    name; other open dimensions keep a symbol of their own.  What is written in terms of those is noted.

    Raises
    ------
    ModelError
        If a name is no input, or a shape contradicts the model.
    """
    wanted = dict(shapes or {})
    names = {value.name for value in model.inputs()}
    for name in wanted:
        if name not in names:
            raise ModelError(
                "import",
                f"{model.name}: shape of {name}",
                f"expected one of the inputs {', '.join(sorted(names)) or '(none)'}",
                "correct the name",
            )
    given = {
        dim.dim_param: size
        for value in model.inputs()
        for dim, size in zip(value.type.tensor_type.shape.dim, wanted.get(value.name, ()), strict=False)
        if size
    }
    for value in model.inputs():
        _fix_input(model, value, wanted.get(value.name))
    _name_open_sizes(model, given)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")


def _fix_input(model: Model, value: onnx.ValueInfoProto, wanted: Sequence[int | None] | None) -> None:
    node = f"{model.name}: input {value.name}"
    if value.type.optional_type.elem_type.HasField("tensor_type"):
        # Every input is fed, so an optional tensor is a tensor.
        tensor = onnx.TypeProto()
        tensor.CopyFrom(value.type.optional_type.elem_type)
        value.type.CopyFrom(tensor)
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise ModelError(
            "import", node, "expected a tensor, got a sequence, map or optional", "export without it"
        )
    if wanted is not None:
        found = [_describe(dim) for dim in kind.shape.dim]
        if kind.HasField("shape") and not _agrees(kind.shape.dim, wanted):
            given = ", ".join("?" if size is None else str(size) for size in wanted)
            raise ModelError(
                "import",
                node,
                f"expected a shape that fits [{', '.join(found)}], got [{given}]",
                f"give {len(found)} positive sizes; only named or open dimensions (?) may be chosen",
            )
        kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in wanted[len(found) :])
        for dim, size in zip(kind.shape.dim, wanted, strict=True):
            if size:
                dim.dim_value = size
    elif not kind.HasField("shape"):
        raise ModelError(
            "import",
            node,
            "expected a shape, got none in the model",
            f"give it: shapes={{{value.name!r}: (...)}}",
        )
    for dim in kind.shape.dim:
        if dim.dim_param.isdecimal():  # so PyTorch writes a size that it found to be a number
            dim.dim_value = int(dim.dim_param)


def _name_open_sizes(model: Model, given: Mapping[str, int]) -> None:
    """Give open dimensions their symbols, and what others are in terms of those or of ``given`` sizes."""
    dims = [
        (value.name, axis, dim)
        for value in model.inputs()
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        # A written 0 is an empty axis, but as the batch it is what old exporters wrote for "open".
        if dim.dim_value <= 0 and not (axis and dim.HasField("dim_value") and dim.dim_value == 0)
    ]
    texts = [dim.dim_param for _, _, dim in dims]
    derived = derive(texts, given) if tells_sizes(model.graph) else {}
    symbols: dict[tuple[str, int], str] = {}
    later = []
    for tensor, axis, dim in dims:
        if dim.dim_param in derived:
            later.append((tensor, dim))
        else:
            dim.dim_param = _name_symbol(dim.dim_param, tensor, axis, symbols)
    for tensor, dim in later:
        size = rename(derived[dim.dim_param], {text: symbol for (text, _), symbol in symbols.items()})
        if isinstance(size, int):
            dim.dim_value = size
        else:
            dim.dim_param = _name_symbol(dim.dim_param, tensor, 1, symbols)
            model.derived[dim.dim_param] = size


def settle_size(model: Model, symbol: str, size: int) -> None:
    """Let an open size of the inputs be a number, and those that follow from it."""
    derived = {name: settle(other, symbol, size) for name, other in model.derived.items()}
    values = {name: known for name, known in derived.items() if isinstance(known, int) and known > 0}
    model.derived = {name: other for name, other in derived.items() if not isinstance(other, int)}
    values[symbol] = size
    for value in model.inputs():
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in values:
                dim.dim_value = values[dim.dim_param]


def _name_symbol(param: str, tensor: str, axis: int, symbols: dict[tuple[str, int], str]) -> str:
    """A name for an open size, unlike those of others and those that this package gives."""
    named = names_size(param)  # a batch without a name is shared by all inputs, anything else is its own
    if not named and axis == 0:
        return BATCH
    key = (param, 0) if named else (tensor, axis)
    if key not in symbols:
        first_batch = named and axis == 0 and BATCH not in symbols.values()
        symbol = BATCH if first_batch else _identifier(param if named else f"{tensor}_dim{axis}")
        taken = {*symbols.values(), *FOUND, *PARTS, *(() if first_batch else (BATCH,))}
        while symbol in taken:
            symbol += "_"
        symbols[key] = symbol
    return symbols[key]


def _identifier(text: str) -> str:
    return re.sub(r"\W|^(?=\d)", "_", text)


def _describe(dim: onnx.TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or "?"


def _agrees(dims: Sequence[onnx.TensorShapeProto.Dimension], wanted: Sequence[int | None]) -> bool:
    return len(dims) == len(wanted) and all(
        d is None or (d >= 0 and (dim.dim_value <= 0 or dim.dim_value == d))
        for dim, d in zip(dims, wanted, strict=True)
    )


def inline_functions(model: Model) -> None:
    """Put the bodies of the model's own functions in place of their calls, which TVM does not know."""
    if model.skeleton.functions:
        _check_room(model)
        _give_defaults(model.skeleton)
        model.skeleton = inliner.inline_local_functions(model.skeleton)
        model.name_nodes()


def _give_defaults(model: onnx.ModelProto) -> None:
    """Write out the defaults of attributes that calls leave out: ONNX's inliner forgets them."""
    defaults = {_key(f.name, f): f.attribute_proto for f in model.functions if f.attribute_proto}
    for around in (model.graph, *model.functions) if defaults else ():
        for node in all_nodes(around):
            given = {attribute.name for attribute in node.attribute}
            known = defaults.get(_key(node.op_type, node), ())
            node.attribute.extend(attribute for attribute in known if attribute.name not in given)


def _key(name: str, of: onnx.NodeProto | onnx.FunctionProto) -> tuple[str, str, str]:
    """What a function is called by."""
    return of.domain, name, of.overload


def _check_room(model: Model) -> None:
    """Check that a model is not too long with its functions written out: each may call others twice."""
    bodies = {_key(f.name, f): f.node for f in model.skeleton.functions}
    counts: dict[tuple[str, str, str], int] = {}
    called = {key: [*_calls(nodes, bodies)] for key, nodes in bodies.items()}
    waiting = [*bodies]
    while waiting:  # none calls itself, which ONNX's checker has seen
        inner = [key for key in called[waiting[-1]] if key not in counts]
        if inner:
            waiting += inner
            continue
        key = waiting.pop()
        counts[key] = min(len(bodies[key]) + sum(counts[each] for each in called[key]), MOST_WRITTEN + 1)
    total = sum(counts[key] for key in _calls(model.graph.node, bodies))
    if total > MOST_WRITTEN:
        raise ModelError(
            "import",
            model.name,
            f"expected functions that are at most {MOST_WRITTEN} nodes when written out, got more",
            "let them call each other less often",
        )


def _calls(
    nodes: Iterable[onnx.NodeProto], known: Container[tuple[str, str, str]]
) -> Iterator[tuple[str, str, str]]:
    """The functions that nodes and the graphs inside of them call, each as often as it is called."""
    for node in nodes:
        if (key := _key(node.op_type, node)) in known:
            yield key
        for graph in inner_graphs(node):
            yield from _calls(graph.node, known)


def convert_opset(model: Model, report: Report | None = None) -> None:
    """Convert a model older than opset 13 to 13; one ONNX cannot convert stays as it is.

    Raises
    ------
    ModelError
        For a Scan with a batch: ONNX's converter takes the batch away, also from the model's inputs.
    """
    opset = model.opset
    if opset >= OPSET:
        return
    if opset < BATCHLESS and (
        scan := next((n for n in all_nodes(model.graph) if n.op_type == "Scan"), None)
    ):
        raise ModelError(
            "import",
            f"{model.name}: Scan {scan.name}",
            f"expected one of opset {BATCHLESS} or later, got one of opset {opset}, which has a batch",
            "export the model for a later opset",
        )
    _flatten_hardmax(model)
    try:
        model.skeleton = version_converter.convert_version(model.skeleton, OPSET)
    except Exception as error:  # RuntimeError, ConvertError, … by version: import it as it is
        if report is not None:
            text = str(error).strip().splitlines() or [type(error).__name__]
            report.add("model", "import", "as is", f"opset {opset} could not be converted: {text[0]}")
        return
    if opset < COORDINATES:
        _keep_coordinates(model)
    if opset < KEPT:
        _keep_masks(model, opset)
    if report is not None:
        report.add("model", "import", "converted", f"opset {opset} became {OPSET}")


def _flatten_hardmax(model: Model) -> None:
    """Write down that Hardmax once meant all axes from its own on; ONNX's converter forgets it."""
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Hardmax" or node.domain:
            nodes.append(node)
            continue
        x, y = node.input[0], node.output[0]
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        shape, flat, best = (f"{y}/{part}" for part in ("shape", "flat", "best"))
        nodes += [
            helper.make_node("Shape", [x], [shape]),
            helper.make_node("Flatten", [x], [flat], axis=axis),
            helper.make_node("Hardmax", [flat], [best], node.name, axis=1),
            helper.make_node("Reshape", [best, shape], [y]),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _keep_coordinates(model: Model) -> None:
    """Write down what Upsample and Resize meant before opset 11; ONNX's converter forgets it.

    Their coordinates were asymmetric, and an axis that shrinks was rounded up, any other down.
    """
    for node in model.graph.node:
        if node.op_type == "Resize":
            node.attribute.extend(
                [
                    helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                    helper.make_attribute("nearest_mode", BEFORE_11),
                ]
            )


def _keep_masks(model: Model, opset: int) -> None:
    """Write down the mask of Dropout at inference before opset 12: zeros, at first of the data's type."""
    types: dict[str, onnx.TypeProto] | None = None
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        if node.op_type != "Dropout" or len(node.output) < 2 or not node.output[1]:
            continue
        x, mask = node.input[0], node.output.pop()
        types = infer_types(model) if types is None else types
        kind = types[x].tensor_type.elem_type if opset < OF_TRUTHS and x in types else onnx.TensorProto.BOOL
        zero = helper.make_tensor("zero", kind, [1], [0])
        nodes += [
            helper.make_node("Shape", [x], [f"{mask}/shape"]),
            helper.make_node("ConstantOfShape", [f"{mask}/shape"], [mask], mask, value=zero),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def infer_shapes(model: Model) -> dict[str, tuple[int | str, ...]]:
    """Shapes of all tensors ONNX can tell: sizes, or symbols where open (``?`` unnamed)."""
    shapes: dict[str, tuple[int | str, ...]] = {
        name: tuple(d.dim_value or d.dim_param or "?" for d in kind.tensor_type.shape.dim)
        for name, kind in infer_types(model).items()
        if kind.tensor_type.HasField("shape")
    }
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}


def write_nodes(model: Model, write: Callable[[onnx.NodeProto], list[onnx.NodeProto] | None]) -> bool:
    """Put what ``write`` makes of nodes in their places; None: a node stays.  Was anything made?"""
    made = [(node, write(node)) for node in model.graph.node]
    if all(written is None for _, written in made):
        return False
    nodes = [part for node, written in made for part in ([node] if written is None else written)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return True


def infer_types(model: Model) -> dict[str, onnx.TypeProto]:
    """The types of all tensors ONNX can tell."""
    inferred = _without_strangers(model)
    with suppress(Exception):  # an op ONNX cannot infer: only the types written down are known
        inferred = shape_inference.infer_shapes(inferred, data_prop=True)
    graph = inferred.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return types


def _without_strangers(model: Model) -> onnx.ModelProto:
    """The model, with ops of the same type in the place of layer norms that ONNX does not know."""
    if not any(node.op_type in UNREGISTERED for node in model.graph.node):
        return model.skeleton
    known = onnx.ModelProto()
    known.CopyFrom(model.skeleton)
    for node in known.graph.node:
        if not node.domain and model.opset < UNREGISTERED.get(node.op_type, 0):
            node.op_type = "Identity"
            del node.input[1:], node.output[1:], node.attribute[:]
    return known


def _integers(node: onnx.NodeProto) -> dict[str, list[int]]:
    return {a.name: list(a.ints) for a in node.attribute if a.ints}


def _set_integers(node: onnx.NodeProto, values: Mapping[str, list[int]], drop: Sequence[str]) -> None:
    kept = [a for a in node.attribute if a.name not in values and a.name not in drop]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, v) for name, v in values.items())])


PADDED = frozenset({"Conv", "MaxPool", "AveragePool", "LpPool"})


_MOVES = frozenset({"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"})
"""Ops whose result has elements only if their first input has."""


def drop_empty_operands(model: Model) -> None:
    """Leave constants without elements, and such that are moved, out of a Concat: TVM cannot store them."""
    empty = {tensor.name for tensor in model.graph.initializer if 0 in tensor.dims}
    for node in model.graph.node:
        kept = [name for name in node.input if name not in empty]
        if node.op_type in _MOVES and node.input[0] in empty:
            empty.update(node.output)
        if node.op_type == "Concat" and kept:
            del node.input[:]
            node.input.extend(kept)


def resolve_auto_pad(model: Model) -> None:
    """Write ``auto_pad`` out as ``pads``.

    The output of SAME_* has ceil(input / stride) positions; the odd padding goes behind
    (UPPER) or in front (LOWER).  TVM's frontend would emit a separate pad, and takes the
    floor for MaxPool's SAME_LOWER.  An open spatial dimension leaves the attribute alone (``same.py``), but
    with stride 1, where the padding is one less than the window reaches.

    ONNX Runtime's pools leave the dilation out of the padding, and so make fewer positions than
    ONNX's own shape inference says; here ONNX decides.
    """
    for node in model.graph.node:
        if node.op_type in PADDED | {"ConvTranspose"} and not _auto_pad(node):
            _set_integers(node, {}, ("auto_pad",))  # an empty text is that of an attribute left out
    nodes = [n for n in model.graph.node if n.op_type in PADDED and _auto_pad(n) != "NOTSET"]
    if not nodes:
        return
    shapes = infer_shapes(model)
    for node in nodes:
        pads = _explicit_pads(node, shapes)
        if pads is not None:
            _set_integers(node, {"pads": pads}, ("auto_pad",))


def _auto_pad(node: onnx.NodeProto) -> str:
    for attribute in node.attribute:
        if attribute.name == "auto_pad":
            return str(attribute.s.decode())
    return "NOTSET"


def _explicit_pads(node: onnx.NodeProto, shapes: Mapping[str, tuple[int | str, ...]]) -> list[int] | None:
    attributes = _integers(node)
    data = shapes.get(node.input[0], ())
    weight = shapes.get(node.input[1], ()) if node.op_type == "Conv" else ()
    kernel: list[int | str] = [*attributes.get("kernel_shape", weight[2:])]
    spatial = data[2:]
    if not kernel or len(spatial) != len(kernel) or not all(isinstance(k, int) for k in kernel):
        return None
    mode = _auto_pad(node)
    if mode == "VALID":
        return [0] * (2 * len(kernel))
    before, after = [], []
    strides = attributes.get("strides", [1] * len(kernel))
    dilations = attributes.get("dilations", [1] * len(kernel))
    for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        if not isinstance(k, int) or (not isinstance(size, int) and stride > 1):
            return None
        reach = (k - 1) * dilation
        total = (
            reach
            if not isinstance(size, int)
            else (math.ceil(size / stride) - 1) * stride + reach + 1 - size
        )
        total = max(total, 0)
        small, large = total // 2, total - total // 2
        before.append(large if mode == "SAME_LOWER" else small)
        after.append(small if mode == "SAME_LOWER" else large)
    return [*before, *after]
