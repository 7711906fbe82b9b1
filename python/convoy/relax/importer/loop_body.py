"""What a Loop of a model does at a step, for those who know some loops as one op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Makers = Mapping[str, onnx.NodeProto]
Known = Mapping[str, NDArray[np.generic]]


class LoopBody:
    """The graph of a Loop: its inputs are the step, the condition and the states."""

    def __init__(self, body: onnx.GraphProto, constants: Known) -> None:
        inner = {t.name: numpy_helper.to_array(t) for t in body.initializer}
        for part in body.node:
            if part.op_type == "Constant" and part.attribute[0].name == "value":
                inner[part.output[0]] = numpy_helper.to_array(part.attribute[0].t)
        self.known: Known = {**constants, **inner}
        self.makers: Makers = {name: part for part in body.node for name in part.output}
        self.step, self.condition, *self.states = (value.name for value in body.input)
        self.outputs = [value.name for value in body.output]
        self.inside = {*self.makers, *inner, self.step, self.condition, *self.states}

    def made(self, name: str, *ops: str) -> onnx.NodeProto | None:
        """What makes a tensor, if it is such an op."""
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op_type in ops and not maker.domain else None

    def is_true(self, name: str) -> bool:
        value = self.known.get(name)
        return value is not None and value.size == 1 and bool(value.item())

    def goes_on(self) -> bool:
        """Does nothing but the count end it?"""
        name = self.outputs[0]
        while (same := self.made(name, "Cast", "Identity")) is not None:
            name = same.input[0]
        return name == self.condition or self.is_true(name)


def read_attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """An attribute of a node, or what it is where the node does not say."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)
