"""TVM's command line with the target ``convoy``."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper


def tiny_onnx():
    """Conv -> Relu -> Sin -> Conv -> MaxPool -> Concat with itself, with named nodes."""
    weights = {"w": (8, 3, 3, 3), "v": (8, 8, 1, 1)}
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("Sinh", ["b"], ["c"], name="host"),
        helper.make_node("Conv", ["c", "v"], ["d"], name="second"),
        helper.make_node("MaxPool", ["d"], ["e"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Concat", ["e", "e"], ["y"], name="twice", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 16, 8, 8])],
        [
            numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_an_error_of_convoy_is_one_line(tmp_path):
    onnx.save(tiny_onnx(), tmp_path / "net.onnx")
    call = [sys.executable, "-m", "convoy.relay.tvmc", "compile", "--target=convoy -accuracy=nosuch, llvm"]
    ended = subprocess.run(
        [*call, str(tmp_path / "net.onnx")], capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert (
        ended.stderr.strip().splitlines()[-1].startswith("Error: options: accuracy: expected one of direct")
    )


@pytest.mark.slow
def test_a_composite_target_with_options_and_dumped_offloads(tmp_path):
    # compile --target="convoy -threads=1 …, llvm"  =>  a package that plain tvmc runs
    onnx.save(tiny_onnx(), tmp_path / "tiny.onnx")

    def tvmc(module, *arguments):
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    target = f"convoy -threads=1 -accuracy=direct -keep={tmp_path.name}, llvm -mcpu=x86-64"
    options = ["--target", target, "--dump-offloads=-", "-o", "tiny.tar"]
    text = tvmc("convoy.relay.tvmc", "compile", *options, "tiny.onnx")
    assert "convoy: 5" in text
    assert "generic: 1" in text
    # an op that is no composite has its own name, not that of the composite before or after it
    took = re.findall(r"<- +convoy\.(\w+)\n.*?<- +(?:%\d+ = )?([\w.]+)\(", text)
    assert took == [
        ("conv2d_relu", "nn.conv2d"), ("conv2d_relu", "nn.relu"), ("conv2d", "nn.conv2d"),
        ("max_pool2d", "nn.max_pool2d"), ("concatenate", "concatenate"),
    ]  # fmt: skip
    assert (tmp_path / tmp_path.name / "settings.c").read_text().count("convoy_compiled_threads = 1")
    tvmc("tvm.driver.tvmc", "run", "tiny.tar", "--fill-mode", "ones", "-o", "out.npz")
    assert np.isfinite(np.load(tmp_path / "out.npz")["output_0"]).all()


def test_the_target_has_what_tvmc_asks_of_it_in_any_version():
    # 0.14 reads two of these, 0.17 to 0.19 all
    wanted = {"config_key", "pass_default", "default_target", "pass_pipeline"}
    code = "import convoy.relay.tvmc; from tvm.driver.tvmc.composite_target import get_codegen_by_target"
    code += "; print(*get_codegen_by_target('convoy'))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == wanted
