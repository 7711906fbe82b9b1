"""Scripts written for ONNX Runtime run with one import changed, and say the same."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convoy
from command import tiny_model
from convoy.errors import ConvoyError, ModelError
from convoy.onnx import InferenceSession, SessionOptions

Shapes = dict[str, tuple[int | None, ...]]

SCRIPTS = {
    "as in the documentation": """
import numpy as np
import onnxruntime as ort

sess = ort.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
input_name = sess.get_inputs()[0].name
label_name = sess.get_outputs()[0].name
x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
pred = sess.run([label_name], {input_name: x})[0]
print(input_name, label_name, pred.shape, pred.dtype, pred.argmax(), np.round(pred, 4).tolist())
""",
    "with options": """
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
assert "CPUExecutionProvider" in onnxruntime.get_available_providers()
session = onnxruntime.InferenceSession(open("net.onnx", "rb").read(), options)
for arg in session.get_inputs() + session.get_outputs():
    print(arg.name, arg.shape, arg.type)
for batch in (1, 3):
    feed = {arg.name: numpy.ones([batch] + arg.shape[1:], "float32") for arg in session.get_inputs()}
    print([numpy.round(y, 4).tolist() for y in session.run(None, feed)])
""",
    "what the model says of itself": """
import onnxruntime as ort
ort.set_default_logger_severity(3)
meta = ort.InferenceSession("two.onnx").get_modelmeta()
print(sorted(meta.custom_metadata_map.items()), meta.producer_name, meta.graph_name, meta.graph_description)
print(meta.domain, meta.description, meta.version, type(ort.__version__), type(ort.get_version_string()))
ort.disable_telemetry_events()
ort.set_default_logger_verbosity(0)
ort.set_seed(1)
""",
    "sizes written as -1": """
import numpy as np
import onnxruntime as ort
session = ort.InferenceSession("minus.onnx")
session.set_providers(["CPUExecutionProvider"])
print([(a.name, a.shape) for a in session.get_inputs() + session.get_outputs()])
for shape in ((1, 3, 4, 5), (2, 3, 6, 7)):
    print(session.run(None, {"x": np.full(shape, -0.5, np.float32)})[0].shape)
""",
    "inner tensors made outputs": """
import numpy as np
import onnx
import onnxruntime as ort
model = onnx.load("net.onnx")
model.graph.output.extend([onnx.ValueInfoProto(name=node.output[0]) for node in model.graph.node[:-1]])
session = ort.InferenceSession(model.SerializeToString())
print([(a.name, a.shape[1:], a.type) for a in session.get_outputs()])
print([y.shape for y in session.run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})])
""",
    "many inputs, some sizes open": """
import numpy as np
from onnxruntime import InferenceSession
session = InferenceSession("two.onnx")
print([(a.name, a.shape, a.type) for a in session.get_inputs()], [a.name for a in session.get_outputs()])
for size in (4, 6, 4):
    image = np.arange(2 * size * 3, dtype=np.float32).reshape(2, size, 3)
    for names in (None, ["both", "sum"], ["both"]):
        found = session.run(names, {"n": np.array([size]), "b.1": image, "a": image[::-1].copy()})
        print([(y.shape, y.dtype.name, float(y.sum())) for y in found])
