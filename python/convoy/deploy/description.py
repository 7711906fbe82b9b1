"""What a library says of itself: data in two sections of its file, which are read without running it.

``.convoy`` holds a ``Description`` as JSON, and ``.convoy.example``, where there is one, inputs with the
outputs that are expected for them, as ``numpy.save`` writes arrays, one behind the other.  Neither is
loaded with the library.  Both may have been written by anybody: what has another form is refused, and
the texts in it are shown as all text from outside (``convoy.text``).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from convoy.errors import ModelError
from convoy.text import line, to_json
from convoy.toolchain.elf import read_section

SECTION, EXAMPLE = ".convoy", ".convoy.example"
_MOST, _MOST_EXAMPLE = 64 << 20, 1 << 30
"""Bytes of each that are read."""
_PAST = 1 << 256
"""What no number reaches: past it a float cannot be made of one, to show it."""
_ELF_HEADER = struct.Struct("=40sQ10xHH2x")
"""The header of a 64-bit file: where its table of sections begins, a section's size in it, their number."""
FORMAT = 1
DENSE, OF_TVM = 4, 64
"""Bytes: the alignment that regions ask of memory, and that TVM's own kernels do."""

Example = tuple[Sequence[Any], Sequence[Any]]
"""Inputs in the order of a call, and the outputs expected for them."""
Size = int | str | None
"""A dimension: how many, the name of one that stays open, or None where nothing is known of it."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a library."""

    name: str
    """As the model has it."""
    shape: tuple[Size, ...] | None
    """None: even its rank is known only when the library runs."""
    dtype: str
    """``float32`` and so on; empty: none, or not known."""

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ", ".join("?" if s is None else str(s) for s in self.shape)
        return line(f"{self.name}: {self.dtype or 'no tensor'} [{shape}]")


@dataclass(frozen=True)
class Version:
    """The sizes of one version in a library of several sizes."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Description:
    """What a library says of itself."""

    inputs: tuple[Tensor, ...]
    """In the order of a call."""
    outputs: tuple[Tensor, ...]
    versions: tuple[Version, ...]
    """Those in a library of several sizes; empty: it has one."""
    cpu: str
    """The CPU it was compiled for, by LLVM's name; empty: none in particular."""
    instructions: str
    """The instruction set of its kernels."""
    precision: str
    """What its regions may compute in: float32, or bf16 where that pays."""
    threads: int
    """Threads of a region; 0: the physical cores of the machine that runs it."""
    alignments: tuple[int, ...]
    """Bytes, by inputs: memory at a multiple of them is read where it lies, other is copied."""
    made_by: Mapping[str, str]
    """The versions of Convoy, TVM and the C compiler."""
    report: Mapping[str, Any]
    """The compilation: ``ops_offloaded``, ``left``, ``flops``, ``flops_offloaded``, ``regions``."""
    shared_loops: int = 0
    """Functions of TVM's with loops that threads share."""
    team_runs_loops: bool = False
    """These threads are the library's own, as those of regions are; else TVM's pool."""
    own_outputs: tuple[int, ...] = ()
    """Places of the outputs that lie in memory which nothing else has: their readers need no copies."""

    @property
    def has_open_sizes(self) -> bool:
        """May two calls have inputs or outputs of different sizes?"""
        shapes = [tensor.shape for tensor in (*self.inputs, *self.outputs)]
        return any(shape is None or not all(isinstance(n, int) for n in shape) for shape in shapes)

    def encode(self) -> bytes:
        """The text of ``.convoy``: equal descriptions have equal ones."""
        return (to_json({"format": FORMAT, **asdict(self)}) + "\n").encode()

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def check_file(path: Path, step: str = "run") -> None:
    """See that a library can be at ``path``, and is whole: to load one cut short ends the process (SIGBUS).

    Raises
    ------
    ModelError
        If there is no file, one of another name or another kind, or the beginning of a library.
    """
    if not os.path.isfile(path):  # Path's own raises for a name longer than any file's
        found = "a folder" if os.path.isdir(path) else "no such file"
        raise ModelError(step, str(path), f"expected a library, got {found}", "check the path")
    make = "make one of a model with convoy compile"
    if path.suffix != ".so":
        problem = f"expected a library, whose name ends in .so, got {path.name}"
        raise ModelError(step, str(path), problem, make)
    try:
        with path.open("rb") as file:
            header = file.read(_ELF_HEADER.size)
    except OSError as error:
        problem = f"expected a library, got {error.strerror or error}"
        raise ModelError(step, str(path), problem, "check the path") from error
    if len(header) < _ELF_HEADER.size or not header.startswith(b"\x7fELF\x02"):
        raise ModelError(step, str(path), "expected a library, got a file of another kind", make)
    _, table, section, sections = _ELF_HEADER.unpack(header)  # of its last part
    wanted, size = table + section * sections, path.stat().st_size
    if size < wanted:
        problem = f"expected a library of {wanted} bytes, got {size}"
        raise ModelError(step, str(path), problem, "copy it here again")


