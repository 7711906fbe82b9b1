"""Read an ONNX model: a file or a ``ModelProto``, checked, its weights set apart.

A model is carried as a *skeleton* (the graph with every large initializer turned into a
plain input) and its *weights* (NumPy arrays by name).  ONNX's checker, shape inference and
version converter all serialise the model they work on, so they would be slow on a hundred
megabytes of weights and fail on two gigabytes; the skeleton is small whatever the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, SparseTensorProto, TensorProto, checker, helper, numpy_helper

from convoy.errors import ModelError
from convoy.onnx_file import check_names, external_file, external_tensors, inner_graphs, parse_file
from convoy.relax.importer.order import order_nodes

Array = NDArray[np.generic]

INLINE = 256
"""Initializers of at most so many elements stay in the skeleton: shapes, pads, axes, bounds."""
_LONGEST = 500
"""Characters of what another library said that go into a message: it repeats names of any length."""
WITHDRAWN = frozenset({"GroupNormalization"})
"""Ops that ONNX has taken back for the opsets before 21: a model of opset 18 may have them all the same."""
UNREGISTERED = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 2**31}
"""Ops that ONNX Runtime's optimisers put into ONNX's own domain before this opset, where ONNX has none."""
LISTS = frozenset({AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS})
CONSTANTS = {"value_floats": np.float32, "value_ints": np.int64, "value_strings": np.object_}
"""Lists that are a constant, and what they are lists of."""
DOMAIN = "ai.onnx"
"""ONNX's own domain, written out."""
MOST_ELEMENTS = 2**31 - 1
"""Elements of a sparse tensor with its zeros: a small file could ask for more memory than there is."""
IR_VERSION = 8
"""From IR 4 on an initializer need not be a graph input too; older models are lifted."""


@dataclass
class Model:
    """An ONNX model on its way into TVM; owned by the importer, free to be changed."""

    name: str
    """What errors call it: its path or graph name."""
    skeleton: onnx.ModelProto
    weights: dict[str, Array] = field(default_factory=dict)
    """Large constants by tensor name; each also is an input of the skeleton's graph."""
    filled: set[str] = field(default_factory=set)
    """Open sizes that are not 0, for an If to have been the branch that it was taken for."""
    multiples: dict[str, int] = field(default_factory=dict)
    """By open sizes of the inputs, the number of which each has to be a multiple."""
    derived: dict[str, int] = field(default_factory=dict)
    """By other open sizes of the inputs, what they are in these, as sizes of a graph."""

    @property
    def graph(self) -> onnx.GraphProto:
        return self.skeleton.graph

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        for entry in self.skeleton.opset_import:
            if not entry.domain:
                return int(entry.version)
        return 1

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs a caller must feed."""
        return [value for value in self.graph.input if value.name not in self.weights]

    def constants(self) -> dict[str, Array]:
        """The arrays of all constants, by name."""
        small = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer}
        return small | self.weights

    def name_nodes(self) -> None:
        """A nameless node is known by what it makes."""
        for node in self.graph.node:
            node.name = node.name or next((output for output in node.output if output), node.op_type)

    def add_constant(self, name: str, array: Array) -> None:
        """Make tensor ``name`` a constant: an initializer if small, else a weight."""
        if array.size <= INLINE:
            self.graph.initializer.append(numpy_helper.from_array(array, name))
            return
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        self.weights[name] = array


def read(source: str | Path | onnx.ModelProto, folder: Path = Path()) -> Model:
    """Read and check a model.

    Parameters
    ----------
    source : str | Path | onnx.ModelProto
        Path of an ONNX file (external data is looked for beside it), or a ``ModelProto``, which is left
        as it is.
    folder : Path
        Where a ``ModelProto`` has its external data.

    Raises
    ------
    ModelError
        If this is no model, if the file is missing, empty, truncated or no ONNX, if external data is
        missing or cut short, or if the graph breaks ONNX's own rules.
    """
    if isinstance(source, onnx.ModelProto):
        check_names(source, "model")
        return _set_weights_apart(source, source.graph.name or "model", folder)
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError(
            "import",
            type(source).__name__,
            "expected a path, an onnx.ModelProto or a Relax IRModule, got an object of this type",
            "pass one of them",
        )
    path = Path(source)
    return _set_weights_apart(parse_file(path), str(path), path.parent)


def _set_weights_apart(source: onnx.ModelProto, name: str, folder: Path) -> Model:
    if not source.HasField("graph") or not source.graph.output:
        raise ModelError(
            "import", name, "expected a graph with outputs, got none", "export the model again"
        )
    skeleton = onnx.ModelProto(
        ir_version=max(source.ir_version, IR_VERSION),
        opset_import=source.opset_import or [helper.make_opsetid("", 1)],
        functions=source.functions,
    )
    for entries in (skeleton.opset_import, *(function.opset_import for function in skeleton.functions)):
        _name_domain(entries)
    graph = skeleton.graph
    graph.name = source.graph.name or "main"
    graph.node.extend(source.graph.node)
    for tensor in external_tensors(graph):
        tensor.CopyFrom(numpy_helper.from_array(_read_tensor(tensor, name, folder), tensor.name))
    graph.output.extend(source.graph.output)
    for nodes in (graph.node, *(function.node for function in skeleton.functions)):
        order_nodes(nodes)
        _name_domain(nodes)
        _leave_out_empty_lists(nodes)
        _make_dense_within(nodes, name, folder)
    constants = {initializer.name for initializer in source.graph.initializer}
    constants |= {sparse.values.name for sparse in source.graph.sparse_initializer}
    graph.input.extend(value for value in source.graph.input if value.name not in constants)
    model = Model(name, skeleton)
    model.name_nodes()
    for sparse in source.graph.sparse_initializer:
        model.add_constant(sparse.values.name, _make_dense(sparse, name, folder))
    for initializer in source.graph.initializer:
        model.add_constant(initializer.name, _read_tensor(initializer, name, folder))
    _check(model)
    return model


def _name_domain(entries: Iterable[Any]) -> None:
    """ONNX's own domain has two names, which ONNX Runtime takes for one: the empty one is used."""
    for entry in entries:
        entry.domain = "" if entry.domain == DOMAIN else entry.domain
        if isinstance(entry, onnx.NodeProto):
            for graph in inner_graphs(entry):
                _name_domain(graph.node)


