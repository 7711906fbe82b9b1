"""ONNX to ncnn's own files by pnnx, its converter; kept between runs."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx

from convoy.bench.batch import set_batch
from convoy.bench.inputs import read_model
from convoy.bench.job import Job, Progress
from convoy.bench.package import find_program
from convoy.errors import ModelError
from convoy.onnx_file import digest_file
from convoy.toolchain.cache import Cache, open_cache
from convoy.toolchain.driver import time_limit
from convoy.toolchain.process import execute


def convert(job: Job, progress: Progress) -> Path:
    """Convert a model, for one image and in float32.

    Returns
    -------
    Path
        The ``.param`` file; the weights are beside it, with suffix ``.bin``.

    Raises
    ------
    ModelError
        If pnnx is not installed, or does not write them.
    """
    executable = find_program("pnnx")
    shapes = ",".join(
        "[" + ",".join(map(str, (1, *array.shape[1:]))) + "]" for array in job.inputs.values()
    )
    key = hashlib.sha256(digest_file(job.model))
    key.update(f"pnnx {version('pnnx')} {shapes}".encode())
    common = open_cache()
    converted = Cache(common.folder / "ncnn", common.limit)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def place(suffix: str, path: Path) -> None:
            source = folder / f"model.ncnn{suffix}"
            if not source.exists():
                progress("converting with pnnx")
                _write_single(job, folder / "model.onnx")
                _run(executable, shapes, folder)
            shutil.copyfile(source, path)

        param = converted.fetch(key.hexdigest(), ".param", lambda path: place(".param", path))
        converted.fetch(key.hexdigest(), ".bin", lambda path: place(".bin", path))
    converted.trim()
    return param


def _write_single(job: Job, path: Path) -> None:
    """The model for one image and with its weights inside, where pnnx is to write: beside it."""
    model = read_model(job.model)
    if any(len(array) != 1 for array in job.inputs.values()):
        set_batch(model, 1)
    onnx.save(model, path)


def _run(executable: str, shapes: str, folder: Path) -> None:
    command = [executable, "model.onnx", f"inputshape={shapes}", "fp16=0"]
    try:
        outcome = execute(command, folder=folder, seconds=time_limit())
    except OSError as problem:
        found = problem.strerror or str(problem)
    else:
        if outcome.code == 0 and (folder / "model.ncnn.bin").exists():
            return
        lines = f"{outcome.out}\n{outcome.err}".strip().splitlines() or ["nothing printed"]
        found = f"exit code {outcome.code}: {lines[-1]}"
    raise ModelError(
        "bench", "ncnn", f"expected a model pnnx converts, got {found}", "leave ncnn out for this model"
    )
