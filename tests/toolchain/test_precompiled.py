"""The intrinsics are parsed once, and nothing depends on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_tool import write_tool

from convoy.errors import ToolchainError
from convoy.target import Target
from convoy.toolchain import compiler

AVX2 = Target("avx2")
VECTORS = """\
#include "simd/simd.h"
void f{0}(float *p) {{ cv_storeu(p, cv_add(cv_loadu(p), cv_set1({0}.0f))); }}
"""
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="only GCC's headers are precompiled")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))


def log_calls(monkeypatch: pytest.MonkeyPatch, folder: Path, before: str = "") -> Path:
    """Compile with a gcc that writes its arguments down, one call a line."""
    log = folder / "log"
    tool = write_tool(folder / "cc", f'echo "$@" >> {log}\n{before}exec gcc "$@"\n')
    monkeypatch.setenv("CC", str(tool))
    return log


@pytest.mark.slow
@needs_gcc
def test_vector_units_share_one_parsed_header(monkeypatch, tmp_path):
    log = log_calls(monkeypatch, tmp_path)
    for i in range(3):
        compiler.compile_object(VECTORS.format(i), AVX2)
    calls = log.read_text().splitlines()
    assert sum("c-header" in call for call in calls) == 1
    assert sum(" -include " in call for call in calls) == 3
    (header,) = (tmp_path / "cache").glob("*/*.h.gch")
    assert header.stat().st_size > 1 << 20


@needs_gcc
def test_unit_without_vectors_parses_none(monkeypatch, tmp_path):
    log = log_calls(monkeypatch, tmp_path)
    compiler.compile_object("int f(void) { return 1; }", AVX2)
    compiler.compile_object(VECTORS.format(0), Target("portable"))
    assert "c-header" not in log.read_text()


@pytest.mark.slow
@needs_gcc
def test_gcc_that_cannot_precompile_compiles_all_the_same(monkeypatch, tmp_path):
    log = log_calls(monkeypatch, tmp_path, 'case "$*" in *c-header*) exit 1;; esac\n')
    for i in range(2):
        assert compiler.compile_object(VECTORS.format(i), AVX2).stat().st_size > 0
    assert log.read_text().count("c-header") == 1


@needs_gcc
def test_an_interrupted_gcc_is_not_one_that_cannot(monkeypatch, tmp_path):
    # TERM: where tests run in the background a shell lets its children ignore INT
    log_calls(monkeypatch, tmp_path, 'case "$*" in *c-header*) kill -TERM $$;; esac\n')
    with pytest.raises(ToolchainError, match=r"a signal \(SIGTERM\) that ended it"):
        compiler.compile_object(VECTORS.format(0), AVX2)
    assert not list((tmp_path / "cache").glob("*/*.gch"))


@pytest.mark.slow
@needs_gcc
def test_precompiled_header_changes_no_code(monkeypatch, tmp_path):
    with_it = compiler.compile_object(VECTORS.format(1), AVX2).read_bytes()
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "other"))
    log_calls(monkeypatch, tmp_path, 'case "$*" in *c-header*) exit 1;; esac\n')
    assert compiler.compile_object(VECTORS.format(1), AVX2).read_bytes() == with_it
