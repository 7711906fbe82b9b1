"""Matrix products, softmax and reductions."""

from __future__ import annotations

import numpy as np

from fuzz.networks.draft import Draft, Unsuitable
from fuzz.networks.pointwise import draw_activation
from quantising import round_to_bits


def draw_gemm(d: Draft, x: str) -> None:
    if d.rank(x) != 2:
        x = d.add("Flatten", x, axis=1)
    k = d.shapes[x][1]
    if k == 0:
        raise Unsuitable("nothing to sum")
    for _ in range(d.pick((1, 1, 2))):
        n = d.pick_channels()
        turned = d.chance(0.6)
        w = d.constant_like(*((n, k) if turned else (k, n)), scale=k**-0.5)
        bias = [] if d.chance(0.2) else [d.constant_like(*d.pick(((n,), (n,), (n,), (1, n), (1,), ())))]
        attributes = {"transB": int(turned)} if turned or d.chance(0.3) else {}
        if d.chance(0.2):
            attributes |= {"alpha": d.pick((0.5, 2.0)), "beta": d.pick((0.5, 1.0, 0.0))}
        if d.chance(0.7):
            x = d.add("Gemm", x, w, *bias, **attributes)
        else:
            x = d.add("MatMul", x, d.add("Transpose", w, perm=[1, 0]) if turned else w)
            x = d.add("Add", x, d.constant_like(n)) if d.chance(0.7) else x
        if d.chance(0.5):
            draw_activation(d, x)
            x = d.made[-1]
        k = n


def draw_matmul(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    if len(shape) < 2 or 0 in shape[-2:]:
        raise Unsuitable("no matrix")
    form = d.below(4)
    if form == 0 and len(shape) > 2:  # a constant on the left
        m = d.pick_channels()
        d.add("MatMul", d.add_constant(m, shape[-2], scale=shape[-2] ** -0.5), x)
    elif form == 1 and len(shape) > 2:  # by itself: attention without weights
        turned = d.add("Transpose", x, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
        y = d.add("MatMul", x, turned)
        y = d.add("Softmax", d.add("Div", y, d.add_array(np.array(shape[-1] ** 0.5, np.float32))), axis=-1)
        d.add("MatMul", y, x)
    else:
        n = d.pick_channels()
        w = d.constant_like(shape[-1], n, scale=shape[-1] ** -0.5)
        if d.chance(0.3):
            w = d.add_array(round_to_bits(d.constants[w], d.pick((16, 32, shape[-1])), d.pick((4, 8))))
        y = d.add("MatMul", x, w)
        if d.chance(0.5):
            d.add("Add", y, d.constant_like(n))


def draw_softmax(d: Draft, x: str) -> None:
    axis = d.pick_axis(x)
    if 0 in d.shapes[x]:
        raise Unsuitable("no element")
    d.add(d.pick(("Softmax", "Softmax", "LogSoftmax")), x, axis=axis - d.rank(x) * d.chance(0.4))


def draw_reduce(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    axes = [a for a in range(1, len(shape)) if d.chance(0.5)] or [d.pick_axis(x)]
    if len(shape) == 4 and d.chance(0.4):
        axes = [2, 3]
    if 0 in shape:
        raise Unsuitable("no element")
    op = d.pick(("ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2"))
    if op == "ReduceL2":  # not of zeros: a root's slope there is infinite
        x = d.add("Add", d.add("Abs", x), d.add_array(np.array(0.5, np.float32)))
    axes = [a - len(shape) for a in axes] if d.chance(0.3) else axes
    keep = int(d.chance(0.6))
    if op == "ReduceSum":
        y = d.add(op, x, d.add_numbers(*axes), keepdims=keep)
    else:
        y = d.add(op, x, axes=axes, keepdims=keep)
    if op in ("ReduceSum", "ReduceL1"):
        d.add("Mul", y, d.add_array(np.array(0.05, np.float32)))


def draw_head(d: Draft, x: str) -> None:
    """A classifier: global average, flatten, dense layer, softmax."""
    _, channels, *sizes = d.expect_rank(x, 3, 4, 4, 4)
    if 0 in sizes:
        raise Unsuitable("no pixel")
    y = d.add("GlobalAveragePool", x)
    y = d.add("Flatten", y) if d.chance(0.6) else d.add("Reshape", y, d.add_numbers(0, -1))
    n = d.pick_channels()
    y = d.add("Gemm", y, d.add_constant(n, channels, scale=channels**-0.5), d.add_constant(n), transB=1)
    if d.chance(0.6):
        d.add("Softmax", y, axis=1)
