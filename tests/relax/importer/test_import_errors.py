"""Bad models give one ModelError that says where, what and what to do."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convoy import pipes
from convoy.errors import ModelError
from convoy.onnx_file import digest_file
from convoy.relax.importer import load
from convoy.relax.importer.read import read

MakeModel = Callable[..., Any]


@pytest.fixture
def relu(make_model):
    return make_model([helper.make_node("Relu", ["x"], ["y"], name="act")], {"x": [1, 3, 8, 8]})


@pytest.fixture
def conv(make_model, rng):
    weight = rng.standard_normal((8, 3, 5, 5)).astype("float32")
    return make_model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": [1, 3, 8, 8]}, {"w": weight})


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"import: .*absent\.onnx: expected an ONNX file, got no such file"
    ):
        load(tmp_path / "absent.onnx")
    with pytest.raises(ModelError, match="check the path; by name bench and profile alone take") as by_name:
        load(Path("resnet50"))
    assert "zoo" in by_name.value.remedy


def test_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected a readable ONNX file"):
        load(tmp_path)


@pytest.mark.parametrize("reading", [load, digest_file])
def test_a_pipe_that_nobody_writes_into_is_no_model(tmp_path: Path, reading, monkeypatch) -> None:
    # it was waited for without end
    monkeypatch.setattr(pipes, "PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="a readable ONNX file, got a pipe into which nobody wrote"):
        reading(tmp_path / "m.onnx")


@pytest.mark.parametrize("reading", [load, digest_file])
def test_a_pipe_may_have_a_model(relu, tmp_path: Path, reading) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    data = relu.SerializeToString()
    writer = threading.Thread(target=lambda: (tmp_path / "m.onnx").write_bytes(data), daemon=True)
    writer.start()
    assert reading(tmp_path / "m.onnx")
    writer.join()


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="got an empty file"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("begins", "problem"),
    [
        (b"\x7fELF\2\1\1", "got a library; give the model it was made of"),
        (b"PK\3\4", "got an archive, such as PyTorch saves; load it there"),
        (b"\x1c\0\0\0TFL3", "got a model of TensorFlow Lite; convert it"),
        (b"<?xml version", "got XML, such as OpenVINO's models; give the ONNX file"),
        (b"version https://git-lfs.github.com/spec/v1", "got a pointer of Git LFS; fetch the file"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path: Path, begins: bytes, problem: str) -> None:
    (tmp_path / "m.onnx").write_bytes(begins + bytes(64))
    with pytest.raises(ModelError, match=rf"m\.onnx: expected an ONNX model, {problem}"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_truncated_file(conv, tmp_path: Path, share: float) -> None:
    data = conv.SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"m\.onnx: expected"):
        load(tmp_path / "m.onnx")


def test_not_protobuf(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("<html>404 not found</html>" * 20)
    with pytest.raises(ModelError, match=r"m\.onnx: expected"):
        load(tmp_path / "m.onnx")


def test_model_without_graph() -> None:
    with pytest.raises(ModelError, match="expected a graph with outputs"):
        load(onnx.ModelProto())


def test_invalid_graph(make_model) -> None:
    # reads a tensor that nothing makes
    with pytest.raises(ModelError, match="expected a valid ONNX model"):
        load(make_model([helper.make_node("Relu", ["nowhere"], ["y"])], {"x": [1]}))


def save_external(conv: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(conv, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_external_data_is_read_beside_the_model(conv, tmp_path: Path, run_tvm, run_onnx, rng) -> None:
    inline = onnx.ModelProto.FromString(conv.SerializeToString())
    path = save_external(conv, tmp_path)
    x = rng.standard_normal((1, 3, 8, 8)).astype("float32")
    np.testing.assert_allclose(run_tvm(load(path), x)[0], run_onnx(inline, x)[0], rtol=1e-4, atol=1e-5)


def test_external_data_of_a_constant(make_model, tmp_path: Path, run_tvm, run_onnx, rng) -> None:
    w = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype("float32"), "w")
    nodes = [
        helper.make_node("Constant", [], ["w"], value=w),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    inline = make_model(nodes, {"x": [1, 3, 8, 8]})
    model = onnx.ModelProto.FromString(inline.SerializeToString())
    path = tmp_path / "m.onnx"
    onnx.save(
        model, path, save_as_external_data=True, location="m.data", size_threshold=0, convert_attribute=True
    )
    x = rng.standard_normal((1, 3, 8, 8)).astype("float32")
    np.testing.assert_allclose(run_tvm(load(path), x)[0], run_onnx(inline, x)[0], rtol=1e-4, atol=1e-5)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match=r"tensor w: expected external data in 'm.data', got No such file"):
        load(path)


def test_missing_external_data(conv, tmp_path: Path) -> None:
    path = save_external(conv, tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match=r"tensor w: expected external data in 'm.data', got No such file"):
        load(path)


def test_short_external_data(conv, tmp_path: Path) -> None:
    path = save_external(conv, tmp_path)
    data = (tmp_path / "m.data").read_bytes()
    (tmp_path / "m.data").write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=r"tensor w: expected external data"):
        load(path)


PLACES = ("absolute", "../secret.bin", "x/../../secret.bin", "link.bin", "out/secret.bin", "/dev/zero",
          "pipe.bin", ".", "", "s.bin\0", "w" * 5000, "circle")  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_external_data_is_read_in_the_models_folder_only(conv, tmp_path: Path, place: str) -> None:
    folder, secret = tmp_path / "model", tmp_path / "secret.bin"
    folder.mkdir()
    secret.write_bytes(conv.graph.initializer[0].raw_data)
    (folder / "link.bin").symlink_to(secret)
    (folder / "out").symlink_to(tmp_path)
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe.bin")
    path = save_external(conv, folder)
    model = onnx.load(path, load_external_data=False)
    entry = next(e for e in model.graph.initializer[0].external_data if e.key == "location")
    entry.value = str(secret) if place == "absolute" else place
    path.write_bytes(model.SerializeToString())
    for reading in (load, digest_file):
        with pytest.raises(
            ModelError, match=r"tensor w: expected external data in .{2,90}, got "
        ) as raised:
            reading(path)
        assert len(str(raised.value)) < 500


def test_external_data_in_a_folder_beside_the_model(conv, tmp_path: Path) -> None:
    path = save_external(conv, tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "m.data").rename(tmp_path / "weights" / "m.data")
    model = onnx.load(path, load_external_data=False)
    next(
        e for e in model.graph.initializer[0].external_data if e.key == "location"
    ).value = "weights/m.data"
    path.write_bytes(model.SerializeToString())
    assert read(path).weights["w"].shape == (8, 3, 5, 5)
    assert digest_file(path) == digest_file(path)


def test_initializer_with_missing_bytes(conv) -> None:
    conv.graph.initializer[0].raw_data = conv.graph.initializer[0].raw_data[:-4]
    with pytest.raises(ModelError, match=r"tensor w: expected data of shape 8x3x5x5"):
        load(conv)


def test_unknown_op_names_op_and_node(make_model) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="odd", domain="com.example")
    model = make_model([node], {"x": [1, 3]})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(ModelError, match="Frobnicate odd: expected ops that TVM's ONNX frontend knows"):
        load(model)


def test_operands_of_two_types_are_named_by_their_types() -> None:
    given, made = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1, 3, 4, 4]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("LRN", ["x"], ["y"], name="norm", size=3)], "g", [given], [made]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(
        ModelError, match="LRN norm: expected operands of one type, got float64 and float32; "
    ):
        load(model)


def test_node_the_frontend_cannot_convert_is_named(make_model) -> None:
    node = helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], name="pool", kernel_shape=[2, 2])
    size = {"s": np.array([1, 3, 16, 16])}
    with pytest.raises(
        ModelError, match="MaxUnpool pool: expected a node that TVM's ONNX frontend can convert"
    ):
        load(make_model([node], {"x": [1, 3, 8, 8], "i": [1, 3, 8, 8]}, size))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            helper.make_node("Flatten", ["x"], ["y"], name="it", axis=9),
            r"Invalid value\(9\) for attribute 'axis'",
        ),
        (helper.make_node("Softmax", ["x"], ["y"], axis=9), r"'axis' must be in \[-4 , 3\]"),
        (helper.make_node("Transpose", ["x"], ["y"], name="it", perm=[0, 1, 1, 3]), "repeated value: 1"),
    ],
)
def test_what_onnx_says_of_a_node_goes_before_what_tvm_says(make_model, node, reason: str) -> None:
    said = (
        f"expected a node that ONNX's shape inference takes, got: [^;]*{reason}.*; export the model again$"
    )
    with pytest.raises(ModelError, match=said):
        load(make_model([node], {"x": [1, 3, 8, 8]}))


def test_onnx_is_not_quoted_for_a_fault_of_another_node(make_model) -> None:
    fine = helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], name="pool", kernel_shape=[2, 2])
    wrong = helper.make_node("Flatten", ["y"], ["z"], name="flat", axis=9)
    size = {"s": np.array([1, 3, 16, 16])}
    with pytest.raises(ModelError, match="MaxUnpool pool: expected a node that TVM's ONNX frontend"):
        load(make_model([fine, wrong], {"x": [1, 3, 8, 8], "i": [1, 3, 8, 8]}, size))


def test_input_that_is_no_tensor(relu) -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))
    relu.graph.input.append(helper.make_value_info("s", sequence))
    with pytest.raises(ModelError, match="input s: expected a tensor"):
        load(relu)


def test_shape_of_unknown_input(relu) -> None:
    with pytest.raises(ModelError, match="shape of z: expected one of the inputs x"):
        load(relu, shapes={"z": (1, 3, 8, 8)})


@pytest.mark.parametrize("shape", [(1, 3, 9, 8), (1, 3, 8), (0, 3, 8, 8)])
def test_shape_that_contradicts_the_model(relu, shape: tuple[int, ...]) -> None:
    expected = re.escape(f"input x: expected a shape that fits [1, 3, 8, 8], got {list(shape)}")
    with pytest.raises(ModelError, match=expected):
        load(relu, shapes={"x": shape})


def test_input_without_a_shape_asks_for_one(make_model, relu) -> None:
    relu.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="input x: expected a shape, got none in the model"):
        load(relu)
    shape = load(relu, shapes={"x": (2, 2)})["main"].params[0].ty.shape
    assert [int(d) for d in shape.values] == [2, 2]


def test_model_given_is_left_unchanged(conv) -> None:
    before = conv.SerializeToString()
    load(conv)
    assert conv.SerializeToString() == before


def test_weights_stay_out_of_what_onnx_serialises(conv, tmp_path: Path) -> None:
    # so that checker, shape inference and converter work on models of more than 2 GB
    model = read(save_external(conv, tmp_path))
    assert model.weights["w"].nbytes == 8 * 3 * 5 * 5 * 4
    assert model.skeleton.ByteSize() < 200


def test_sizes_that_are_an_input_are_refused_by_what_to_do(make_model: MakeModel) -> None:
    # no size of an input is open: there is no --shape to ask for
    how = {"mode": "cubic", "keep_aspect_ratio_policy": "not_larger"}
    nodes = [helper.make_node("Cast", ["sizes"], ["whole"], to=TensorProto.INT64)]
    nodes.append(helper.make_node("Resize", ["x", "", "", "whole"], ["y"], name="bigger", **how))
    resize = make_model(nodes, {"x": (1, 3, 8, 8), "sizes": (4,)}, opset=18)
    with pytest.raises(ModelError, match=r"got others; export the model with constants in place"):
        load(resize)


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.COMPLEX64])
def test_an_input_of_no_numbers(make_model, kind: int) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1], "of": [2]})
    model.graph.input[1].type.tensor_type.elem_type = kind
    with pytest.raises(ModelError, match=r"input of: expected numbers, got (string|complex64)"):
        load(model)
