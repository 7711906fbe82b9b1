"""How kernels are compiled in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convoy.target import Target, host
from optimising import less


@pytest.fixture(autouse=True, scope="module")
def others_are_optimised_less() -> Iterator[None]:
    """Code for other machines than the host is optimised less, in half of the time.

    What differs between sets is a vocabulary of vectors; the answers are the same. ``tests/backend`` and
    ``tests/fuzz`` compile for each set as users do.
    """
    flags = vars(Target)["flags"].fget
    with pytest.MonkeyPatch.context() as patch:
        other = property(
            lambda target: (*flags(target), *(less() if target.features != host().features else ()))
        )
        patch.setattr(Target, "flags", other)
        yield
