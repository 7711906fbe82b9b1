"""Pictures as inputs: read by Pillow, resized to what a library takes, and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from convoy.deploy.description import Tensor
from convoy.deploy.dtypes import is_float, numpy_dtype
from convoy.errors import ModelError

CHANNELS = (1, 3)
"""Those of grey and of coloured pictures."""


def read_images(
    paths: Sequence[Path], tensor: Tensor, mean: Sequence[float], deviation: Sequence[float]
) -> NDArray[Any]:
    """Pictures as one batch in the layout, shape and type of an input.

    Values are between 0 and 1, less ``mean``, over ``deviation``; of an input of whole numbers they are
    the pixels, 0 to 255.

    Parameters
    ----------
    paths : Sequence[Path]
        Of pictures that Pillow reads; they are resized whole, bilinearly, whatever their proportions.
    tensor : Tensor
        The input: [N, C, H, W] or [N, H, W, C], of one channel or three.
    mean, deviation : Sequence[float]
        By channel, or one number for all.

    Raises
    ------
    ModelError
        If there is no Pillow, a file is no picture, or the input takes none.
    """
    axis, height, width, channels = _layout(tensor)
    images = np.stack([_read(path, height, width, channels) for path in paths])
    if is_float(tensor.dtype):
        images = (images / 255 - np.array(mean)) / np.array(deviation)
    images = images.astype(numpy_dtype(tensor.dtype))
    return np.ascontiguousarray(np.moveaxis(images, -1, 1)) if axis == 1 else images


def parse_channels(text: str, option: str) -> tuple[float, ...]:
    """``0.485,0.456,0.406``, or one number for all channels.

    Raises
    ------
    typer.BadParameter
        For anything else.
    """
    try:
        numbers = tuple(float(number) for number in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in CHANNELS or (option == "--std" and 0 in numbers):
        raise typer.BadParameter(f"expected {option} as a number or three, 0.485,0.456,0.406, got {text!r}")
    return numbers


def _layout(tensor: Tensor) -> tuple[int, int, int, int]:
    """The axis of the channels, the height, the width and the number of channels."""
    shape = tensor.shape or ()
    for axis in (1, 3):
        if len(shape) != 4 or shape[axis] not in CHANNELS:
            continue
        height, width = (size for i, size in enumerate(shape) if i not in (0, axis))
        if isinstance(height, int) and isinstance(width, int):
            return axis, height, width, int(shape[axis] or 0)
    raise ModelError(
        "run",
        "--image",
        f"expected an input of one or three channels and of a fixed size, got {tensor}",
        "give an array by -i, or compile with --shape",
    )


def _read(path: Path, height: int, width: int, channels: int) -> NDArray[Any]:
    """float64 or uint8 [height, width, channels]: the pixels."""
    try:
        from PIL import Image
    except ImportError:
        raise ModelError(
            "run",
            "--image",
            "expected the package pillow, got an import error",
            "pip install 'convoy-tvm[image]'",
        ) from None
    try:
        with Image.open(path) as image:
            whole = image.convert("RGB" if channels == 3 else "L")
            pixels = np.asarray(whole.resize((width, height), Image.Resampling.BILINEAR))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ModelError("run", str(path), f"expected a picture, got {reason}", "check the file") from error
    return pixels.reshape(height, width, channels)
