"""A library as a function of batches: a dict of columns in, a dict of columns out.

This is the form in which Ray Data calls a model (``docs/ray.md``).  Ray is not imported, and not needed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.deploy.description import Tensor
from convoy.deploy.runner import Runner
from convoy.errors import ModelError

__all__ = ["Predictor"]

Batch = Mapping[str, NDArray[Any]]
"""Columns by their names: arrays of one length, a row for each image."""


class Predictor:
    """A model that is called with columns of rows, as an actor of Ray Data.

    Parameters
    ----------
    library : Any
        What ``convoy compile`` wrote, or a ``tvm.relax.VMExecutable``.
    columns : Mapping[str, str] | None
        The column that each input reads, by the input's name; an input that is not named reads the column
        of its own name.
    threads : int | None
        Threads of a run; None: the CPUs that Ray gave the actor, or outside of one as the library says.

    Raises
    ------
    ModelError
        If the library cannot be loaded or does not describe itself, or ``columns`` names no input of it.
    """

    def __init__(
        self, library: Any, *, columns: Mapping[str, str] | None = None, threads: int | None = None
    ) -> None:
        self._runner = Runner(library, threads=cpus_of_actor() if threads is None else threads)
        names = [tensor.name for tensor in self._runner.inputs]
        if unknown := sorted(set(columns or {}) - set(names)):
            problem = f"expected names of inputs, {', '.join(names)}, got {', '.join(unknown)}"
            raise ModelError("run", "columns", problem, "write {input: column}")
        self._columns = {name: (columns or {}).get(name, name) for name in names}
        first = (self._runner.inputs[0].shape or (None,))[0] if names else None
        self._images = first if isinstance(first, int) else None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Names, shapes and types of the model's inputs."""
        return self._runner.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Those of its outputs."""
        return self._runner.outputs

    def __call__(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """Run the model on all rows.

        Parameters
        ----------
        batch : Batch
            Columns, with those that the inputs read among them.

        Returns
        -------
        dict[str, NDArray[Any]]
            The outputs by their names, and the columns that no input reads, as they were.

        Raises
        ------
        ModelError
            If a column is missing, its rows do not fit the model, or it has the name of an output.
        """
        outputs = [tensor.name for tensor in self._runner.outputs]
        kept = {name: column for name, column in batch.items() if name not in self._columns.values()}
        if taken := sorted(set(outputs) & set(kept)):
            problem = f"expected other names than the outputs', got {', '.join(taken)}"
            raise ModelError("run", "columns", problem, "rename these columns")
        rows = {name: self._column(batch, column) for name, column in self._columns.items()}
        if len({len(column) for column in rows.values()}) > 1:
            problem = f"expected columns of one length, got {[len(column) for column in rows.values()]}"
            raise ModelError("run", "columns", problem, "give a row of each for each image")
        return {**kept, **dict(zip(outputs, self._run(rows), strict=True))}

    def _run(self, rows: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for all rows, in calls of as many images as the model takes."""
        count = len(next(iter(rows.values()), ()))
        if not count:
            return [_no_rows(tensor) for tensor in self._runner.outputs]
        size = self._images or count
        pieces = []
        for begin in range(0, count, size):
            pieces.append(
                self._runner.run({n: _filled(x[begin : begin + size], size) for n, x in rows.items()})
            )
            if odd := [list(output.shape) for output in pieces[-1] if output.shape[:1] != (size,)]:
                problem = f"expected a row for each of {size} images, got {odd[0]}"
                raise ModelError("run", "outputs", problem, "export the model with the images on axis 0")
        return [np.concatenate(parts)[:count] for parts in zip(*pieces, strict=True)]

    def _column(self, batch: Batch, name: str) -> NDArray[Any]:
        if name not in batch:
            problem = f"expected a column {name}, got {', '.join(batch) or 'none'}"
            raise ModelError(
                "run", "columns", problem, "name the column of each input: columns={input: column}"
            )
        column = np.asarray(batch[name])
        if column.dtype == object:
            problem = "expected rows of one shape, got several shapes, or objects"
            raise ModelError("run", f"column {name}", problem, "resize the images before")
        return column


def _filled(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """The rows, and the last of them again until there are as many as the model takes."""
    lacking = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)]) if lacking else rows


def _no_rows(output: Tensor) -> NDArray[Any]:
    """What comes of no images."""
    lengths = [size if isinstance(size, int) else 0 for size in (output.shape or ())[1:]]
    return np.empty((0, *lengths), output.dtype or np.float32)


def cpus_of_actor() -> int | None:
    """CPUs that Ray gave the actor or task that runs here, at least 1; None outside of one.

    Ray says it to OpenMP's teams by ``OMP_NUM_THREADS``, which Convoy's own team does not read.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_task_id() is None and context.get_actor_id() is None:
        return None  # the driver, which has all
    cpus = context.get_assigned_resources().get("CPU", 0)
    return max(1, int(cpus)) if cpus else None
