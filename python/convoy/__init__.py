"""Convoy: an external codegen (BYOC) backend for Apache TVM.

``convoy.compile`` makes a library of a network, ``convoy.load`` runs it; ``Options``, ``Report`` and
``Runner`` belong to them.

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
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from convoy.installed import door
from convoy.version import __version__

if TYPE_CHECKING:
    from convoy import backend as backend
    from convoy import onnx as onnx
    from convoy import relax as relax
    from convoy import relay as relay
    from convoy import zoo as zoo
    from convoy.bench.profile import profile
    from convoy.deploy.runner import Runner, load
    from convoy.options import Options
    from convoy.relax.compile import compile
    from convoy.report.decision import Report

__all__ = ["Options", "Report", "Runner", "__version__", "compile", "door", "load", "profile"]

_FREE = {"Options": "convoy.options", "Report": "convoy.report.decision"}
"""What does without TVM, and where it stands."""
_OF_A_DOOR = {
    "compile": "convoy.relax.compile",
    "load": "convoy.deploy.runner",
    "Runner": "convoy.deploy.runner",
    "profile": "convoy.bench.profile",
}
"""What a modern TVM is needed for."""
_MODULES = ("backend", "onnx", "relax", "relay", "zoo")

_importing = threading.RLock()
"""Held by the thread that imports a door: of two threads that import modules which import each other,
Python fails one."""


if not TYPE_CHECKING:  # or every name would be there, and of any type

    def __getattr__(name: str) -> Any:
        if name not in (*_FREE, *_OF_A_DOOR, *_MODULES):
            raise AttributeError(f"module 'convoy' has no attribute {name!r}")
        if name not in (*_FREE, "backend", "zoo"):
            _import_door("relay" if name == "relay" else "relax")
        if name in _MODULES:
            return importlib.import_module(f"convoy.{name}")
        found = getattr(importlib.import_module({**_FREE, **_OF_A_DOOR}[name]), name)
        globals()[name] = found  # so it is looked up without the lock, which a fork may leave to nobody
        return found


def __dir__() -> list[str]:
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *__all__, *_MODULES})


def _import_door(wanted: str) -> None:
    with _importing:
        if door() is not None:
            importlib.import_module("tvm")  # which imports the door, and never the other way about
        importlib.import_module(f"convoy.{wanted}")


def _open_door() -> None:
    """Import the door that fits the TVM that was just imported; its runtime alone has none."""
    if getattr(sys.modules["tvm"], "_RUNTIME_ONLY", False):
        return
    try:
        importlib.import_module(f"convoy.{door()}")
    except RuntimeError as error:
        # another thread is importing the door, and waits for the TVM that this one is importing
        if type(error).__name__ != "_DeadlockError":
            raise


class _DoorOpener:
    """Opens TVM's door when TVM is imported: importing TVM takes more than a second.

    It stays where it is, as other threads may be going through ``sys.meta_path`` at the time.
    """

    def __init__(self) -> None:
        self.opened = False
        self.asking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "tvm" or self.opened or getattr(self.asking, "now", False):
            return None
        self.asking.now = True  # or it would be asked for the spec it looks for
        try:
            spec = importlib.util.find_spec("tvm")
        finally:
            self.asking.now = False
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return None
        execute = loader.exec_module

        def execute_and_open(module: ModuleType) -> None:
            execute(module)
            self.opened = True
            _open_door()

        loader.exec_module = execute_and_open
        return spec


if "tvm" in sys.modules:
    _open_door()
else:
    sys.meta_path.insert(0, _DoorOpener())
