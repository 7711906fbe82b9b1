"""Plain TVM behind ONNX's backend interface: its own importer, its own pipeline, nothing of Convoy."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import onnx
import tvm
from onnx.backend.base import Backend
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from convoy.relax.codegen import system_cpu
from convoy.relax.onnx_backend import Executable


class PlainTvmBackend(Backend):
    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Executable:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = from_onnx(model)
        target = tvm.target.Target({"kind": "llvm", "mcpu": system_cpu()})
        with target:
            pipeline = relax.get_default_pipeline(target)
            return Executable(tvm.compile(module, target=target, relax_pipeline=pipeline))
