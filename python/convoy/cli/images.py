"""Pictures as inputs: read by Pillow, resized to what a library takes, and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from convoy.deploy.description import Tensor
from convoy.deploy.dtypes import is_float, numpy_dtype
from convoy.errors import ModelError
from convoy.options import shape_option
from convoy.pipes import seekable

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
        Of pictures that Pillow reads; they are turned as they say they are to be seen, and resized whole,
        bilinearly, whatever their proportions.
    tensor : Tensor
        The input: [N, C, H, W] or [N, H, W, C], of one channel or three.  A height or width that it leaves
        open is the picture's own.
    mean, deviation : Sequence[float]
        By channel, or one number for all.

    Raises
    ------
    ModelError
        If there is no Pillow, a file is no picture, the input takes none, or they differ in open sizes.
    """
    axis, height, width, channels = _layout(tensor)
    pictures = [_read(path, height, width, channels) for path in paths]
    sizes = sorted({picture.shape[1::-1] for picture in pictures})
    if len(sizes) > 1:
        raise ModelError(
            "run",
            "--image",
            f"expected pictures of one size, which {tensor.name} leaves open, got "
            + " and ".join(f"{width} x {height}" for width, height in sizes[:2]),
            f"give the size, e.g. {shape_option(tensor.name, tensor.shape or ())}",
        )
    images = np.stack(pictures)
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
    sound = all(isfinite(number) for number in numbers) and not (option == "--std" and 0 in numbers)
    if len(numbers) not in CHANNELS or not sound:
        raise typer.BadParameter(f"expected {option} as a number or three, 0.485,0.456,0.406, got {text!r}")
    return numbers


def _layout(tensor: Tensor) -> tuple[int, int | None, int | None, int]:
    """The axis of the channels, the height and the width, None where they are open, and the channels."""
    shape = tensor.shape or ()
    for axis in (1, 3):
        if len(shape) == 4 and shape[axis] in CHANNELS:
            height, width = (
                size if isinstance(size, int) else None
                for i, size in enumerate(shape)
                if i not in (0, axis)
            )
            return axis, height, width, int(shape[axis] or 0)
    raise ModelError(
        "run",
        "--image",
        f"expected an input of one or three channels, [N, C, H, W] or [N, H, W, C], got {tensor}",
        "give an array by -i, or compile with --shape",
    )


def _read(path: Path, height: int | None, width: int | None, channels: int) -> NDArray[Any]:
    """float64 or uint8 [height, width, channels]: the pixels."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ModelError(
            "run",
            "--image",
            "expected the package pillow, got an import error",
            "pip install 'convoy-tvm[image]'",
        ) from None
    try:
        with Image.open(seekable(path)) as image:
            seen = ImageOps.exif_transpose(image)
            whole = _in_bytes(seen, image.format).convert("RGB" if channels == 3 else "L")
            size = width or whole.width, height or whole.height
            pixels = np.asarray(whole.resize(size, Image.Resampling.BILINEAR))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ModelError("run", str(path), f"expected a picture, got {reason}", "check the file") from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _in_bytes(image: Any, kind: str | None) -> Any:
    """The picture, of 8 bits a channel: where there are more, Pillow would cut values off at 255.

    Raises
    ------
    ValueError
        If its values have no known range.
    """
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and kind == "PNG"):
        return Image.fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"one of 32 bits a pixel (mode {image.mode}), whose range is not known")
    return image