def read_description(path: Path) -> Description | None:
    """What a library says of itself; None: nothing, as it was not compiled by Convoy.

    Raises
    ------
    ModelError
        If what it says has no form that this Convoy knows.
    OSError
        If the file cannot be read.
    """
    found = read_section(path, SECTION, _MOST)
    return None if found is None else _decode(found, line(path))


def read_example(path: Path) -> tuple[list[NDArray[Any]], list[NDArray[Any]]] | None:
    """The inputs in a library and the outputs expected for them; None where there are none.

    Raises
    ------
    ModelError
        If there is something else in their place.
    OSError
        If the file cannot be read.
    """
    found = read_section(path, EXAMPLE, _MOST_EXAMPLE)
    if found is None:
        return None
    stream = BytesIO(found)
    try:
        count = int(stream.readline(20))
        arrays = []
        while stream.tell() < len(found):
            arrays.append(np.load(stream, allow_pickle=False))
    except (ValueError, EOFError, OSError, MemoryError) as error:
        _refuse(line(path), f"an example that is none: {error}")
    return arrays[:count], arrays[count:]


def encode_example(example: Example) -> bytes:
    """The bytes of ``.convoy.example``: the number of inputs in a line, then all arrays.

    Raises
    ------
    ModelError
        For anything but arrays.
    """
    try:
        inputs, outputs = ([np.asarray(array) for array in arrays] for arrays in example)
        if any(array.dtype.kind not in "biuf" for array in (*inputs, *outputs)):
            raise TypeError("elements that are no numbers")
    except (TypeError, ValueError) as error:
        raise ModelError(
            "compile",
            "example",
            f"expected the inputs and the outputs, in order, got {error}",
            "write ([input], [output])",
        ) from error
    stream = BytesIO()
    stream.write(b"%d\n" % len(inputs))
    for array in (*inputs, *outputs):
        np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _decode(text: bytes, where: str) -> Description:
    try:
        data = json.loads(text.partition(b"\n")[0])
        if data["format"] != FORMAT:
            _refuse(where, f"a description of format {data['format']}")
        return Description(
            inputs=_tensors(data["inputs"]),
            outputs=_tensors(data["outputs"]),
            versions=tuple(
                Version(_tensors(version["inputs"]), _tensors(version["outputs"]))
                for version in data["versions"]
            ),
            cpu=_text(data["cpu"]),
            instructions=_text(data["instructions"]),
            precision=_text(data.get("precision", "float32")),
            threads=_number(data["threads"]),
            alignments=tuple(map(_number, data.get("alignments", [OF_TVM] * len(data["inputs"])))),
            made_by={_text(name): _text(version) for name, version in data["made_by"].items()},
            report=_report(data["report"]),
            shared_loops=_number(data.get("shared_loops", 0)),
            team_runs_loops=data.get("team_runs_loops", False) is True,
            own_outputs=tuple(map(_number, data.get("own_outputs", ()))),
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        _refuse(where, f"a description that is none ({type(error).__name__}: {error})")


def _tensors(given: Any) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            _text(tensor["name"]),
            None if tensor["shape"] is None else tuple(map(_size, tensor["shape"])),
            _text(tensor["dtype"]),
        )
        for tensor in given
    )


def _report(given: Any) -> dict[str, Any]:
    return {
        "ops_offloaded": _number(given["ops_offloaded"]),
        "left": [(_number(count), _text(op), _text(reason)) for count, op, reason in given["left"]],
        "flops": _number(given["flops"]),
        "flops_offloaded": _number(given["flops_offloaded"]),
        "regions": [
            {
                "symbol": _text(region["symbol"]),
                "kernels": {_text(name): _number(count) for name, count in region["kernels"].items()},
                **{name: _number(region[name]) for name in ("flops", "weight_bytes", "arena_bytes")},
            }
            for region in given["regions"]
        ],
    }


def _size(given: Any) -> Size:
    return given if given is None or isinstance(given, str) else _number(given)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"expected a text, got {given!r}")
    return given


def _number(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < _PAST:
        raise TypeError(f"expected a number, got {given!r}")
    return given


def _refuse(where: str, found: str) -> NoReturn:
    raise ModelError(
        "inspect",
        where,
        f"expected a library that this Convoy wrote, got {found}",
        "compile the model again",
    )
