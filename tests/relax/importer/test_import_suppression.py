"""NonMaxSuppression of open numbers of boxes, by constant numbers or fed ones, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load
from pairs import pairs
from relax.loops import find_shared_scratch

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
NUMBERS: dict[str, Any] = {
    "limit": np.array([2**63 - 1]),
    "overlap": np.float32([0.5]),
    "score": np.float32([0.1]),
}
FORMS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "as torchvision writes it": (["limit", "overlap"], NUMBERS),
    "all constant": (["limit", "overlap", "score"], NUMBERS),
    "all fed": (["limit", "overlap", "score"], {}),
    "whatever overlaps": (["limit", "overlap", "score"], {**NUMBERS, "overlap": np.float32([0])}),
    "none": ([], {}),
}


def build(names: list[str], constants: dict[str, Any], sizes: tuple[Any, Any, Any], **more: Any) -> Any:
    images, classes, count = sizes
    values = {"boxes": (FLOAT, [images, count, 4]), "scores": (FLOAT, [images, classes, count])}
    values |= {n: (LONG if n == "limit" else FLOAT, [1]) for n in names if n not in constants}
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", *names], ["y"], **more)],
        "boxes",
        [helper.make_tensor_value_info(name, *value) for name, value in values.items()],
        [helper.make_tensor_value_info("y", LONG, None)],
        [numpy_helper.from_array(constants[n], n) for n in names if n in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def draw(rng: np.random.Generator, sizes: tuple[int, int, int], at: int) -> dict[str, Any]:
    """Boxes with small whole numbers for corners: overlaps and scores that are equal, and empty boxes."""
    images, _, count = sizes
    return {
        "boxes": rng.integers(0, 9, (images, count, 4)).astype("float32"),
        "scores": rng.integers(-5, 9, sizes).astype("float32") / 4,
        "limit": np.array([[3], [2**63 - 1], [0]][at]),
        "overlap": np.float32([[0.5, 0, 1][at]]),
        "score": np.float32([[0.25, -1, 0][at]]),
    }


def run_both(model: onnx.ModelProto, drawn: list[dict[str, Any]], run_onnx: Any) -> list[int]:
    """How many boxes there are in each answer; both engines' are the same."""
    assert not find_shared_scratch(load(model))
    runner, counts = convoy.load(convoy.compile(model)), []
    for given in drawn:
        arrays = [given[value.name] for value in model.graph.input]
        found, wanted = runner.run(arrays)[0], run_onnx(model, *arrays)[0]
        np.testing.assert_array_equal(found, wanted)
        counts.append(len(wanted))
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 4, 200, -1])
def test_of_many_boxes_the_first_are_taken(limit: int, run_onnx, rng) -> None:
    """More than one level of a heap, and equal scores; what is taken has no more room than the limit."""
    sizes = (2, 3, 200)
    constants = NUMBERS | {"limit": np.array([limit])}
    model = build(["limit", "overlap", "score"], constants, sizes)
    drawn = [draw(rng, sizes, 0), draw(rng, sizes, 0)]
    drawn[1]["boxes"] *= rng.random(drawn[1]["boxes"].shape, "float32")
    counts = run_both(model, drawn, run_onnx)
    assert all(0 < count <= 6 * limit for count in counts) or limit < 0


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_boxes_of_an_open_number(form: str, centered: int, run_onnx, rng) -> None:
    model = build(*FORMS[form], ("b", "c", "n"), center_point_box=centered)
    sizes = [(1, 1, 7), (2, 3, 33), (1, 2, 0)]
    counts = run_both(model, [draw(rng, s, at) for at, s in enumerate(sizes)], run_onnx)
    assert (max(counts) > 20) == (form != "none")


@pytest.mark.slow
def test_boxes_of_a_known_number(run_onnx, rng) -> None:
    model = build(*FORMS["all fed"], (2, 3, 20))
    assert run_both(model, [draw(rng, (2, 3, 20), at) for at in range(3)], run_onnx)[2] == 0


