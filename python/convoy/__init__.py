"""Convoy: an external codegen (BYOC) backend for Apache TVM.

After ``import convoy``, TVM's own entry takes Convoy's road as soon as TVM is imported, before or
after: ``tvm.compile(module, target="convoy")`` of a modern TVM (Relax), ``relay.build(module,
target="convoy")`` of a classic one (Relay); ``convoy.door()`` says which of the two is here.
``convoy.compile`` takes ONNX as well, with a modern TVM.  TVM itself is imported only when it is
needed: the graph, the planner and the code generator do without it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from convoy.installed import door

if TYPE_CHECKING:
    from convoy.relax.compile import compile

__all__ = ["__version__", "compile", "door"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "compile":
        return importlib.import_module("convoy.relax.compile").compile
    if name in ("relax", "relay", "zoo", "backend"):
        return importlib.import_module(f"convoy.{name}")
    raise AttributeError(f"module 'convoy' has no attribute {name!r}")


def _open_door() -> None:
    """Import the door that fits the TVM that was just imported; its runtime alone has none."""
    if getattr(sys.modules["tvm"], "_RUNTIME_ONLY", False):
        return
    importlib.import_module(f"convoy.{door()}")


class _DoorOpener:
    """Opens TVM's door when TVM is imported: importing TVM takes more than a second."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "tvm":
            return None
        sys.meta_path.remove(self)  # or it would be asked for the spec it looks for
        try:
            spec = importlib.util.find_spec("tvm")
        finally:
            sys.meta_path.insert(0, self)  # it may only have been asked where TVM is
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return None
        execute = loader.exec_module

        def execute_and_open(module: ModuleType) -> None:
            sys.meta_path.remove(self)
            execute(module)
            _open_door()

        loader.exec_module = execute_and_open
        return spec


if "tvm" in sys.modules:
    _open_door()
else:
    sys.meta_path.insert(0, _DoorOpener())
