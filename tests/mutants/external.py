"""External data that lies: outside of the model's folder, absent, too short, no file at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

SECRET = "secret.bin"
"""A file beside the model's folder, as large as any weight: no answer may hang on what is in it."""
SECRET_BYTES = 4 << 20

Placement = Callable[[Path, bytes], str]
"""Makes what a location names, where it is to exist; gives the location."""


def _plain(folder: Path, data: bytes) -> str:
    (folder / "weights.bin").write_bytes(data)
    return "weights.bin"


def _short(folder: Path, data: bytes) -> str:
    (folder / "short.bin").write_bytes(data[: len(data) // 2])
    return "short.bin"


def _link(folder: Path, _: bytes) -> str:
    (folder / "link.bin").symlink_to(folder.parent / SECRET)
    return "link.bin"


def _linked_folder(folder: Path, _: bytes) -> str:
    (folder / "inner").symlink_to(folder.parent)
    return f"inner/{SECRET}"


def _pipe(folder: Path, _: bytes) -> str:
    os.mkfifo(folder / "pipe.bin")
    return "pipe.bin"


def _folder(folder: Path, _: bytes) -> str:
    (folder / "deep").mkdir()
    return "deep"


PLACEMENTS: dict[str, Placement] = {
    "beside the model": _plain,
    "cut short": _short,
    "absolute": lambda folder, _: str(folder.parent.resolve() / SECRET),
    "above": lambda folder, _: f"../{SECRET}",
    "above by a detour": lambda folder, _: f"./x/../../{SECRET}",
    "above, in another spelling": lambda folder, _: f"..\\{SECRET}",
    "a link out": _link,
    "a linked folder": _linked_folder,
    "a pipe": _pipe,
    "a folder": _folder,
    "a device": lambda _, __: "/dev/zero",
    "absent": lambda _, __: "nowhere.bin",
    "empty": lambda _, __: "",
    "the folder itself": lambda _, __: ".",
    "with a zero byte": lambda _, __: "weights.bin\0.bin",
    "very long": lambda _, __: "w" * 5000,
    "the model itself": lambda _, __: "model.onnx",
}
INSIDE = ("beside the model", "the model itself")
"""Those that may give an answer; all others must be refused."""

OFFSETS = ("0", "4", "-1", "1e3", "18446744073709551616", "99999999999", "", "x")
LENGTHS = ("0", "1", "-4", "9223372036854775807", "99999999999", "x")


def place_outside(model: onnx.ModelProto, folder: Path, rng: np.random.Generator) -> tuple[str, bool]:
    """Move one initializer's data out of the model, to where it may be or not.

    Returns
    -------
    tuple[str, bool]
        What was done; whether an answer would be wrong, whatever it is.
    """
    (folder.parent / SECRET).write_bytes(b"\x3f" * SECRET_BYTES)
    tensors = [tensor for tensor in model.graph.initializer if tensor.raw_data]
    tensor = tensors[int(rng.integers(len(tensors)))]
    where = list(PLACEMENTS)[int(rng.integers(len(PLACEMENTS)))]
    entries = {"location": PLACEMENTS[where](folder, tensor.raw_data)}
    length = len(tensor.raw_data)
    if rng.random() < 0.3:
        entries["offset"] = OFFSETS[int(rng.integers(len(OFFSETS)))]
    if rng.random() < 0.5:
        entries["length"] = LENGTHS[int(rng.integers(len(LENGTHS)))] if rng.random() < 0.4 else str(length)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    shown = {key: value[:60] for key, value in entries.items()}
    return f"external data {where}: {tensor.name}: {shown}", where not in INSIDE
