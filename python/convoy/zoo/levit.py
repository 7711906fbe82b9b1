"""LeViT-128S (Graham et al., 2021), 224x224: attention with few, wide values; each stage asks fewer places.

Batch norms are folded into the products.  What a head adds to a score depends on the two pixels' distance.
"""

from __future__ import annotations

import numpy as np
import onnx

from convoy.zoo.draft import Draft

KEY = 16
"""Channels of a head's queries and keys; values have twice, between stages four times as many."""
Stage = tuple[int, int, int]
"""Channels, heads, blocks."""
STAGES: tuple[Stage, ...] = ((128, 4, 2), (256, 6, 3), (384, 8, 4))


def levit(name: str, *, size: int = 224, stages: tuple[Stage, ...] = STAGES) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, size, size))
    width, side = stages[0][0], size // 16
    x, given = "x", 3
    for made in (width // 8, width // 4, width // 2, width):
        x, given = d.conv(x, given, made, 3, 2, act="HardSwish" if made < width else ""), made
    x = d.transpose(d.reshape(x, 1, width, side * side), 0, 2, 1)
    for index, (made, heads, blocks) in enumerate(stages):
        if index:
            x = _attend(d, x, side, width, made, width // KEY, values=4 * KEY, step=2)
            side, width = (side + 1) // 2, made
            x = d.add(x, _mlp(d, x, width))
        for _ in range(blocks):
            x = d.add(x, _attend(d, x, side, width, width, heads, values=2 * KEY))
            x = d.add(x, _mlp(d, x, width))
    x = d.mean(x, 1)
    answers = d.add(d.dense(x, width, 1000), d.dense(x, width, 1000))
    return d.model(d.op("Div", answers, d.constant(2.0)))


def _mlp(d: Draft, x: str, width: int) -> str:
    return d.dense(d.act(d.dense(x, width, 2 * width), "HardSwish"), 2 * width, width)


def _attend(
    d: Draft, x: str, side: int, given: int, made: int, heads: int, *, values: int, step: int = 1
) -> str:
    """All pixels of side x side are looked at from every ``step``-th."""
    rows, asking = side * side, (side + step - 1) // step
    if step == 1:
        split = d.reshape(d.dense(x, given, heads * (2 * KEY + values)), 1, rows, heads, 2 * KEY + values)
        q, k, v = d.ops("Split", split, d.ints(KEY, KEY, values), outputs=3, axis=3)
    else:
        split = d.reshape(d.dense(x, given, heads * (KEY + values)), 1, rows, heads, KEY + values)
        k, v = d.ops("Split", split, d.ints(KEY, values), outputs=2, axis=3)
        few = d.reshape(x, 1, side, side, given)
        few = d.slice(d.slice(few, 1, 0, 2**31 - 1, step), 2, 0, 2**31 - 1, step)
        few = d.dense(d.reshape(few, 1, asking * asking, given), given, heads * KEY)
        q = d.reshape(few, 1, asking * asking, heads, KEY)
    scores = d.op("MatMul", d.transpose(q, 0, 2, 1, 3), d.transpose(k, 0, 2, 3, 1))
    bias = d.op("Gather", d.weight(heads, rows), d.constant(distances(side, step), np.int64), axis=1)
    scores = d.add(d.op("Mul", scores, d.constant(KEY**-0.5)), bias)
    seen = d.op("MatMul", d.op("Softmax", scores, axis=-1), d.transpose(v, 0, 2, 1, 3))
    seen = d.reshape(d.transpose(seen, 0, 2, 1, 3), 1, asking * asking, heads * values)
    return d.dense(d.act(seen, "HardSwish"), heads * values, made)


def distances(side: int, step: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Which distance lies between every ``step``-th pixel and each pixel: [asking, pixels] below side^2."""
    places = np.indices((side, side)).reshape(2, -1)
    asking = np.indices((side, side))[:, ::step, ::step].reshape(2, -1)
    rows, columns = np.abs(asking[:, :, None] - places[:, None, :])
    return np.asarray(rows * side + columns)
