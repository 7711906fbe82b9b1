"""MobileViT-S (Mehta and Rastegari, 2022): inverted residuals, attention among patches of 2x2."""

from __future__ import annotations

import onnx

from convoy.zoo.attention import attend, mlp
from convoy.zoo.draft import Draft

Stage = tuple[int, int, int]
"""Channels, width of the attention, its layers."""
STAGES: tuple[Stage, ...] = ((96, 144, 2), (128, 192, 4), (160, 240, 3))


def mobilevit(name: str, *, size: int = 256, stages: tuple[Stage, ...] = STAGES) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, size, size))
    x, channels, side = d.conv("x", 3, 16, 3, 2, act="Silu"), 16, size // 4
    for made, stride in ((32, 1), (64, 2), (64, 1), (64, 1)):
        x, channels = _residual(d, x, channels, made, stride), made
    for made, width, layers in stages:
        side //= 2
        x, channels = _residual(d, x, channels, made, 2), made
        x = _attention(d, x, side, made, width, layers)
    x = d.conv(x, channels, 4 * channels, 1, act="Silu")
    return d.model(d.dense(d.mean(x, 2, 3), 4 * channels, 1000))


def _residual(d: Draft, x: str, given: int, made: int, stride: int) -> str:
    wide = 4 * given
    y = d.conv(x, given, wide, 1, act="Silu")
    y = d.conv(d.conv(y, wide, wide, 3, stride, act="Silu", groups=wide), wide, made, 1)
    return d.add(x, y) if stride == 1 and given == made else y


def _attention(d: Draft, x: str, side: int, channels: int, width: int, layers: int) -> str:
    y = d.conv(d.conv(x, channels, channels, 3, act="Silu"), channels, width, 1)
    patches, half = side * side // 4, side // 2
    y = d.transpose(d.reshape(y, width * half, 2, half, 2), 0, 2, 1, 3)
    y = d.reshape(d.transpose(d.reshape(y, 1, width, patches, 4), 0, 3, 2, 1), 4, patches, width)
    for _ in range(layers):
        y = d.add(y, attend(d, d.layer_norm(y, width), (4, patches, width), 4))
        y = d.add(y, mlp(d, d.layer_norm(y, width), width, 2, "Silu"))
    y = d.layer_norm(y, width)
    y = d.transpose(d.reshape(y, 1, 4, patches, width), 0, 3, 2, 1)
    y = d.transpose(d.reshape(y, width * half, half, 2, 2), 0, 2, 1, 3)
    y = d.conv(d.reshape(y, 1, width, side, side), width, channels, 1, act="Silu")
    return d.conv(d.op("Concat", x, y, axis=1), 2 * channels, channels, 3, act="Silu")
