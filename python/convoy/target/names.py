"""CPUs by LLVM's names: from a name, a triple and features to a row of the table."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from convoy.errors import TargetError
from convoy.target.instructions import InstructionSet, change_features, complete, largest_set
from convoy.target.machines import GENERIC, MACHINES
from convoy.target.target import Target
from convoy.target.this_machine import architecture_name, host

AskLLVM = Callable[[str], Collection[str] | None]
"""The features of a CPU by LLVM; None if this LLVM does not know it."""

_OTHER_SYSTEMS = ("android", "darwin", "freebsd", "ios", "macos", "msvc", "netbsd", "openbsd", "win")


def from_mcpu(
    mcpu: str | None, mtriple: str = "", features: Sequence[str] = (), ask: AskLLVM = lambda _: None
) -> Target:
    """The target an LLVM ``mcpu`` names; None, ``native`` and ``host`` mean this machine.

    A CPU with a name takes nothing from this machine, whichever that is: all is its row's.

    Parameters
    ----------
    mtriple : str
        LLVM's name of a system, such as ``x86_64-linux-gnu``; empty: this one.
    features : Sequence[str]
        Added to and taken from those of the CPU, as ``+avx2`` and ``-avx512f`` in LLVM's ``mattr``.
    ask : AskLLVM
        What LLVM knows of CPUs that have no row: their features choose among the generic rows.

    Raises
    ------
    TargetError
        If neither Convoy nor LLVM knows the name, or it or ``mtriple`` is of another architecture or
        system than this one.
    """
    _check_triple(mtriple)
    named = host() if mcpu in (None, "", "native", "host") else _named(str(mcpu), ask)
    if not features:
        return named
    has = change_features(named.features, features)
    return replace(named, isa=largest_set(has), features=has)


def cpu_name(llvm_name: str) -> str:
    """``llvm_name``, an LLVM's name of this machine's CPU, or one that has its vectors.

    An LLVM that is older than the CPU calls it generic.  Then it is the oldest CPU with the same vectors,
    so that what TVM compiles has them too.
    """
    oldest: dict[InstructionSet, str] = {
        "avx512": "skylake-avx512", "avx2": "haswell", "portable": llvm_name
    }  # fmt: skip
    return oldest[host().isa] if llvm_name == "generic" else llvm_name


def _named(mcpu: str, ask: AskLLVM) -> Target:
    found, here = MACHINES.get(mcpu), architecture_name(platform.machine())
    if found is not None:
        if found.architecture not in ("", here):
            raise _other_architecture(f"mcpu {mcpu!r}", here, found.architecture)
        return found
    features = ask(mcpu)
    if features is None:
        raise TargetError(
            "target",
            f"mcpu {mcpu!r}",
            f"expected one of {', '.join(sorted(MACHINES))}, or one that LLVM knows",
            "name one of them, the oldest CPU with the same vectors for one that is newer than this LLVM, "
            "or leave mcpu out for this machine",
        )
    generic = GENERIC[largest_set(features)] if here == "x86_64" else MACHINES["portable"]
    return replace(generic, name=mcpu, features=complete(features))


def _check_triple(mtriple: str) -> None:
    first, *rest = mtriple.lower().split("-")
    architecture, here = architecture_name(first), architecture_name(platform.machine())
    if architecture not in ("", here):
        raise _other_architecture(f"mtriple {mtriple!r}", here, architecture)
    others = [part for part in rest if part.startswith(_OTHER_SYSTEMS)]
    if others:
        raise TargetError(
            "target",
            f"mtriple {mtriple!r}",
            f"expected linux, got {others[0]}",
            "compile for linux: libraries are made by this machine's compiler and linker",
        )


def _other_architecture(what: str, here: str, theirs: str) -> TargetError:
    return TargetError(
        "target",
        what,
        f"expected {here}, the architecture of this machine, got {theirs}",
        "compile on a machine of that architecture",
    )
