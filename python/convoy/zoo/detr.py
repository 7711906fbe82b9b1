"""DETR (Carion et al., 2020) on ResNet-50, 480x640: a hundred queries look at the whole image."""

from __future__ import annotations

import onnx

from convoy.zoo.draft import Draft

CLASSES = 92
"""With the one that stands for nothing."""


def detr(
    name: str, *, size: tuple[int, int] = (480, 640), channels: int = 64,
    blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 256, heads: int = 8, inner: int = 2048,
    layers: int = 6, queries: int = 100,
) -> onnx.ModelProto:  # fmt: skip
    d = Draft(name, x=(1, 3, *size))
    x, given = _resnet(d, channels, blocks)
    rows = size[0] // 32 * (size[1] // 32)
    x = d.transpose(d.reshape(d.conv(x, given, width, 1), 1, width, rows), 0, 2, 1)
    places, asked = d.weight(1, rows, width), d.weight(1, queries, width, std=1.0)
    for _ in range(layers):
        placed = d.add(x, places)
        x = _added(d, x, _attend(d, placed, placed, x, (rows, rows), width, heads), width)
        x = _added(d, x, _mlp(d, x, width, inner), width)
    seen, y = d.add(x, places), d.weight(1, queries, width)
    for _ in range(layers):
        asking = d.add(y, asked)
        y = _added(d, y, _attend(d, asking, asking, y, (queries, queries), width, heads), width)
        asking = d.add(y, asked)
        y = _added(d, y, _attend(d, asking, seen, x, (queries, rows), width, heads), width)
        y = _added(d, y, _mlp(d, y, width, inner), width)
    y = d.layer_norm(y, width)
    box = d.act(d.dense(d.act(d.dense(y, width, width), "Relu"), width, width), "Relu")
    return d.model(d.dense(y, width, CLASSES), d.op("Sigmoid", d.dense(box, width, 4)))


def _resnet(d: Draft, channels: int, blocks: tuple[int, ...]) -> tuple[str, int]:
    x = d.conv("x", 3, channels, 7, 2, act="Relu")
    x = d.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    given = channels
    for stage, count in enumerate(blocks):
        inner = channels << stage
        for index in range(count):
            stride = 2 if stage and not index else 1
            y = d.conv(d.conv(x, given, inner, 1, act="Relu"), inner, inner, 3, stride, act="Relu")
            y = d.conv(y, inner, 4 * inner, 1)
            x = x if index else d.conv(x, given, 4 * inner, 1, stride, padding=(0, 0))
            x, given = d.act(d.add(x, y), "Relu"), 4 * inner
    return x, given


def _added(d: Draft, x: str, y: str, width: int) -> str:
    return d.layer_norm(d.add(x, y), width)


def _mlp(d: Draft, x: str, width: int, inner: int) -> str:
    return d.dense(d.act(d.dense(x, width, inner), "Relu"), inner, width)


def _attend(
    d: Draft, asking: str, asked: str, values: str, rows: tuple[int, int], width: int, heads: int
) -> str:
    """From ``rows[0]`` places to ``rows[1]`` others."""
    size = width // heads
    q, k, v = (
        d.transpose(d.reshape(d.dense(x, width, width), 1, count, heads, size), 0, 2, 1, 3)
        for x, count in ((asking, rows[0]), (asked, rows[1]), (values, rows[1]))
    )
    scores = d.op("MatMul", d.op("Mul", q, d.constant(size**-0.5)), d.transpose(k, 0, 1, 3, 2))
    seen = d.op("MatMul", d.op("Softmax", scores, axis=-1), v)
    return d.dense(d.reshape(d.transpose(seen, 0, 2, 1, 3), 1, rows[0], width), width, width)
