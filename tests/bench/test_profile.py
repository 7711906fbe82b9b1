"""Where the time of a run goes: every part named and measured, nearly all of it accounted for."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convoy
from command import tiny_model
from convoy.bench.profile import DEAREST, EVENT_SECONDS, one_in
from convoy.deploy.export import export_library
from convoy.deploy.traced import EVENT, Recording, TracedRunner
from convoy.errors import ConvoyError, ModelError
from convoy.report.decision import Roof
from convoy.report.profile import Part, Profile

ALL = 1 + 1e-12
"""Parts are divided by their whole, which may round."""


def wide_model() -> onnx.ModelProto:
    """The tiny network on larger images, with an op that TVM computes: long enough to be measured."""
    model = tiny_model(extra="Hardmax", softmax=False)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[2].dim_value = dims[3].dim_value = 256
    return model


@pytest.fixture(scope="module")
def profile() -> Profile:
    return convoy.profile(wide_model(), seconds=0.2)


@pytest.mark.slow
def test_nearly_all_of_the_time_is_accounted_for(profile: Profile) -> None:
    assert 0.95 <= profile.accounted <= ALL


def test_a_profile_is_one_line_and_a_table_in_a_notebook(profile: Profile) -> None:
    hostile = replace(profile, model="<b>\x1b[2J\n")
    assert len(repr(hostile)) < 150
    assert repr(hostile).startswith("<Profile: <b>\\x1b[2J\\n: ")
    shown = hostile._repr_html_()
    assert "<b>" not in shown
    assert shown.count("<tr>") == 3 + len(profile.parts)


@pytest.mark.parametrize(("at_once", "share"), [(1, 0.8), (2, 0.4), (4, 0.25)])
def test_the_roof_of_narrow_products_is_higher(at_once: int, share: float) -> None:
    # the last is bound by its bytes
    part = Part(
        "step", "", 0, "", "", (), (), seconds=1.0, flops=16, products=0.5, at_once=at_once, bytes=25
    )
    assert part.share_of_roof(Roof(flops=10, memory=1, cache=100)) == pytest.approx(share)


@pytest.mark.slow
def test_a_short_run_is_accounted_for_too() -> None:
    found = convoy.profile(tiny_model(), seconds=0.1)
    assert 0.95 <= found.accounted <= ALL


@pytest.mark.parametrize(
    ("plain", "listened", "events", "every"),
    [
        (1e-2, 1e-2, 20, 1),
        (1e-3, 1.01e-3, 200, 1),
        (1e-5, 1.595e-5, 20, 40),
        (1e-2, 1.6e-2, 20, 1),  # so few events do not take so long: other work on the machine does
        (1e-5, 0.9e-5, 20, 1),
    ],
)
def test_of_short_runs_only_one_in_many_is_listened_to(
    plain: float, listened: float, events: int, every: int
) -> None:
    runner = create_autospec(TracedRunner, instance=True)
    runner.run.return_value = plain
    runner.trace.return_value = Recording(0.0, listened, np.empty(events, EVENT), {})
    assert one_in(runner) == every
    assert (listened / plain - 1) / every <= DEAREST or events * EVENT_SECONDS < DEAREST * plain


def test_each_step_has_its_nodes_its_work_and_its_threads(profile: Profile) -> None:
    (conv,) = (part for part in profile.parts if "conv2d conv0" in part.nodes and part.flops)
    assert "relu relu0" in conv.nodes
    assert conv.flops == 2 * 16 * 256 * 256 * 3 * 9
    assert conv.seconds > 0
    assert conv.estimate
    assert conv.bytes >= 4 * 256 * 256 * (3 + 16)
    assert 0 < (conv.balance or 0) <= 1
    assert all(0 < busy <= conv.seconds * 1.01 for busy in conv.busy)


def test_an_op_that_was_left_has_a_part_of_its_own_by_its_name(profile: Profile) -> None:
    kernels = [part for part in profile.parts if part.kind == "kernel"]
    assert {"argmax hardmax", "astype hardmax"} <= {name for part in kernels for name in part.nodes}
    calls = {call.name for call in profile.report.calls}
    assert calls.issuperset(name for part in kernels for name in part.results)


def test_the_trace_has_every_part_that_happened_within_the_run(profile: Profile) -> None:
    events = [event for event in profile.trace()["traceEvents"] if event["ph"] == "X"]  # type: ignore[index,union-attr]
    assert any("conv2d conv0" in event["name"] for event in events)
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events)
    assert len(events) == len(profile.spans)


@pytest.mark.slow
def test_images_of_an_open_batch_are_counted() -> None:
    found = convoy.profile(tiny_model(batch="N"), shapes={"x": (4, 3, 8, 8)}, seconds=0)
    assert sum(part.flops for part in found.parts) == 4 * 2 * (16 * 8 * 8 * 27 + 5 * 16)


@pytest.mark.slow
def test_what_is_compiled_otherwise_has_nothing_of_it(tmp_path: Path) -> None:
    export_library(convoy.compile(tiny_model()), tmp_path / "plain.so")
    names = subprocess.run(["nm", "-D", tmp_path / "plain.so"], capture_output=True, text=True).stdout
    assert "convoy_num_threads" in names
    assert "trace" not in names


@pytest.mark.slow
def test_a_model_without_a_region_is_profiled_too() -> None:
    node = helper.make_node("Hardmax", ["x"], ["y"], name="hard")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 5]) for name in "xy"]
    graph = helper.make_graph([node], "alone", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = convoy.profile(model, seconds=0)
    assert "argmax hard" in {name for part in found.parts for name in part.nodes}


@pytest.mark.slow
def test_inputs_are_taken_by_their_names() -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    found = convoy.profile(tiny_model(), inputs={"x": x}, threads=1, seconds=0)
    assert found.accounted > 0.5
    assert found.threads == 1
    with pytest.raises(ModelError, match="expected x, got y"):
        convoy.profile(tiny_model(), inputs={"y": x}, seconds=0)


@pytest.mark.parametrize("model", [3, None, convoy])
def test_what_is_no_model_is_told_by_its_type(model: Any) -> None:
    kind = type(model).__name__
    with pytest.raises(ModelError, match=rf"^import: {kind}: expected a path or an onnx.ModelProto, got"):
        convoy.profile(model)


def test_what_are_no_options_is_told() -> None:
    with pytest.raises(ConvoyError, match=r"^options: profile: expected Options, got \{\}"):
        convoy.profile(tiny_model(), options={})  # type: ignore[arg-type]
