"""Arrays in files, by the ending of their names: ``.npy``, ``.npz``, ``.pb`` and text."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from convoy.cli.console import expect_file
from convoy.deploy.description import Tensor
from convoy.deploy.dtypes import DLPACK, numpy_dtype
from convoy.errors import ModelError
from convoy.pipes import read_file, seekable
from convoy.report.decision import count_of

Array = NDArray[Any]
TEXT = (".txt", ".csv")
_LONGEST_NAME = 2**16 - 1 - len(".npy")
"""Bytes; an archive keeps the length of an entry's name in 16 bits."""
ENDINGS = (".npy", ".npz", ".pb", *TEXT)

_FORM = "an array numpy.save wrote", "write it with numpy.save, or name it .npz, .pb, .txt or .csv"
_FORMS = {
    ".pb": ("a tensor of ONNX's", "write it with onnx.numpy_helper.from_array, or name it .npy"),
    **dict.fromkeys(TEXT, ("numbers between blanks, commas and line ends", "correct it, or write an .npy")),
}
"""What a file of each ending holds, and what to do where it does not; ``_FORM`` of any other."""


def read_inputs(given: Sequence[str], tensors: Sequence[Tensor] | None) -> list[Array]:
    """The inputs of a library from files, in its order.

    Parameters
    ----------
    given : Sequence[str]
        ``FILE``, in the library's order, or ``NAME=FILE``.  An ``.npz`` has several, by name or in order.
    tensors : Sequence[Tensor] | None
        The library's inputs; None: it does not say which.

    Raises
    ------
    ModelError
        If a file holds no arrays, there is no such input, or it has two files of its own.
    """
    names = [tensor.name for tensor in tensors or ()]
    in_order: list[Array] = []
    by_name: dict[str, Array] = {}
    files: dict[str, Path] = {}
    for text in given:
        name, path = _split(text, names)
        if name in files:
            problem = f"expected one file, got {files[name]} and {path}"
            raise ModelError("run", f"input {name}", problem, "leave one out")
        if name:
            files[name] = path
            by_name[name] = _read(path, _find(tensors, names, name))
        elif path.suffix == ".npz":
            several = _read_archive(path)
            if names and set(several) <= set(names):
                by_name |= several
            else:
                in_order += several.values()
        else:
            place = len(in_order)
            in_order.append(_read(path, tensors[place] if tensors and place < len(tensors) else None))
    if not by_name:
        return in_order
    if in_order or set(by_name) != set(names):
        raise ModelError(
            "run",
            "inputs",
            f"expected {', '.join(names)}, got {', '.join(by_name)}"
            + (f" and {len(in_order)} without a name" if in_order else ""),
            "give each input by its name, or all in order",
        )
    return [by_name[name] for name in names]


def expect_outputs(paths: Sequence[Path], count: int | None) -> None:
    """Try whether so many outputs can be written into these files, before the work that makes them.

    Parameters
    ----------
    paths : Sequence[Path]
        One for each output, or one ``.npz``.
    count : int | None
        Of the outputs; None: the library does not say.

    Raises
    ------
    ModelError
        If their numbers differ, an ending is of no kind that is written, or a file cannot be written.
    """
    for path in paths:
        if path.suffix not in ("", *ENDINGS):  # what has none, such as /dev/stdout, is as .npy
            problem = f"expected a name that ends in {', '.join(ENDINGS)}, got {path.name}"
            raise ModelError("run", "outputs", problem, "rename it")
        expect_file(path, "-o")
    if len(paths) > 1 and any(path.suffix == ".npz" for path in paths):
        raise ModelError("run", "outputs", "expected one .npz for all, got more", "name the others .npy")
    if count not in (None, len(paths)) and not _is_archive(paths):
        raise ModelError(
            "run",
            "outputs",
            f"expected {count} of -o, got {len(paths)}",
            "give one -o OUT.npy per output, or one -o OUT.npz for all",
        )


def write_outputs(paths: Sequence[Path], results: Sequence[Array], names: Sequence[str]) -> None:
    """Write each output into its file, or all into one ``.npz`` by their names.

    Raises
    ------
    ModelError
        As ``expect_outputs``, and if an archive has no room for a name.
    """
    expect_outputs(paths, len(results))
    named = [*names, *(f"output_{i}" for i in range(len(names), len(results)))]
    if _is_archive(paths):
        longest = max((name.encode() for name in named), key=len, default=b"")
        if len(longest) > _LONGEST_NAME:
            raise ModelError(
                "run",
                str(paths[0]),
                f"expected names of at most {_LONGEST_NAME} bytes, got one of {len(longest)}",
                "write each output to a file of its own, such as .npy",
            )
        _save(paths[0], partial(_write_archive, dict(zip(named, results, strict=False))))
        return
    for path, name, result in zip(paths, named, results, strict=False):
        _save(path, partial(_write, path.suffix, name, result))


def _is_archive(paths: Sequence[Path]) -> bool:
    return len(paths) == 1 and paths[0].suffix == ".npz"


