"""Networks of recurrent layers: an LSTM, and CRNN (Shi et al., 2015), which reads a line of text."""

from __future__ import annotations

import onnx

from convoy.zoo.draft import Draft


def lstm(
    name: str, *, steps: int = 100, given: int = 128, cells: int = 256, layers: int = 2
) -> onnx.ModelProto:
    """Layers in one direction over steps [T, 1, given], and a product."""
    d = Draft(name, x=(steps, 1, given))
    x = "x"
    for layer in range(layers):
        x = _lstm(d, x, cells if layer else given, cells, steps)
    return d.model(d.dense(x, cells, 64))


def _lstm(d: Draft, x: str, given: int, cells: int, steps: int, *, directions: int = 1) -> str:
    w = d.weight(directions, 4 * cells, given, std=given**-0.5)
    r = d.weight(directions, 4 * cells, cells, std=cells**-0.5)
    b = d.weight(directions, 8 * cells)
    direction = "bidirectional" if directions == 2 else "forward"
    y = d.op("LSTM", x, w, r, b, hidden_size=cells, direction=direction)
    return d.reshape(d.transpose(y, 0, 2, 1, 3), steps, 1, directions * cells)


def crnn(
    name: str, *, width: int = 100, channels: int = 64, cells: int = 256, letters: int = 37
) -> onnx.ModelProto:
    """Convolutions over a line of 32 pixels' height; two layers in both directions along it."""
    d, c = Draft(name, x=(1, 1, 32, width)), channels
    x, given = "x", 1
    for made, pool in (
        (c, (2, 2)),
        (2 * c, (2, 2)),
        (4 * c, ()),
        (4 * c, (2, 1)),
        (8 * c, ()),
        (8 * c, (2, 1)),
    ):
        x, given = d.conv(x, given, made, 3, act="Relu"), made
        if pool:
            pads = [0, 2 - pool[1]] * 2
            x = d.op("MaxPool", x, kernel_shape=[2, 2], strides=pool, pads=pads)
    x = d.conv(x, given, given, 2, act="Relu", padding=(0, 0))
    steps = width // 4 + 1
    x = d.transpose(d.op("Squeeze", x, d.ints(2)), 2, 0, 1)
    x = d.dense(_lstm(d, x, given, cells, steps, directions=2), 2 * cells, cells)
    x = _lstm(d, x, cells, cells, steps, directions=2)
    return d.model(d.dense(x, 2 * cells, letters))
