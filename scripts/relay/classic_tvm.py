"""Makes ``import tvm`` work in .venv-relay; ``site`` imports this file whenever Python starts.

TVM's library needs three libraries of CUDA, none of them in a place where the loader looks.  They
are loaded just before TVM is: in every process, with nothing set in its environment.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_SITE = Path(__file__).parent
_LIBRARIES = (
    "libcuda.so.1",
    "nvidia/cuda_runtime/lib/libcudart.so.12",
    "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
)


class _Preload:
    """Finds nothing; loads the libraries when TVM is looked for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "tvm":
            sys.meta_path.remove(self)
            for library in _LIBRARIES:
                ctypes.CDLL(str(_SITE / library), mode=ctypes.RTLD_GLOBAL)
            # no schedules from the network, TVM's library from the wheel, whatever PATH holds, and
            # the defaults of tvmc's options
            os.environ.setdefault("TOPHUB_LOCATION", "NONE")
            os.environ.setdefault("TVM_LIBRARY_PATH", str(_SITE / "bitblas/3rdparty/tvm/build"))
            os.environ.setdefault("TVM_CONFIGS_JSON_DIR", str(_SITE / "tvmc-configs"))
        return None


sys.meta_path.insert(0, _Preload())
