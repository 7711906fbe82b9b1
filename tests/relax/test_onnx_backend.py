"""Convoy behind ONNX's backend interface; ONNX's own tests of it are in ``tests/onnx_backend``."""

from __future__ import annotations

import numpy as np
import pytest

from command import tiny_model
from convoy.errors import TargetError
from convoy.relax.onnx_backend import ConvoyBackend
from relax.onnx_models import run_onnx


@pytest.mark.slow
def test_the_compiler_of_regions_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM links by ``CXX``, or takes ``CC`` for one word."""
    monkeypatch.setenv("CC", "gcc -g0")
    monkeypatch.setenv("CXX", "false")
    model = tiny_model()
    shape = [dim.dim_value or 1 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    image = np.ones(shape, "float32")
    (got,) = ConvoyBackend.prepare(model).run([image])
    np.testing.assert_allclose(got, run_onnx(model, image)[0], rtol=1e-4, atol=1e-6)


def test_another_device_is_refused() -> None:
    with pytest.raises(TargetError, match="expected the device CPU"):
        ConvoyBackend.prepare(tiny_model(), "CUDA:0")
