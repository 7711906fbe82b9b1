"""ONNX Runtime's session in front of Convoy: ``import convoy.onnx as ort``, and the rest of a script stays.

``InferenceSession(model)`` compiles through the cache, so a second session of the same model is there at
once.  Where a dimension stays open other than the first, the first sizes are compiled when they are seen,
and with the second ones a library for all that follow.
Names that scripts use beside the session are here, too; what they would tune is Convoy's to decide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from convoy.deploy.description import Tensor
from convoy.deploy.dtypes import numpy_dtype
from convoy.deploy.exports import exported_library, sources_of_libraries
from convoy.deploy.inputs import find_misfit, order_by_name
from convoy.deploy.runner import Runner
from convoy.errors import ConvoyError, ModelError
from convoy.offload.settings import make_settings
from convoy.onnx_file import in_utf8, parse_file, tells_sizes
from convoy.options import Options
from convoy.version import __version__

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

PROVIDER = "CPUExecutionProvider"


class GraphOptimizationLevel(IntEnum):
    """ONNX Runtime's levels; Convoy has one."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """ONNX Runtime's modes; Convoy runs one node after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass
class SessionOptions:
    """Settings of a session: ``intra_op_num_threads`` counts, and others are taken and change nothing."""

    intra_op_num_threads: int = 0
    """Threads; 0: the physical cores."""
    inter_op_num_threads: int = 0
    graph_optimization_level: int = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    entries: dict[str, str] = field(default_factory=dict)

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self.entries[key]


@dataclass
class RunOptions:
    """Settings of a run, which are taken and change nothing."""

    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model."""

    name: str
    shape: list[int | str | None]
    """An open dimension is its name, or None."""
    type: str
    """``tensor(float)``, ``tensor(int64)`` and so on."""


@dataclass(frozen=True)
class ModelMetadata:
    """What a model's file says of itself beside its graph; a library keeps nothing of it."""

    producer_name: str = ""
    graph_name: str = ""
    graph_description: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    """Labels, alphabets and what else an exporter left for those who run the model."""


