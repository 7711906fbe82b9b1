"""Models in float16 and bfloat16 are computed in float32; against ONNX Runtime, which does the same.

ONNX Runtime has no convolutions of bfloat16: there the reference is the model in float32.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import numpy_helper

import convoy
from convoy.bench.accuracy import compare_outputs, reference_outputs
from convoy.deploy.runner import Runner
from convoy.relax.importer import load
from convoy.report.decision import Report


def make(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')


def make_network(kind: str, rng) -> onnx.ModelProto:
    model = make(
        f"""network ({kind}[N,8,20,20] x) => ({kind}[N,10] z) {{
            c = Conv <pads = [1,1,1,1]> (x, w, b)
            d = Relu (c)
            e = Conv <pads = [1,1,1,1]> (d, v)
            g = Mul (e, k)
            s = Add (g, x)
            p = GlobalAveragePool (s)
            q = Flatten (p)
            r = MatMul (q, fc)
            z = Softmax (r)
        }}"""
    )
    shapes = {"w": (32, 8, 3, 3), "b": (32,), "v": (8, 32, 3, 3), "k": (1,), "fc": (8, 10)}
    for name, shape in shapes.items():
        array = (rng.standard_normal(shape) / 8).astype(kind)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.fixture
def network(rng) -> onnx.ModelProto:
    return make_network("float16", rng)


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 3])
def test_a_network_in_float16_is_offloaded_whole(images: int, network, run_onnx, rng) -> None:
    report = Report()
    executable = convoy.compile(network, report=report)
    assert report.flops_share > 0.99
    x = rng.standard_normal((images, 8, 20, 20)).astype("float16")
    found = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, run_onnx(network, x)[0], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_network_in_bfloat16_is_offloaded_whole(precision: str, rng) -> None:
    import ml_dtypes  # gives NumPy the type

    network = make_network("bfloat16", rng)
    report = Report()
    executable = convoy.compile(network, report=report, precision=precision)
    assert report.flops_share > 0.99
    x = rng.standard_normal((2, 8, 20, 20)).astype(ml_dtypes.bfloat16)
    (found,) = Runner(executable).run([x])
    assert found.dtype == x.dtype
    (difference,) = compare_outputs(["z"], [found], reference_outputs(network, {"x": x}))
    assert difference.passes(1e-4, precision)


def test_the_command_runs_a_library_of_bfloat16(convoy_command, tmp_path, rng) -> None:
    import ml_dtypes

    onnx.save(make_network("bfloat16", rng), tmp_path / "net.onnx")
    library, file = tmp_path / "net.so", tmp_path / "x.npy"
    assert convoy_command("compile", tmp_path / "net.onnx", "-o", library).code == 0
    np.save(file, np.ones((1, 8, 20, 20), ml_dtypes.bfloat16))
    for given in ((), ("-i", file)):
        result = convoy_command("run", library, *given, "-o", tmp_path / "z.npy")
        assert result.code == 0, result.err


def test_between_input_and_output_nothing_is_rounded(network, count_ops) -> None:
    assert count_ops(load(network))["astype"] == 2


def test_what_a_model_rounds_itself_and_looks_at_is_rounded(run_tvm, rng) -> None:
    model = make(
        """network (float[64] x) => (float[64] y) {
            h = Cast <to = 10> (x)
            y = Cast <to = 1> (h)
        }"""
    )
    x = rng.standard_normal(64, np.float32)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], x.astype("float16").astype("float32"))


def test_autocast_is_no_reason_to_round(run_tvm, rng, count_ops) -> None:
    model = make(
        """network (float[8] x) => (float[8] y) {
            h = Cast <to = 10> (x)
            e = Exp (h)
            y = Cast <to = 1> (e)
        }"""
    )
    assert "astype" not in count_ops(load(model))
    x = rng.standard_normal(8, np.float32)
    np.testing.assert_allclose(run_tvm(load(model), x)[0], np.exp(x), rtol=1e-6)


def test_elements_that_are_no_numbers_stay_half(run_tvm, rng) -> None:
    """Shape, and a comparison's answer, are no float16; what an op only moves comes out as it was."""
    model = make(
        """network (float16[3,4] x, float16[3,4] y) => (bool[3,4] less, float16[4,3] t, int64[2] s) {
            less = Less (x, y)
            t = Transpose (x)
            s = Shape (x)
        }"""
    )
    x, y = rng.standard_normal((2, 3, 4)).astype("float16")
    less, moved, shape = run_tvm(load(model), x, y)
    assert (less == (x < y)).all()
    assert moved.dtype == np.float16
    assert (moved == x.T).all()
    assert shape.tolist() == [3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_weights_stay_half_in_the_library(narrow: str, tmp_path, rng) -> None:
    sizes = {}
    for kind in (narrow, "float"):
        model = make(f"network ({kind}[1,300] x) => ({kind}[1,400] y) {{ y = MatMul (x, w) }}")
        weight = (rng.standard_normal((300, 400)) / 16).astype("float32" if kind == "float" else kind)
        model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
        path = tmp_path / f"{kind}.so"
        convoy.compile(model).export_library(str(path))
        sizes[kind] = path.stat().st_size
    assert sizes["float"] - sizes[narrow] > 0.4 * weight.nbytes


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_become_integers_and_truths(kind: str, run_tvm, rng) -> None:
    model = make(
        f"""network ({kind}[3,4] x) => (int64[3,4] whole, bool[3,4] any, double[3,4] d, {kind}[3,4] back) {{
            whole = Cast <to = 7> (x)
            any = Cast <to = 9> (x)
            d = Cast <to = 11> (x)
            back = CastLike (whole, x)
        }}"""
    )
    x = (rng.standard_normal((3, 4)) * 9).astype(kind if kind == "float16" else ml_dtypes.bfloat16)
    x[0, 0] = 0
    whole, truth, wide, back = run_tvm(load(model), x)
    np.testing.assert_array_equal(whole, x.astype(np.int64))
    np.testing.assert_array_equal(truth, x != 0)
    np.testing.assert_array_equal(wide, x.astype(np.float64))
    np.testing.assert_array_equal(back.astype(np.float32), np.trunc(x.astype(np.float32)))


def test_what_has_its_inputs_type_by_default_is_half(run_tvm, rng) -> None:
    model = make(
        """network (float16[3,4] x) => (float16[3,4] unit, float[3,4] single, float16[3,4] sum) {
            unit = EyeLike (x)
            single = EyeLike <dtype = 1> (x)
            sum = Add (unit, x)
        }"""
    )
    x = rng.standard_normal((3, 4)).astype("float16")
    unit, single, total = run_tvm(load(model), x)
    assert (unit.dtype, single.dtype, total.dtype) == (np.float16, np.float32, np.float16)
    assert (unit == np.eye(3, 4)).all()
    assert (single == unit).all()
    np.testing.assert_array_equal(total, x + np.eye(3, 4, dtype="float16"))
