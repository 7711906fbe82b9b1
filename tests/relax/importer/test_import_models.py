"""The zoo through the importer: plain ops, static shapes, right numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax, tirx

from convoy import zoo
from convoy.relax.importer import load
from convoy.zoo.light import load_light

PLAIN = {
    "add", "clip", "concat", "divide", "expand_dims", "image.resize2d", "matmul", "mean", "multiply",
    "nn.avg_pool2d", "nn.avg_pool3d", "nn.batch_norm", "nn.conv2d", "nn.conv2d_transpose", "nn.max_pool2d",
    "nn.relu", "nn.silu", "nn.softmax", "permute_dims", "power", "reshape", "sigmoid", "squeeze",
}  # fmt: skip


NARROW = ("vgg19", "zfnet512")
"""Those of half a gigabyte of weights, here with 256 channels between dense layers."""


def is_static(variable: relax.Var) -> bool:
    if not isinstance(variable.ty, relax.TensorType):
        return True  # batch_norm's tuple
    shape = variable.ty.shape
    return shape is not None and all(isinstance(d, tirx.IntImm) for d in shape.values)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_model_is_plain_ops_of_static_shapes(name: str, count_ops) -> None:
    module = load(load_light(name, inner=256) if name in NARROW else zoo.load(name))
    relax.analysis.well_formed(module)
    ops = count_ops(module)
    assert set(ops) <= PLAIN
    assert [v.name_hint for v in module.get_global_vars()] == ["main"]
    bindings = [b for block in module["main"].body.blocks for b in block.bindings]
    assert all(is_static(b.var) for b in bindings)
    # the weight of every convolution and matmul is at hand
    for binding in bindings:
        op = getattr(getattr(binding.value, "op", None), "name", "")
        if op in ("relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul"):
            assert isinstance(binding.value.args[1], tvm.ir.Constant), binding.var.name


def shrink(model: onnx.ModelProto, size: int) -> onnx.ModelProto:
    """A smaller image for a network that does not mind."""
    constants = {i.name for i in model.graph.initializer}
    (image,) = [i for i in model.graph.input if i.name not in constants]
    for dim in image.type.tensor_type.shape.dim[2:]:
        dim.dim_value = size
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0", "unet"])
def test_open_batch_stays_open_through_a_model(name: str, count_ops) -> None:
    model = zoo.load(name)
    fixed = count_ops(load(model))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    module = load(model)
    n = module["main"].params[0].ty.shape.values[0]
    assert n.name == "n"
    assert count_ops(module) == fixed
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.var.ty, relax.TensorType):
                assert binding.var.ty.shape.values[0].same_as(n), binding.var.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet"])
def test_model_gives_what_onnx_runtime_gives(name: str, run_tvm, run_onnx, rng) -> None:
    model = shrink(zoo.strip_softmax(zoo.load(name)), 64)
    x = rng.standard_normal((1, 3, 64, 64)).astype("float32")
    mine, reference = run_tvm(load(model), x)[0], run_onnx(model, x)[0]
    assert np.abs(reference).max() > 0.1
    assert np.abs(mine - reference).max() <= 1e-5 * np.abs(reference).max()
