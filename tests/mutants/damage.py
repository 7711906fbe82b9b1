"""Damage to the bytes of a file: what a bad disk or a broken download does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

Damage = Callable[[bytearray, int, np.random.Generator], None]
"""Changes the bytes at or after a place."""


def flip_bits(data: bytearray, place: int, rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(1, 9))):
        at = min(len(data) - 1, place + int(rng.integers(64)))
        data[at] ^= 1 << int(rng.integers(8))


def overwrite(data: bytearray, place: int, rng: np.random.Generator) -> None:
    count = min(int(rng.integers(1, 65)), len(data) - place)
    data[place : place + count] = rng.bytes(count)


def truncate(data: bytearray, place: int, _: np.random.Generator) -> None:
    del data[place:]


def insert(data: bytearray, place: int, rng: np.random.Generator) -> None:
    data[place:place] = rng.bytes(int(rng.integers(1, 65)))


def duplicate(data: bytearray, place: int, rng: np.random.Generator) -> None:
    data[place:place] = data[place : place + int(rng.integers(1, 2000))]


def remove(data: bytearray, place: int, rng: np.random.Generator) -> None:
    del data[place : place + int(rng.integers(1, 200))]


def blank(data: bytearray, place: int, rng: np.random.Generator) -> None:
    count = min(int(rng.integers(1, 5000)), len(data) - place)
    data[place : place + count] = bytes(count)


def fill_numbers(data: bytearray, place: int, rng: np.random.Generator) -> None:
    """0xFF: the largest lengths, negative numbers, NaN."""
    count = min(int(rng.integers(1, 12)), len(data) - place)
    data[place : place + count] = b"\xff" * count


DAMAGES: tuple[Damage, ...] = (
    flip_bits, flip_bits, overwrite, truncate, insert, duplicate, remove, blank, fill_numbers,
)  # fmt: skip


def damage_bytes(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[bytes, str]:
    """The file of a model with one damage, mostly outside of the weights, and what was done."""
    data = bytearray(model.SerializeToString())
    chosen = DAMAGES[int(rng.integers(len(DAMAGES)))]
    place = int(rng.integers(len(data)))
    if rng.random() < 0.85:
        outside = np.ones(len(data), bool)
        for tensor in model.graph.initializer:
            at = data.find(tensor.raw_data) if len(tensor.raw_data) > 64 else -1
            outside[max(at, 0) : max(at, 0) + (len(tensor.raw_data) if at >= 0 else 0)] = False
        place = int(rng.choice(np.flatnonzero(outside)))
    chosen(data, place, rng)
    return bytes(data), f"{chosen.__name__} at byte {place}"
