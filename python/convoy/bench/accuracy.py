"""Comparing answers: what Convoy computes against ONNX Runtime on the unfolded network.

The figure is the largest absolute error over the largest absolute value.  Softmax hides
errors (its outputs all lie near zero for a thousand classes), so a model that ends in one is
compared before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from convoy.bench.inputs import Arrays
from convoy.errors import ModelError

BOUND = 1e-4
"""The relative error Convoy promises to stay within."""

_PASSING = ("Softmax", "LogSoftmax", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Ops to look through for a closing softmax."""


@dataclass(frozen=True)
class Difference:
    """How far one output is from its reference."""

    output: str
    shape: tuple[int, ...]
    largest: float
    """Largest absolute value of the reference."""
    absolute: float
    """Largest absolute error; infinite where only one side is finite."""
    spread: float
    """Standard deviation of the reference: zero means that the comparison proves nothing."""

    @property
    def relative(self) -> float:
        if self.absolute == 0.0:
            return 0.0
        return self.absolute / self.largest if self.largest else float("inf")


def without_closing_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every output that a softmax makes replaced by that softmax's input."""
    makers = {name: node for node in model.graph.node for name in node.output}
    replaced: dict[str, str] = {}
    for output in model.graph.output:
        name = output.name
        while (node := makers.get(name)) is not None and node.op_type in _PASSING:
            name = node.input[0]
            if node.op_type in ("Softmax", "LogSoftmax"):
                replaced[output.name] = name
                break
    if not replaced:
        return model
    shorter = onnx.ModelProto()
    shorter.CopyFrom(model)
    outputs = [
        onnx.helper.make_tensor_value_info(replaced[o.name], o.type.tensor_type.elem_type, None)
        if o.name in replaced
        else o
        for o in model.graph.output
    ]
    del shorter.graph.output[:]
    shorter.graph.output.extend(outputs)
    _drop_unused_nodes(shorter)
    return shorter


def _drop_unused_nodes(model: onnx.ModelProto) -> None:
    needed = {output.name for output in model.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    del model.graph.node[:]
    model.graph.node.extend(reversed(kept))


def reference_outputs(model: onnx.ModelProto, inputs: Arrays) -> list[NDArray[np.float32]]:
    """ONNX Runtime's answer with its own optimisations off: the network as it was written.

    Raises
    ------
    ModelError  if ONNX Runtime is not installed, or refuses the model
    """
    try:
        import onnxruntime as ort
    except ImportError:
        raise ModelError(
            "check", "onnxruntime", "expected the package, got an import error", "pip install onnxruntime"
        ) from None
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        outputs: list[NDArray[np.float32]] = session.run(None, inputs)
    except Exception as error:
        # ONNX Runtime raises one class per status code, none of them public
        raise ModelError(
            "check",
            model.graph.name or "model",
            f"expected a model ONNX Runtime runs, got: {' '.join(str(error).split())}",
            "repair the model, e.g. with onnx.checker.check_model",
        ) from error
    return outputs


def compare_outputs(
    names: Sequence[str], outputs: Sequence[NDArray[np.float32]], reference: Sequence[NDArray[np.float32]]
) -> list[Difference]:
    """One ``Difference`` per output.

    NaN and infinity have to be in the same places on both sides.

    Raises
    ------
    ModelError  if the numbers or the shapes of the outputs differ
    """
    if len(outputs) != len(reference):
        raise ModelError(
            "check",
            "outputs",
            f"expected {len(reference)}, got {len(outputs)}",
            "report this as a bug of Convoy",
        )
    return [_difference(*triple) for triple in zip(names, outputs, reference, strict=True)]


def _difference(name: str, output: NDArray[np.float32], reference: NDArray[np.float32]) -> Difference:
    if output.shape != reference.shape:
        raise ModelError(
            "check",
            f"output {name}",
            f"expected shape {reference.shape}, got {output.shape}",
            "report this as a bug of Convoy",
        )
    ours, theirs = output.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(theirs)
    # equal_nan: a NaN at the same place on both sides is agreement
    same_elsewhere = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
    if not finite.any():
        return Difference(name, output.shape, 0.0, 0.0 if same_elsewhere else np.inf, 0.0)
    error = np.abs(ours[finite] - theirs[finite])
    absolute = float(error.max()) if same_elsewhere and np.isfinite(error).all() else np.inf
    values = theirs[finite]
    return Difference(name, output.shape, float(np.abs(values).max()), absolute, float(values.std()))
