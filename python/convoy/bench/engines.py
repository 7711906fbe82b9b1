"""The engines that can be timed.  To add one: a class as in ``job.Engine``, a line in ``ENGINES``.

An engine lives in a process of its own (``worker.py``), which is made with ``environment``
set, so that thread pools read it before they start.
"""

from __future__ import annotations

from collections.abc import Iterable

from convoy.bench.job import Engine, Precision
from convoy.bench.peers import Ncnn, OnnxRuntime, OnnxRuntimeLatency, OnnxRuntimePassive, OpenVino
from convoy.bench.tvm_engines import Convoy, ConvoyFloat32, ConvoySingle, PlainTvm
from convoy.errors import ModelError

ENGINES: dict[str, type[Engine]] = {
    "convoy": Convoy,
    "onnxruntime": OnnxRuntime,
    "onnxruntime-passive": OnnxRuntimePassive,
    "onnxruntime-latency": OnnxRuntimeLatency,
    "openvino": OpenVino,
    "ncnn": Ncnn,
    "ncnn-passive": Ncnn,
    "tvm": PlainTvm,
    "convoy-single": ConvoySingle,
    "convoy-float32": ConvoyFloat32,
    "convoy-one-thread": Convoy,
}
OURS = ("convoy", "convoy-single", "convoy-float32", "convoy-one-thread")
"""Convoy itself, no peers."""
TITLES = {
    "convoy": "Convoy",
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-passive": "ONNX Runtime, passive",
    "onnxruntime-latency": "ONNX Runtime, one at a time",
    "openvino": "OpenVINO",
    "ncnn": "ncnn",
    "ncnn-passive": "ncnn, passive",
    "tvm": "plain TVM",
    "convoy-single": "Convoy, one by one",
    "convoy-float32": "Convoy, float32",
    "convoy-one-thread": "Convoy, one thread",
}
"""What people call them."""
SETTINGS = {
    "ncnn-passive": {"OMP_WAIT_POLICY": "passive"},
    "convoy-one-thread": {"CONVOY_NUM_THREADS": "1"},
}
"""Variables of one engine alone.

ncnn's threads spin in every barrier of OpenMP.  That is right on an idle machine; on a busy one a
thread spins through the time slice its partner needs, and ShuffleNet takes 2200 ms in place of 13
(2 cores, load average 8, 2026-11-21).  There ``ncnn-passive``, whose threads sleep, is the fair peer.
"""
PACKAGES = ("onnxruntime", "openvino", "ncnn", "pnnx", "apache-tvm", "onnx", "numpy")
"""Distributions whose versions a result depends on."""


def check_engines(names: Iterable[str], precision: Precision = "float32") -> None:
    """Raise ``ModelError`` for the first name that is none of ``ENGINES``, or has nothing to show."""
    for name in names:
        if name == "convoy-float32" and precision == "int8":  # it would time the same quantised network
            problem = "expected a network of floats, got a quantised one, of --precision int8"
            raise ModelError(
                "bench", f"engine {name!r}", problem, "time the file it was made of, beside it"
            )
        if name not in ENGINES:
            raise ModelError(
                "bench", f"engine {name!r}", f"expected one of {', '.join(ENGINES)}", "name one of them"
            )


def environment(threads: int, engine: str = "") -> dict[str, str]:
    """Variables that give every engine's pool the same threads, and those of ``engine`` alone.

    ``TVM_BIND_THREADS=0``: TVM would pin the calling thread to one core.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "CONVOY_NUM_THREADS": count,
        "TVM_NUM_THREADS": count,
        "TVM_BIND_THREADS": "0",
        **SETTINGS.get(engine, {}),
    }
