"""Whole networks against ONNX Runtime: one region, every FLOP, the same numbers.

Softmax is taken off the end, where nearly all outputs are alike; tensors from inside the network are
compared too, so that an error cannot be averaged away by what follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from onnx import ModelProto
from tvm import relax

import convoy
from convoy import zoo
from convoy.bench.accuracy import BOUND, compare_outputs, reference_outputs
from convoy.bench.inputs import seeded_inputs
from convoy.options import Accuracy, Options
from convoy.report.decision import Report
from convoy.zoo.light import load_light

Array = NDArray[Any]
SPREAD = 1e-3
"""Spread of an output, relative to its largest value: below it, agreement would prove nothing."""
NARROW = ("vgg19", "zfnet512")
"""Light models whose dense layers hand on 256 channels in place of 4096: half a gigabyte of weights takes
longer than all else.  AlexNet's are as wide as they are."""
ROUND_LESS = {"unet": ("fast",)}
"""Networks compiled with other accuracies than the default, too."""


@lru_cache(maxsize=1)
def compared(name: str) -> tuple[ModelProto, Mapping[str, Array], list[Array]]:
    """A network with tensors from inside as outputs, an input, and ONNX Runtime's answer."""
    model = load_light(name, inner=256) if name in NARROW else zoo.load(name)
    model = zoo.strip_softmax(model)
    convs = [node.output[0] for node in model.graph.node if node.op_type == "Conv"]
    model = zoo.with_inner_outputs(model, [convs[len(convs) // 3], convs[2 * len(convs) // 3]])
    inputs = seeded_inputs(model)
    return model, inputs, reference_outputs(model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        (name, accuracy)
        for name in zoo.names()
        for accuracy in (Options().accuracy, *ROUND_LESS.get(name, ()))
    ],
)
def test_network_agrees_with_onnx_runtime(name: str, accuracy: Accuracy) -> None:
    model, inputs, reference = compared(name)
    report = Report()
    executable = convoy.compile(model, options=Options(accuracy=accuracy), report=report)

    six = any("F(6x6, 3x3)" in d.choice for d in report.decisions)
    assert not six or accuracy == "fastest"
    assert [str(refusal) for refusal in report.refusals] == []
    assert report.flops_share == 1.0
    assert len(report.regions) == 1

    machine = relax.VirtualMachine(executable, tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
    outputs = [output.numpy() for output in found]
    names = [output.name for output in model.graph.output]
    for difference in compare_outputs(names, outputs, reference):
        assert difference.spread > SPREAD * difference.largest, difference
        assert difference.relative <= BOUND, difference


@pytest.mark.slow
def test_same_input_gives_the_same_bits() -> None:
    # two runs with the same number of threads: no reduction depends on timing
    model = zoo.load("squeezenet")
    machine = relax.VirtualMachine(convoy.compile(model), tvm.cpu())
    arrays = [tvm.runtime.tensor(array) for array in seeded_inputs(model).values()]
    runs = [machine["main"](*arrays).numpy() for _ in range(3)]
    assert all(np.array_equal(runs[0], run) for run in runs[1:])
