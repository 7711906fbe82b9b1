"""A node that a conversion of ours refuses."""

from __future__ import annotations


class NodeError(Exception):
    """``problem`` is ``expected X, got Y``, ``remedy`` what to do; the importer adds which node it is."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
