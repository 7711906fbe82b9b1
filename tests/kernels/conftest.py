"""How kernels are compiled in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convoy.target import Target, host


@pytest.fixture(autouse=True, scope="module")
def others_are_optimised_less() -> Iterator[None]:
    """Code for other machines than the host is compiled with -O1, in two thirds of the time.

    What differs between sets is a vocabulary of vectors; the answers are the same. ``tests/backend`` and
    ``tests/fuzz`` compile for each set as users do.
    """
    flags = vars(Target)["flags"].fget
    with pytest.MonkeyPatch.context() as patch:
        faster = property(lambda target: (*flags(target), *["-O1"] * (target.features != host().features)))
        patch.setattr(Target, "flags", faster)
        yield