def _leave_out_empty_lists(nodes: Iterable[onnx.NodeProto]) -> None:
    """An empty list, as of axes, is that of an attribute left out; of a constant it is a tensor.

    TVM's frontend reads none.
    """
    for node in nodes:
        for attribute in [a for a in node.attribute if a.type in LISTS and not _elements(a)]:
            if attribute.name in CONSTANTS:
                nothing = numpy_helper.from_array(np.empty(0, CONSTANTS[attribute.name]))
                attribute.CopyFrom(helper.make_attribute("value", nothing))
            elif node.op_type != "Unsqueeze":  # which has to have one
                node.attribute.remove(attribute)
        for graph in inner_graphs(node):
            _leave_out_empty_lists(graph.node)


def _elements(attribute: AttributeProto) -> int:
    return len(attribute.floats) + len(attribute.ints) + len(attribute.strings)


def _make_dense_within(nodes: Iterable[onnx.NodeProto], model: str, folder: Path) -> None:
    """Write out the zeros of sparse constants, and of what the graphs inside of nodes hold."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                dense = numpy_helper.from_array(_make_dense(attribute.sparse_tensor, model, folder))
                attribute.CopyFrom(helper.make_attribute("value", dense))
        for graph in inner_graphs(node):
            for sparse in graph.sparse_initializer:
                dense = numpy_helper.from_array(_make_dense(sparse, model, folder), sparse.values.name)
                graph.initializer.append(dense)
            graph.ClearField("sparse_initializer")
            _make_dense_within(graph.node, model, folder)


def _make_dense(sparse: SparseTensorProto, model: str, folder: Path) -> Array:
    """The tensor with its zeros; places are numbers of elements, or their indices."""
    values, places = (_read_tensor(tensor, model, folder) for tensor in (sparse.values, sparse.indices))
    try:
        checker.check_sparse_tensor(sparse)
    except checker.ValidationError as error:
        raise _invalid(model, error) from error
    if (count := prod(sparse.dims)) > MOST_ELEMENTS:
        found = f"{count} in {sparse.values.name}"
        problem = f"expected a sparse tensor of at most {MOST_ELEMENTS} elements, got {found}"
        raise ModelError("import", model, problem, "give it its own shape")
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim > 1:
        dense[tuple(places.T)] = values
    else:
        dense.flat[places.astype(np.int64)] = values
    return dense


def _read_tensor(tensor: TensorProto, model: str, folder: Path) -> Array:
    if tensor.data_location == TensorProto.EXTERNAL:
        external_file(tensor, model, folder)
    try:
        array: Array = numpy_helper.to_array(tensor, str(folder))
    except Exception as error:  # onnx raises a dozen kinds here; each means this one thing
        shape = "x".join(map(str, tensor.dims)) or "a scalar"
        where = "external data" if tensor.data_location == TensorProto.EXTERNAL else "data"
        raise ModelError(
            "import",
            f"{model}: tensor {tensor.name}",
            f"expected {where} of shape {shape}, got {_first_line(error)}",
            "keep the files of external data beside the model, complete, or export it again",
        ) from error
    return array


def _check(model: Model) -> None:
    # The checker wants a type and a shape on every input and output.  Exporters leave out shapes, and who
    # makes inner tensors outputs also types; TVM needs both only on inputs, where fix_shapes asks for the
    # shape.  An empty shape, and some type, stand in for the check.
    untyped = [v for v in model.graph.output if v.type.WhichOneof("value") is None]
    for value in untyped:
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    values = [*model.graph.input, *model.graph.output]
    shapeless = [
        v.type.tensor_type
        for v in values
        if v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape")
    ]
    for kind in shapeless:
        kind.shape.SetInParent()
    own = {node.domain for node in model.graph.node}
    strange = {op for op in WITHDRAWN if model.opset < 21}
    strange |= {op for op, opset in UNREGISTERED.items() if model.opset < opset}
    strangers = [n for n in model.graph.node if n.op_type in strange and not n.domain]
    hidden = next(f"hidden{i}" for i in range(len(own) + 1) if f"hidden{i}" not in own)
    for node in strangers:
        node.domain = hidden
    model.skeleton.opset_import.add(domain=hidden, version=1)
    try:
        checker.check_model(model.skeleton)
    except checker.ValidationError as error:
        raise _invalid(model.name, error) from error
    finally:
        for kind in shapeless:
            kind.ClearField("shape")
        for value in untyped:
            value.ClearField("type")
        for node in strangers:
            node.domain = ""
        model.skeleton.opset_import.pop()


def _invalid(model: str, error: Exception) -> ModelError:
    return ModelError(
        "import",
        model,
        f"expected a valid ONNX model, got: {_first_line(error)}",
        "export it again, or repair it with onnx.checker's help",
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:_LONGEST] if text else type(error).__name__
