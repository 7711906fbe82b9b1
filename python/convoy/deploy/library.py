"""A library's file, or what was compiled in this process, to a module that TVM's runtime runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convoy.deploy.description import Description, Example, check_file, read_description, read_example
from convoy.deploy.export import link
from convoy.deploy.runtime import let_workers_sleep, load_runtime
from convoy.errors import ModelError
from convoy.installed import require
from convoy.target import host
from convoy.target.instructions import INSTRUCTIONS

require("relax")

import tvm_ffi  # noqa: E402  a classic TVM has none: the check comes first

_CPU, _POOLED = 1, 2
"""DLPack's number of the CPU, and TVM's of the allocator that keeps memory between runs."""


class Library:
    """A loaded library, and what it says of itself.

    Parameters
    ----------
    source : Any
        The file ``export_library`` wrote, or a ``tvm.relax.VMExecutable``.

    Raises
    ------
    ModelError
        If the file is not a library TVM can load, or is for a CPU with other vectors.
    """

    def __init__(self, source: Any) -> None:
        self.name = str(source) if isinstance(source, str | Path) else type(source).__name__
        self.description: Description | None = None
        self._path = Path(source) if isinstance(source, str | Path) else None
        self._example: Example | None = None
        let_workers_sleep()
        if isinstance(source, str | Path):
            self.module = _load(source)
            self.description = read_description(Path(source))
        elif hasattr(source, "jit"):
            self.module = self._link(source)
        else:
            raise ModelError(
                "run",
                "library",
                f"expected a file, or what TVM compiled, got an object of type {type(source).__name__}",
                "pass the path export_library wrote to",
            )
        if self.description is not None:
            self._expect_vectors(self.description.instructions)

    @property
    def example(self) -> Example | None:
        """Inputs and expected outputs, if the library holds some; raises as ``read_example``."""
        return read_example(self._path) if self._path is not None else self._example

    def function(self, name: str) -> Any:
        """One of the library's functions; None where it has no such one."""
        try:
            return self.module.get_function(name, query_imports=True)
        except AttributeError:  # no region: nothing of Convoy's is in it
            return None

    def start(self) -> Any:
        """A virtual machine with TVM's defaults.

        Raises
        ------
        ModelError
            If it is none that ``tvm.relax`` made.
        """
        try:
            try:
                return self._start()
            except RuntimeError:
                if "tvm" in sys.modules:
                    raise
                importlib.import_module("tvm")  # the module calls a function it has in Python only
                return self._start()
        except (AttributeError, RuntimeError, ValueError) as error:
            raise ModelError(
                "run",
                self.name,
                f"expected a library exported from tvm.relax, got {first_line(error)}",
                "make one with convoy compile",
            ) from error

    def _start(self) -> Any:
        machine = self.module["vm_load_executable"]()
        machine["vm_initialization"](_CPU, 0, _POOLED)
        return machine["main"]

    def _expect_vectors(self, instructions: str) -> None:
        """Refuse a library for vectors that this CPU lacks: TVM's part of it would end the process."""
        has = host().features  # empty where the system does not tell
        needed = {one for isa, given in INSTRUCTIONS.items() if isa == instructions for one in given.needs}
        if has and (missing := ", ".join(sorted(needed - has))):
            raise ModelError(
                "run",
                self.name,
                f"expected a CPU with {missing}, for which it was compiled, got one without",
                "compile it on this machine, or name its CPU as target, such as haswell",
            )

    def _link(self, executable: Any) -> Any:
        """Link what was compiled in this process, into a file that is gone afterwards."""

        def link_and_read(output: str, objects: Sequence[str], **given: Any) -> None:
            link(output, objects, **given)
            self.description, self._example = read_description(Path(output)), read_example(Path(output))

        return executable.jit(fcompile=link_and_read, force_recompile=True)


def _load(library: str | Path) -> Any:
    path = Path(library)
    check_file(path)
    name = _name_of_content(path)
    try:
        name.encode()
    except UnicodeEncodeError as error:  # TVM takes text
        problem = "expected a path in UTF-8, got other bytes in its name or its folders'"
        raise ModelError("run", str(path), problem, "rename it") from error
    try:
        load_runtime()
        return tvm_ffi.load_module(name, keep_module_alive=False)
    except Exception as error:
        # the loader's error type depends on the file's suffix
        raise ModelError(
            "run",
            str(path),
            f"expected a library exported from tvm.relax, got {first_line(error).replace(name, str(path))}",
            "make one with convoy compile",
        ) from error


def _name_of_content(path: Path) -> str:
    """The path, spelled as no other file in its place is.

    For a name it has loaded, the system's loader gives what it has, whatever the file holds now.
    """
    whole = path.resolve()
    spelled = "".join("./" if bit == "1" else "/" for bit in f"{whole.stat().st_ino:b}")
    return f"{whole.parent}/{spelled}{whole.name}"


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