def test_what_is_made_of_boxes_has_one_size() -> None:
    """The number of boxes is a symbol, so that what gathers them needs no check of it."""
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "limit", "overlap"], ["found"]),
        helper.make_node("Gather", ["found", "last"], ["places"], axis=1),
        helper.make_node("Squeeze", ["boxes", "first"], ["flat"]),
        helper.make_node("Gather", ["flat", "places"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "boxes",
        [
            helper.make_tensor_value_info("boxes", FLOAT, [1, "n", 4]),
            helper.make_tensor_value_info("scores", FLOAT, [1, 1, "n"]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [
            numpy_helper.from_array(np.array(v), n)
            for n, v in {**NUMBERS, "last": 2, "first": [0]}.items()
            if n != "score"
        ],
    )
    module = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    rows, columns = module["main"].body.blocks[-1].bindings[-1].var.ty.shape.values
    assert int(columns) == 4
    assert type(rows).__name__ == "Var"


@pytest.mark.parametrize(
    ("most", "overlap", "problem"),
    [
        ([3], [], r"one number as the overlap, got the shape \[0\]"),
        ([3, 4], [0.5], r"one number as the largest number of boxes, got the shape \[2\]"),
    ],
)
def test_limits_are_one_number_each(most: list[int], overlap: list[float], problem: str) -> None:
    given = {"most": np.array(most), "overlap": np.array(overlap, "float32")}
    with pytest.raises(ModelError, match=problem):
        load(build_nms([], given))


@pytest.mark.parametrize("overlap", [-0.1, 1.5, np.nan, np.inf])
@pytest.mark.parametrize("fed", [True, False])
def test_an_overlap_that_is_no_part_is_refused(overlap: float, fed: bool, run_onnx, rng) -> None:
    names = ["most", "overlap"] if fed else ["most"]
    constants = {} if fed else {"overlap": np.array([overlap], np.float32)}
    model = build_nms(names, constants)
    drawn = [rng.random((1, 5, 4)), rng.random((1, 1, 5))]
    arrays = [*(a.astype("float32") for a in drawn), np.array([3])]
    if not fed:
        with pytest.raises(ModelError, match="expected an overlap from 0 to 1, got"):
            convoy.compile(model)
        return
    runner = convoy.load(convoy.compile(model))
    for part in (0.0, 0.5, 1.0):  # the twins
        given = [*arrays, np.array([part], np.float32)]
        np.testing.assert_array_equal(runner.run(given)[0], run_onnx(model, *given)[0])
    with pytest.raises(ModelError, match="among their numbers does not fit"):
        runner.run([*arrays, np.array([overlap], np.float32)])


@pytest.mark.parametrize(
    ("place", "number", "centered"),
    pairs([(0, 0), (0, 3), (1, 2), (0,)], [np.nan, np.inf, -np.inf], [0, 1]),
)
def test_corners_that_are_not_finite(centered: int, place, number: float, run_onnx) -> None:
    # a box with a NaN in it covered all others
    model = build_nms(["most", "overlap"], {}, center_point_box=centered)
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2, 1, 3.1], [5, 5, 6, 6]])
    boxes[place] = number
    scores = np.array([[[0.9, 0.8, 0.7, 0.6, 0.5]]], np.float32)
    given = [boxes[None].astype("float32"), scores, np.array([9]), np.array([0.5], np.float32)]
    made = convoy.load(convoy.compile(model)).run(given)[0]
    np.testing.assert_array_equal(made, run_onnx(model, *given)[0])


def build_nms(fed: list[str], constants: dict[str, Any], **attributes: Any) -> onnx.ModelProto:
    kinds = {"boxes": (FLOAT, [1, "n", 4]), "scores": (FLOAT, [1, 1, "n"])}
    kinds |= {name: (LONG if name == "most" else FLOAT, [1]) for name in fed}
    graph = helper.make_graph(
        [
            helper.make_node(
                "NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["y"], **attributes
            )
        ],
        "network",
        [helper.make_tensor_value_info(n, *kind) for n, kind in kinds.items()],
        [helper.make_tensor_value_info("y", LONG, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