class InferenceSession:
    """A network that is ready to run, in the form in which ONNX Runtime has it.

    Parameters
    ----------
    path_or_bytes : str | os.PathLike[str] | bytes | onnx.ModelProto
        An ONNX model, a file of one, or a library that ``convoy compile`` wrote (``.so``).
    sess_options : SessionOptions | None
        How many threads; those of ONNX Runtime do as well.
    providers, provider_options
        Where ONNX Runtime would compute.  A list without the CPU is refused.
    options : Options | None
        Convoy's own.
    target : str | None
        The CPU, as ``convoy.compile`` takes it.
    **_ : object
        What else ONNX Runtime takes changes nothing.

    Raises
    ------
    ConvoyError
        If the model cannot be read or compiled.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | onnx.ModelProto,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        options: Options | None = None,
        target: str | None = None,
        **_: object,
    ) -> None:
        _check_providers(providers)
        self._options = SessionOptions() if sess_options is None else sess_options
        if not hasattr(self._options, "intra_op_num_threads"):
            problem = f"expected SessionOptions, got an object of type {type(sess_options).__name__}"
            raise ConvoyError("options", "sess_options", problem, "write convoy.onnx.SessionOptions()")
        self._threads = self._options.intra_op_num_threads
        self._target = target
        self._compiling = make_settings("InferenceSession", options, None, None).options
        if self._threads != 0:
            self._compiling = replace(self._compiling, threads=self._threads)
        self._runners: dict[tuple[tuple[int, ...], ...] | None, Runner] = {}
        self._open: Runner | ConvoyError | None = None
        """That for all sizes, or why there is none."""
        self._metadata = ModelMetadata()
        if isinstance(path_or_bytes, (str, os.PathLike)) and Path(path_or_bytes).suffix == ".so":
            runner = Runner(path_or_bytes, threads=self._threads or None)
            self._tensors = runner.inputs
            self._inputs, self._outputs = (
                list(map(_node_arg, tensors)) for tensors in (self._tensors, runner.outputs)
            )
            self._open_inputs: list[int] = []
            self._runners[None] = runner
            return
        model, self._source = _read(path_or_bytes)
        self._metadata = _metadata(model)
        weights = {tensor.name for tensor in model.graph.initializer}
        self._tensors = tuple(_tensor(v) for v in model.graph.input if v.name not in weights)
        self._tells_sizes = tells_sizes(model.graph)
        self._inputs = list(map(_node_arg, self._tensors))
        self._outputs = [_node_arg(_tensor(v)) for v in model.graph.output]
        self._open_inputs = [
            i
            for i, arg in enumerate(self._inputs)
            if any(not isinstance(size, int) for size in arg.shape[1:])
        ]
        if not self._open_inputs:
            self._runners[None] = self._compile(None)
            self._name_shapes()

    def get_inputs(self) -> list[NodeArg]:
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def get_modelmeta(self) -> ModelMetadata:
        return self._metadata

    def get_providers(self) -> list[str]:
        return [PROVIDER]

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: object = None
    ) -> None:
        """Nothing changes: the CPU computes.  A list without it is refused."""
        _check_providers(providers)

    def get_session_options(self) -> Any:
        return self._options

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: object = None,
    ) -> list[NDArray[Any]]:
        """Run the network.

        Parameters
        ----------
        output_names : Sequence[str] | None
            The outputs wanted, in this order; None: all.
        input_feed : Mapping[str, Any]
            Arrays, or lists of numbers, by the inputs' names.
        run_options : object
            Changes nothing.

        Raises
        ------
        ModelError
            If an input or output is none of the model's, or an array does not fit.
        """
        names = [output.name for output in self._outputs]
        wanted = names if output_names is None else list(output_names)
        for name in wanted if wanted is not names else ():
            if name not in names:
                problem = f"expected one of {', '.join(names)}, got {name}"
                raise ModelError("run", "output", problem, "name outputs of the model")
        if not isinstance(input_feed, Mapping):
            problem = (
                f"expected a dict of arrays by name, got an object of type {type(input_feed).__name__}"
            )
            raise ModelError("run", "inputs", problem, "give each input of the model by its name")
        given = order_by_name([tensor.name for tensor in self._tensors], input_feed)
        arrays = [_as_array(t, x) for t, x in zip(self._tensors, given, strict=True)]
        found = self._run(arrays)
        if wanted is names:
            return found
        outputs = dict(zip(names, found, strict=True))
        return [outputs[name] for name in wanted]

    def _run(self, given: list[Any]) -> list[NDArray[Any]]:
        """Run what is compiled for inputs of these sizes, in the model's order.

        Where sizes are open the first ones get a library of their own: a script that has no others is as
        quick as can be.  With the second sizes there is one for all that follow.
        """
        shapes = tuple([np.shape(given[i])[1:] for i in self._open_inputs])
        runner = self._runners.get(shapes or None)
        if runner is not None:
            return runner.run(given)
        misfit = find_misfit(self._tensors, given, written=self._tells_sizes)  # before any compiling
        if misfit is not None:
            raise misfit
        empty = any(0 in shape for shape in shapes)
        if self._runners or empty:
            try:
                return self._for_all_sizes().run(given)
            except ConvoyError:
                if empty:  # no tensor that a model has
                    raise
        known = {self._tensors[i].name: (None, *s) for i, s in zip(self._open_inputs, shapes, strict=True)}
        self._runners[shapes] = self._compile(known)
        return self._runners[shapes].run(given)

    def _for_all_sizes(self) -> Runner:
        if self._open is None:
            try:
                self._open = self._compile(None)
            except ConvoyError as error:
                self._open = error
        if isinstance(self._open, ConvoyError):
            raise self._open
        return self._open

    def _compile(self, shapes: dict[str, tuple[int | None, ...]] | None) -> Runner:
        from convoy.relax.compile import compile

        settings = f"session {self._compiling!r} {self._target} {shapes}"
        source = self._source
        whole = source if isinstance(source, Path) else source.SerializeToString(deterministic=True)
        build = partial(compile, source, self._target, options=self._compiling, shapes=shapes)
        library = exported_library(whole, settings, sources_of_libraries(), build)
        return Runner(library, threads=self._threads or None)

    def _name_shapes(self) -> None:
        """Give outputs whose shape or type the model does not say that of the library."""
        found = self._runners[None].outputs
        for i, (own, tensor) in enumerate(zip(self._outputs, found, strict=True)):
            if not own.shape and tensor.shape:
                own = replace(own, shape=list(tensor.shape))
            self._outputs[i] = (
                own if own.type != _type_name("") else replace(own, type=_type_name(tensor.dtype))
            )


def get_available_providers() -> list[str]:
    """Where networks can run: on the CPU."""
    return [PROVIDER]


get_all_providers = get_available_providers


def get_version_string() -> str:
    """Convoy's version."""
    return __version__


