"""Read an ONNX file, and say in one line why it cannot be read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from convoy.errors import ModelError

Shapes = Mapping[str, Sequence[int | None]]
"""Sizes of a model's inputs, by name; None leaves a dimension as the model has it."""


def parse_file(path: Path) -> onnx.ModelProto:
    """The model in a file; external data stays where it is.

    Raises
    ------
    ModelError  if the file is missing, unreadable, empty, cut short or no ONNX
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(
            "import", str(path), "expected an ONNX file, got no such file", "check the path"
        ) from error
    except OSError as error:
        raise ModelError(
            "import", str(path), f"expected a readable ONNX file, got {error.strerror}", "check the file"
        ) from error
    if not data:
        raise ModelError("import", str(path), "expected an ONNX model, got an empty file", "fetch it again")
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
    return model


def digest_file(path: Path) -> bytes:
    """A hash of the model in a file and of the files that hold its external data.

    Raises
    ------
    ModelError  if the file is no ONNX model, or external data is missing
    """
    tensors = external_tensors(parse_file(path).graph)
    places = {ExternalDataInfo(tensor).location for tensor in tensors}
    model = hashlib.sha256(path.read_bytes())
    for place in sorted(places):
        model.update(b"\0" + place.encode())
        try:
            with (path.parent / place).open("rb") as file:
                while part := file.read(1 << 20):
                    model.update(part)
        except OSError as error:
            raise ModelError(
                "import",
                str(path),
                f"expected its external data in {place}, got {error.strerror}",
                "keep the files of external data beside the model",
            ) from error
    return model.digest()


def external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors whose data is in other files: weights, constants, and those of the graphs inside."""
    yield from filter(uses_external_data, graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and uses_external_data(attribute.t):
                yield attribute.t
            yield from external_tensors(attribute.g)


@contextmanager
def in_utf8(name: str) -> Iterator[None]:
    """Protobuf decodes a name when it is asked for: a block that asks for those of the model ``name``.

    Raises
    ------
    ModelError  if one of them is no text
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
