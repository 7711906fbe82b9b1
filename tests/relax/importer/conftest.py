"""What the import tests share: small ONNX models, TVM and ONNX Runtime to run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

MakeModel = Callable[..., onnx.ModelProto]


@pytest.fixture
def make_model() -> MakeModel:
    """model(nodes, inputs={name: shape}, constants={name: array}, outputs=[name], opset=17)."""

    def make(
        nodes: Sequence[onnx.NodeProto],
        inputs: Mapping[str, Sequence[int | str | None]],
        constants: Mapping[str, np.ndarray] | None = None,
        outputs: Sequence[str] = ("y",),
        opset: int = 17,
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            nodes,
            "network",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    return make


@pytest.fixture
def run_tvm() -> Callable[..., list[np.ndarray]]:
    """Run a module's main through plain TVM."""

    def run(module: tvm.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
        machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
        result = machine["main"](*(tvm.runtime.tensor(a) for a in arrays))
        return [result.numpy()] if hasattr(result, "numpy") else [r.numpy() for r in result]

    return run


@pytest.fixture
def run_onnx() -> Callable[..., list[np.ndarray]]:
    """Run a model through ONNX Runtime, the reference of this project."""

    def run(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
        onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        names = [i.name for i in session.get_inputs()]
        return list(session.run(None, dict(zip(names, arrays, strict=True))))

    return run


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
