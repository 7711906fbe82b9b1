"""``convoy run``: an exported library on arrays from files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, BinaryIO

import numpy as np
import typer
from numpy.typing import NDArray

from convoy.cli.console import note
from convoy.cli.options import Library
from convoy.errors import ModelError

Inputs = Annotated[
    list[Path],
    typer.Option(
        "-i",
        "--input",
        metavar="IN.npy",
        help="An input, in the model's order; repeatable.",
        show_default=False,
    ),
]
Outputs = Annotated[
    list[Path],
    typer.Option(
        "-o",
        "--output",
        metavar="OUT.npy",
        help="Where an output goes, in the model's order; repeatable. One .npz takes all of them.",
        show_default=False,
    ),
]
Threads = Annotated[int, typer.Option("--threads", min=0, metavar="N", help="Threads; 0: as compiled.")]
Repeat = Annotated[
    int, typer.Option("--repeat", min=0, metavar="N", help="Run N times more and print the median time.")
]


def run_library(
    library: Library, inputs: Inputs, outputs: Outputs, threads: Threads = 0, repeat: Repeat = 0
) -> None:
    """Run a compiled library on NumPy arrays.

    Only TVM's runtime is used: what works here works on a machine without Convoy.

    Examples:

    \b
      convoy run resnet50.so -i image.npy -o scores.npy
      convoy run two_inputs.so -i a.npy -i b.npy -o all.npz --threads 4 --repeat 20
    """
    arrays = [_read(path) for path in inputs]
    if threads:
        # read when the library is loaded: the first by regions, the second by what was left to TVM
        os.environ["CONVOY_NUM_THREADS"] = os.environ["TVM_NUM_THREADS"] = str(threads)
    from convoy.deploy.runner import Runner
    from convoy.deploy.tensors import arrays as to_arrays

    runner = Runner(library)
    runner.bind(arrays)
    results = to_arrays(runner.call())
    if repeat:
        milliseconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            runner.call()
            milliseconds.append(1e3 * (time.perf_counter() - start))
        note(f"median of {repeat} runs: {median(milliseconds):.2f} ms")
    _write(outputs, results)


def _read(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ModelError(
            "run", str(path), f"expected an array numpy.save wrote, got {error}", "write it with numpy.save"
        ) from error
    if not isinstance(array, np.ndarray):
        raise ModelError(
            "run", str(path), "expected one array, got an .npz archive", "give one .npy per input"
        )
    return array


def _write(paths: list[Path], results: list[NDArray[Any]]) -> None:
    archive = len(paths) == 1 and paths[0].suffix == ".npz"
    if not archive and len(paths) != len(results):
        raise ModelError(
            "run",
            "outputs",
            f"expected {len(results)} of -o, got {len(paths)}",
            "give one -o OUT.npy per output, or one -o OUT.npz for all",
        )
    if archive:
        _save(paths[0], lambda file: np.savez(file, *results))
        return
    for path, result in zip(paths, results, strict=True):
        _save(path, partial(np.save, arr=result))  # given a name, it would append .npy to another suffix


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
            f"expected to write it, got {error}",
            "check the folder and the free space",
        ) from error
