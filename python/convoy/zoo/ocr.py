"""PP-OCRv4's recogniser of text (PaddleOCR, 2023), 48x320: PP-LCNetV3, two blocks of attention, letters.

Its branches are merged as it is deployed; a number scales and one shifts what a convolution or an
activation gives.
"""

from __future__ import annotations

import onnx

from convoy.zoo.attention import attend, mlp
from convoy.zoo.draft import Draft

Block = tuple[int, int, tuple[int, int], bool]
"""The kernel's side, channels, the stride, and whether channels are gated."""
BLOCKS: tuple[Block, ...] = (
    (3, 32, (1, 1), False), (3, 64, (1, 1), False), (3, 64, (1, 1), False), (3, 128, (2, 1), False),
    (3, 128, (1, 1), False), (3, 240, (1, 2), False), *[(5, 240, (1, 1), False)] * 4,
    (5, 480, (2, 1), True), (5, 480, (1, 1), True), (5, 480, (2, 1), False), (5, 480, (1, 1), False),
)  # fmt: skip


def recogniser(
    name: str, *, size: int = 320, blocks: tuple[Block, ...] = BLOCKS, width: int = 120, letters: int = 6625
) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, 48, size))
    x, given = d.conv("x", 3, 16, 3, 2), 16
    for kernel, made, stride, gated in blocks:
        x = _active(d, d.conv(x, given, given, kernel, stride, groups=given))
        x = _gated(d, x, given) if gated else x
        x, given = _active(d, d.conv(x, given, made, 1)), made
    x = d.op("AveragePool", x, kernel_shape=[3, 2], strides=[3, 2])
    steps, half = size // 8, width // 2
    y = d.conv(x, given, given // 8, (1, 3), act="Silu")
    y = d.conv(y, given // 8, width, 1, act="Silu")
    y = d.transpose(d.reshape(y, 1, width, steps), 0, 2, 1)
    for _ in range(2):
        y = d.add(y, attend(d, d.layer_norm(y, width), (1, steps, width), 8))
        y = d.add(y, mlp(d, d.layer_norm(y, width), width, 2, "Silu"))
    y = d.reshape(d.transpose(d.layer_norm(y, width), 0, 2, 1), 1, width, 1, steps)
    y = d.op("Concat", x, d.conv(y, width, given, 1, act="Silu"), axis=1)
    y = d.conv(y, 2 * given, half, (1, 3), act="Silu")
    y = d.conv(y, half, width, 1, act="Silu")
    y = d.transpose(d.reshape(y, 1, width, steps), 0, 2, 1)
    return d.model(d.op("Softmax", d.dense(y, width, letters), axis=2))


def _affine(d: Draft, x: str) -> str:
    return d.add(d.op("Mul", x, d.weight(1, mean=1.0)), d.weight(1))


def _active(d: Draft, x: str) -> str:
    return _affine(d, d.act(_affine(d, x), "HardSwish"))


def _gated(d: Draft, x: str, width: int) -> str:
    """Each channel times what the means of all say of it."""
    y = d.op("GlobalAveragePool", x)
    y = d.conv(d.conv(y, width, width // 4, 1, act="Relu"), width // 4, width, 1)
    return d.op("Mul", x, d.op("HardSigmoid", y, alpha=1 / 6, beta=0.5))
