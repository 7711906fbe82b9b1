"""The code of pages that newcomers copy from works."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from command import tiny_model
from pages import DOCS, blocks, run_blocks


@pytest.mark.slow
def test_the_page_on_onnx_runtime_works(tmp_path: Path) -> None:
    onnx.save(tiny_model(), tmp_path / "model.onnx")
    session, _, library, check = run_blocks(blocks(DOCS / "from-onnx-runtime.md"), tmp_path)
    assert session == "x [1, 3, 8, 8] tensor(float) (1, 5)\n"
    assert library == "(1, 5)\n"
    assert " ok " in check
