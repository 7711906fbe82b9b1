"""Frames of the stack as TVM's parser of scripts asks for them: the source of the first few alone.

It has each function that it parses look at the whole stack, and reads the lines around the first frames
only.  To find those of pytest's sixty took a quarter of the time in which tests are collected.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType

FIRST = 4
"""Frames with lines of their source; that of a class around a function is among the first three."""


def read_stack(context: int = 1) -> list[inspect.FrameInfo]:
    """As ``inspect.stack``; frames behind the first ``FIRST`` have no lines of source."""
    frames: list[inspect.FrameInfo] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None)
        found = inspect.getframeinfo(frame, context) if len(frames) < FIRST else place
        frames.append(inspect.FrameInfo(frame, *found))
        frame = frame.f_back
    return frames


def pytest_configure() -> None:
    inspect.stack = read_stack
