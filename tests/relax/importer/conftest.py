"""What the import tests share: small ONNX models, TVM and ONNX Runtime to run them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.script.parser.core.parser import Parser, ScriptMacro

from convoy.relax.door import open_door
from relax.loops import find_shared_scratch, share_loops
from relax.onnx_models import make_model, run_onnx
from relax.plain import do_not_optimise_what_is_left, machine_of


@pytest.fixture(name="make_model")
def _make_model() -> Callable[..., onnx.ModelProto]:
    """model(nodes, inputs={name: shape}, constants={name: array}, outputs=[name], opset=17)."""
    return make_model


@pytest.fixture
def run_tvm() -> Callable[..., list[np.ndarray]]:
    """Run a module's main through plain TVM, several threads of which share its loops.

    A module is compiled once in a test.
    """
    share_loops()
    compiled: dict[tvm.IRModule, Callable[..., Any]] = {}

    def run(module: tvm.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
        if module not in compiled:
            assert not find_shared_scratch(module)
            compiled[module] = machine_of(module)["main"]
        result = compiled[module](*(tvm.runtime.tensor(a) for a in arrays))
        return [result.numpy()] if hasattr(result, "numpy") else [r.numpy() for r in result]

    return run


@pytest.fixture(name="run_onnx")
def _run_onnx() -> Callable[..., list[np.ndarray]]:
    """Run a model through ONNX Runtime."""
    return run_onnx


@pytest.fixture
def count_ops() -> Callable[[tvm.IRModule], Counter[str]]:
    """How often each op is called in main."""

    def count(module: tvm.IRModule) -> Counter[str]:
        ops: Counter[str] = Counter()

        def visit(expr: relax.Expr) -> None:
            if isinstance(expr, relax.Call):
                ops[str(getattr(expr.op, "name", expr.op)).removeprefix("relax.")] += 1

        relax.analysis.post_order_visit(module["main"], visit)
        return ops

    return count


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(autouse=True, scope="module")
def what_is_left_is_not_optimised() -> Iterator[None]:
    """What is asked here is what ops mean."""
    do_not_optimise_what_is_left()
    yield
    open_door()


@pytest.fixture(autouse=True, scope="module")
def parsers_are_found_quickly() -> Iterator[None]:
    """For each call of a loop's function TVM's parser looks for itself in all frames, whose lines of source
    it reads, too: a third of the time of these tests, as pytest's frames are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptMacro, "_find_parser_def", _find_parser)
        yield


def _find_parser(_: ScriptMacro) -> Parser:
    frame = sys._getframe(1)
    while ScriptMacro.parser_object_name not in frame.f_globals:
        assert frame.f_back is not None
        frame = frame.f_back
    parser: Parser = frame.f_globals[ScriptMacro.parser_object_name]
    return parser
