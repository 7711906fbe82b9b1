"""Carry out the weight recipes of a plan: constants → the bytes the kernels read.

Float arrays in, float32 arrays out; every layout is written in ``plan/steps.py`` beside its recipe.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from convoy.plan.maps import make_map
from convoy.plan.recipes import (
    PackConv,
    PackDepthwise,
    PackMap,
    PackMatrix,
    PackRaw,
    PackRowPoints,
    PackVector,
    Recipe,
    Tap,
)
from convoy.plan.steps import Plan

Array = NDArray[np.float32]


def pack_weights(plan: Plan, constants: Mapping[str, Array]) -> Array:
    """All packed weights of a plan as one array, each at its buffer's offset.

    Returns
    -------
    float32 [plan.weights_size]
    """
    packed = np.zeros(plan.weights_size, np.float32)
    for weight in plan.weights:
        buffer = plan.buffers[weight.buffer]
        values = pack(weight.recipe, constants)
        assert values.size <= buffer.size, f"{weight.recipe} made {values.size} of {buffer.size} floats"
        packed[buffer.index : buffer.index + values.size] = values.reshape(-1)
    return packed


def pack(recipe: Recipe, constants: Mapping[str, Array]) -> Array:
    match recipe:
        case PackConv():
            return pack_conv(recipe, constants[recipe.constant])
        case PackRowPoints():
            return pack_row_points(recipe, constants[recipe.constant])
        case PackDepthwise():
            return pack_depthwise(recipe, constants[recipe.constant])
        case PackMatrix():
            return pack_matrix(recipe, constants[recipe.constant])
        case PackVector():
            total = np.zeros(recipe.padded, np.float32)
            for name in recipe.constants:
                total[: recipe.size] += constants[name].reshape(-1)
            return total
        case PackMap():
            return pack_map(recipe, constants[recipe.constant])
        case PackRaw():
            return constants[recipe.constant]


def pack_conv(recipe: PackConv, w: Array) -> Array:
    """[O, C/groups, KH, KW] → panels, chunk after chunk: [in_count][kh][kw][inner][blocks][lanes]."""
    if recipe.transposed:
        w = _swap_groups(w, recipe.groups)
    w = _select(_select(w, 2, recipe.taps[0]), 3, recipe.taps[1])
    out_channels, group_in, kh, kw = w.shape
    group_out = out_channels // recipe.groups
    panels = []
    for chunk in recipe.chunks:
        first = chunk.out_block * recipe.lanes
        last = min(first + chunk.blocks * recipe.lanes, out_channels)
        begin, count = chunk.in_begin * recipe.inner, chunk.in_count * recipe.inner
        dense = np.zeros((chunk.blocks * recipe.lanes, count, kh, kw), np.float32)
        for group in range(first // group_out, (last - 1) // group_out + 1):
            a, b = max(first, group * group_out), min(last, (group + 1) * group_out)
            start = group * group_in
            c, d = max(begin, start), min(begin + count, start + group_in)
            if c < d:
                dense[a - first : b - first, c - begin : d - begin] = w[a:b, c - start : d - start]
        split = dense.reshape(chunk.blocks, recipe.lanes, chunk.in_count, recipe.inner, kh, kw)
        panels.append(split.transpose(2, 4, 5, 3, 0, 1).reshape(-1))
    return np.concatenate(panels)


def pack_row_points(recipe: PackRowPoints, w: Array) -> Array:
    """[O, C, KH, KW] → panels, chunk after chunk: [C][kh][phase][point][blocks][lanes]."""
    u = recipe.points.weights(w.astype(np.float64)).transpose(1, 2, 3, 4, 0)
    panels = []
    for chunk in recipe.chunks:
        size = chunk.blocks * recipe.lanes
        part = u[..., chunk.out_block * recipe.lanes :][..., :size]
        padded = np.zeros((*part.shape[:-1], size), np.float32)
        padded[..., : part.shape[-1]] = part
        panels.append(padded.reshape(-1))
    return np.concatenate(panels)


def _swap_groups(w: Array, groups: int) -> Array:
    """[C, O/groups, KH, KW] → [O, C/groups, KH, KW]."""
    in_channels, group_out, kh, kw = w.shape
    split = w.reshape(groups, in_channels // groups, group_out, kh, kw)
    swapped: Array = split.transpose(0, 2, 1, 3, 4).reshape(-1, in_channels // groups, kh, kw)
    return swapped


def _select(w: Array, axis: int, tap: Tap) -> Array:
    index = [tap.begin + i * tap.step for i in range(tap.count)]
    return w if index == list(range(w.shape[axis])) else np.take(w, index, axis)


def pack_depthwise(recipe: PackDepthwise, w: Array) -> Array:
    """[C, 1, KH, KW] → [block][kh][kw][lanes]."""
    channels, _, kh, kw = w.shape
    blocks = -(-channels // recipe.lanes)
    padded = np.zeros((blocks * recipe.lanes, kh, kw), np.float32)
    padded[:channels] = w[:, 0]
    packed: Array = padded.reshape(blocks, recipe.lanes, kh, kw).transpose(0, 2, 3, 1)
    return packed


def pack_matrix(recipe: PackMatrix, w: Array) -> Array:
    """[K, N] → [ceil(N / width)][K][width]."""
    k, n = w.shape
    panels = -(-n // recipe.width)
    padded = np.zeros((k, panels * recipe.width), np.float32)
    padded[:, :n] = w
    packed: Array = padded.reshape(k, panels, recipe.width).transpose(1, 0, 2)
    return packed


def pack_map(recipe: PackMap, x: Array) -> Array:
    """[…, C, H, W] → blocked, with the plane stride of ``make_map``."""
    channels, height, width = recipe.shape
    full = np.broadcast_to(x.reshape((1,) * (4 - x.ndim) + x.shape)[0], recipe.shape)
    m = make_map(0, channels, height, width, recipe.lanes)
    planes = np.zeros((m.blocks, m.plane), np.float32)
    padded = np.zeros((m.blocks * recipe.lanes, height, width), np.float32)
    padded[:channels] = full
    pixels = padded.reshape(m.blocks, recipe.lanes, height, width).transpose(0, 2, 3, 1)
    planes[:, : height * m.row] = pixels.reshape(m.blocks, -1)
    return planes
