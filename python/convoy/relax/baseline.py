"""Plain TVM, as a peer to time against: the same module, TVM's own pipeline, no Convoy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import tvm
from tvm import relax

from convoy.onnx_file import Shapes
from convoy.relax.codegen import system_cpu
from convoy.relax.importer import load


def compile_plain(model: str | Path | onnx.ModelProto, shapes: Shapes | None = None) -> Any:
    """Compile with ``tvm.compile`` and its default CPU pipeline for this machine.

    Returns
    -------
    tvm.relax.VMExecutable
    """
    target = tvm.target.Target({"kind": "llvm", "mcpu": system_cpu()})
    with target:
        return tvm.compile(
            load(model, shapes), target=target, relax_pipeline=relax.get_default_pipeline(target)
        )
