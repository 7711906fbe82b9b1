"""Networks of attention blocks, by the shapes they were published with.

- ViT-B/16 (Dosovitskiy et al., 2021) and DeiT-tiny (Touvron et al., 2021), 224x224;
- BERT-small (Turc et al., 2019) and MiniLM-L6-H384 (Wang et al., 2020), whose tokens come with a mask;
- the encoder of Whisper-tiny (Radford et al., 2022), 30 seconds;
- Swin-T (Liu et al., 2021), 224x224.
"""

from __future__ import annotations

import numpy as np
import onnx

from convoy.zoo.draft import Draft

HIDDEN = -1e9
"""Added to a score that is not to count."""


def attend(
    d: Draft, x: str, shape: tuple[int, int, int], heads: int, *, packed: bool = True, mask: str = ""
) -> str:
    """Self-attention of x [B, N, C], before a residual; q, k and v of one product or of three."""
    batch, rows, width = shape
    size = width // heads
    if packed:
        split = d.reshape(d.dense(x, width, 3 * width), batch, rows, 3, heads, size)
        split = d.transpose(split, 2, 0, 3, 1, 4)
        q, k, v = (d.op("Gather", split, d.constant(i, np.int64), axis=0) for i in range(3))
    else:
        parts = (d.reshape(d.dense(x, width, width), batch, rows, heads, size) for _ in range(3))
        q, k, v = (d.transpose(part, 0, 2, 1, 3) for part in parts)
    scores = d.op("MatMul", d.op("Mul", q, d.constant(size**-0.5)), d.transpose(k, 0, 1, 3, 2))
    if mask:
        scores = d.add(scores, mask)
    values = d.op("MatMul", d.op("Softmax", scores, axis=-1), v)
    return d.dense(d.reshape(d.transpose(values, 0, 2, 1, 3), batch, rows, width), width, width)


def mlp(d: Draft, x: str, width: int, ratio: int = 4, act: str = "Gelu") -> str:
    return d.dense(d.act(d.dense(x, width, ratio * width), act), ratio * width, width)


def norm_first(d: Draft, x: str, rows: int, width: int, heads: int, *, packed: bool = True) -> str:
    """A block of ViT or Whisper."""
    x = d.add(x, attend(d, d.layer_norm(x, width), (1, rows, width), heads, packed=packed))
    return d.add(x, mlp(d, d.layer_norm(x, width), width))


def vit(
    name: str, *, width: int, heads: int, layers: int, size: int = 224, patch: int = 16
) -> onnx.ModelProto:
    side = size // patch
    d = Draft(name, x=(1, 3, size, size))
    x = d.conv("x", 3, width, patch, patch, padding=(0, 0))
    x = d.transpose(d.reshape(x, 1, width, side * side), 0, 2, 1)
    rows = side * side + 1
    x = d.add(d.op("Concat", d.weight(1, 1, width), x, axis=1), d.weight(1, rows, width))
    for _ in range(layers):
        x = norm_first(d, x, rows, width, heads)
    first = d.op("Gather", d.layer_norm(x, width), d.constant(0, np.int64), axis=1)
    return d.model(d.dense(first, width, 1000))


def bert(
    name: str, *, tokens: int, width: int, heads: int, layers: int, words: int = 30522
) -> onnx.ModelProto:
    d = Draft(
        name, whole=("input_ids", "attention_mask"), input_ids=(1, tokens), attention_mask=(1, tokens)
    )
    x = d.op("Gather", d.weight(words, width), "input_ids", axis=0)
    x = d.layer_norm(d.add(x, d.weight(1, tokens, width)), width)
    seen = d.op("Cast", d.reshape("attention_mask", 1, 1, 1, tokens), to=onnx.TensorProto.FLOAT)
    mask = d.op("Mul", d.op("Sub", d.constant(1.0), seen), d.constant(HIDDEN))
    for _ in range(layers):
        x = d.layer_norm(d.add(x, attend(d, x, (1, tokens, width), heads, packed=False, mask=mask)), width)
        x = d.layer_norm(d.add(x, mlp(d, x, width)), width)
    return d.model(x)