def get_device() -> str:
    """ONNX Runtime's word for it."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Nothing changes: Convoy logs by Python's ``logging``, under the name ``convoy``."""


set_default_logger_verbosity = set_default_logger_severity


def set_seed(seed: int) -> None:
    """Nothing changes: no network draws numbers."""


def disable_telemetry_events() -> None:
    """Nothing changes: Convoy sends nothing."""


enable_telemetry_events = disable_telemetry_events


def _check_providers(providers: Sequence[Any] | None) -> None:
    names = [given if isinstance(given, str) else given[0] for given in providers or ()]
    if names and PROVIDER not in names:
        problem = f"expected {PROVIDER} among the providers, got {', '.join(map(str, names))}"
        raise ModelError("import", "providers", problem, "leave them out: Convoy computes on the CPU")


def _read(given: Any) -> tuple[onnx.ModelProto, Path | onnx.ModelProto]:
    """The model, and what it is compiled from: external data is beside a file."""
    if isinstance(given, (str, os.PathLike)):
        return parse_file(Path(given)), Path(given)
    if isinstance(given, bytes):
        model = onnx.ModelProto()
        try:
            model.ParseFromString(given)
        except Exception as error:  # protobuf's own, of several packages
            problem = f"expected an ONNX model, got {len(given)} bytes that do not parse"
            raise ModelError("import", "bytes", problem, "fetch or export it again") from error
        return model, model
    if isinstance(given, onnx.ModelProto):
        return given, given
    raise ModelError(
        "import",
        type(given).__name__,
        "expected a path, bytes or an onnx.ModelProto, got an object of this type",
        "pass one of them",
    )


def _text(value: str | bytes) -> str:
    """What is no UTF-8 comes as bytes, or as an error, from protobuf."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _metadata(model: onnx.ModelProto) -> ModelMetadata:
    with in_utf8("the model"):
        return ModelMetadata(
            _text(model.producer_name),
            _text(model.graph.name),
            _text(model.graph.doc_string),
            _text(model.domain),
            _text(model.doc_string),
            model.model_version,
            {_text(entry.key): _text(entry.value) for entry in model.metadata_props},
        )


def _tensor(value: onnx.ValueInfoProto) -> Tensor:
    kind = value.type.tensor_type
    shape = tuple(  # exporters write -1 for an open size, too
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
        for dim in kind.shape.dim
    )
    known = kind.elem_type in TensorProto.DataType.values() and kind.elem_type
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).name if known else ""
    return Tensor(value.name, shape if kind.HasField("shape") else None, dtype)


def _node_arg(tensor: Tensor) -> NodeArg:
    return NodeArg(tensor.name, list(tensor.shape or ()), _type_name(tensor.dtype))


def _type_name(dtype: str) -> str:
    """``float32`` as ONNX Runtime writes it: ``tensor(float)``."""
    names = {"float32": "float", "float64": "double", "object": "string"}
    return f"tensor({names.get(dtype, dtype)})"


def _as_array(tensor: Tensor, value: Any) -> Any:
    """What is no array already, such as a list of numbers, becomes one of the input's type."""
    if hasattr(value, "__dlpack__"):
        return value
    try:
        return np.asarray(value, numpy_dtype(tensor.dtype) if tensor.dtype else None)
    except (TypeError, ValueError) as error:
        problem = f"expected an array or numbers, got an object of type {type(value).__name__}"
        raise ModelError("run", tensor.name, problem, "convert it by numpy.asarray") from error
