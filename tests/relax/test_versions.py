"""Several sizes in one library: each version is that size's own, ``main`` picks it, no other size runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import convoy
from convoy.deploy.runner import Runner
from convoy.errors import ModelError
from convoy.relax.importer import load
from convoy.relax.versions import join_versions, list_versions, lists_sizes, load_versions
from convoy.report.decision import Report
from relax.onnx_models import make_model, run_onnx


def pyramid(outputs: int = 1, *, batch: str = "N", height: str = "H", width: str = "W") -> onnx.ModelProto:
    """A convolution, half of its size, and that resized to twice the size by arithmetic on shapes."""
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["y0"]),
        helper.make_node("Shape", ["x"], ["whole"]),
        helper.make_node("Slice", ["whole", "two", "four"], ["spatial"]),
        helper.make_node("Slice", ["whole", "zero", "one"], ["images"]),
        helper.make_node("Concat", ["images", "channels", "spatial"], ["sizes"], axis=0),
        helper.make_node("Resize", ["y0", "", "", "sizes"], ["r"], mode="nearest"),
        helper.make_node("Conv", ["r", "v"], ["y1"]),
    ]
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "v": rng.standard_normal((2, 4, 1, 1)).astype(np.float32),
        **{name: np.array([value]) for name, value in (("zero", 0), ("one", 1), ("two", 2), ("four", 4))},
        "channels": np.array([4]),
    }
    made = [f"y{1 - i}" for i in range(outputs)]
    return make_model(nodes, {"x": [batch, 3, height, width]}, constants, made)


def tokens(second: str = "sequence") -> onnx.ModelProto:
    """The sum of two inputs, whose lengths have a name each."""
    nodes = [helper.make_node("Add", ["ids", "mask"], ["s"]), helper.make_node("Sigmoid", ["s"], ["out"])]
    return make_model(nodes, {"ids": ["batch", "sequence"], "mask": ["batch", second]}, outputs=["out"])


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_library_runs_every_listed_size(outputs: int) -> None:
    model, report, rng = pyramid(outputs), Report(), np.random.default_rng(1)
    shapes = {"x": (None, 3, (16, 23), (16, 20))}
    runner = Runner(convoy.compile(model, shapes=shapes, strict=True, report=report))
    assert len(report.regions) == 4  # one for each pair
    for height in (23, 16):
        for width in (16, 20):
            for batch in (1, 3):
                x = rng.standard_normal((batch, 3, height, width)).astype(np.float32)
                for got, wanted in zip(runner.run([x]), run_onnx(model, x), strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(
        ModelError, match=r"expected one of the sizes x=nx3x16x16; x=nx3x16x20; x=nx3x23x16"
    ):
        runner.run([np.zeros((1, 3, 16, 17), np.float32)])


@pytest.mark.slow
def test_each_version_is_as_if_compiled_alone() -> None:
    model = pyramid()
    alone, both = Report(), Report()
    convoy.compile(model, shapes={"x": (1, 3, 24, 16)}, report=alone)
    convoy.compile(model, shapes={"x": (1, 3, [16, 24], 16)}, report=both)
    (region,) = alone.regions
    assert [found.steps for found in both.regions].count(region.steps) == 1
    assert region.symbol in [found.symbol for found in both.regions]
    (said,) = [d.reason for d in both.decisions if d.choice == "versions"]
    assert said == "2, picked at the call: x=1x3x16x16; x=1x3x24x16"


def test_dimensions_of_one_name_are_listed_once() -> None:
    assert list_versions(tokens(), {"ids": (1, (3, 5))}) == [
        {"ids": (1, 3), "mask": (None, 3)},
        {"ids": (1, 5), "mask": (None, 5)},
    ]
    apart = list_versions(tokens("other"), {"ids": (1, (3, 5))})
    assert apart == [{"ids": (1, 3)}, {"ids": (1, 5)}]


def test_a_list_may_be_given_for_each_dimension_of_its_name() -> None:
    model, rng = tokens(), np.random.default_rng(2)
    runner = Runner(convoy.compile(model, shapes={"ids": (None, (3, 5)), "mask": (None, (3, 5))}))
    for length in (3, 5):
        arrays = [rng.standard_normal((2, length)).astype(np.float32) for _ in range(2)]
        np.testing.assert_allclose(runner.run(arrays)[0], run_onnx(model, *arrays)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match="ids=nx3, mask=nx3; ids=nx5, mask=nx5"):
        runner.run([np.zeros((2, 3), np.float32), np.zeros((2, 5), np.float32)])


def test_the_batch_may_be_listed() -> None:
    model = pyramid(batch="", height="", width="")
    runner = Runner(convoy.compile(model, shapes={"x": ((1, 4), 3, 16, 16)}))
    for batch in (1, 4):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 16, 16)).astype(np.float32)
        np.testing.assert_allclose(runner.run([x])[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


def test_one_size_in_a_list_is_that_size() -> None:
    shapes = {"x": (1, 3, (16, 16), 20)}
    assert lists_sizes(shapes)
    module, plain = load_versions(pyramid(), shapes), load(pyramid(), {"x": (1, 3, 16, 20)})
    assert [var.name_hint for var in module.get_global_vars()] == ["main"]
    assert str(module["main"].ret_ty) == str(plain["main"].ret_ty)
    assert join_versions([plain]) is plain
    assert not lists_sizes({"x": (1, 3, 16, 20)})
    assert not lists_sizes(None)


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ({"x": (1, 3, (), 16)}, "expected 1 to 64 versions, got 0"),
        ({"x": (1, 3, tuple(range(1, 10)), tuple(range(1, 10)))}, "expected 1 to 64 versions, got 81"),
        ({"x": (1, 3, (16, 0), 16)}, r"shape of x: expected positive sizes, got \[16, 0\]"),
        ({"x": (1, 3, (16, "a"), 16)}, r"shape of x: expected positive sizes, got \[16, 'a'\]"),
        ({"x": (1, (3, 4), 16, 16)}, r"input x: expected a shape that fits \[N, 3, H, W\], got \[1, 4,"),
        ({"z": (1, 3, (16, 17), 16)}, "shape of z: expected one of the inputs x"),
        ({"x": (1, 3, (16, 17), (18, 19))}, None),
    ],
)  # fmt: skip
def test_lists_that_mean_nothing_are_refused(shapes: dict[str, object], problem: str | None) -> None:
    if problem is None:
        load_versions(pyramid(), shapes)
        return
    with pytest.raises(ModelError, match=problem):
        load_versions(pyramid(), shapes)


def test_two_lists_for_one_name_are_refused() -> None:
    shapes = {"ids": (1, (3, 5)), "mask": (1, (3, 6))}
    with pytest.raises(ModelError, match="one list of sizes for all dimensions named sequence, got two"):
        load_versions(tokens(), shapes)
    load_versions(tokens("other"), {"ids": (1, (3, 3)), "mask": (1, (3, 3))})
