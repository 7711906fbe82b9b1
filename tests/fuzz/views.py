"""Ops of views and recurrent layers at the end of a random graph: they are drawn by numbers of their own,
so that what stands before them is the same without them."""

from __future__ import annotations

from math import prod

import numpy as np

from convoy.graph.ops import (
    GATES,
    SIGMOID,
    TANH,
    Attention,
    Curve,
    MatMul,
    Product,
    Recurrent,
    Reshape,
    Rotate,
)
from convoy.graph.views import View
from fuzz.draft import Draft

SHARE = 0.3
"""Of the graphs have one."""
MOST_STEPS = 40
"""Of a recurrent layer."""
CURVES = ((SIGMOID, TANH), (Curve("hardsigmoid", 0.2, 0.5), Curve("relu")))
"""The activations of its gates, and of what they let through."""


def draw_views(draft: Draft, rng: np.random.Generator) -> None:
    """An attention, a product, a rotation or a recurrent layer of what the graph has made, or nothing."""
    if rng.random() > SHARE:
        return
    before, draft.rng = draft.rng, rng
    names = [draft.made[int(rng.integers(len(draft.made)))] for _ in range(4)]
    lead = tuple(draft.pick((1, 2, 3)) for _ in range(draft.pick((0, 1, 2, 3))))
    m, k, n, width = (draft.pick((1, 2, 5, 8, 17, 33)) for _ in range(4))
    form = rng.random()
    if form < 0.3:
        _draw_product(draft, names, lead, (m, k, n))
    elif form < 0.45:
        _draw_rotate(draft, names, lead, k)
    elif form < 0.6:
        _draw_recurrent(draft, names[0], k)
    else:
        _draw_attention(draft, names, lead, (m, k, n, width))
    draft.rng = before


def _draw_product(d: Draft, names: list[str], lead: tuple[int, ...], sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, w = (_draw_view(d, name, (*lead, *s)) for name, s in zip(names[:2], ((m, k), (k, n)), strict=True))
    y = _order(d, (*lead, m, n))
    d.add(Product, *names[:2], a=x, b=w, y=y, scale=1 / k, shape=(1, y.size))


def _draw_attention(
    d: Draft, names: list[str], lead: tuple[int, ...], sizes: tuple[int, int, int, int]
) -> None:
    m, depth, keys, width = sizes
    shapes = ((m, depth), (keys, depth), (keys, width), (m, keys))
    q, k, v, mask = (_draw_view(d, name, (*lead, *s)) for name, s in zip(names, shapes, strict=True))
    y = _order(d, (*lead, m, width))
    masked = {"mask": mask} if d.chance(0.5) else {}
    diagonal = d.pick((0, 3, keys)) if d.chance(0.3) else None
    d.add(
        Attention, *names[: 3 + len(masked)], q=q, k=k, v=v, y=y, **masked, scale=0.5 / depth,
        diagonal=diagonal, shape=(1, y.size),
    )  # fmt: skip


def _draw_rotate(d: Draft, names: list[str], lead: tuple[int, ...], pairs: int) -> None:
    x, cos, sin = (_draw_view(d, name, (*lead, 2, pairs)) for name in names[:3])
    y = _order(d, (*lead, 2, pairs))
    d.add(Rotate, *names[:3], x=x, cos=cos, sin=sin, y=y, shape=(1, y.size))


def _draw_recurrent(d: Draft, name: str, cells: int) -> None:
    """A layer of the rows of a tensor, or two that read them either way."""
    rows, width = prod(d.shapes[name][:-1]), d.shapes[name][-1]
    if not 0 < rows <= MOST_STEPS:
        return
    x = d.add(Reshape, name, shape=(1, rows, width))
    kind = ("lstm", "gru", "gru_reset_first", "rnn")[d.pick((0, 1, 2, 3))]
    gated = GATES[kind] * cells  # type: ignore[index]
    for back in (False, True)[: d.pick((1, 2))]:
        gates = d.add(MatMul, x, d.add_constant(width, gated, scale=width**-0.5))
        r = d.add_constant(cells, gated, scale=cells**-0.5)
        extra = d.add_constant(3 if kind == "lstm" else 1, cells, scale=0.3)
        gate, inner = CURVES[d.pick((0, 0, 1))]
        d.add(
            Recurrent, gates, r, extra, kind=kind, back=back, clip=d.pick((0, 0, 2)) / 2, gate=gate,
            inner=inner,
        )  # fmt: skip


def _order(d: Draft, shape: tuple[int, ...]) -> View:
    """Each element of a tensor once, its axes in any order."""
    strides, step = [0] * len(shape), 1
    for axis in d.rng.permutation(len(shape)):
        strides[axis] = step
        step *= shape[axis]
    return View(shape, tuple(strides))


def _draw_view(d: Draft, name: str, shape: tuple[int, ...]) -> View:
    """Elements of a tensor, which it may have fewer of than the view: then some axes are broadcast."""
    size = prod(d.shapes[name])
    strides = list(_order(d, shape).strides)
    for axis in range(len(shape)):
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if last >= size or d.chance(0.1):
            strides[axis] = 0
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return View(shape, tuple(strides), int(d.rng.integers(size - last)))
