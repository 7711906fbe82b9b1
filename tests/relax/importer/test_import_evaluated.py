"""What a graph knows before it runs is computed, and freed as soon as nobody reads it any more."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper

from convoy.relax.importer import load
from convoy.relax.importer.evaluate import evaluate_constants
from convoy.relax.importer.read import read

STEPS = 24


def chain(make_model, size: int):
    """x + neg(neg(… w)), and w itself, which the graph gives, too."""
    names = ["w", *(f"t{i}" for i in range(STEPS))]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in pairwise(names)]
    nodes += [helper.make_node("Add", ["x", names[-1]], ["y"]), helper.make_node("Identity", ["t3"], ["z"])]
    weight = np.arange(size, dtype=np.float32)
    return make_model(nodes, {"x": [size]}, {"w": weight}, outputs=["y", "z"]), weight


def test_steps_on_the_way_to_a_weight_are_not_all_kept(make_model) -> None:
    model, weight = chain(make_model, 1 << 18)
    network = read(model)
    tracemalloc.start()
    try:
        evaluate_constants(network)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * weight.nbytes < STEPS * weight.nbytes


def test_what_is_given_or_read_once_more_is_kept(make_model, run_tvm) -> None:
    model, weight = chain(make_model, 4096)
    sums, given = run_tvm(load(model), weight)
    np.testing.assert_array_equal(sums, 2 * weight)
    np.testing.assert_array_equal(given, weight)


def test_infinities_of_a_network_are_no_warning(make_model, recwarn) -> None:
    # as of the buckets of T5's distances, which begin at Log(0)
    nodes = [
        helper.make_node("Log", ["w"], ["l"]),
        helper.make_node("Cast", ["l"], ["y"], to=TensorProto.INT64),
    ]
    evaluate_constants(read(make_model(nodes, {"x": [2]}, {"w": np.float32([0, 1])})))
    assert [str(found.message) for found in recwarn] == []
