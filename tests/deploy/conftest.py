"""Fixtures: TVM executables of hand-written regions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tiny_region import TinyRegion, module_calling
from tvm import relax

from convoy import target
from convoy.offload.settings import Settings
from convoy.options import Options
from convoy.relax import codegen


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tvm.relax.VMExecutable]:
    """Regions in, TVM executables out, through RunCodegen."""

    def build_one(region: TinyRegion, options: Options | None = None) -> tvm.relax.VMExecutable:
        monkeypatch.setattr(codegen, "_generate", lambda function, context, tuner: region)
        with codegen.using(codegen.Context(target.host(), Settings(options or Options()))):
            module = relax.transform.RunCodegen()(module_calling(region))
            return relax.build(module, "llvm")

    return build_one


@pytest.fixture
def library_path(tmp_path: Path) -> Path:
    return tmp_path / "model.so"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
