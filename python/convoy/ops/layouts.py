"""Why the layout or the steps of an op on windows are not taken, in words."""

from __future__ import annotations

from typing import Any

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


def steps(attrs: Any) -> str | None:
    """How windows move: padding may not cut, and TVM computes with dilations of 0, too."""
    sides = [int(side) for side in attrs.padding]
    if min(sides, default=0) < 0:
        return f"expected padding that is not negative, got {sides}"
    for name, given in (("strides", attrs.strides), ("dilations", attrs.dilation)):
        found = [int(step) for step in given]
        if min(found, default=1) < 1:
            return f"expected {name} ≥ 1, got {found}"
    return None
