"""EdgeNeXt-S (Maaz et al., 2022), 256x256: depthwise blocks and attention among channels."""

from __future__ import annotations

import math

import onnx

from convoy.zoo.attention import mlp
from convoy.zoo.draft import Draft

HEADS = 8
Stage = tuple[int, int, int, int]
"""Channels, blocks of convolutions, their kernel's side, parts of the split block at the end (0: none)."""
STAGES: tuple[Stage, ...] = ((48, 3, 3, 0), (96, 2, 5, 2), (160, 8, 7, 3), (304, 2, 9, 4))


def edgenext(name: str, *, size: int = 256, stages: tuple[Stage, ...] = STAGES) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, size, size))
    width, side = stages[0][0], size // 4
    x = _norm(d, d.conv("x", 3, width, 4, 4, padding=(0, 0)), width)
    for index, (made, blocks, kernel, parts) in enumerate(stages):
        if index:
            x = d.conv(_norm(d, x, width), width, made, 2, 2, padding=(0, 0))
            width, side = made, side // 2
        for _ in range(blocks):
            y = _last(d, d.conv(x, width, width, kernel, groups=width))
            x = d.add(x, _first(d, _scaled(d, mlp(d, d.layer_norm(y, width), width), width)))
        if parts:
            x = d.add(x, _split(d, x, side, width, parts, position=index == 1))
    return d.model(d.dense(d.layer_norm(d.mean(x, 2, 3), width), width, 1000))


def _last(d: Draft, x: str) -> str:
    return d.transpose(x, 0, 2, 3, 1)


def _first(d: Draft, x: str) -> str:
    return d.transpose(x, 0, 3, 1, 2)


def _norm(d: Draft, x: str, width: int) -> str:
    """Over the channels of each pixel."""
    return _first(d, d.layer_norm(_last(d, x), width))


def _scaled(d: Draft, x: str, width: int) -> str:
    return d.op("Mul", x, d.weight(width, mean=0.5))


def _split(d: Draft, x: str, side: int, width: int, parts: int, *, position: bool) -> str:
    """Parts of the channels, each seeing more than the one before; then attention and an MLP."""
    most = math.ceil(width / parts)
    sizes = [most] * (parts - 1) + [width - most * (parts - 1)]
    pieces = d.ops("Split", x, d.ints(*sizes), outputs=parts, axis=1)
    made = [d.conv(pieces[0], most, most, 3, groups=most)]
    for piece in pieces[1:-1]:
        made.append(d.conv(d.add(made[-1], piece), most, most, 3, groups=most))
    y = d.op("Concat", *made, pieces[-1], axis=1)
    if position:
        y = d.add(y, d.weight(1, width, side, side))
    y = d.transpose(d.reshape(y, 1, width, side * side), 0, 2, 1)
    y = d.add(y, _scaled(d, _among_channels(d, d.layer_norm(y, width), side * side, width), width))
    y = d.reshape(y, 1, side, side, width)
    return _first(d, _scaled(d, mlp(d, d.layer_norm(y, width), width), width))


def _among_channels(d: Draft, x: str, rows: int, width: int) -> str:
    """Attention whose scores are cosines of channels, over all pixels."""
    packed = d.reshape(d.dense(x, width, 3 * width), 1, rows, 3, HEADS, width // HEADS)
    packed = d.transpose(packed, 2, 0, 3, 4, 1)
    q, k, v = (d.reshape(d.slice(packed, 0, i, i + 1), 1, HEADS, width // HEADS, rows) for i in range(3))
    q, k = (_unit(d, part) for part in (q, k))
    scores = d.op("Mul", d.op("MatMul", q, d.transpose(k, 0, 1, 3, 2)), d.weight(HEADS, 1, 1, mean=1.0))
    seen = d.op("MatMul", d.op("Softmax", scores, axis=-1), v)
    return d.dense(d.reshape(d.transpose(seen, 0, 3, 1, 2), 1, rows, width), width, width)


def _unit(d: Draft, x: str) -> str:
    length = d.op("ReduceL2", x, axes=[-1], keepdims=1)
    return d.op("Div", x, d.op("Clip", length, d.constant(1e-12)))