def whisper(
    name: str, *, steps: int = 1500, width: int = 384, heads: int = 6, layers: int = 4
) -> onnx.ModelProto:
    d = Draft(name, x=(1, 80, 2 * steps))
    x = d.conv("x", 80, width, 3, act="Gelu", axes=1)
    x = d.conv(x, width, width, 3, 2, act="Gelu", axes=1)
    x = d.add(d.transpose(x, 0, 2, 1), d.weight(steps, width))
    for _ in range(layers):
        x = norm_first(d, x, steps, width, heads, packed=False)
    return d.model(d.layer_norm(x, width))


# Swin ----------------------------------------------------------------------------------------------

WINDOW = 7


def swin(
    name: str, *, size: int = 224, width: int = 96, depths: tuple[int, ...] = (2, 2, 6, 2)
) -> onnx.ModelProto:
    side, heads = size // 4, width // 32
    d = Draft(name, x=(1, 3, size, size))
    x = d.transpose(d.conv("x", 3, width, 4, 4, padding=(0, 0)), 0, 2, 3, 1)
    x = d.layer_norm(x, width)
    for stage, depth in enumerate(depths):
        if stage:
            x, side, width, heads = _merge(d, x, width), side // 2, 2 * width, 2 * heads
        for block in range(depth):
            shift = WINDOW // 2 if block % 2 and side > WINDOW else 0
            x = _swin_block(d, x, side, width, heads, shift)
    return d.model(d.dense(d.mean(d.layer_norm(x, width), 1, 2), width, 1000))


def _merge(d: Draft, x: str, width: int) -> str:
    """Each 2x2 pixels become one of twice the channels."""
    rows = [d.slice(x, 1, i, 2**31 - 1, 2) for i in (0, 1)]
    parts = [d.slice(row, 2, j, 2**31 - 1, 2) for j in (0, 1) for row in rows]
    joined = d.layer_norm(d.op("Concat", *parts, axis=-1), 4 * width)
    return d.dense(joined, 4 * width, 2 * width, bias=False)


def _roll(d: Draft, x: str, by: int) -> str:
    for axis in (1, 2) if by else ():
        x = d.op("Concat", d.slice(x, axis, by, 2**31 - 1), d.slice(x, axis, 0, by), axis=axis)
    return x


def _swin_block(d: Draft, x: str, side: int, width: int, heads: int, shift: int) -> str:
    """Attention in windows, those of every other block between those of the block before."""
    count, rows = side // WINDOW, WINDOW * WINDOW
    y = _roll(d, d.layer_norm(x, width), shift)
    y = d.transpose(d.reshape(y, 1, count, WINDOW, count, WINDOW, width), 0, 1, 3, 2, 4, 5)
    bias = d.weight(1, heads, rows, rows)
    if shift:
        bias = d.add(bias, d.constant(_apart(side, shift)))
    y = attend(d, d.reshape(y, count * count, rows, width), (count * count, rows, width), heads, mask=bias)
    y = d.transpose(d.reshape(y, 1, count, count, WINDOW, WINDOW, width), 0, 1, 3, 2, 4, 5)
    x = d.add(x, _roll(d, d.reshape(y, 1, side, side, width), -shift))
    return d.add(x, mlp(d, d.layer_norm(x, width), width))


def _apart(side: int, shift: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """For each window [windows, 1, 49, 49], ``HIDDEN`` between pixels that rolling brought together."""
    part = np.digitize(np.arange(side), (side - WINDOW, side - shift))
    places = part[:, None] * 3 + part
    count = side // WINDOW
    windows = places.reshape(count, WINDOW, count, WINDOW).swapaxes(1, 2).reshape(-1, 1, WINDOW * WINDOW)
    hidden = np.where(windows[..., None] != windows[..., None, :], HIDDEN, 0)
    return hidden.astype(np.float32)