""",
}
"""Each prints what it finds."""


def two_inputs() -> onnx.ModelProto:
    image = ["batch", "length", 3]
    nodes = [helper.make_node("Add", ["a", "b.1"], ["sum"]), helper.make_node("Mul", ["n", "n"], ["both"])]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, image),
        helper.make_tensor_value_info("b.1", TensorProto.FLOAT, image),
        helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info("sum", TensorProto.FLOAT, image),
        helper.make_tensor_value_info("both", TensorProto.INT64, [1]),
    ]
    graph = helper.make_graph(nodes, "two", inputs, outputs)
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="tests")
    model.domain, model.doc_string, model.model_version, graph.doc_string = "a.b", "all", 7, "inner"
    helper.set_model_props(model, {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"})
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    onnx.save(tiny_model(batch="N"), folder / "net.onnx")
    onnx.save(two_inputs(), folder / "two.onnx")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [-1, 3, "?", "?"]) for n in "xy")
    minus = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "minus", [x], [y])
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(minus, opset_imports=opset, ir_version=8), folder / "minus.onnx")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_for_onnx_runtime_changes_one_import(name: str, folder: Path) -> None:
    script = SCRIPTS[name]
    changed = re.sub(
        r"^import onnxruntime as ort$", "import convoy.onnx as ort", script, flags=re.MULTILINE
    )
    changed = re.sub(
        r"^import numpy, onnxruntime$",
        "import numpy, convoy.onnx as onnxruntime",
        changed,
        flags=re.MULTILINE,
    )
    changed = changed.replace("from onnxruntime import", "from convoy.onnx import")
    assert changed != script
    said = []
    for text in (script, changed):
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    numbers = [np.array(re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text), float) for text in said]
    np.testing.assert_allclose(numbers[1], numbers[0], atol=2e-4)
    words = [re.sub(r"-?\d+\.\d*(?:e-?\d+)?", "", text) for text in said]
    assert words[0] == words[1]


def test_a_second_session_is_not_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    InferenceSession(folder / "net.onnx")

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("convoy.relax.compile.compile", fail)
    InferenceSession(str(folder / "net.onnx"))
    with pytest.raises(AssertionError):
        InferenceSession(folder / "net.onnx", options=convoy.Options(accuracy="direct"))


def count_compiled(
    monkeypatch: pytest.MonkeyPatch, *, only_known: bool = False
) -> list[dict[str, tuple[int | None, ...]] | None]:
    """The shapes of each compilation, as it comes; ``only_known``: open sizes cannot be compiled."""
    whole, seen = InferenceSession._compile, []

    def compiled(session: InferenceSession, shapes: Shapes | None) -> object:
        seen.append(shapes)
        if only_known and shapes is None:
            raise ModelError("import", "net", "expected known sizes, got others", "give shapes")
        return whole(session, shapes)

    monkeypatch.setattr(InferenceSession, "_compile", compiled)
    return seen


def sums(session: InferenceSession, sizes: Sequence[int]) -> list[bool]:
    """Whether the sum of ``two_inputs`` is right at each length."""
    right = []
    for size in sizes:
        a = np.arange(2 * size * 3, dtype=np.float32).reshape(2, size, 3)
        (found,) = session.run(["sum"], {"n": np.array([size]), "a": a, "b.1": 2 * a})
        right.append(np.array_equal(found, 3 * a))
    return right


def test_sizes_after_the_first_share_a_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compiled(monkeypatch)
    session = InferenceSession(folder / "two.onnx")
    assert all(sums(session, (4, 4, 6, 7, 6, 4, 9)))
    assert compiled == [{"a": (None, 4, 3), "b.1": (None, 4, 3)}, None]


def test_each_size_is_compiled_where_open_ones_cannot_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = count_compiled(monkeypatch, only_known=True)
    session = InferenceSession(folder / "two.onnx")
    assert all(sums(session, (4, 6, 7, 6)))
    assert [shapes and shapes["a"] for shapes in compiled] == [
        (None, 4, 3),
        None,
        (None, 6, 3),
        (None, 7, 3),
    ]


@pytest.mark.slow
def test_a_session_of_a_library(folder: Path) -> None:
    path = folder / "net.so"
    convoy.compile(folder / "net.onnx").export_library(str(path))
    session = InferenceSession(path, SessionOptions(intra_op_num_threads=1))
    assert [(arg.name, arg.shape, arg.type) for arg in session.get_inputs()] == [
        ("x", ["n", 3, 8, 8], "tensor(float)")
    ]
    (found,) = session.run(["y0_softmax"], {"x": np.ones((2, 3, 8, 8), np.float32)})
    assert found.shape == (2, 5)


def test_what_does_not_fit_is_one_line(folder: Path) -> None:
    session = InferenceSession(folder / "net.onnx")
    image = np.ones((1, 3, 8, 8), np.float32)
    with pytest.raises(ModelError, match="run: output: expected one of y0_softmax, got z; name outputs"):
        session.run(["z"], {"x": image})
    with pytest.raises(ModelError, match=r"run: inputs: expected x, got y \(missing: x; no"):
        session.run(None, {"y": image})
    two = InferenceSession(folder / "two.onnx")  # of which nothing is compiled yet
    with pytest.raises(ModelError, match=r"run: inputs: expected a, b\.1, n, got n \(missing: a, b\.1\);"):
        two.run(None, {"n": np.array([1])})
    with pytest.raises(ModelError, match="expected CPUExecutionProvider among the providers, got CUDA"):
        InferenceSession(folder / "net.onnx", providers=["CUDAExecutionProvider"])
    for feed in (None, [1.0], (("x", 1.0),)):
        with pytest.raises(
            ModelError, match="run: inputs: expected a dict of arrays by name, got an object of"
        ):
            session.run(None, feed)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="expected a readable ONNX file, got embedded null byte"):
        InferenceSession("x\0.onnx")
    with pytest.raises(
        ConvoyError, match="sess_options: expected SessionOptions, got an object of type int"
    ):
        InferenceSession(folder / "net.onnx", 3)
    with pytest.raises(ConvoyError, match=r"InferenceSession: expected Options, got \{\}"):
        InferenceSession(folder / "net.onnx", options={})  # type: ignore[arg-type]
    options = SessionOptions()
    options.intra_op_num_threads = "two"  # type: ignore[assignment]
    with pytest.raises(ConvoyError, match="threads: expected a number of threads up to 256, got 'two'"):
        InferenceSession("x.onnx", options)
    with pytest.raises(ModelError, match="got 3 bytes that do not parse"):
        InferenceSession(b"\xff\xff\xff")
    with pytest.raises(ModelError, match=r"expected a path, bytes or an onnx.ModelProto"):
        InferenceSession(5)  # type: ignore[arg-type]


def test_metadata_that_is_no_text_is_shown_as_far_as_it_is() -> None:
    model = tiny_model()
    model.producer_name = "AAAAmine"
    data = model.SerializeToString().replace(b"AAAA", b"\xed\xa0\x80\xff")
    assert InferenceSession(data).get_modelmeta().producer_name.endswith("mine")
