"""What an object of weights holds: all bytes, and half of those that float16 is enough for."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

from convoy.target import host
from convoy.toolchain import compiler
from convoy.toolchain.weights import embed_weights, find_stretches

BLOCK = 4096
"""Floats that are kept as float16 or not."""


def held(weights: bytes) -> tuple[bytes, int]:
    """What a program reads of them, and the size of its file."""
    reader = """
    extern const unsigned char region_weights[];
    const void *address(void) { return region_weights; }
    """
    objects = [compiler.compile_object(reader, host()), embed_weights("region", weights, host())]
    path = compiler.link_shared(objects)
    library = ctypes.CDLL(str(path))
    library.address.restype = ctypes.c_void_p
    address = library.address()
    assert address % 64 == 0
    return ctypes.string_at(address, len(weights)), path.stat().st_size


def all_halves() -> np.ndarray:
    """Every float16 but NaN, as float32: zeros of both signs, subnormal ones, infinities."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return halves[~np.isnan(halves)].astype(np.float32)


def test_weights_of_float16_are_half_as_large_in_the_file() -> None:
    weights = np.resize(all_halves(), 1 << 18)
    read, size = held(weights.tobytes())
    assert read == weights.tobytes()
    assert size < 0.6 * weights.nbytes


def test_weights_of_bfloat16_are_half_as_large_too() -> None:
    """Every one of them, NaN with its payload, after a stretch of float16 and before one of neither."""
    every = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    other = np.full(BLOCK, 1 / 3, np.float32)
    weights = np.concatenate([np.resize(all_halves(), 4 * BLOCK), np.tile(every, 2), other])
    found = {stored for _, stored in find_stretches(weights.tobytes())}
    assert found == {"CV_AS_IN_MEMORY", "CV_AS_FLOAT16", "CV_AS_BFLOAT16"}
    read, size = held(weights.tobytes())
    assert read == weights.tobytes()
    assert size < 0.6 * weights.nbytes


def test_only_what_float16_holds_is_narrowed() -> None:
    weights = np.random.default_rng(3).standard_normal(10 * BLOCK + 7).astype(np.float16).astype(np.float32)
    weights[3 * BLOCK + 5] = 1 / 3
    weights[-1] = 1e9
    weights[0] = 1e-30
    stretches = find_stretches(weights.tobytes())
    assert [stored == "CV_AS_FLOAT16" for _, stored in stretches] == [False, True, False, True, False]
    assert [size // (BLOCK * 4) for size, _ in stretches] == [1, 2, 1, 6, 0]
    assert sum(size for size, _ in stretches) == weights.nbytes
    assert held(weights.tobytes())[0] == weights.tobytes()


@pytest.mark.parametrize("weights", [b"", b"abc", os.urandom(100_003)])
def test_other_weights_stay_as_they_are(weights: bytes) -> None:
    assert held(weights)[0] == weights
    assert {stored for size, stored in find_stretches(weights) if size > 3} <= {"CV_AS_IN_MEMORY"}
