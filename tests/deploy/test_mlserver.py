"""A library behind a real MLServer, asked by a stock client of Triton's: HTTP and gRPC."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import convoy
from command import tiny_model

REASON = (
    "MLServer and tritonclient are not installed: pip install '.[serve]' 'tritonclient[all]' to run these"
)
if find_spec("mlserver") is None:  # not imported: it and the gRPC client know the protocol by one name each
    pytest.skip(REASON, allow_module_level=True)
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
pytestmark = pytest.mark.slow

CLIENTS = {"http": http, "grpc": grpc}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("server") / "tiny.so"
    convoy.compile(tiny_model(batch="N")).export_library(str(path))
    return path


@pytest.fixture(scope="module")
def clients(library: Path) -> Iterator[dict[str, Any]]:
    ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
    model = {
        "name": "tiny",
        "implementation": "convoy.deploy.mlserver.ConvoyModel",
        "parameters": {"uri": f"./{library.name}", "extra": {"streams": 2}},
    }
    (library.parent / "model-settings.json").write_text(json.dumps(model))
    settings = {"host": "127.0.0.1", "parallel_workers": 0, **{f"{n}_port": p for n, p in ports.items()}}
    (library.parent / "settings.json").write_text(json.dumps(settings))
    with (library.parent / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlserver.cli.main", "start", "."],
            cwd=library.parent,
            stdout=log,
            stderr=log,
        )
    try:
        made = {n: c.InferenceServerClient(f"127.0.0.1:{ports[n]}") for n, c in CLIENTS.items()}
        deadline = time.monotonic() + 120
        while not all(is_ready(client) for client in made.values()):
            assert server.poll() is None, (library.parent / "log").read_text()
            assert time.monotonic() < deadline, (library.parent / "log").read_text()
            time.sleep(0.2)
        yield made
    finally:
        server.terminate()
        server.wait(60)


def is_ready(client: Any) -> bool:
    try:
        return bool(client.is_model_ready("tiny"))
    except Exception:  # each client has its own for a server that does not listen yet
        return False


def ask(
    client: Any,
    kind: str,
    x: np.ndarray,
    name: str = "x",
    datatype: str = "FP32",
    *,
    said: tuple[int, ...] | None = None,
    times: int = 1,
) -> Any:
    given = CLIENTS[kind].InferInput(name, x.shape, datatype)
    in_json = {"binary_data": False} if kind == "http" else {}  # MLServer reads bytes by gRPC only
    given.set_data_from_numpy(x, **in_json)
    given.set_shape(said or x.shape)
    wanted = CLIENTS[kind].InferRequestedOutput("y0_softmax", **in_json)
    return client.infer("tiny", [given] * times, outputs=[wanted]).as_numpy("y0_softmax")


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("images", [1, 5])
def test_a_stock_client_gets_the_runner_s_answer(
    clients: dict[str, Any], library: Path, kind: str, images: int
) -> None:
    x = np.random.default_rng(0).standard_normal((images, 3, 8, 8), np.float32)
    np.testing.assert_allclose(ask(clients[kind], kind, x), convoy.load(library).run([x])[0], rtol=1e-6)


def test_the_server_says_what_the_library_says_of_itself(clients: dict[str, Any]) -> None:
    says = clients["http"].get_model_metadata("tiny")
    assert [(x["name"], x["datatype"], x["shape"]) for x in says["inputs"]] == [
        ("x", "FP32", [-1, 3, 8, 8])
    ]
    assert [(x["name"], x["shape"]) for x in says["outputs"]] == [("y0_softmax", [-1, 5])]


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "problem"),
    [
        ("x", (1, 3, 8, 9), "FP32", "x: expected float32 [n, 3, 8, 8], got float32 [1, 3, 8, 9]"),
        ("x", (1, 3, 8, 8), "FP64", "x: expected float32 [n, 3, 8, 8], got float64"),
        ("y", (1, 3, 8, 8), "FP32", "inputs: expected each of x once, got y"),
    ],
)
@pytest.mark.parametrize("kind", CLIENTS)
def test_a_request_that_does_not_fit_is_answered_in_the_library_s_words(
    clients: dict[str, Any], kind: str, name: str, shape: tuple[int, ...], dtype: str, problem: str
) -> None:
    x = np.zeros(shape, {"FP32": np.float32, "FP64": np.float64}[dtype])
    with pytest.raises(Exception, match="expected") as caught:  # each client has its own kind
        ask(clients[kind], kind, x, name, dtype)
    assert problem in str(caught.value)


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_request_that_contradicts_itself_is_the_client_s_fault(
    clients: dict[str, Any], kind: str
) -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    ours = r"run: x: expected FP32 \[2, 3, 8, 8\], got data that are not"
    of_mlserver = "unpack requires a buffer of 1536 bytes"
    with pytest.raises(Exception, match=ours if kind == "http" else of_mlserver):
        ask(clients[kind], kind, x, said=(2, 3, 8, 8))
    with pytest.raises(Exception, match="expected each of x once, got x"):
        ask(clients[kind], kind, x, times=2)
    assert ask(clients[kind], kind, x).shape == (1, 5)


LOAD = """
import asyncio, sys
from mlserver.settings import ModelParameters, ModelSettings
from convoy.deploy.mlserver import ConvoyModel
settings = ModelSettings(
    name="net", implementation=ConvoyModel, parameters=ModelParameters(uri=sys.argv[1])
)
asyncio.run(ConvoyModel(settings).load())
"""


def test_types_that_the_protocol_lacks_are_refused_as_the_model_loads(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> m (bfloat16[N,4] x) => (bfloat16[N,4] y) { y = Relu (x) }'
    )
    convoy.compile(model).export_library(str(tmp_path / "net.so"))
    command = [sys.executable, "-c", LOAD, tmp_path / "net.so"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "ModelError: run: x: expected a type that MLServer has, got x: bfloat16" in result.stderr
