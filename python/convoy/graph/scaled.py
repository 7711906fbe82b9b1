"""Matrices of few bits: whole numbers of 4 or 8 bits, with a scale for each block of a column.

The weights of large language models are stored so (``MatMulNBits``, ``DequantizeLinear`` with a
``block_size``).  As those of ``weights.py`` they are known by what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from convoy.graph.graph import Array
from convoy.graph.weights import are_whole, find_integers

BLOCKS = (256, 128, 64, 32, 16)
"""Rows that share a scale, in ONNX Runtime's ops; besides, all may."""
STEPS = {4: 15, 8: 255}
"""Between the least and the largest number of so many bits."""
SAMPLE = 8
"""Columns that are looked at before all are."""
CHUNK = 1 << 20
"""Weights that are looked at together: what is computed of them on the way takes 70 bytes each."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A matrix [K, N] as (integers - zeros) · scales."""

    integers: Array
    """int8 [K, N]"""
    scales: Array
    """float32 [ceil(K / block), N]"""
    zeros: Array
    """int8, of the scales' shape."""
    block: int
    bits: int


def find_scaled(weight: Array) -> Scaled | None:
    """The whole numbers that a float32 matrix [K, N] is made of; None where it is not."""
    for sample in _find_samples(weight):
        found = _find_in_chunks(weight, sample.block, sample.bits, _usual_steps(sample))
        if found is not None:
            return found
    return None


def is_likely_scaled(weight: Array) -> bool:
    """Are some of its columns made so?"""
    return any(True for _ in _find_samples(weight))


def _find_samples(weight: Array) -> Iterator[Scaled]:
    """What some of its columns are made of, of few bits and of long blocks first."""
    columns = weight[:, :: max(1, weight.shape[1] // SAMPLE)]
    if not weight.size or not _may_be_scaled(columns):
        return
    for bits in STEPS:
        for block in dict.fromkeys((len(weight), *(size for size in BLOCKS if size < len(weight)))):
            sample = _find_blocks(columns, block, bits)
            if sample is not None:
                yield sample


def _may_be_scaled(columns: Array) -> bool:
    """Whether each column begins with multiples of one number, as random floats do not."""
    begin = np.abs(columns[: BLOCKS[-1]]).astype(np.float64)
    peaks = begin.max(axis=0)
    counts = np.arange(1, STEPS[8] + 1)[:, None, None]
    with np.errstate(all="ignore"):
        parts = begin / np.where(peaks > 0, peaks, 1) * counts
        return bool(are_whole(parts).all(axis=1).any(axis=0).all())


def _usual_steps(sample: Scaled) -> Sequence[int]:
    """How many steps the largest weight of a block is, the usual number first."""
    zeros = np.repeat(sample.zeros, sample.block, axis=0)[: len(sample.integers)]
    whole = np.abs(sample.integers.astype(np.int64) - zeros)
    starts = range(0, len(whole), sample.block)
    peaks = Counter(int(p) for p in np.maximum.reduceat(whole, starts, axis=0).reshape(-1))
    return [count for count, _ in peaks.most_common() if count]


def _find_in_chunks(weight: Array, block: int, bits: int, steps: Sequence[int]) -> Scaled | None:
    k, n = weight.shape
    width = max(1, CHUNK // k)
    parts: list[Scaled] = []
    for begin in range(0, n, width):
        part = _find_blocks(weight[:, begin : begin + width], block, bits, steps)
        if part is None:
            return None
        parts.append(part)
    return Scaled(
        integers=np.concatenate([part.integers for part in parts], axis=1),
        scales=np.concatenate([part.scales for part in parts], axis=1),
        zeros=np.concatenate([part.zeros for part in parts], axis=1),
        block=block,
        bits=bits,
    )


def _find_blocks(weight: Array, block: int, bits: int, steps: Sequence[int] = ()) -> Scaled | None:
    k, n = weight.shape
    blocks = -(-k // block)
    padded = np.zeros((blocks * block, n), np.float32)
    padded[:k] = weight
    rows = padded.reshape(blocks, block, n).transpose(0, 2, 1).reshape(blocks * n, block)
    found = find_integers(rows, 0, STEPS[bits], steps)
    if found is None:
        return None
    integers, scales, zeros = found
    whole = integers.reshape(blocks, n, block).transpose(0, 2, 1).reshape(blocks * block, n)[:k]
    return Scaled(
        whole.astype(np.int8),
        scales.reshape(blocks, n),
        zeros.reshape(blocks, n).astype(np.int8),
        block,
        bits,
    )
