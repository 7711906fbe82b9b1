"""One job of a door: networks through it, and what became of each.

Runs in a worker of the door's environment.
"""

from __future__ import annotations

import gc
import importlib
import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from convoy.kernels import planner
from convoy.offload import work
from convoy.offload.faults import RegionWarning
from convoy.plan.estimate import images_worth_a_team
from convoy.toolchain import compiler
from fuzz.campaign.arrays import read_arrays, write_arrays
from fuzz.campaign.case import Case
from fuzz.campaign.compare import find_difference
from fuzz.integers import integers_wherever_there_are
from fuzz.networks.bundle import closed, form_of, join, split

Outputs = list[np.ndarray]
_FLAGS = compiler.FLAGS
"""With ``-O2``.  A level behind it makes the objects that other tests find in the cache, too."""
_WORTH_BYTES = work.WORTH_BYTES
_ANY_BYTES = 1
"""A region that moves nothing is none: PartitionGraph makes empty functions, which are given back."""
_BROADCAST = re.compile(r"\((?:1 vs\. \d+|\d+ vs\. 1)\) : ErrorContext\(match_cast")
"""How TVM ends a call in which one size is meant and one of two is 1."""
_LENGTH = 400
"""Length of a reason, in characters."""


Job = tuple[str, tuple[int, ...], Case]
"""A folder, the numbers of networks in it, which are compiled as one model, and how."""


def start() -> None:
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RegionWarning)  # a region that could not be compiled, and left to TVM


def judge(job: Job) -> dict[int, str] | str:
    """What differs, by the number of each network in which something does; or why nothing ran, in words."""
    folder, numbers, case = Path(job[0]), job[1], job[2]
    compiler.FLAGS = _FLAGS if case.optimise == "-O2" else (*_FLAGS, case.optimise)
    work.WORTH_BYTES = _ANY_BYTES if case.small else _WORTH_BYTES
    planner.images_worth_a_team = (lambda *_: 0) if case.small else images_worth_a_team
    models = {number: onnx.load(folder / f"{number}.onnx") for number in numbers}
    arrays = {number: read_arrays(folder / f"{number}.npz") for number in numbers}
    inputs = [array for number in numbers for array in arrays[number][0]]
    try:
        with integers_wherever_there_are(case.integers):
            outputs = _compute(join(models), inputs, case, folder, alone=len(models) == 1)
    except Exception as error:  # whatever goes wrong is the outcome
        return describe(error)
    gc.collect()  # what is freed now is this job's
    found = {}
    for number, got in split(outputs, models).items():
        difference = find_difference(got, arrays[number][1])
        if difference is not None:
            found[number] = difference
            write_arrays(folder / f"{number}-got.npz", [], got)
    return found


def _compute(model: onnx.ModelProto, inputs: Outputs, case: Case, folder: Path, *, alone: bool) -> Outputs:
    """A door's outputs; of known sizes, where an open one of a single network is broadcast at this call.

    Of two open sizes of other forms one may be 1 at a call.  Convoy refuses that, and says so.
    """
    compute: Callable[..., Outputs] = _door(case).compute
    try:
        return compute(model, inputs, case, folder)
    except Exception as error:
        if not alone or not form_of(model).sides or not _BROADCAST.search(str(error)):
            raise
    return compute(closed(model), inputs, case, folder)


def judge_plain_tvm(job: Job) -> tuple[str, str] | None:
    """How plain TVM fails at a network: ``wrong`` or ``error``, and why; None if it does not."""
    folder, (number,), case = Path(job[0]), job[1], job[2]
    inputs, expected = read_arrays(folder / f"{number}.npz")
    try:
        model = onnx.load(folder / f"{number}.onnx")
        outputs = _door(case).compute_plainly(model, inputs, case)
    except Exception as error:
        return "error", describe(error)
    gc.collect()
    difference = find_difference(outputs, expected)
    if difference is None:
        return None
    write_arrays(folder / f"{number}-plain.npz", [], outputs)
    return "wrong", difference


def _door(case: Case) -> Any:
    return importlib.import_module(f"fuzz.campaign.{case.door}_door")


def describe(error: Exception) -> str:
    """``ModelError: import: …``: the type and the text, and where it was raised, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[-1:] if any(line.startswith("Traceback") for line in lines) else lines)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/convoy/" in f.filename]
    where = f" (at {Path(frames[-1].filename).name}: {frames[-1].name})" if frames else ""
    text = f"{type(error).__name__}: {text}"
    return (text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…") + where
