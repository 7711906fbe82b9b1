"""ONNX models of open sizes, a node a line, and both engines that run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import convoy
from convoy.report.decision import Report

BOUND = 1e-4


class Sketch:
    """An ONNX model of seeded weights, a node a line."""

    def __init__(self, *shape: int | str) -> None:
        self.random = np.random.default_rng(0)
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        fan_in = max(1, int(np.prod(shape[1:])))
        array = (self.random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)
        self.constants.append(numpy_helper.from_array(array, f"w{len(self.constants)}"))
        return self.constants[-1].name

    def numbers(self, *values: int) -> str:
        self.constants.append(
            numpy_helper.from_array(np.array(values, np.int64), f"w{len(self.constants)}")
        )
        return self.constants[-1].name

    def number(self, value: float) -> str:
        self.constants.append(numpy_helper.from_array(np.float32(value), f"w{len(self.constants)}"))
        return self.constants[-1].name

    def scalar(self, value: int) -> str:
        self.constants.append(numpy_helper.from_array(np.int64(value), f"w{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"t{len(self.nodes)}"], **attributes))
        return f"t{len(self.nodes) - 1}"

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "sketch", [self.input], results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Both:
    """A model compiled, and in ONNX Runtime."""

    def __init__(self, model: onnx.ModelProto, target: str | None = None, threads: int = 2) -> None:
        self.report = Report()
        self.theirs = onnxruntime.InferenceSession(model.SerializeToString())
        self.machine = relax.VirtualMachine(
            convoy.compile(model, target, threads=threads, report=self.report), tvm.cpu()
        )

    @property
    def left(self) -> list[str]:
        return [d.reason for d in self.report.decisions if d.choice == "left"]

    def check(self, *shape: int) -> None:
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        wanted: Sequence[Any] = self.theirs.run(None, {"x": x})
        found = self.machine["main"](tvm.runtime.tensor(x))
        got = [found] if len(wanted) == 1 else [found[i] for i in range(len(wanted))]
        for ours, want in zip(got, wanted, strict=True):
            assert ours.shape == want.shape
            error = np.abs(ours.numpy() - want).max(initial=0)
            assert error <= BOUND * np.abs(want).max(initial=0), shape
