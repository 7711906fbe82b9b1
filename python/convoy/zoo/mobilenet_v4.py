"""MobileNetV4-Hybrid-M (Qin et al., 2024), 256x256: bottlenecks, and attention with one key for all."""

from __future__ import annotations

import onnx

from convoy.zoo.draft import Draft

HEADS, KEY = 4, 64
"""Heads of the attention, and channels of a query, of the key and of the value."""
Block = tuple[int, int, int]
"""Sides of the depthwise kernels before and after the channels widen (0: none), and by how much they do."""
ATTENTION: Block = (0, 0, 0)
_WIDE, _CONVNEXT = (3, 3, 4), (3, 0, 4)
Stage = tuple[int, int, tuple[Block, ...]]
"""Channels, the side of a map over that of its keys and values, and blocks; the first halves the map."""
STAGES: tuple[Stage, ...] = (
    (80, 1, ((3, 5, 4), (3, 3, 2))),
    (160, 2, (
        (3, 5, 6), (0, 0, 2), (3, 3, 4), (3, 5, 4), ATTENTION, _WIDE, ATTENTION, _CONVNEXT,
        ATTENTION, _WIDE, ATTENTION, _CONVNEXT,
    )),
    (256, 1, (
        (5, 5, 6), (5, 5, 4), (3, 5, 4), (3, 5, 4), (0, 0, 2), (3, 5, 2), (0, 0, 2), (0, 0, 4),
        ATTENTION, _CONVNEXT, ATTENTION, (5, 5, 4), ATTENTION, (5, 0, 4), ATTENTION, (5, 0, 4),
    )),
)  # fmt: skip


def mobilenet_v4(name: str, *, size: int = 256, stages: tuple[Stage, ...] = STAGES) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, size, size))
    x = d.conv(d.conv("x", 3, 32, 3, 2, act="Relu"), 32, 128, 3, 2, act="Relu")
    x, width, side = d.conv(x, 128, 48, 1), 48, size // 4
    for made, smaller, blocks in stages:
        for index, block in enumerate(blocks):
            if block == ATTENTION:
                x = d.add(x, _scaled(d, _attend(d, x, side, width, smaller), width))
                continue
            y = _bottleneck(d, x, width, made, block, 1 if index else 2)
            x = d.add(x, _scaled(d, y, made)) if index else _scaled(d, y, made)
            width = made
            side = side if index else side // 2
    x = d.op("ReduceMean", d.conv(x, width, 960, 1, act="Relu"), axes=[2, 3], keepdims=1)
    x = d.reshape(d.conv(x, 960, 1280, 1, act="Relu"), 1, 1280)
    return d.model(d.dense(x, 1280, 1000))


def _scaled(d: Draft, x: str, width: int) -> str:
    return d.op("Mul", x, d.weight(width, 1, 1, mean=0.5))


def _bottleneck(d: Draft, x: str, given: int, made: int, block: Block, stride: int) -> str:
    before, after, ratio = block
    if before:
        x = d.conv(x, given, given, before, 1 if after else stride, groups=given)
    wide = ratio * given
    y = d.conv(x, given, wide, 1, act="Relu")
    if after:
        y = d.conv(y, wide, wide, after, stride, act="Relu", groups=wide)
    return d.conv(y, wide, made, 1)


def _attend(d: Draft, x: str, side: int, width: int, smaller: int) -> str:
    """Queries of every pixel and head; keys and values, of fewer pixels, are the same for all heads."""
    shift, gain = d.weight(width, 1, 1), d.weight(width, 1, 1, mean=1.0)
    x = d.add(d.op("Mul", x, gain), shift)
    pixels, seen = side * side, (side // smaller) ** 2
    q = d.reshape(d.conv(x, width, HEADS * KEY, 1), 1, HEADS, KEY, pixels)
    parts = []
    for _ in range(2):
        y = d.conv(x, width, width, 3, smaller, groups=width) if smaller > 1 else x
        parts.append(d.reshape(d.conv(y, width, KEY, 1), 1, 1, KEY, seen))
    k, v = parts
    scores = d.op("MatMul", d.transpose(q, 0, 1, 3, 2), k)
    scores = d.op("Softmax", d.op("Mul", scores, d.constant(KEY**-0.5)), axis=-1)
    values = d.op("MatMul", scores, d.transpose(v, 0, 1, 3, 2))
    values = d.reshape(d.transpose(values, 0, 1, 3, 2), 1, HEADS * KEY, side, side)
    return d.conv(values, HEADS * KEY, width, 1)
