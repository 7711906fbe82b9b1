"""What ``convoy.compile`` gives says in one line why it cannot write its library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convoy
from convoy.deploy.export import export_library
from convoy.errors import ToolchainError
from convoy.relax.executable import Executable


@pytest.fixture(scope="module")
def executable() -> Executable:
    text = "(float[1,3,4,4] x) => (float[1,3,4,4] y) { y = Relu (x) }"
    return convoy.compile(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'))


@pytest.mark.parametrize("end", [".so", ".tar", ".o"])
def test_a_folder_that_is_gone(executable: Executable, tmp_path: Path, end: str) -> None:
    with pytest.raises(ToolchainError, match=r"expected an existing folder, got .*gone; make the folder"):
        executable.export_library(str(tmp_path / "gone" / f"net{end}"))


def test_a_name_that_is_a_folder(executable: Executable, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="expected a file, got a folder; name a file in it"):
        executable.export_library(str(tmp_path))


@pytest.mark.parametrize("name", ["n" * 300 + ".so", "a\0b.so"])
def test_a_name_that_no_file_has(executable: Executable, tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolchainError, match=r"^export: ") as raised:
        executable.export_library(str(tmp_path / name))
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="this system has no folder for no files")
def test_a_folder_that_takes_no_file(executable: Executable) -> None:
    for write in (executable.export_library, lambda path: export_library(executable, Path(path))):
        with pytest.raises(
            ToolchainError, match=r"^export: /proc/net\.so: expected to write it, got"
        ) as raised:
            write("/proc/net.so")
        assert "\n" not in str(raised.value)
        assert str(raised.value).count("expected") == 1


def test_what_tvm_takes_is_written(executable: Executable, tmp_path: Path) -> None:
    for name, settings in (("net.so", {}), ("net.tar", {}), ("kept.so", {"workspace_dir": str(tmp_path)})):
        executable.export_library(str(tmp_path / name), **settings)
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    (y,) = convoy.load(tmp_path / "net.so").run([x])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
