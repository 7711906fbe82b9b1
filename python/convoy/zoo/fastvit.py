"""FastViT-T8 (Vasu et al., 2023), 256x256, with its branches merged as it is deployed."""

from __future__ import annotations

import onnx

from convoy.zoo.draft import Draft

Stage = tuple[int, int]
"""Channels, blocks."""
STAGES: tuple[Stage, ...] = ((48, 2), (96, 2), (192, 4), (384, 2))
RATIO = 3


def fastvit(name: str, *, size: int = 256, stages: tuple[Stage, ...] = STAGES) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, size, size))
    width = stages[0][0]
    x = d.conv("x", 3, width, 3, 2, act="Gelu")
    x = d.conv(x, width, width, 3, 2, act="Gelu", groups=width)
    x = d.conv(x, width, width, 1, act="Gelu")
    for index, (made, blocks) in enumerate(stages):
        if index:
            x = d.conv(x, width, made, 7, 2, act="Gelu", groups=width)
            x, width = d.conv(x, made, made, 1, act="Gelu"), made
        for _ in range(blocks):
            x = d.conv(x, width, width, 3, groups=width)
            y = d.conv(x, width, width, 7, groups=width)
            y = d.conv(d.conv(y, width, RATIO * width, 1, act="Gelu"), RATIO * width, width, 1)
            x = d.add(x, d.op("Mul", y, d.weight(width, 1, 1, mean=0.5)))
    x = _gated(d, d.conv(x, width, 2 * width, 3, groups=width), 2 * width)
    return d.model(d.dense(d.mean(d.act(x, "Gelu"), 2, 3), 2 * width, 1000))


def _gated(d: Draft, x: str, width: int) -> str:
    """Each channel times what the means of all say of it."""
    y = d.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    y = d.conv(d.conv(y, width, width // 16, 1, act="Relu"), width // 16, width, 1)
    return d.op("Mul", x, d.op("Sigmoid", y))
