"""Read an ONNX file, and say in one line why it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

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
