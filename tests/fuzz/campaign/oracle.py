"""What a network must give: ONNX Runtime without optimisations, and float64 where rounding is the question.

Runs in a worker of ``.venv``; what it finds goes to the doors as files, because classic TVM's environment
has no ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from convoy.bench.integers import products_saturate, write_out_products
from convoy.graph.dtypes import round_bfloat16, widen_bfloat16
from convoy.options import Precision
from fuzz.campaign.arrays import read_arrays, write_arrays
from fuzz.campaign.compare import PROMISE, find_difference, relative_error
from fuzz.networks.bundle import draw_inputs, is_quantised
from fuzz.networks.make import FEWEST, draw_form, make_network
from fuzz.networks.quantised import quantise, with_all_outputs
from fuzz.networks.ties import slack
from fuzz.networks.twins import make_twin

NETWORKS = 24
"""In a bundle."""
TWINS = 4
"""How many of them are also there written another way."""
MOST_BFLOAT16 = 0.03
"""Error of bf16, of the largest output, that rounding inside of a network may be worth."""
MOST_ROUNDING = 5.0
"""Times the error of ONNX Runtime's own float32 that an error past the promise may be, against float64."""


def prepare(task: tuple[int, int, str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Draw a bundle: a model file and a file of inputs and expected outputs for each network, by number.

    Parameters
    ----------
    task : tuple[int, int, str, tuple[str, ...]]
        The campaign's seed, the bundle's number, the folder for the files, and the fields
        of ``Form`` that hold of all its networks.

    Returns
    -------
    list[dict[str, Any]]
        For each network its ``number``, ``name``, ``nodes`` and what it is ``of`` (the number of the
        network it is a twin of, or None); ``refused`` instead where ONNX Runtime does not run it.
    """
    seed, bundle, folder, always = task
    rng = np.random.default_rng([seed, bundle])
    form = replace(draw_form(rng), **dict.fromkeys(always, True))
    found: list[dict[str, Any]] = []
    for i in range(NETWORKS):
        number = bundle * NETWORKS + i
        model = make_network([seed, number], form)
        if form.quantised:
            model = quantise_network(model, np.random.default_rng([seed, number, 1]))
        nodes = sum(node.op_type != "Constant" for node in model.graph.node)
        assert nodes >= FEWEST
        refused = write_job(model, Path(folder), i)
        found.append({"number": i, "name": str(number), "nodes": nodes, "of": None, "refused": refused})
    for i in range(TWINS):
        model = onnx.load(Path(folder) / f"{i}.onnx")
        twin = None if found[i]["refused"] else make_twin(model, np.random.default_rng([seed, bundle, i]))
        if twin is not None:
            number = NETWORKS + i
            refused = write_job(twin, Path(folder), number, like=i)
            found.append(
                {**found[i], "number": number, "name": f"{found[i]['name']}t", "of": i, "refused": refused}
            )
    return found


def quantise_network(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """The model quantised; itself where ONNX Runtime does not run it."""
    whole, inputs = with_all_outputs(model), draw_inputs(model)
    try:
        made = run_plainly(whole, inputs)
    except Exception:  # whatever it says, it says again of the network itself
        return model
    values = dict(zip((v.name for v in whole.graph.output), made, strict=True))
    return quantise(
        model, rng, values | dict(zip((v.name for v in model.graph.input), inputs, strict=True))
    )


def write_job(model: onnx.ModelProto, folder: Path, number: int, like: int | None = None) -> str | None:
    """Write a model, its inputs, and what ONNX Runtime makes of them, for the doors.

    Parameters
    ----------
    like : int | None
        The network whose outputs it must give; None: its own.

    Returns
    -------
    str | None
        Why it cannot be run; None if it can.
    """
    onnx.save(model, folder / f"{number}.onnx")
    inputs = draw_inputs(model)
    try:
        outputs = run_plainly(model, inputs)
    except Exception as problem:  # whatever ONNX Runtime says is why
        return " ".join(str(problem).split())
    if not all(np.isfinite(array).all() for array in outputs):
        return "values that are not finite"
    if like is not None:
        expected = read_arrays(folder / f"{like}.npz")[1]
        difference = find_difference(outputs, expected)
        if difference is not None and not are_ties(model, inputs, outputs, expected):
            return f"a twin that differs: {difference}"
        outputs = expected
    write_arrays(folder / f"{number}.npz", inputs, outputs)
    return None


def check_job(task: tuple[str, int]) -> str | None:
    """``write_job`` of a model that is there already, and valid for ONNX's checker."""
    folder, number = task
    model = onnx.load(Path(folder) / f"{number}.onnx")
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as problem:
        return str(problem)
    return write_job(model, Path(folder), number)


def run_plainly(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    if products_saturate():
        model = write_out_products(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    outputs: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
    return outputs


def is_rounding(task: tuple[str, int, str, Precision]) -> bool:
    """Whether the outputs of a door, which break the promise, are as near to float64 as ONNX Runtime's.

    Of a quantised network: whether ties are why.

    Parameters
    ----------
    task : tuple[str, int, str, Precision]
        Folder and number of the network, file of the door's outputs, what it computed in.
    """
    folder, number, got_file, precision = task
    model = onnx.load(Path(folder) / f"{number}.onnx")
    inputs, expected = read_arrays(Path(folder) / f"{number}.npz")
    got = read_arrays(Path(got_file))[1]
    if [a.shape for a in got] != [b.shape for b in expected]:
        return False
    if precision == "bf16":
        return is_rounding_to_bfloat16(model, inputs, got, expected)
    if is_quantised(model):
        return are_ties(model, inputs, got, expected)
    try:
        exact = run_in_double(model, inputs)
    except Exception:  # the reference does not know the op, or knows it otherwise
        return False
    for a, b, c in zip(got, expected, exact, strict=True):
        if b.size == 0 or not np.isfinite(c).all():
            continue
        if not np.isfinite(a).all():
            return False
        scale = max(float(np.abs(c).max()), 1e-30)
        ours, theirs = (
            float(np.abs(v - c).max()) / scale for v in (a.astype(np.float64), b.astype(np.float64))
        )
        if ours > PROMISE and ours > MOST_ROUNDING * theirs:
            return False
    return True


def is_rounding_to_bfloat16(
    model: onnx.ModelProto,
    inputs: Sequence[np.ndarray],
    got: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> bool:
    """Whether outputs differ by a few times as much as rounding the weights and inputs alone is worth."""
    rounded = onnx.ModelProto()
    rounded.CopyFrom(model)
    for tensor in rounded.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(
                numpy_helper.from_array(_to_bfloat16(numpy_helper.to_array(tensor)), tensor.name)
            )
    worth = run_plainly(rounded, [_to_bfloat16(x) if x.dtype == np.float32 else x for x in inputs])
    for a, b, c in zip(got, expected, worth, strict=True):
        bound = MOST_BFLOAT16 + MOST_ROUNDING * relative_error(c, b)
        if not np.isfinite(a).all() or relative_error(a, b) > bound:
            return False
    return True


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    return widen_bfloat16(round_bfloat16(np.ascontiguousarray(values))).reshape(values.shape)


def are_ties(
    model: onnx.ModelProto,
    inputs: Sequence[np.ndarray],
    got: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> bool:
    """Whether outputs differ by no more than what ties of a quantised network's rounding are worth."""
    if not is_quantised(model):
        return False
    for a, b, most in zip(got, expected, slack(model, inputs, expected, run_plainly), strict=True):
        if np.isfinite(a).all() != np.isfinite(b).all():
            return False
        bound = PROMISE * max(float(np.abs(b).max(initial=0)), 1e-30)
        if not (np.abs(a.astype(np.float64) - b) <= most + bound).all():
            return False
    return True


def run_in_double(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of ONNX's reference in float64, from the same float32 numbers."""
    double = onnx.ModelProto()
    double.CopyFrom(model)
    for tensor in double.graph.initializer:
        _widen(tensor)
    for node in double.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
    for value in (*double.graph.input, *double.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    names = [value.name for value in double.graph.input]
    wide = [array.astype(np.float64) for array in inputs]
    outputs: list[np.ndarray] = ReferenceEvaluator(double).run(None, dict(zip(names, wide, strict=True)))
    return outputs


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        )
