"""Ops of PyTorch's quantised programs (``quantized_decomposed``), which TVM's frontend lacks.

They say between which integers they round.  Where these are fewer than the type has, what is quantised is
held between the floats they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

Converter = Callable[[Any, Any], relax.Var]


def _arguments(node: Any, importer: Any) -> list[Any]:
    """A call's operands as Relax has them; numbers as they are."""
    return [importer.env.get(arg, arg) if hasattr(arg, "name") else arg for arg in node.args]


def _parameters(scale: Any, zero: Any, importer: Any) -> tuple[relax.Expr, relax.Expr]:
    """Scale and zero point as constants, or as tensors of the types that Relax wants."""
    if isinstance(scale, float):
        return relax.const(np.float32(scale)), relax.const(np.int32(zero), "int32")
    found = [importer.block_builder.normalize(relax.op.astype(x, d)) if str(x.ty.dtype) != d else x
             for x, d in ((scale, "float32"), (zero, "int32"))]  # fmt: skip
    return found[0], found[1]


def _range(dtype: str) -> tuple[int, int]:
    bounds = np.iinfo(dtype)
    return int(bounds.min), int(bounds.max)


def _dtype(node: Any, at: int) -> str:
    """``uint8`` of ``torch.uint8``."""
    return str(node.args[at]).removeprefix("torch.")


def _quantize(node: Any, importer: Any) -> relax.Var:
    x, scale, zero, least, most = _arguments(node, importer)[:5]
    dtype = _dtype(node, 5)
    emit = importer.block_builder.emit
    if (least, most) != _range(dtype):
        low, high = (float(np.float32(scale)) * (bound - zero) for bound in (least, most))
        x = emit(relax.op.clip(x, low, high))
    return emit(relax.op.quantize(x, *_parameters(scale, zero, importer), 0, dtype))


def _dequantize(node: Any, importer: Any) -> relax.Var:
    x, scale, zero = _arguments(node, importer)[:3]
    return importer.block_builder.emit(relax.op.dequantize(x, *_parameters(scale, zero, importer), 0))


def _quantize_channels(node: Any, importer: Any) -> relax.Var:
    x, scale, zero, axis, least, most = _arguments(node, importer)[:6]
    dtype = _dtype(node, 6)
    if (least, most) != _range(dtype):
        raise ValueError(f"quantize_per_channel between {least} and {most}")
    numbers = _parameters(scale, zero, importer)
    return importer.block_builder.emit(relax.op.quantize(x, *numbers, int(axis), dtype))


def _dequantize_channels(node: Any, importer: Any) -> relax.Var:
    x, scale, zero, axis = _arguments(node, importer)[:4]
    numbers = _parameters(scale, zero, importer)
    return importer.block_builder.emit(relax.op.dequantize(x, *numbers, int(axis)))


CONVERTERS: dict[str, Converter] = {
    "quantize_per_tensor.default": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "quantize_per_channel.default": _quantize_channels,
    "dequantize_per_channel.default": _dequantize_channels,
}
"""By the names that TVM's frontend has of them."""
