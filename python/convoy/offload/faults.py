"""What goes wrong between a region and its object: the region is given back to TVM, with the reason.

A network that TVM compiles alone is compiled, whatever one of our steps makes of a part of it.  What is
wrong with the machine (no compiler, no memory, no room on the disk) is no such fault, but an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from convoy.errors import ConvoyError, LoweringError, TargetError, ToolchainError, UnitError
from convoy.offload.work import given_back, step_of
from convoy.options import Options
from convoy.report.decision import Report
from convoy.text import line


class RegionWarning(UserWarning):
    """A region was given back to TVM because it could not be compiled."""


def is_fault(error: Exception) -> bool:
    """Is this the region's, not the machine's or the target's?"""
    return isinstance(error, UnitError) or not isinstance(
        error, MemoryError | OSError | TargetError | ToolchainError
    )


def reasons_of(
    faults: Mapping[str, Exception], nodes: Mapping[str, str], options: Options
) -> dict[str, str]:
    """Why the regions with these faults are given back, by their names; each is warned of.

    Parameters
    ----------
    faults : Mapping[str, Exception]
        By the names of the regions.
    nodes : Mapping[str, str]
        The first op of each, as a ``Decision`` names it.

    Raises
    ------
    ConvoyError
        With ``options.strict``, the first fault, with the first op of its region.
    """
    if options.strict and faults:
        name, error = next(iter(faults.items()))
        raise _located(error, nodes[name]) from error
    expected = "expected a region that compiles, got"
    reasons: dict[str, str] = {
        name: given_back(f"{expected} {_words(error)}") for name, error in faults.items()
    }
    for name, reason in reasons.items():
        warnings.warn(
            line(f"partition: region of {nodes[name]}: {reason}; report it"), RegionWarning, stacklevel=2
        )
    return reasons


def report_marked(faults: Mapping[str, Exception], options: Options, report: Report) -> None:
    """Warn of, and note, each function that a user marked and that TVM gets for one of these faults.

    Parameters
    ----------
    faults : Mapping[str, Exception]
        By the names of the functions.

    Raises
    ------
    ConvoyError
        With ``options.strict``, the first fault.
    """
    for name, error in faults.items():
        node = f"function {name}"
        if options.strict:
            raise _located(error, node) from error
        reason = given_back(f"expected a function that compiles, got {_words(error)}")
        report.add(node, step_of(reason), "left", reason)
        remedy = "leave what it names out of the function, or unmark it"
        if isinstance(error, ConvoyError) and error.node == "global_symbol":
            remedy = error.remedy
        warnings.warn(line(f"partition: {node}: {reason}; {remedy}"), RegionWarning, stacklevel=2)


def _words(error: Exception) -> str:
    if isinstance(error, ConvoyError):
        words = line(error.words.strip().partition("\n")[0])
        return f"{error.step}: {error.node}: {error.problem} {words}".strip()
    return f"{type(error).__name__}: {line(error)}"


def _located(error: Exception, node: str) -> ConvoyError:
    if isinstance(error, ConvoyError):
        return type(error)(
            error.step, f"region of {node}, {error.node}", error.problem, error.remedy, error.words
        )
    remedy = "report it, or compile without strict to leave the region to TVM"
    return LoweringError(
        "compile", f"region of {node}", f"expected one that compiles, got {_words(error)}", remedy
    )
