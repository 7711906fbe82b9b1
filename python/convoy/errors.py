"""Every exception Convoy raises, and the one form its text takes.

``<step>: <node>: expected X, got Y; <what to do>``

A refusal to offload an op is not an exception but a ``report.decision.Decision``;
an exception means bad input, an ``assert`` means a bug of ours.
"""

from __future__ import annotations

from convoy.text import line, lines

_LONGEST_NODE = 500
"""Characters of a name, or of a path, before the problem."""


class ConvoyError(Exception):
    """Base of all of Convoy's errors.

    All but ``words`` are one line, whatever names they quote (``text.line``).

    Parameters
    ----------
    step : str
        The step of the road that failed (``import``, ``fold``, ``lower``, ``plan``, …).
    node : str
        What it failed on: an op, a tensor, a file.
    problem : str
        ``expected X, got Y``.
    remedy : str
        What the reader should do about it.
    words : str
        What another program said of it, in lines of their own, right behind the problem.
    """

    def __init__(self, step: str, node: str, problem: str, remedy: str, words: str = "") -> None:
        self.step = line(step)
        self.node = line(node, _LONGEST_NODE)
        self.problem = line(problem)
        self.remedy = line(remedy)
        self.words = lines(words)
        super().__init__(f"{self.step}: {self.node}: {self.problem}{self.words}; {self.remedy}")

    def __reduce__(self) -> tuple[type[ConvoyError], tuple[str, str, str, str, str]]:
        # exceptions are rebuilt from args, which holds only the text
        return type(self), (self.step, self.node, self.problem, self.remedy, self.words)

    @classmethod
    def parse(cls, text: str) -> tuple[str, str, str, str, str]:
        """The arguments that give an error this text."""
        step, _, rest = text.partition(": ")
        node, _, rest = rest.partition(": ")
        found, _, remedy = rest.rpartition("; ")
        problem, end, words = found.partition("\n")
        return step, node, problem, remedy, end + words


class ModelError(ConvoyError):
    """The model could not be read."""


class GraphError(ConvoyError):
    """A ``Graph`` breaks one of its own rules."""


class OpenSizeError(GraphError):
    """A number is needed where a size is known only at the call."""


class LoweringError(ConvoyError):
    """An external function holds something a ``Graph`` cannot say."""


class UnknownSizeError(LoweringError):
    """An op makes a size that does not follow from those of its region's inputs."""


class TargetError(ConvoyError):
    """The target asks for a machine Convoy does not know."""


class ToolchainError(ConvoyError):
    """The C compiler is missing, failed, or its cache cannot be written."""


class UnitError(ToolchainError):
    """The C compiler works, and rejects a unit of generated C."""


class GuardError(ConvoyError):
    """A pass changed a function that belongs to an external codegen."""


class RefusedError(ConvoyError):
    """Strict mode: an op was not offloaded."""


class DoorError(ConvoyError, ImportError):
    """The TVM of this environment is not the one a door is for."""
