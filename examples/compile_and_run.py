"""Compile an ONNX model, keep the library, run it on random inputs, and say what became of it.

python examples/compile_and_run.py model.onnx      # without a model: SqueezeNet, with random weights
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import convoy
from convoy import zoo


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    if len(sys.argv) > 1:
        model = Path(sys.argv[1])
    else:
        model = folder / "squeezenet.onnx"
        onnx.save(zoo.load("squeezenet"), model)

    executable = convoy.compile(model)
    print(executable.report)
    for decision in executable.report.refusals:
        print(f"left to TVM: {decision.node}: {decision.reason}")

    library = folder / f"{model.stem}.so"
    executable.export_library(str(library))

    runner = convoy.load(library)  # on another day, in another process: this line is enough
    rng = np.random.default_rng(0)
    inputs = {
        tensor.name: rng.random(
            [size if isinstance(size, int) else 1 for size in tensor.shape or ()]
        ).astype(tensor.dtype)
        for tensor in runner.inputs
    }
    for tensor, output in zip(runner.outputs, runner.run(inputs), strict=True):
        print(f"{tensor.name}: {output.dtype} {list(output.shape)}, largest at {output.argmax()}")


main()