def _split(text: str, names: Sequence[str]) -> tuple[str, Path]:
    """``NAME=FILE``, or a file; a name of either may have such a sign in it."""
    if Path(text).exists() or "=" not in text:
        return "", Path(text)
    known = [name for name in names if text.startswith(f"{name}=")]
    name = max(known, key=len) if known else text.partition("=")[0]
    return name, Path(text[len(name) + 1 :])


def _find(tensors: Sequence[Tensor] | None, names: Sequence[str], name: str) -> Tensor:
    if tensors is None or name not in names:
        raise ModelError(
            "run",
            f"input {name}",
            f"expected one of {', '.join(names)}" if names else "expected a library that names its inputs",
            "see convoy inspect, or give the files in order, without names",
        )
    return tensors[names.index(name)]


def _read(path: Path, tensor: Tensor | None) -> Array:
    try:
        if path.suffix == ".pb":
            return _read_tensor(path)
        if path.suffix in TEXT:
            return _read_text(path, tensor)
        found = seekable(path)
        # numpy.load takes what it does not know for a pickle
        with found.open("rb") if isinstance(found, Path) else found as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
        if array.dtype.kind == "V" and tensor is not None and tensor.dtype in DLPACK:
            array = array.view(numpy_dtype(tensor.dtype))  # a file does not keep the names of these types
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, EOFError) as error:
        expected, remedy = _FORMS.get(path.suffix, _FORM)
        raise ModelError("run", str(path), f"expected {expected}, got {error}", remedy) from error
    return array


def _unreadable(path: Path, error: OSError) -> ModelError:
    return ModelError(
        "run", str(path), f"expected a file of arrays, got {error.strerror or error}", "check the path"
    )


def _read_archive(path: Path) -> dict[str, Array]:
    try:
        with np.load(seekable(path), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, EOFError, TypeError, AttributeError) as error:
        raise ModelError(
            "run",
            str(path),
            f"expected an archive numpy.savez wrote, got {error}",
            "write it with numpy.savez",
        ) from error


def _read_tensor(path: Path) -> Array:
    """A tensor as ONNX's test data has it."""
    from onnx import TensorProto, numpy_helper

    tensor = TensorProto()
    try:
        tensor.ParseFromString(read_file(path))
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ValueError("one with its data in another file")
        array: Array = numpy_helper.to_array(tensor)
    except OSError:
        raise
    except Exception as error:  # protobuf's and onnx's own
        raise ValueError(f"none: {error}") from error
    return array


def _read_text(path: Path, tensor: Tensor | None) -> Array:
    """Numbers between blanks, commas and line ends, in the shape of the input where it says one."""
    words = read_file(path).decode().replace(",", " ").split()
    if tensor is None or tensor.shape is None:
        return np.array(words, np.float64).astype(np.float32)
    sizes = [size if isinstance(size, int) else -1 for size in tensor.shape]
    if sizes.count(-1) > 1:
        raise ValueError(f"text for {tensor}, of which several sizes are open; write it with numpy.save")
    dtype = numpy_dtype(tensor.dtype or "float32")
    numbers = _read_whole(words, dtype) if dtype.kind in "iu" else np.array(words, np.float64).astype(dtype)
    try:
        return numbers.reshape(sizes)
    except ValueError:
        raise ValueError(f"{count_of(len(words), 'number')} for {tensor}") from None


def _read_whole(words: Sequence[str], dtype: np.dtype[Any]) -> Array:
    """Whole numbers, each as it is written: floats would round large ones."""
    limits = np.iinfo(dtype)
    for word in words:
        if not word.lstrip("+-").isdigit() or not limits.min <= int(word) <= limits.max:
            raise ValueError(f"{word} for a number of type {dtype}")
    return np.array([int(word) for word in words], dtype)


def _write(suffix: str, name: str, array: Array, file: BinaryIO) -> None:
    if suffix == ".pb":
        from onnx import numpy_helper

        file.write(numpy_helper.from_array(array, name).SerializeToString())
    elif suffix in TEXT:
        form = "%d" if array.dtype.kind in "biu" else "%.17g" if array.dtype == np.float64 else "%.9g"
        *outer, columns = array.shape or (1,)
        np.savetxt(file, array.reshape(math.prod(outer), columns), form, delimiter=",")
    else:
        np.save(file, array)  # given a name, it would append .npy where there is none


def _write_archive(arrays: Mapping[str, Array], file: BinaryIO) -> None:
    """As ``numpy.savez`` does, which has no place for an output that is named ``file``."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.save(entry, array)


def _save(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file, or leave none behind."""
    try:
        file = path.open("wb")
        try:
            with file:
                write(file)
        except OSError:
            if path.is_file():  # and no device
                path.unlink()
            raise
    except OSError as error:
        raise ModelError(
            "run",
            str(path),
            f"expected to write it, got {error.strerror or error}",
            "check the folder and the free space",
        ) from error
