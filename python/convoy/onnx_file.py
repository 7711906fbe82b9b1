"""Read an ONNX file, and say in one line why it cannot be read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx.external_data_helper import uses_external_data

from convoy.errors import ModelError
from convoy.pipes import read_file

Shapes = Mapping[str, Sequence[int | None]]
"""Sizes of a model's inputs, by name; None leaves a dimension as the model has it."""
Sizes = Mapping[str, Sequence[int | Sequence[int] | None]]
"""Likewise, or several sizes of a dimension, each of which a library is to run."""


@dataclass(frozen=True)
class _Other:
    """Files that people take for models of ONNX, by how they begin."""

    begins: bytes
    what: str
    todo: str
    at: int = 0


_OTHERS = (
    _Other(
        b"\x7fELF",
        "a library",
        "give the model it was made of; convoy run and convoy inspect take libraries",
    ),
    _Other(
        b"PK\x03\x04",
        "an archive, such as PyTorch saves",
        "load it there, and give convoy.compile the module",
    ),
    _Other(b"TFL3", "a model of TensorFlow Lite", "convert it, with tf2onnx for one", at=4),
    _Other(b"<?xml", "XML, such as OpenVINO's models", "give the ONNX file that it was made of"),
    _Other(b"version https://git-lfs", "a pointer of Git LFS", "fetch the file: git lfs pull"),
)


def parse_file(path: Path) -> onnx.ModelProto:
    """The model in a file; external data stays where it is.

    Raises
    ------
    ModelError
        If the file is missing, unreadable, empty, cut short or no ONNX, or if a name is no text.
    """
    return _parse(path, _read(path))


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError as error:
        named = "" if path.suffix else "; by name bench and profile alone take the networks of the zoo"
        raise ModelError(
            "import", str(path), "expected an ONNX file, got no such file", f"check the path{named}"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(
            "import", str(path), f"expected a readable ONNX file, got {problem}", "check the file"
        ) from error


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
    if not data:
        raise ModelError("import", str(path), "expected an ONNX model, got an empty file", "fetch it again")
    for known in _OTHERS:
        if data[known.at :].startswith(known.begins):
            raise ModelError("import", str(path), f"expected an ONNX model, got {known.what}", known.todo)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            "import",
            str(path),
            f"expected an ONNX model, got {len(data)} bytes that do not parse (cut short, or no ONNX)",
            "fetch or export it again",
        ) from error
    check_names(model, str(path))
    return model


def names_size(symbol: str) -> bool:
    """Is an open dimension's symbol a name, which two axes share if they are equally long?

    Else it is how an exporter says "open".
    """
    return re.search(r"[^\W\d]", symbol) is not None and symbol.lower() not in ("none", "unknown")


def tells_sizes(graph: onnx.GraphProto) -> bool:
    """Do open sizes that are written in terms of others have these values at every call?

    A decoder with and without a cache in one model, by an If, has the ``past + 1`` of the first at both.
    """
    return all(node.op_type != "If" for node in graph.node)


def digest_file(path: Path) -> bytes:
    """A hash of the model in a file and of the files that hold its external data.

    Raises
    ------
    ModelError
        If the file is no ONNX model, or external data is missing or outside of its folder.
    """
    data = _read(path)
    tensors = external_tensors(_parse(path, data).graph)
    files = {external_file(tensor, str(path), path.parent) for tensor in tensors}
    model = hashlib.sha256(data)
    for place in sorted(files):
        model.update(b"\0" + str(place.relative_to(path.parent.resolve())).encode())
        try:
            with place.open("rb") as file:
                while part := file.read(1 << 20):
                    model.update(part)
        except OSError as error:
            raise _no_external_data(str(path), place.name, error.strerror or str(error)) from error
    return model.digest()


def model_files(path: Path) -> list[Path]:
    """The file of a model and those of its external data, as far as they can be read.

    Whoever reads the model says what is wrong with it.
    """
    if not os.path.isfile(path):  # a pipe can be read once
        return [path]
    try:
        tensors = list(external_tensors(_parse(path, _read(path)).graph))
    except ModelError:
        return [path]
    found = [path]
    for tensor in tensors:
        with suppress(ModelError):
            found.append(external_file(tensor, str(path), path.parent))
    return list(dict.fromkeys(found))


def external_file(tensor: onnx.TensorProto, model: str, folder: Path) -> Path:
    """The file that a tensor has its data in.

    A model file comes from anywhere: what it names is read only inside of its own folder, and only if it is
    a file, whatever the installed onnx would do.

    Parameters
    ----------
    model : str
        What errors call it.
    folder : Path
        The folder of the model.

    Raises
    ------
    ModelError
        If the location is absolute, leads out of the folder, also by a link, or is no file there.
    """
    place = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    node, shown = f"{model}: tensor {tensor.name}", repr(place[:80])
    try:
        inside = folder.resolve()
        path = (inside / place).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links; a zero byte
        reason = error.strerror if isinstance(error, OSError) else "no name a file can have"
        raise _no_external_data(node, shown, reason or "no file") from error
    if Path(place).is_absolute() or not path.is_relative_to(inside):
        raise _no_external_data(node, shown, "a place outside of the model's folder, which is not read")
    if not path.is_file():
        raise _no_external_data(node, shown, "no file")
    return path


def _no_external_data(node: str, place: str, reason: str) -> ModelError:
    return ModelError(
        "import",
        node,
        f"expected external data in {place}, got {reason}",
        "keep the files of external data beside the model, or export it again",
    )


def external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors whose data is in other files: weights, constants, and those of the graphs inside."""
    yield from filter(uses_external_data, graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and uses_external_data(attribute.t):
                yield attribute.t
        for inner in inner_graphs(node):
            yield from external_tensors(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside of a node, such as the branches of an If."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph or function, and of the graphs inside."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from all_nodes(inner)


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node and the graphs inside of it read."""
    yield from node.input
    for graph in inner_graphs(node):
        for inner in graph.node:
            yield from names_read(inner)
        yield from (output.name for output in graph.output)


def check_names(model: onnx.ModelProto, name: str) -> None:
    """Check that each name in the graph and around it in the model ``name`` is a text.

    Raises
    ------
    ModelError
        If one is no UTF-8.
    """
    with in_utf8(name):
        for part in (model.graph, *model.functions, *model.opset_import):
            for text in _names(part):
                if isinstance(text, bytes):
                    text.decode()


@contextmanager
def in_utf8(name: str) -> Iterator[None]:
    """A block that asks for texts of the model ``name``: protobuf raises, or gives bytes, for what is none.

    Raises
    ------
    ModelError
        If one is no UTF-8.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise ModelError(
            "import",
            name,
            f"expected names in UTF-8, got {error.object!r} ({error.reason})",
            "fetch or export it again",
        ) from error


def _names(message: Message) -> Iterator[str | bytes]:
    """Every text in it but those that nobody reads; of a tensor, whose data would be copied, its own."""
    if isinstance(message, onnx.TensorProto):
        yield message.name
        for entry in message.external_data:
            yield from (entry.key, entry.value)
        return
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            continue
        values = [value] if isinstance(value, (str, bytes, Message)) else value
        if field.type == field.TYPE_STRING:
            yield from values
        elif field.type == field.TYPE_MESSAGE:
            for inner in values:
                yield from _names(inner)
