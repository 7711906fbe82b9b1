"""The engines that can be timed.  To add one: a class as in ``job.Engine``, a line in ``ENGINES``.

An engine lives in a process of its own (``worker.py``), which is made with ``environment``
set, so that thread pools read it before they start.
"""

from __future__ import annotations

from convoy.bench.job import Engine
from convoy.bench.peers import Ncnn, OnnxRuntime, OpenVino
from convoy.bench.tvm_engines import Convoy, PlainTvm

ENGINES: dict[str, type[Engine]] = {
    "convoy": Convoy,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "ncnn": Ncnn,
    "tvm": PlainTvm,
}
TITLES = {
    "convoy": "Convoy",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "ncnn": "ncnn",
    "tvm": "plain TVM",
}
"""What people call them."""
PACKAGES = ("onnxruntime", "openvino", "ncnn", "pnnx", "apache-tvm", "onnx", "numpy")
"""Distributions whose versions a result depends on."""


def environment(threads: int) -> dict[str, str]:
    """Variables that give every engine's pool the same threads.

    ``TVM_BIND_THREADS=0``: TVM would pin the calling thread to one core.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "CONVOY_NUM_THREADS": count,
        "TVM_NUM_THREADS": count,
        "TVM_BIND_THREADS": "0",
    }
