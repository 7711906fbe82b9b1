"""What Convoy does, for Python's ``logging``: the logger ``convoy``, silent until somebody listens."""

from __future__ import annotations

import logging

from convoy.text import line

_logger = logging.getLogger("convoy")
_logger.addHandler(logging.NullHandler())


def log_step(text: str) -> None:
    """Log what is being done, at the level INFO."""
    _logger.info("%s", line(text))


def log_detail(detail: object) -> None:
    """Log a decision, at the level DEBUG; its text is made only if it is wanted."""
    if _logger.isEnabledFor(logging.DEBUG):
        _logger.debug("%s", line(detail))
