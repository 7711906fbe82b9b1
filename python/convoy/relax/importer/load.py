"""From an ONNX model to the Relax module that the rest of the road works on."""

from __future__ import annotations

from pathlib import Path

import onnx
import tvm
from tvm import relax

from convoy.errors import ModelError
from convoy.onnx_file import Shapes
from convoy.relax.describe import name_tensors
from convoy.relax.importer.agree import Settled
from convoy.relax.importer.bags import write_bags
from convoy.relax.importer.bodies import write_out, write_out_fused
from convoy.relax.importer.branches import Captured
from convoy.relax.importer.check import check_lengths, check_model, read_shapes
from convoy.relax.importer.direct import COMPLETE
from convoy.relax.importer.draws import forget_seeds
from convoy.relax.importer.evaluate import evaluate_constants, evaluate_shapes
from convoy.relax.importer.frames import write_frames
from convoy.relax.importer.frontend import Chosen, Parted, Unconverted, expand_unknown_ops, import_graph
from convoy.relax.importer.half import widen_half
from convoy.relax.importer.idioms import raise_idioms
from convoy.relax.importer.integers import make_float
from convoy.relax.importer.multiples import Multiple
from convoy.relax.importer.narrow import widen_narrow
from convoy.relax.importer.open_sizes import Unfixed, check_open_sizes, some_sizes
from convoy.relax.importer.prepare import (
    convert_opset,
    drop_empty_operands,
    fix_shapes,
    inline_functions,
    resolve_auto_pad,
    settle_size,
)
from convoy.relax.importer.ranks import take_in
from convoy.relax.importer.read import WITHDRAWN, Model, read
from convoy.relax.importer.repeats import write_repeats
from convoy.relax.importer.rounded import round_wide
from convoy.relax.importer.subgraphs import loop_scans, splice_subgraphs, take_branch
from convoy.relax.importer.whole import surround_bytes
from convoy.report.decision import Report


def load(
    model: str | Path | onnx.ModelProto,
    shapes: Shapes | None = None,
    report: Report | None = None,
    *,
    folder: Path = Path(),
) -> tvm.IRModule:
    """Import an ONNX model: its function ``main``, weights bound, idioms raised.

    Parameters
    ----------
    model : str | Path | onnx.ModelProto
        Path of an ONNX file (external data beside it), or a ``ModelProto`` (left unchanged).
    shapes : Shapes | None
        Sizes for inputs with open dimensions, by input name; None leaves a dimension as it is.
    report : Report | None
        Receives what was converted.
    folder : Path
        Where a ``ModelProto`` has its external data.

    Raises
    ------
    ModelError
        If the model cannot be read, a shape contradicts it, or TVM cannot convert a node.
    """
    network = read(model, folder)
    try:
        return _import(network, read_shapes(shapes), report)
    except Unfixed as error:
        cause = error
    sizes = some_sizes(network)
    raise cause.decide(lambda: _what_fails(read(model, folder), sizes)) from cause.__cause__


def _what_fails(network: Model, shapes: Shapes) -> ModelError | None:
    try:
        _import(network, shapes, None)
    except ModelError as error:
        return error
    return None


def _import(network: Model, shapes: Shapes, report: Report | None) -> tvm.IRModule:
    inputs = [value.name for value in network.inputs()]
    outputs = [value.name for value in network.graph.output]
    inline_functions(network)
    if network.opset < 21:
        write_out(network, WITHDRAWN)
    fix_shapes(network, shapes)
    check_model(network)
    forget_seeds(network)
    evaluate_constants(network)
    convert_opset(network, report)
    write_out_fused(network)
    widen_narrow(network)
    round_wide(network)
    widen_half(network)
    make_float(network)
    module = _convert(network, Captured({}, {}))
    check_open_sizes(module, network)
    check_lengths(network, module)
    # TVM writes no dataflow at all where a model has a branch (0.27)
    module = raise_idioms()(relax.transform.ConvertToDataflow(min_size=1)(module))
    return name_tensors(module, inputs, outputs, network.multiples)


def _convert(network: Model, captured: Captured) -> tvm.IRModule:
    """Convert a model, or a branch of one; forms of ops that TVM cannot convert are written out."""
    first: Unconverted | None = None
    tried: set[str] = set()
    while True:
        _settle(network)
        drop_empty_operands(network)
        resolve_auto_pad(network)
        try:
            module = import_graph(network, captured, _convert)
            looping = any(node.op_type == "Loop" for node in network.graph.node)
            # of dataflow with a branch in it, as a loop is, TVM makes nothing (0.27)
            return relax.transform.ToNonDataflow()(module) if looping else module
        except Chosen as found:
            take_branch(network, found.node, found.condition)
        except Parted as found:
            take_in(network, found.node)
        except Settled as found:
            settle_size(network, found.symbol, found.size)
        except Multiple as found:
            network.multiples[found.symbol] = found.times
        except Unconverted as found:
            first = first or found
            if found.op in tried | COMPLETE or not write_out(network, {found.op}):
                raise first.error from first.__cause__
            tried.add(found.op)


def _settle(network: Model) -> None:
    """Leave only nodes that TVM knows and that depend on what the model is fed, as far as can be."""
    spliced = True
    while spliced:
        expand_unknown_ops(network)
        evaluate_constants(network)
        evaluate_shapes(network)
        write_frames(network)
        write_bags(network)
        write_repeats(network)
        spliced = splice_subgraphs(network)
    surround_bytes(network)
    loop_scans(network)
