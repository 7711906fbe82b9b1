"""Every inner tensor of a network against ONNX Runtime, and the kernel that computes it.

Tensors that a kernel writes are compared with its other tensors left as they are.  Those that only exist
within a kernel are compared in the network compiled once more, cut at each of its tensors.  A network in
bfloat16 is compared in float32, which is what computes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from convoy.bench.accuracy import Difference, compare_outputs, reference_outputs
from convoy.bench.inputs import Arrays
from convoy.bench.units import TIMES_A_LAYER, find_scales, is_quantised, unit_of
from convoy.bench.widened import has_bfloat16, widen_inputs, widen_model
from convoy.offload.settings import Progress
from convoy.onnx_file import Shapes, all_nodes
from convoy.options import Options, Precision
from convoy.report.decision import Report

Reference = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Layer:
    """One inner tensor."""

    node: str
    """The op of the model that makes it, with its name."""
    kernel: str
    """What computes it, in words."""
    within: bool
    """It exists only within the kernel."""
    difference: Difference
    unit: float = 0.0
    """What the last bit of a byte is worth, in a quantised network; 0 in any other."""
    before: float = 0.0
    """The largest ``units`` of what the node reads."""

    @property
    def units(self) -> float:
        """The mean error, in a quantised network."""
        return self.difference.mean / self.unit

    @property
    def allowed(self) -> float:
        """The units that it may be off by: one, or a few times as many as what it is made of."""
        return max(1.0, TIMES_A_LAYER * self.before)

    def passes(self, bound: float, precision: Precision = "float32") -> bool:
        """Is it within the bound, or in a quantised network within its units?"""
        return self.units <= self.allowed if self.unit else self.difference.passes(bound, precision)


def compare_layers(
    model: onnx.ModelProto,
    inputs: Arrays,
    shapes: Shapes,
    *,
    folder: Path = Path(),
    target: str | None = None,
    options: Options | None = None,
    progress: Progress = lambda _: None,
) -> list[Layer]:
    """One layer per tensor of numbers that a node makes and something reads, in the model's order.

    Parameters
    ----------
    shapes : Shapes
        Of inputs, where ``inputs`` do not say enough.
    folder : Path
        Where the model has its external data, if that is not loaded.

    Raises
    ------
    ConvoyError
        As ``convoy.compile`` and ``reference_outputs``.
    """
    import convoy
    from convoy.deploy.runner import Runner
    from convoy.relax.importer import load

    if has_bfloat16(model):
        model, inputs = widen_model(model, folder), widen_inputs(inputs)
    read = {name for node in all_nodes(model.graph) for name in node.input}
    read |= {output.name for output in model.graph.output}  # what nobody reads, nobody computes
    made = [name for node in model.graph.node for name in node.output if name in read - {""}]
    progress("running ONNX Runtime with all inner tensors")
    found = reference_outputs(_with_outputs(model, made), inputs, folder)
    kept = [
        (n, x)
        for n, x in zip(made, found, strict=True)
        if isinstance(x, np.ndarray) and x.dtype.kind in "fiub"
    ]
    reference = dict(kept)
    fixed = {**{name: x.shape for name, x in inputs.items()}, **shapes}

    def compare(names: Sequence[str], report: Report) -> dict[str, Difference]:
        module = load(_with_outputs(model, names, reference), fixed, folder=folder)
        executable = convoy.compile(module, target, options=options, report=report, progress=progress)
        outputs = Runner(executable).run(list(inputs.values()))
        return dict(zip(names, compare_outputs(names, outputs, [reference[n] for n in names]), strict=True))

    report = Report()
    compare([output.name for output in model.graph.output if output.name in reference], report)
    kernels = name_kernels(model, report)
    ends = {kernel: name for name, kernel in kernels.items() if name in reference}
    written = [name for name in reference if ends[kernels[name]] == name]
    differences = compare(written, Report())
    within = [name for name in reference if name not in differences]
    if within:
        differences |= compare(within, Report())
    scales, quantised = find_scales(model), is_quantised(model)
    makers = {name: node for node in model.graph.node for name in node.output}
    layers: dict[str, Layer] = {}
    for name in reference:
        node = makers[name]
        errors = [layers[n].units for n in node.input if n in layers and quantised]
        unit = unit_of(reference[name], scales.get(name)) if quantised else 0.0
        layers[name] = Layer(
            f"{node.op_type} {_name(node)}", kernels[name], name in within, differences[name], unit,
            max(errors, default=0.0),
        )  # fmt: skip
    return list(layers.values())


def name_kernels(model: onnx.ModelProto, report: Report) -> dict[str, str]:
    """What computes each tensor that a node makes: a step of a region, or TVM, in words.

    Parameters
    ----------
    report : Report
        Of a compilation of the model.
    """
    found: dict[str, str] = {}
    for region in report.regions:
        for number, (step, detail) in enumerate(zip(region.steps, region.details, strict=True)):
            for node in detail.nodes:
                found[_second(node)] = f"{step}, step {number} of {region.symbol}"
    for decision in report.decisions:
        if decision.choice == "left":
            found.setdefault(_second(decision.node), f"TVM: {decision.node}")
    for decision in reversed(report.decisions):  # what is folded into what is folded comes before it
        into = [found[_second(op)] for op in decision.about if _second(op) in found]
        if decision.choice == "folded" and into:
            found.setdefault(_second(decision.node), into[0])
    kernels: dict[str, str] = {}
    for node in model.graph.node:
        name = _name(node)
        for output in node.output:
            kernels[output] = found.get(name, f"{node.op_type} {name}, which is part of what is around it")
    return kernels


def _name(node: onnx.NodeProto) -> str:
    """A node's name as the importer has it."""
    return str(node.name or next(filter(None, node.output), node.op_type))


def _second(node: str) -> str:
    """``conv0`` of ``conv2d conv0``."""
    return node.partition(" ")[2]


def _with_outputs(
    model: onnx.ModelProto, names: Collection[str], known: Reference | None = None
) -> onnx.ModelProto:
    """The model with these tensors as its outputs; their types are said where they are ``known``."""
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    del extended.graph.output[:]
    for name in names:
        if known is None:
            extended.graph.output.add(name=name)
        else:
            dtype = onnx.helper.np_dtype_to_tensor_dtype(known[name].dtype)
            extended.graph.output.append(onnx.helper.make_tensor_value_info(name, dtype, None))
    return extended
