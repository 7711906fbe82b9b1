"""A quantised program of PyTorch's, as ``convert_pt2e`` writes it, is one region with torch's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convoy
from convoy.report.decision import Report

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch.ao.quantization.fx._decomposed", reason="torch has no quantized_decomposed ops")

OPS = torch.ops.quantized_decomposed


class Net(torch.nn.Module):
    """Two convolutions with bytes between, weights of a scale a channel, and of one with fewer steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, shape in (("w", (8, 3, 3, 3)), ("v", (5, 8, 1, 1))):
            self.register_buffer(name, torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) * 0.02 + 0.01)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        x = OPS.quantize_per_tensor(x, 0.03, 128, 0, 255, torch.uint8)
        x = OPS.dequantize_per_tensor(x, 0.03, 128, 0, 255, torch.uint8)
        w = OPS.dequantize_per_channel(self.w, self.scales, self.zeros, 0, -127, 127, torch.int8)
        y = torch.relu(torch.nn.functional.conv2d(x, w, padding=1))
        y = OPS.quantize_per_tensor(y, 0.09, 0, 0, 127, torch.uint8)
        y = OPS.dequantize_per_tensor(y, 0.09, 0, 0, 127, torch.uint8)
        v = OPS.dequantize_per_tensor(self.v, 0.01, 0, -128, 127, torch.int8)
        return torch.nn.functional.conv2d(y, v)


def test_a_quantised_program_is_one_region() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        want = net(x).numpy()
    report = Report()
    made = convoy.compile(torch.export.export(net, (x,)), report=report)
    assert len(report.regions) == 1
    assert not report.refusals
    (got,) = convoy.Runner(made).run([x.numpy()])
    off = np.abs(got - want)
    assert off.max() <= 0.09 * 0.01 * 127 * 3, "more than a unit at a tie now and then"
    assert (off > 1e-4 * np.abs(want).max()).mean() < 0.02
