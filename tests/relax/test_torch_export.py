"""A network exported by torch is taken whole: every convolution, one region, torch's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontend_modules import assert_all_offloaded, assert_near, compile_with_convoy, random

torch = pytest.importorskip("torch", reason="torch is not installed")

BOUND = 1e-5


class Bottleneck(torch.nn.Module):
    """1x1, depthwise 3x3, 1x1, with BN, SiLU, squeeze-and-excite and a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        nn = torch.nn
        wide = 2 * channels
        self.expand = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()
        )
        self.spread = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.Hardswish(),
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 8, 1), nn.ReLU(), nn.Conv2d(8, wide, 1), nn.Sigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        y = self.spread(self.expand(x))
        return x + self.project(y * self.gate(y))


def network() -> Any:
    nn = torch.nn
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        Bottleneck(16),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.Conv2d(16, 32, 3, padding=2, dilation=2),
        nn.LeakyReLU(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(32, 10),
    )
    for module in made.modules():  # fresh statistics would make each BN nearly the identity
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
            torch.nn.init.uniform_(module.weight, 0.5, 2)
            torch.nn.init.uniform_(module.bias, -1, 1)
    return made.eval()


def exported(model: Any, example: np.ndarray) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    program = torch.export.export(model, (torch.from_numpy(example),))
    with torch.no_grad():
        return from_exported_program(program)


def compare(model: Any, example: np.ndarray) -> None:
    found, report = compile_with_convoy(exported(model, example))
    assert_all_offloaded(report)
    with torch.no_grad():
        expected = model(torch.from_numpy(example)).numpy()
    assert_near(found(example), [expected], BOUND)


def test_small_network() -> None:
    compare(network(), random(1, 3, 33, 31))


def test_batch_of_images() -> None:
    compare(network(), random(4, 3, 32, 32))


def test_unet_step() -> None:
    # down, up by a transposed convolution, up by interpolation, skips by concat
    nn = torch.nn

    class Step(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(3, 8, 3, padding=1)
            self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
            self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
            self.leave = nn.Conv2d(32, 4, 1)

        def forward(self, x: Any) -> Any:
            first = torch.relu(self.enter(x))
            low = torch.nn.functional.gelu(self.down(first))
            wide = torch.nn.functional.interpolate(low, scale_factor=2, mode="bilinear")
            return torch.sigmoid(self.leave(torch.cat([first, self.up(low), wide], 1)))

    torch.manual_seed(0)
    compare(Step().eval(), random(1, 3, 16, 24))
