"""EfficientFormer-L1 (Li et al., 2022), 224x224: pools mix pixels, one attention block at the end."""

from __future__ import annotations

import numpy as np
import onnx

from convoy.zoo.attention import mlp
from convoy.zoo.draft import Draft
from convoy.zoo.levit import distances

HEADS, KEY, VALUE = 8, 32, 128
"""Heads of the attention, channels of a head's queries and keys, and of its values."""
Stage = tuple[int, int]
"""Channels, blocks."""
STAGES: tuple[Stage, ...] = ((48, 3), (96, 2), (224, 6), (448, 3))


def efficientformer(name: str, *, size: int = 224, stages: tuple[Stage, ...] = STAGES) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, size, size))
    width, side = stages[0][0], size // 4
    x = d.conv(d.conv("x", 3, width // 2, 3, 2, act="Relu"), width // 2, width, 3, 2, act="Relu")
    for index, (made, blocks) in enumerate(stages):
        if index:
            x, width, side = d.conv(x, width, made, 3, 2), made, side // 2
        for _ in range(blocks):
            x = _pooled(d, x, width)
    x = d.transpose(d.reshape(x, 1, width, side * side), 0, 2, 1)
    x = d.add(x, d.op("Mul", _attend(d, d.layer_norm(x, width), side, width), d.weight(width, mean=0.5)))
    x = d.add(x, d.op("Mul", mlp(d, d.layer_norm(x, width), width), d.weight(width, mean=0.5)))
    x = d.mean(d.layer_norm(x, width), 1)
    answers = d.add(d.dense(x, width, 1000), d.dense(x, width, 1000))
    return d.model(d.op("Div", answers, d.constant(2.0)))


def _pooled(d: Draft, x: str, width: int) -> str:
    """What a pixel's neighbours have more than it, then an MLP; both scaled for each channel."""
    near = d.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    x = d.add(x, d.op("Mul", d.op("Sub", near, x), d.weight(width, 1, 1, mean=0.5)))
    y = d.conv(d.conv(x, width, 4 * width, 1, act="Gelu"), 4 * width, width, 1)
    return d.add(x, d.op("Mul", y, d.weight(width, 1, 1, mean=0.5)))


def _attend(d: Draft, x: str, side: int, width: int) -> str:
    rows, each = side * side, 2 * KEY + VALUE
    packed = d.transpose(d.reshape(d.dense(x, width, HEADS * each), 1, rows, HEADS, each), 0, 2, 1, 3)
    q, k, v = d.ops("Split", packed, d.ints(KEY, KEY, VALUE), outputs=3, axis=3)
    scores = d.op("Mul", d.op("MatMul", q, d.transpose(k, 0, 1, 3, 2)), d.constant(KEY**-0.5))
    bias = d.op("Gather", d.weight(HEADS, rows), d.constant(distances(side), np.int64), axis=1)
    seen = d.op("MatMul", d.op("Softmax", d.add(scores, bias), axis=-1), v)
    seen = d.reshape(d.transpose(seen, 0, 2, 1, 3), 1, rows, HEADS * VALUE)
    return d.dense(seen, HEADS * VALUE, width)
