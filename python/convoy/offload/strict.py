"""Strict mode: the first op that is left to TVM ends the compilation."""

from __future__ import annotations

from collections.abc import Iterable

from convoy.errors import RefusedError
from convoy.options import Options
from convoy.report.decision import Decision


def check_strict(options: Options, decisions: Iterable[Decision]) -> None:
    """Is everything taken, where that is asked for?

    Parameters
    ----------
    decisions : Iterable[Decision]
        Those of this compilation; a report may have more.

    Raises
    ------
    RefusedError
        With ``options.strict``, for the first op that is left.
    """
    first = next((decision for decision in decisions if decision.refused), None)
    if options.strict and first is not None:
        remedy = "change the model, or compile without strict to leave it to TVM"
        raise RefusedError(first.step, first.node, first.reason, remedy)
