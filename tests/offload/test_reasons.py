"""offload/reasons.py: each refusal with a twin that is taken."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.errors import ConvoyError
from convoy.graph.sizes import open_size
from convoy.offload import reasons


@pytest.mark.parametrize(
    ("dtype", "lengths", "reason"),
    [
        ("float32", (1, 3, 8, 8), None),
        ("float32", ("n", 3, 8, 8), None),  # how many images is known at run time
        ("float32", (), None),
        ("float16", (1, 3), "expected float32, got float16"),
        ("", (1, 3), "expected float32, got an unknown dtype"),
        ("float32", None, "expected a known shape, got an unknown one"),
        ("float32", (1, "h // T.int64(2)", 3), "expected axis 1 of known length, got h // 2"),
        ("float32", (1, 0, 3), "expected something to compute, got the empty shape [1, 0, 3]"),
        ("float32", (2, 2**15, 2**15), "expected at most 2147483647 elements, got 2147483648"),
        ("float32", (1, 2**15, 2**15), None),
    ],
    ids=str,
)
def test_a_tensor(dtype: str, lengths: Any, reason: str | None) -> None:
    found = reasons.tensor(dtype, lengths)
    assert found is None if reason is None else (found or "").startswith(reason)


def test_an_open_size_is_no_reason_for_what_would_be_too_large_where_it_is_likely() -> None:
    # attention over the pixels of an open image: scores that are never in memory
    pixels = open_size("h", 320) * open_size("w", 320)
    assert reasons.tensor("float32", (1, 4, pixels, pixels), open_sizes=True) is None
    found = reasons.tensor("float32", (1, 2**15, pixels, 2**16), open_sizes=True)
    assert found == "expected at most 2147483647 elements, got 2147483648"


def test_a_constant_that_is_missing() -> None:
    assert reasons.not_constant("weight", parameter=True).endswith("got a parameter; bind it")
    assert reasons.not_constant("weight", parameter=False).endswith("got a run-time value")


def test_images_that_are_not_along_axis_zero() -> None:
    known = reasons.images_along_axis_zero([(2, 3), (3, 2)])
    assert "got [2, 3], [3, 2]; take one image" in known
    assert "take one image" not in reasons.images_along_axis_zero([("n", 3), (3, 2)])


def test_what_a_backend_says() -> None:
    assert reasons.in_words("no kernel for it") == "no kernel for it"
    assert reasons.in_words(None) is None
    assert reasons.in_words("") is None
    assert reasons.in_words(False) is None
    with pytest.raises(
        ConvoyError, match=r"annotate: refuse: expected a reason in words or None, got True"
    ):
        reasons.in_words(True)
