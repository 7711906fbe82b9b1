"""Run the convoy command in this process, and a tiny model to give it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error")]


def run_convoy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path
) -> Result:
    """``convoy ARGUMENTS``: exit code, stdout, stderr."""
    from convoy.cli import console, main

    monkeypatch.setattr(sys, "argv", ["convoy", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")
    for screen in (console._stdout, console._stderr):  # made with the columns of when they were imported
        monkeypatch.setattr(screen, "_width", 200)
    for name in ("CONVOY_NUM_THREADS", "TVM_NUM_THREADS"):  # set by the command, for its process
        given = os.environ.get(name)
        monkeypatch.setenv(name, given or "")
        if given is None:
            monkeypatch.delenv(name)
    capsys.readouterr()
    code = 0
    try:
        main()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    captured = capsys.readouterr()
    return Result(code, captured.out, captured.err)


def tiny_model(*, batch: int | str = 1, softmax: bool = True, extra: str | None = None) -> onnx.ModelProto:
    """conv 3x3 (3 → 16) → relu → global average → flatten → gemm (16 → 5) [→ ``extra``] [→ softmax].

    float32 [batch, 3, 8, 8] → [batch, 5]
    """
    generator = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu0"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool0"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten0"),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y0"], name="gemm0", transB=1),
    ]
    last = "y0"
    for op in filter(None, (extra, "Softmax" if softmax else None)):
        nodes.append(helper.make_node(op, [last], [f"{last}_{op.lower()}"], name=op.lower()))
        last = f"{last}_{op.lower()}"
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [batch, 5])],
        [weight("w", 16, 3, 3, 3), weight("b", 16), weight("w1", 5, 16), weight("b1", 5)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
