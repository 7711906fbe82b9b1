"""ONNX's own node tests: what plain TVM passes, Convoy passes, with every region taken that can be."""

from __future__ import annotations

from pathlib import Path

from onnx_backend.cases import load_cases
from onnx_backend.run import run, summary, write_list

LIST = Path(__file__).parents[2] / "results" / "onnx_node_tests.txt"


def test_convoy_passes_what_plain_tvm_passes() -> None:
    results = run(load_cases())
    write_list(results, LIST)
    print(f"{summary(results)}; the list is in {LIST}")
    lost = [f"{r.name}: {r.convoy.reason}" for r in results if r.lost]
    assert not lost, "\n".join(lost)
