"""Every peer computes the same as ONNX Runtime, one image and several; those not installed are skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

from command import tiny_model
from convoy.bench.accuracy import compare_outputs, reference_outputs
from convoy.bench.batch import set_batch
from convoy.bench.engines import ENGINES, PACKAGES, SETTINGS, TITLES
from convoy.bench.inputs import seeded_inputs
from convoy.bench.job import Job
from convoy.bench.package import find_program
from convoy.bench.worker import Worker
from convoy.deploy.requests import Load
from convoy.errors import ModelError

NEEDS = {"onnxruntime": ("onnxruntime",), "openvino": ("openvino",), "ncnn": ("ncnn", "pnnx")}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))


def run(
    engine: str, model: onnx.ModelProto, folder: Path, *, external: bool = False, streams: int = 1
) -> None:
    """Run an engine in its own process and compare."""
    for package in NEEDS[engine]:
        if find_spec(package) is None:
            pytest.skip(f"{package}, of the extra 'bench', is not installed")
    inputs = seeded_inputs(model)
    reference = reference_outputs(model, inputs)
    path = folder / "net.onnx"
    onnx.save(model, path, save_as_external_data=external, location="net.bin", size_threshold=0)
    job = Job(path, inputs, 1, outputs=tuple(array.shape for array in reference), streams=streams)
    worker = Worker(engine)
    try:
        worker.start(1)
        worker.load(job, worker.prepare(job, lambda _: None))
        worker.run(2, 0.0)
        found = worker.serve(Load(streams=streams, iterations=6, warmup=1))
        assert len(found.milliseconds) == 6
        assert min(found.milliseconds) > 0
        (difference,) = compare_outputs(["y"], worker.outputs(), reference)
    finally:
        worker.close()
    assert difference.relative < 1e-5
    assert difference.spread > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("engine", NEEDS)
def test_a_peer_computes_in_float32(engine: str, batch: int, tmp_path: Path, cache: None) -> None:
    model = tiny_model(softmax=False)
    set_batch(model, batch)
    run(engine, model, tmp_path)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_peer_takes_several_requests_at_once(engine: str, tmp_path: Path, cache: None) -> None:
    run(engine, tiny_model(softmax=False), tmp_path, streams=2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", NEEDS)
def test_a_peer_finds_weights_beside_the_model(engine: str, tmp_path: Path, cache: None) -> None:
    run(engine, tiny_model(softmax=False), tmp_path, external=True)


def test_ncnn_says_which_layer_it_lacks(tmp_path: Path, cache: None) -> None:
    ncnn = pytest.importorskip("ncnn", reason="ncnn, of the extra 'bench', is not installed")
    from convoy.bench.peers import Ncnn

    param = tmp_path / "net.param"
    param.write_text("7767517\n2 2\nInput in 0 1 in0\nTeleport t 1 1 in0 out0\n")
    param.with_suffix(".bin").touch()
    with pytest.raises(ModelError, match=r"layers it lacks: Teleport"):
        Ncnn().load(Job(param, {"x": np.ones((1, 3), np.float32)}, 1, outputs=((1, 3),)), param)
    assert ncnn.__version__


def test_a_package_that_is_not_there_is_named() -> None:
    from convoy.bench.package import import_package

    with pytest.raises(ModelError, match="no_such_peer: expected the package, got an import error"):
        import_package("no_such_peer")


def test_every_engine_has_a_title() -> None:
    assert TITLES.keys() == ENGINES.keys()
    assert SETTINGS.keys() <= ENGINES.keys()
    assert {package for needed in NEEDS.values() for package in needed} <= set(PACKAGES)


def test_a_converter_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("converter", "programless"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import torch_that_nobody_installed\n")
    program = tmp_path / "converter" / "converter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("converter") == str(program)
    for missing in ("programless", "converter_that_nobody_installed"):
        with pytest.raises(ModelError, match=f"pip install --no-deps {missing}"):
            find_program(missing)
