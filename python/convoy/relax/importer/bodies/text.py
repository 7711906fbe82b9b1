"""Parts of a body's text that come from its call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from convoy.relax.importer.bodies.call import Call

LOWEST = -3.4028234663852886e38
"""What hides a score: float32 has no lower number."""


def parameters(call: Call, names: str) -> str:
    """The inputs a body declares: all that the call has."""
    return f"({', '.join(names.split()[: len(call.node.input)])})"


def attributes(call: Call, *names: str) -> str:
    """Attributes that are handed on as they are."""
    found = {name: call.attribute(name, None) for name in names}
    written = ", ".join(f"{name} = {_value(value)}" for name, value in found.items() if value is not None)
    return f"<{written}>" if written else ""


def _value(value: Any) -> str:
    if isinstance(value, str):
        if '"' in value or "\\" in value:
            raise ValueError(value)
        return f'"{value}"'
    if isinstance(value, Sequence):
        return f"[{', '.join(map(str, value))}]"
    return repr(value)


def number(value: object) -> str:
    """A float.

    Raises
    ------
    ValueError
        For one that is none, or not finite, which the syntax has no text for.
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return repr(float(value))


def constant(call: Call, name: str, value: object) -> str:
    """Nodes of a number of the type that the call's first input has."""
    given = f"Constant <value_float = {number(value)}> ()"
    if call.dtype(0) not in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE):
        return f"{name} = {given}"
    return f"{name}_wide = {given} {name} = Cast <to = {call.dtype(0)}> ({name}_wide)"


def unsqueeze(call: Call, x: str, y: str, *axes: int) -> str:
    """Nodes of ``y``, x with new axes of size 1: an attribute or an input says which."""
    if call.opset < 13:
        return f"{y} = Unsqueeze <axes = {list(axes)}> ({x})"
    return f"{y}_axes = Constant <value_ints = {list(axes)}> () {y} = Unsqueeze ({x}, {y}_axes)"


def slice_last(x: str, y: str, begin: int, end: int) -> str:
    """Nodes of ``y``, a part of x along the axis that ``last`` names."""
    return f"""{y}_from = Constant <value_ints = [{begin}]> () {y}_to = Constant <value_ints = [{end}]> ()
        {y} = Slice ({x}, {y}_from, {y}_to, last)"""


def split_heads(x: str, y: str, heads: int, size: int = -1) -> str:
    """Nodes of ``y`` of [batch, heads, rows, size] from x of [batch, rows, heads · size]."""
    return f"""{y}_to = Constant <value_ints = [0, 0, {heads}, {size}]> () {y}_split = Reshape ({x}, {y}_to)
        {y} = Transpose <perm = [0, 2, 1, 3]> ({y}_split)"""


def repeat_heads(call: Call, x: str, y: str, heads: int, groups: int, size: int) -> str:
    """Nodes of ``y`` of [batch, heads, columns, size]: each of x's groups for all of its heads."""
    if heads == groups:
        return f"{y} = Identity ({x})"
    return f"""{unsqueeze(call, x, f"{y}_group", 2)}
        {y}_each = Constant <value_ints = [1, 1, {heads // groups}, 1, 1]> ()
        {y}_more = Expand ({y}_group, {y}_each) {y}_to = Constant <value_ints = [0, {heads}, -1, {size}]> ()
        {y} = Reshape ({y}_more, {y}_to)"""
