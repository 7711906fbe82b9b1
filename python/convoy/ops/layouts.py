"""Why the layout or the padding of an op on windows is not taken, in words."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.ops.reader import Call, Reader

TURNED = "fold's normalize_layout turns it"
TURN_IT = "write the op in that layout, with a transpose before and after it"


def remedy(at: Reader, call: Call) -> str:
    """What to do about data in another layout: TVM's ConvertLayout, in Relay, turns some ops only."""
    return TURNED if at.turns(call) else TURN_IT


def layouts(
    data: str, expected: str, out: str = "", kernel: str = "", weight: str = "", *, remedy: str = TURNED
) -> str | None:
    """The layouts an op has, against those its kernel needs: of data, output and weight.

    Parameters
    ----------
    remedy : str
        What to do about data in another layout.
    """
    if data != expected:
        return f"expected data in {expected}, got {data}; {remedy}"
    if out not in ("", expected):
        return f"expected an output in {expected}, got {out}"
    if kernel != weight:
        return f"expected a weight in {weight}, got {kernel}"
    return None


def padding(sides: Sequence[object]) -> str | None:
    """Padding may not cut."""
    found = [int(side) for side in sides]  # type: ignore[call-overload]
    return f"expected padding that is not negative, got {found}" if min(found, default=0) < 0 else None
