"""Resize in all its ways, against ONNX Runtime: many nodes in one model, so that little is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper

from convoy.errors import ModelError
from convoy.relax.importer import load
from convoy.relax.importer.resize_tables import COORDINATES, NEAREST, Axis, Sampling, make_table

Attributes = dict[str, Any]

FRACTIONS = (1.7, 0.6, 2.3, 0.34, 1.1, 0.7, 3.3, 4 / 3, 5 / 3)
CROP = [-0.15, 1.1]


def ways() -> Iterator[Attributes]:
    """Every mode, with every attribute ONNX Runtime takes beside it."""
    for coordinates in COORDINATES:
        where: Attributes = {"coordinate_transformation_mode": coordinates}
        for rounding in NEAREST[:-1]:
            yield {"mode": "nearest", "nearest_mode": rounding, **where}
        yield {"mode": "linear", **where}
        for exclude in (0, 1):
            yield {"mode": "linear", "antialias": 1, "exclude_outside": exclude, **where}
            for antialias in (0, 1):
                for cubic in (-0.75, -0.5):
                    yield {
                        "mode": "cubic", "exclude_outside": exclude, "antialias": antialias,
                        "cubic_coeff_a": cubic, **where,
                    }  # fmt: skip


def resize_model(make_model, cases: list[Attributes], shape: tuple[int, ...], opset: int = 19):
    """One model, a Resize for each case: its ``sizes`` or ``scales``, maybe ``roi``, and attributes."""
    nodes, constants = [], {}
    for i, case in enumerate(cases):
        attributes = dict(case)
        names = []
        for kind, dtype in (("roi", "float32"), ("scales", "float32"), ("sizes", "int64")):
            given = attributes.pop(kind, None)
            names.append("" if given is None else f"{kind}{i}")
            if given is not None:
                constants[names[-1]] = np.array(given, dtype)
        nodes.append(helper.make_node("Resize", ["x", *names], [f"y{i}"], **attributes))
    return make_model(nodes, {"x": shape}, constants, [f"y{i}" for i in range(len(cases))], opset)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_tables_are_onnx_runtimes(size: int, make_model, run_onnx, rng) -> None:
    # 58 ways, to 11 sizes and by 9 scales, of one row
    cases = []
    for way in ways():
        crop = way["coordinate_transformation_mode"] == "tf_crop_and_resize"
        more = {"axes": [3], "roi": CROP} if crop else {"axes": [3]}
        cases += [
            {**way, **more, "sizes": [out]} for out in (1, 2, 3, 4, 5, 6, 7, 11, 13, 19, 20) if out != size
        ]
        cases += [{**way, **more, "scales": [f]} for f in FRACTIONS if int(f * size) not in (0, size)]
    x = rng.standard_normal((1, 1, 1, size)).astype("float32")
    for case, expected in zip(cases, run_onnx(resize_model(make_model, cases, x.shape), x), strict=True):
        output = expected.shape[3]
        scale = np.float32(case["scales"][0]) if "scales" in case else np.float32(output) / np.float32(size)
        sampling = Sampling(
            case["mode"], case["coordinate_transformation_mode"], case.get("nearest_mode", ""),
            case.get("cubic_coeff_a", -0.75), bool(case.get("exclude_outside")),
            bool(case.get("antialias")),
        )  # fmt: skip
        table = make_table(Axis(3, size, output, scale, (CROP[0], CROP[1])), sampling)
        taken = x.ravel()[table.indices]
        made = taken[0] if table.weights is None else (table.weights * taken).sum(0)
        made = np.where(table.outside, 0, made)
        np.testing.assert_allclose(made, expected.ravel(), rtol=1e-4, atol=1e-4, err_msg=str(case))


def spread(cases: list[Attributes], count: int) -> list[Attributes]:
    """``count`` of them, spread evenly."""
    return [cases[i * len(cases) // count] for i in range(count)]


@pytest.mark.slow
def test_what_is_imported_computes_what_onnx_runtime_computes(make_model, run_tvm, run_onnx, rng) -> None:
    shape = (2, 2, 4, 6)
    targets: list[Attributes] = [
        {"sizes": [2, 2, *s]} for s in ((8, 12), (7, 9), (3, 4), (1, 1), (1, 11), (4, 3))
    ]
    targets += [{"scales": [1, 1, *s]} for s in ((2, 3), (0.5, 0.5), (1.7, 1.7), (1.5, 1), (0.34, 3.2))]
    cases = [
        {**way, **target}
        for target in targets
        for way in ways()
        if way["coordinate_transformation_mode"] != "tf_crop_and_resize"
    ]
    nearest_and_linear = [case for case in cases if case["mode"] != "cubic" and not case.get("antialias")]
    cases = spread(nearest_and_linear, 60) + spread(cases, 20)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 2.5}
    cases += [
        {"mode": mode, **crop, "roi": [0, 0, 0.2, -0.1, 1, 1, 0.9, 1.2], **target}
        for mode in ("nearest", "linear", "cubic")
        for target in (targets[1], targets[3], targets[-1])
    ]
    policy = {"mode": "linear", "axes": [3, 2], "sizes": [9, 7]}
    cases += [{**policy, "keep_aspect_ratio_policy": f"not_{word}"} for word in ("larger", "smaller")]
    cases += [{"scales": [1, 2, 0.5, 1], "mode": "nearest"}, {"sizes": [2, 5, 3, 6], "mode": "linear"}]
    cases += [{"scales": [1.0, 1.0, 1.1, 1.1], "mode": "linear"}]  # sizes stay, and so do pixels
    compare(resize_model(make_model, cases, shape), cases, shape, run_tvm, run_onnx, rng)


def compare(model, cases, shape, run_tvm, run_onnx, rng) -> None:
    x = rng.standard_normal(shape).astype("float32")
    for case, mine, expected in zip(cases, run_tvm(load(model), x), run_onnx(model, x), strict=True):
        assert mine.shape == expected.shape, case
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4, err_msg=str(case))


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5), (1, 2, 3, 4, 5)])
def test_any_rank(shape: tuple[int, ...], make_model, run_tvm, run_onnx, rng) -> None:
    cases: list[Attributes] = [{"mode": "nearest", "axes": [len(shape) - 1], "scales": [1.7]}]
    if len(shape) > 1:
        cases.append({"mode": "linear", "axes": [len(shape) - 2, len(shape) - 1], "sizes": [7, 3]})
    compare(resize_model(make_model, cases, shape), cases, shape, run_tvm, run_onnx, rng)


@pytest.mark.parametrize("scales", [(2, 3), (1.7, 2.3), (0.6, 0.7), (0.5, 1.7)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_before_opset_11_an_axis_that_shrinks_is_rounded_up(
    mode: str, scales: tuple[float, float], make_model, run_tvm, run_onnx, rng
) -> None:
    shape, given = (1, 2, 5, 7), {"s": np.array([1, 1, *scales], "float32")}
    ops = {7: "Upsample", 9: "Upsample", 10: "Resize"} if min(scales) >= 1 else {10: "Resize"}
    for opset, op in ops.items():
        node = helper.make_node(op, ["x", "s"] if opset > 7 else ["x"], ["y"], mode=mode)
        if opset == 7:
            node.attribute.append(helper.make_attribute("scales", [1.0, 1.0, *map(float, scales)]))
        model = make_model([node], {"x": shape}, given if opset > 7 else {}, opset=opset)
        compare(model, [{"opset": opset}], shape, run_tvm, run_onnx, rng)


OPEN: dict[str, tuple[Attributes, bool]] = {
    "nearest by 2": ({"scales": [1, 1, 2, 2]}, True),
    "linear by 3": ({"scales": [1, 1, 3, 3], "mode": "linear"}, True),
    "nearest by 1.5": ({"scales": [1, 1, 1.5, 2]}, True),
    "linear by 0.5": ({"scales": [1, 1, 0.5, 0.5], "mode": "linear"}, True),
    "cubic by 2": ({"scales": [1, 1, 2, 2], "mode": "cubic"}, True),
    "nearest to a size": ({"sizes": [2, 2, 8, 8]}, True),
    "nearest by 0.7": ({"scales": [1, 1, 0.7, 0.7]}, True),
    "antialiased": ({"scales": [1, 1, 2, 2], "mode": "linear", "antialias": 1}, True),
    "cubic inside": ({"scales": [1, 1, 2, 2], "mode": "cubic", "exclude_outside": 1}, False),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_open_size_is_right_or_refused(name: str, make_model, run_tvm, run_onnx, rng) -> None:
    case, right = OPEN[name]
    model = resize_model(make_model, [case], ("n", 2, "h", "w"))
    if right:
        compare(model, [case], (2, 2, 4, 5), run_tvm, run_onnx, rng)
        return
    with pytest.raises(
        ModelError, match=r"Resize y0: expected .*; fix the open sizes: --shape x=\?x2x\?x\?"
    ):
        load(model)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [[1, 1, 0.1, 1], [1, 1, 0.1, 2], [1, 1, 0.1, 0.2]])
def test_scales_that_leave_no_pixel_give_none(
    mode: str, scales: list[float], make_model, run_tvm, run_onnx, rng
) -> None:
    case = {"scales": scales, "mode": mode}
    model = resize_model(make_model, [case], (1, 2, 5, 4))
    x = rng.standard_normal((1, 2, 5, 4), dtype=np.float32)
    ((found,), (wanted,)) = (run_tvm(load(model), x), run_onnx(model, x))
    assert found.shape == wanted.shape
    assert found.size == 0


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"sizes": [1, 1, 0, 4]}, "expected positive sizes, got"),
        ({"sizes": [1, 1, 1 << 62, 4]}, "expected sizes below 2\\^31, got"),
        ({"scales": [1, 1, 1e15, 1]}, "expected sizes below 2\\^31, got"),
        ({"scales": [1, 1, 2, 2], "mode": "round"}, "expected mode nearest, linear, cubic, got round"),
        ({"scales": [1, 1, -2, 2]}, "expected scales above 0"),
        ({"scales": [1, 2, 2]}, "expected 4 scales, got 3"),
    ],
)
def test_what_is_no_resize_is_refused(case: Attributes, problem: str, make_model) -> None:
    with pytest.raises(ModelError, match=problem):
        load(resize_model(make_model, [case], (1, 2, 5, 5)))
