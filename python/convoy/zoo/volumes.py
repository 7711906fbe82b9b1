"""Networks on volumes: R3D-18 (Tran et al., 2018) for films, a 3-D U-Net (Çiçek et al., 2016)."""

from __future__ import annotations

import onnx

from convoy.zoo.draft import Draft


def r3d(name: str, *, frames: int = 16, size: int = 112, width: int = 64) -> onnx.ModelProto:
    d = Draft(name, x=(1, 3, frames, size, size))
    x, given = d.conv("x", 3, width, (3, 7, 7), (1, 2, 2), act="Relu", axes=3), width
    for stage in range(4):
        made = width << stage
        for block in range(2):
            stride = 2 if stage and not block else 1
            beside = d.conv(x, given, made, 1, stride, axes=3) if given != made else x
            y = d.conv(x, given, made, 3, stride, act="Relu", axes=3)
            x, given = d.op("Relu", d.add(d.conv(y, made, made, 3, axes=3), beside)), made
    return d.model(d.dense(d.mean(x, 2, 3, 4), given, 400))


def unet3d(name: str, *, size: int = 64, width: int = 16, levels: int = 3) -> onnx.ModelProto:
    d = Draft(name, x=(1, 1, size, size, size))
    x, given, kept = "x", 1, []
    for level in range(levels + 1):
        wide = width << level
        x = d.conv(d.conv(x, given, wide, 3, act="Relu", axes=3), wide, wide, 3, act="Relu", axes=3)
        given = wide
        if level < levels:
            kept.append((x, wide))
            x = d.op("MaxPool", x, kernel_shape=[2] * 3, strides=[2] * 3)
    for beside, wide in reversed(kept):
        w = d.weight(given, wide, 2, 2, 2, std=given**-0.5)
        x = d.op("ConvTranspose", x, w, d.weight(wide), kernel_shape=[2] * 3, strides=[2] * 3)
        x = d.conv(d.op("Concat", x, beside, axis=1), 2 * wide, wide, 3, act="Relu", axes=3)
        x, given = d.conv(x, wide, wide, 3, act="Relu", axes=3), wide
    return d.model(d.conv(x, given, 4, 1, axes=3))
