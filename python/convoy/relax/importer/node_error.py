"""A node that a conversion of ours refuses."""

from __future__ import annotations


class NodeError(Exception):
    """``problem`` is ``expected X, got Y``; the importer adds which node it is.

    ``remedy`` is what to do; None: to fix the sizes that are open, which the importer knows the names of.
    """

    def __init__(self, problem: str, remedy: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
